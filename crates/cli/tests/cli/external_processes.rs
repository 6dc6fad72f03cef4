//! Real processes that start to use the devices of a session.

use std::process::{Command, Output, Stdio};

/// Runs a shell script in a live session, with gpuws as `$0` and the program that uses devices as
/// `$ACTOR`.
fn script(machine: &str, script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(["sim", machine, "--live", "--", "sh", "-c"]);
    let begin = "set -e; ACTOR=$GPUWS_SIM_SESSION/nvml-sim-process\n\
                 appear() { \"$ACTOR\" \"$@\" & PID=$!\n\
                 until [ -e $GPUWS_SIM_SESSION/walk-ons/$PID-* ]; do sleep 0.02; done; }\n";
    command.arg(format!("{begin}{script}")).arg(env!("CARGO_BIN_EXE_gpuws"));
    command.env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION");
    command.env_remove("CUDA_VISIBLE_DEVICES").env("NO_COLOR", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.code().is_some(), "ended by a signal: {output:?}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn external_process_appears_with_owner_memory_and_files() {
    let output = script(
        "labbox",
        "appear --use 1:1000 --load 40 --name trainer\n\
         \"$0\" status --json; kill $PID; echo $PID >&2",
    );
    let (status, output_text) = (json(&output), text(&output.stderr));
    let pid: u64 = output_text.lines().last().unwrap().parse().unwrap();
    let device = &status["gpus"][1];
    assert_eq!(device["memory_used_bytes"], 1004_u64 << 20, "{device}");
    let [process] = &device["processes"].as_array().unwrap()[..] else { panic!("{device}") };
    assert_eq!(process["pid"], pid, "{process}");
    assert_eq!(process["memory_bytes"], 1000_u64 << 20, "{process}");
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(process["uid"], uid, "{process}");
}

#[test]
fn machine_without_recorded_processes_accepts_external_ones() {
    // There are no placeholders, so every visible process is external.
    let output = script(
        "driver-leak",
        "appear --use 0:500 --name trainer\n\"$0\" holders; kill -9 $PID; echo $PID >&2",
    );
    let (output_text, reported) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let pid = reported.lines().last().unwrap();
    let line = output_text
        .lines()
        .find(|line| line.contains(pid))
        .unwrap_or_else(|| panic!("{output_text}"));
    assert!(line.contains("trainer"), "{output_text}");
}

#[test]
fn external_process_can_be_reaped_and_memory_freed() {
    let output = script(
        "labbox",
        "appear --use 1:1000 --name trainer\n\"$0\" reap --pid $PID --grace 5 --yes",
    );
    let output_text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output_text.contains("trainer") && output_text.contains("SIGTERM"), "{output_text}");
    assert!(output_text.contains("1,004 → 4 MiB"), "{output_text}");
}

#[test]
fn forged_registration_does_not_allow_killing() {
    // A file of the session names an unrelated process.
    let output = script(
        "labbox",
        "sleep 600 & PID=$!; START=$(cut -d' ' -f22 /proc/$PID/stat)\n\
         echo '{\"pid\":'$PID',\"start_ticks\":'$START',\"uses\":[{\"gpu\":1,\"mib\":9}]}' \
             >$GPUWS_SIM_SESSION/walk-ons/$PID-$START\n\
         \"$0\" status --json\n\
         \"$0\" reap --pid $PID --grace 0 --yes >&2 && exit 90\n\
         kill $PID",
    );
    let (status, output_text) = (json(&output), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "it was there to be killed: {output:?}");
    assert_eq!(
        status["gpus"][1]["memory_used_bytes"],
        13_u64 << 20,
        "it is believed: {output_text}"
    );
}

#[test]
fn external_processes_require_live_mode() {
    let own = env!("CARGO_BIN_EXE_gpuws");
    let output = Command::new(own)
        .args(["sim", "labbox", "--", "sh", "-c", "ls $GPUWS_SIM_SESSION"])
        .env_remove("GPUWS_SIM_SESSION")
        .output()
        .unwrap();
    let output_text = text(&output.stdout);
    assert!(
        output_text.contains("session.json") && !output_text.contains("walk-ons"),
        "{output:?}"
    );
}
