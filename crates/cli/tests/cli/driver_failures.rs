//! A driver that hangs, is slow or denies the process list of a device: missing information is
//! reported with its reason.

use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};

/// The process list of GPU 1 is not permitted.
const REFUSED: &str = "nvmlDeviceGetComputeRunningProcesses_v3=4,gpu=1";
/// Hangs at GPU 1, so that GPUs 2 and 3 are not queried.
const HANGS: &str = "nvmlDeviceGetTemperature=hang,gpu=1";

/// In seconds: long enough for a busy machine to reach the call that hangs.
const DEADLINE: &str = "3";

/// Runs gpuws on the simulated NVML of a machine with four GPUs, all in use, with a fault.
fn with(fault: &str, words: &[&str]) -> Output {
    let own = env!("CARGO_BIN_EXE_gpuws");
    let mut command = Command::new(own);
    command.args(["sim", "healthy-box", "--fault", fault, "--", own, "--deadline", DEADLINE]);
    command.args(words).env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION");
    command.env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

/// Returns the output with normalised white space.
fn output_text(output: &Output) -> String {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn gpus(output: &Output) -> Vec<Value> {
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["gpus"].as_array().unwrap().clone()
}

#[test]
fn doctor_reports_refused_process_list() {
    let output = with(REFUSED, &["doctor"]);
    let text = output_text(&output);
    assert!(text.contains("GPU 1: users of it unknown: failed to query GPU 1 for its"), "{text}");
    assert!(text.contains("insufficient permissions"), "{text}");
    let other = output_text(&with(REFUSED, &["doctor", "--gpu", "0"]));
    assert!(!other.contains("unknown"), "GPU 0 was asked for alone: {other}");

    let answer: Value =
        serde_json::from_slice(&with(REFUSED, &["doctor", "--json"]).stdout).unwrap();
    let unknown = answer["unknown_users"].as_array().unwrap();
    assert_eq!(unknown.iter().map(|one| &one["gpu"]["index"]).collect::<Vec<_>>(), [1]);
    assert!(
        unknown[0]["error"]["what"].as_str().unwrap().contains("insufficient permissions"),
        "{answer}"
    );
}

#[test]
fn status_reports_refused_process_list() {
    let text = output_text(&with(REFUSED, &["status"]));
    assert!(text.contains("GPU 1: users of it unknown: failed to query GPU 1 for its"), "{text}");
    assert!(text.contains("nvidia1 nvidiactl nvidia-uvm mapped"), "{text}");
    assert!(!text.contains("not listed"), "whether it is listed is not known: {text}");

    for (fault, line) in [(REFUSED, "\n\nGPU 1: users of it unknown: "), (HANGS, "\n\nno answer: ")]
    {
        let output = with(fault, &["status", "--quiet"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches(line).count(), 1, "below the devices: {text}");
    }
    let gpus = gpus(&with(REFUSED, &["status", "--json"]));
    assert_eq!(gpus[1]["absent"]["processes"], "not-permitted");
    assert!(gpus[1]["error"]["what"].as_str().unwrap().contains("GPU 1"), "{}", gpus[1]);
    let user = &gpus[1]["processes"][0];
    assert_eq!((&user["pid"], &user["listed"]), (&json!(21050), &Value::Null));
    assert_eq!(user["absent"]["listed"], "not-permitted");
    assert_eq!(gpus[0]["processes"][0]["listed"], true);
    assert_eq!((&gpus[0]["error"], &gpus[0]["absent"]["processes"]), (&Value::Null, &Value::Null));
}

#[test]
fn lost_device_in_process_list_is_a_finding() {
    let output = with("nvmlDeviceGetComputeRunningProcesses_v3=15,gpu=1", &["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let text = output_text(&output);
    assert!(text.contains("DEVICE FAULT GPU 1 "), "{text}");
    assert!(!text.contains("users of it unknown"), "the finding says it: {text}");
}

#[test]
fn hang_does_not_blame_later_devices() {
    let output = with(HANGS, &["doctor"]);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("DEVICE FAULT GPU 1 "), "{text}");
    assert!(text.contains("GPUs 2, 3 were not queried"), "{text}");
    let (longer, log) = (text.find("next gpuws --deadline"), text.find("or sudo dmesg"));
    assert!(longer.is_some() && longer < log, "more time comes before the kernel log: {text}");
    assert!(!text.contains("the card is faulty"), "{text}");

    let behind = output_text(&with(HANGS, &["doctor", "--gpu", "3"]));
    assert!(behind.contains("GPU 3: users of it unknown: failed to get an answer"), "{behind}");
    assert!(behind.contains("0 findings.") && !behind.contains("No problems found"), "{behind}");
}

#[test]
fn json_names_hanging_call() {
    let gpus = gpus(&with(HANGS, &["status", "--json"]));
    assert_eq!(gpus[0]["error"], Value::Null);
    for gpu in &gpus[1..] {
        let what = gpu["error"]["what"].as_str().unwrap();
        assert!(what.contains("nvmlDeviceGetTemperature of GPU 1 did not return"), "{what}");
        assert_eq!(gpu["processes"][0]["absent"]["listed"], "no-answer", "{gpu}");
    }
}

#[test]
fn query_names_silent_devices_and_exits_with_deadline_code() {
    let fields = ["--query-gpu=index,uuid,memory.used", "--format=csv,noheader"];
    for function in ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUUID"] {
        let fault = format!("{function}=hang,gpu=2");
        let ask = |more: &[&str]| with(&fault, &[&["query"], &fields[..], more].concat());
        let output = ask(&[]);
        let rows = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<&str> = rows.lines().collect();
        assert_eq!(rows.len(), 4, "{rows:?}");
        assert!(rows.iter().all(|row| row.contains(", GPU-")), "{rows:?}");
        assert!(rows[1].ends_with("MiB") && rows[3].ends_with("[Unknown Error]"), "{rows:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        let what = format!(
            "GPUs 2, 3 did not answer: failed to get an answer from the driver within {DEADLINE} s: \
             {function} of GPU 2 did not return"
        );
        assert!(errors.contains(&what), "{errors}");
        assert_eq!(output.status.code(), Some(5));

        // It may be possible to query one of them.
        let uuid = rows[3].split(", ").nth(1).unwrap();
        let output = ask(&["-i", uuid]);
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), rows[3]);
    }
}

#[test]
fn query_never_skips_device_with_unknown_processes() {
    let ask = |fault| with(fault, &["query", "--query-compute-apps=pid", "--format=csv,noheader"]);
    let hangs = ask(HANGS);
    assert_eq!(hangs.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{hangs:?}");
    let errors = String::from_utf8(hangs.stderr).unwrap();
    assert!(errors.contains("GPUs 1–3 did not answer"), "{errors}");
    assert_eq!(hangs.status.code(), Some(5));
    let refused = ask(REFUSED);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("GPU 1 did not answer"));
    assert_eq!(refused.status.code(), Some(3));
}
