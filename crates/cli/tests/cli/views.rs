//! Views of the devices: selected processes and columns, lists and streams as nvidia-smi prints
//! them.

use crate::golden::{hold, transcript};
use crate::live::{GPUWS, out};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn gpuws(words: &str) -> Output {
    let mut command = Command::new(GPUWS);
    command.args(words.split(' ')).env("NO_COLOR", "1").env("TZ", "UTC");
    command.env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION");
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the transcripts of several commands.
fn transcripts(commands: &[&str]) -> String {
    let each = commands.iter().map(|words| transcript(&words.split(' ').collect::<Vec<_>>()));
    each.collect::<Vec<_>>().join("\n")
}

#[test]
fn filter_leaves_out_processes_and_counts_them() {
    let commands = [
        "--sim shared-lab --user dave,1006 --quiet",
        "--sim shared-lab --mine -i 5-7",
        "--sim shared-lab --pid 18310,18500 --user erin -i 2",
        "--sim p100-ghost --user nobody",
    ];
    hold("views.filter.txt", transcripts(&commands));
    let json = out(&gpuws("--sim shared-lab status --user dave --holders --json"));
    let status: Value = serde_json::from_str(&json).unwrap();
    let all: Value = serde_json::from_str(&out(&gpuws("--sim shared-lab --json"))).unwrap();
    let rows = |status: &Value| -> Vec<u64> {
        let gpus = status["gpus"].as_array().unwrap().iter();
        let processes = gpus.flat_map(|gpu| gpu["processes"].as_array().unwrap());
        processes.map(|process| process["pid"].as_u64().unwrap()).collect()
    };
    assert_eq!(rows(&status), [18310, 18411]);
    let left_out = rows(&all).len() - 2;
    assert_eq!(status["left_out_process_count"], left_out);
    assert_eq!(all["left_out_process_count"], Value::Null);
    assert_eq!(status["gpus"][1]["memory_unexplained_bytes"], 0, "memory of others is explained");
    let holders = status["holders"].as_array().unwrap().iter();
    assert!(holders.clone().count() > 0 && holders.clone().all(|holder| holder["user"] == "dave"));
    let details = out(&gpuws("--sim shared-lab -q -i 2 --pid 18411"));
    assert!(details.contains("Process ID 18411") && !details.contains("Process ID 18310"));
    assert!(details.ends_with("\nfilter: only processes with PID 18411; 2 rows left out\n"));
}
