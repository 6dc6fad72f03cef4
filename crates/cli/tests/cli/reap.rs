//! `gpuws reap` on real processes: only memory of the targets counts as freed.

use crate::live::{out, reported, script};
use std::process::Output;

/// A device with two processes of the same size that the driver lists.
fn machine(leaks: bool) -> String {
    format!(
        r#"description = "made: two trainers on one device"
hostname = "lab1"
clock = 2025-03-03T10:00:00Z

[driver]
version = "535.261.03"
cuda = "12.2"

[[gpu]]
index = 0
name = "NVIDIA A100-SXM4-40GB"
memory_total_mib = 40960
driver_reserve_mib = 4

[[process]]
pid = 1001
name = "target"
uid = 1000
memory = [{{ gpu = 0, mib = 6000 }}]
leaks_memory = {leaks}

[[process]]
pid = 1002
name = "neighbour"
uid = 1000
memory = [{{ gpu = 0, mib = 6000 }}]
"#
    )
}

/// Ends the target with gpuws, and the neighbour 0.3 s after the target has ended.
fn reap(leaks: bool) -> (Output, serde_json::Value) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("machine.toml"), machine(leaks)).unwrap();
    let output = script(
        dir.path().to_str().unwrap(),
        r#"pid() { "$0" query --query-compute-apps=pid,process_name --format=csv,noheader \
             | sed -n "s/, $1\$//p"; }
           lives() { case "$(cut -d ' ' -f 3 /proc/$1/stat 2> /dev/null)" in ''|Z) false;; esac; }
           target=$(pid target); neighbour=$(pid neighbour); n=0
           (while lives $target; do n=$((n+1)); [ $n -lt 2000 ] || exit; sleep 0.02; done
            sleep 0.3; kill -9 $neighbour) &
           "$0" reap --pid $target --grace 5 --json --yes; echo $? >&2; wait
           ! lives $neighbour && echo neighbour ended >&2"#,
    );
    let report = serde_json::from_str(&out(&output)).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output, report)
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_of_exiting_neighbour_does_not_hide_leak_of_target() {
    let (output, report) = reap(true);
    assert!(reported(&output).ends_with("1\nneighbour ended\n"), "{output:?}");
    let memory = &report["report"]["memory"][0];
    assert_eq!(memory["freed_bytes"], 0, "{report}");
    assert_eq!(memory["by_others_bytes"], 6000 * MIB, "{report}");
    assert_eq!(memory["came_back"], false, "{report}");
}

#[test]
fn memory_of_target_is_counted_once_if_neighbour_exits() {
    let (output, report) = reap(false);
    assert!(reported(&output).ends_with("0\nneighbour ended\n"), "{output:?}");
    let memory = &report["report"]["memory"][0];
    assert_eq!(
        (&memory["freed_bytes"], &memory["came_back"]),
        (&(6000 * MIB).into(), &true.into())
    );
}

#[test]
fn part_of_the_expected_memory_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let text = machine(false).replacen(
        "\n[[process]]\npid = 1002",
        "on_kill = \"stuck\"\n\n[[process]]\npid = 1002",
        1,
    );
    std::fs::write(dir.path().join("machine.toml"), text).unwrap();
    let mut command = std::process::Command::new(crate::live::GPUWS);
    command.arg("--sim").arg(dir.path()).args(["reap", "--pid", "1001,1002", "--yes"]);
    let output = command.env("NO_COLOR", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output_text = out(&output);
    assert!(output_text.contains("they are still running\n"), "{output_text}");
    let line = "freed 6,000 MiB of 12,000 MiB; the rest was not freed\n";
    assert!(output_text.contains(line), "{output_text}");
}
