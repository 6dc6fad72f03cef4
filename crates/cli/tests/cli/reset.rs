//! `gpuws reset` through the real backend on a simulated NVML: unknown does not count as unused.

use serde_json::json;
use std::process::{Command, Output, Stdio};

/// Runs `gpuws reset` in a session of a machine with stopped time.
fn reset(sim: &[&str], arguments: &[&str]) -> Output {
    let own = env!("CARGO_BIN_EXE_gpuws");
    let mut command = Command::new(own);
    command.arg("sim").args(sim).args(["--at", "0", "--", own, "reset"]).args(arguments);
    command.env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION").env("NO_COLOR", "1");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.code().is_some(), "ended by a signal: {output:?}");
    output
}

fn reported(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn gpu_with_unknown_links_cannot_be_reset() {
    let healthy = reset(&["labbox"], &["1", "--json"]);
    assert_eq!(reported(&healthy)["linked_gpus_by_index"], json!([0, 2, 3]), "{healthy:?}");
    for (fault, deadline) in [
        ("nvmlDeviceGetNvLinkState=999", "30"),
        ("nvmlDeviceGetNvLinkState=15", "30"),
        ("nvmlDeviceGetNvLinkState=13", "30"),
        ("nvmlDeviceGetNvLinkRemotePciInfo_v2=999", "30"),
        ("nvmlDeviceGetNvLinkRemotePciInfo_v2=3", "30"),
        ("nvmlDeviceGetPciInfo_v3=999", "30"),
        ("nvmlDeviceGetMemoryInfo_v2=hang,gpu=2", "1"),
    ] {
        let of = |more: &[&str]| {
            let arguments = [&["1", "--deadline", deadline], more].concat();
            reset(&["labbox", "--fault", fault], &arguments)
        };
        let output = of(&[]);
        let output_text = String::from_utf8(output.stdout).unwrap();
        assert!(!output_text.contains("can be reset"), "{fault}: {output_text}");
        assert!(
            output_text.contains("unknown: cannot determine which GPUs share NVLink"),
            "{fault}: {output_text}"
        );
        let output = of(&["--json", "--yes"]);
        let reported = reported(&output);
        assert_eq!(reported["possible"], false, "{fault}: {reported}");
        assert_eq!(reported["done"], json!(null), "{fault}: {reported}");
        assert_eq!(reported["linked_gpus_by_index"], json!(null), "{fault}: {reported}");
        assert!(reported["unknown"].is_string(), "{fault}: {reported}");
        let nobody = reported["blockers"].as_array().unwrap().is_empty();
        assert_eq!(output.status.code(), Some(if nobody { 4 } else { 1 }), "{fault}: {reported}");
    }
}

#[test]
fn reset_where_the_driver_asks_for_a_reboot_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let machine = "description = 'made: a device that needs a reboot'\n\
        clock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 100\n\
        details.reset_status = { recovery = 'reboot' }\n";
    std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
    let output = reset(&[dir.path().to_str().unwrap()], &["0"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("note: the driver requests a reboot of the machine"), "{text}");
}

#[test]
fn link_reported_by_one_end_suffices() {
    for fault in [
        "nvmlDeviceGetNvLinkState=999,gpu=1",
        "nvmlDeviceGetNvLinkState=3,gpu=1",
        "nvmlDeviceGetMemoryInfo_v2=lose:1",
    ] {
        let output = reset(&["labbox", "--fault", fault], &["1", "--json"]);
        let reported = reported(&output);
        assert_eq!(reported["linked_gpus_by_index"], json!([0, 2, 3]), "{fault}: {reported}");
        assert_eq!(reported["possible"], false, "their users are in the way: {fault}: {reported}");
        assert_eq!(output.status.code(), Some(1), "{fault}: {reported}");
    }
}

#[test]
fn lost_peer_may_be_linked() {
    for fault in ["nvmlDeviceGetMemoryInfo_v2=lose:1", "nvmlDeviceGetMemoryInfo_v2=hang,gpu=1"] {
        let arguments = ["0", "--deadline", "1", "--json"];
        for machine in ["orphan-worker", "gtx1080ti-x8-kill"] {
            let reported = reported(&reset(&[machine, "--fault", fault], &arguments));
            assert_eq!(
                reported["linked_gpus_by_index"],
                json!(null),
                "{machine}, {fault}: {reported}"
            );
            assert_eq!(reported["possible"], false, "{machine}, {fault}: {reported}");
        }
    }
}

#[test]
fn reset_with_hidden_processes_exits_as_not_permitted() {
    let text = "description = 'made: an idle device'\nclock = 2025-03-03T10:00:00Z\n\
                [viewer]\nuid = 1001\nuser = 'alice'\n[driver]\nversion = '535.261.03'\n\
                cuda = '12.2'\n[[gpu]]\nindex = 0\nmemory_total_mib = 100\n";
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("box");
    std::fs::create_dir(&machine).unwrap();
    std::fs::write(machine.join("machine.toml"), text).unwrap();
    let gpuws = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
        command.arg("--sim").arg(&machine).args(words).env("NO_COLOR", "1").output().unwrap()
    };
    for words in [&["reset", "0"][..], &["reset", "0", "--yes"]] {
        let refused = gpuws(words);
        let output_text = String::from_utf8(refused.stdout).unwrap();
        assert_eq!(refused.status.code(), Some(4), "{output_text}");
        assert!(output_text.contains("unknown: 1 process could not be inspected"), "{output_text}");
        assert!(output_text.ends_with("\nGPU 0 was not reset\n"), "{output_text}");
    }
}

#[test]
fn blockers_are_reported_before_unsupported_reset() {
    let output = reset(&["labbox"], &["0", "--yes", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(reported(&output)["done"], json!(null));
    // Without blockers, the driver is called, which cannot reset a simulated device.
    let output = reset(&["driver-leak"], &["0", "--yes", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(reported(&output)["done"], json!(false));
}
