//! The pods of processes, from a stand-in for the kubelet, on a machine whose processes are in
//! pods.

#[path = "../../../kubelet/tests/integration/stand_in.rs"]
#[expect(dead_code, reason = "gpu-kubelet's own tests use the rest of it")]
mod stand_in;

use crate::program::machine_from;
use serde_json::Value;
use stand_in::{ALPHA, Answer, LIST, StandIn, container, pod, resources};
use std::path::Path;
use std::process::{Command, Output};

const UID: &str = "2f44e1c1-8a5b-4c0e-9d0e-5f3b6a7c8d9e";
const CONTAINER: &str = "6f1d2c3b4a5968778695a4b3c2d1e0f0123456789abcdef0123456789abcdef0";

/// The machine `container-ghost` with the ghost in a pod instead of a container.
fn node() -> tempfile::TempDir {
    machine_from("container-ghost", |text| {
        let cgroup = format!("/kubepods/burstable/pod{UID}/{CONTAINER}");
        let lines = text.lines().map(|line| match line.split(" = ").next() {
            Some("workload") => format!("workload = {{ kind = \"pod\", id = \"{UID}\" }}"),
            Some("cgroup") if line.contains(CONTAINER) => format!("cgroup = \"{cgroup}\""),
            _ => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn gpuws(machine: &Path, kubelet: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.arg("--sim").arg(machine).args(words).env("GPUWS_KUBELET", kubelet);
    command.output().expect("gpuws runs")
}

/// Returns the pod of the first suspect of the first finding that has one.
fn suspect_pod(output: &Output) -> Value {
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = found["findings"].as_array().expect("findings").iter();
    let suspects = findings.filter_map(|finding| finding["suspects"].as_array()).flatten();
    let in_pod = |suspect: &&Value| suspect["workload"]["kind"] == "pod";
    suspects.into_iter().find(in_pod).expect("a suspect in a pod")["pod"].clone()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The UUIDs of the devices that the ghost holds.
fn held(machine: &Path) -> Vec<String> {
    let status = gpuws(machine, Path::new("/nonexistent"), &["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let gpus = status["gpus"].as_array().expect("GPUs");
    gpus.iter().map(|gpu| gpu["uuid"].as_str().expect("a UUID").to_owned()).collect()
}

#[test]
fn ghost_in_a_pod_is_named_and_the_advice_deletes_its_pod() {
    let dir = node();
    let machine = dir.path().join("box");
    let listed = Answer::list(vec![pod("lab", "train-0", UID, &[("main", CONTAINER)])], ALPHA);
    let kubelet = StandIn::new(None, Some(listed));
    let found = gpuws(&machine, kubelet.dir(), &["doctor", "--json"]);
    let expected = serde_json::json!({
        "namespace": "lab", "name": "train-0", "container": "main", "evidence": "uid",
    });
    assert_eq!(suspect_pod(&found), expected, "{}", text(&found.stderr));
    let found = gpuws(&machine, kubelet.dir(), &["doctor"]);
    let shown = text(&found.stdout);
    assert!(shown.contains("kubectl delete pod -n lab -- train-0"), "{shown}");
    assert!(shown.contains("pod lab/train-0 (main)"), "{shown}");
}

#[test]
fn pod_identified_by_devices_is_shown_but_not_deleted_by_name() {
    let dir = node();
    let machine = dir.path().join("box");
    let uuids = held(&machine);
    let uuids: Vec<&str> = uuids.iter().map(String::as_str).collect();
    let its = resources("lab", "train-0", vec![container("main", "nvidia.com/gpu", &uuids)]);
    let kubelet = StandIn::new(Some(Answer::list(vec![its], LIST)), None);
    let found = gpuws(&machine, kubelet.dir(), &["doctor", "--json"]);
    assert_eq!(suspect_pod(&found)["name"], "train-0");
    assert_eq!(suspect_pod(&found)["evidence"], "devices");
    let shown = text(&gpuws(&machine, kubelet.dir(), &["doctor"]).stdout);
    assert!(!shown.contains("kubectl delete"), "{shown}");
    let words: Vec<&str> = shown.split_whitespace().collect();
    let shown = words.join(" ");
    assert!(shown.contains(&format!("pod {UID}, by its GPUs lab/train-0 (main)")), "{shown}");
}

#[test]
fn lying_kubelet_is_a_warning_and_the_rest_is_shown() {
    let dir = node();
    let machine = dir.path().join("box");
    for (answer, expected) in [
        (Answer::Message(vec![0xff; 9], LIST), "failed to decode"),
        (Answer::Noise, "does not speak gRPC"),
        (
            Answer::list(vec![resources("a", "$(reboot)", vec![container("c", "x", &[])])], LIST),
            "that Kubernetes does not allow",
        ),
    ] {
        let kubelet = StandIn::new(Some(answer), None);
        let found = gpuws(&machine, kubelet.dir(), &["doctor", "--json"]);
        assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
        assert_eq!(suspect_pod(&found), Value::Null);
        let warned = text(&found.stderr);
        assert!(warned.starts_with("gpuws: pod names are missing: failed to"), "{warned}");
        assert!(warned.contains(expected) && warned.lines().count() == 1, "{warned}");
    }
}

#[test]
fn anonymous_recording_has_no_name_of_a_pod() {
    let dir = node();
    let machine = dir.path().join("box");
    let listed = Answer::list(vec![pod("lab", "train-0", UID, &[("main", CONTAINER)])], ALPHA);
    let kubelet = StandIn::new(None, Some(listed));
    for (options, has_it) in [(&["--names"][..], true), (&[], false)] {
        let file = dir.path().join(format!("{has_it}.gpuws"));
        let path = file.to_str().expect("UTF-8");
        let recorded = gpuws(&machine, kubelet.dir(), &[&["record", path][..], options].concat());
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let text = std::fs::read_to_string(&file).expect("a recording");
        assert_eq!(text.contains("train-0"), has_it, "{text}");
    }
}
