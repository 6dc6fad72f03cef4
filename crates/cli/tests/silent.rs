//! What the views say of devices that a driver stops to answer for.

use std::process::{Command, Output};

/// Runs gpuws on a machine whose driver hangs in a function at GPU 2.
fn hanging(function: &str, words: &[&str]) -> Output {
    let gpuws = env!("CARGO_BIN_EXE_gpuws");
    let fault = format!("{function}=hang,gpu=2");
    let mut command = Command::new(gpuws);
    command.args(["sim", "labbox", "--fault", &fault, "--", gpuws, "--deadline", "0.5"]);
    command.args(words).env("NO_COLOR", "1").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn query_names_the_devices_that_were_not_asked_and_ends_with_the_deadlines_code() {
    for function in ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUUID"] {
        let fields = "--query-gpu=index,uuid,memory.used";
        let output = hanging(function, &["query", fields, "--format=csv,noheader"]);
        let rows = text(&output.stdout);
        let rows: Vec<&str> = rows.lines().collect();
        assert_eq!(rows.len(), 4, "{rows:?}");
        assert!(rows.iter().all(|row| row.contains(", GPU-")), "{rows:?}");
        assert!(rows[1].ends_with("MiB") && rows[3].ends_with("[Unknown Error]"), "{rows:?}");
        let said = text(&output.stderr);
        let what = format!(
            "GPUs 2, 3 did not answer: failed to get an answer from the driver \
                            within 0.5 s: {function} of GPU 2 did not return"
        );
        assert!(said.contains(&what), "{said}");
        assert_eq!(output.status.code(), Some(5));

        // One of them can be named all the same.
        let uuid = rows[3].split(", ").nth(1).unwrap();
        let output = hanging(function, &["query", fields, "--format=csv,noheader", "-i", uuid]);
        assert_eq!(text(&output.stdout).trim(), rows[3]);
    }
}

#[test]
fn query_never_passes_over_a_device_whose_processes_are_not_known() {
    let fields = "--query-compute-apps=pid,gpu_uuid";
    let output = hanging("nvmlDeviceGetMemoryInfo_v2", &["query", fields, "--format=csv,noheader"]);
    assert_eq!(text(&output.stdout).lines().count(), 1, "of GPU 0: {output:?}");
    assert!(text(&output.stderr).contains("GPUs 2, 3 did not answer"), "{output:?}");
    assert_eq!(output.status.code(), Some(5));
}
