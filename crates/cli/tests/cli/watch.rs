//! `gpuws watch` as a program: its output, its policy file, the program for events, its signals.

use crate::live::{GPUWS, by_signals, out, reported};
use crate::schema::commands::run;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const REAP: &str = r#"
[reap]
dry_run = false
most_per_hour = 2
[[reap.rule]]
kinds = ["ghost"]
users = ["admin"]
min_confidence = "high"
after = "10m"
warn = "4m"
"#;

fn write(path: PathBuf, text: &str, mode: u32) -> String {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn events(output: &Output) -> Vec<Value> {
    out(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[test]
fn ghost_is_raised_once_in_words_with_the_next_command() {
    let output = run(&["--sim", "p100-ghost", "watch", "--for", "2h"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    snapbox::assert_data_eq!(
        out(&output),
        snapbox::str![[r#"
simulated machine p100-ghost: watched every 5 s; nothing is reaped
[..]  RAISED      ghost  GPU 0  15,849 MiB  for 1 min
    15,849 of 16,280 MiB used; NVML lists no process; driver overhead explains at most 145 MiB of the rest
    88 % utilization at 25 of 250 W
    100562 t2t-decoder (admin): nvidia0 nvidiactl nvidia-uvm open for writing and mapped
    next  gpuws --sim p100-ghost reap --gpu 0   shows the plan; add --yes to execute

"#]]
    );
}

#[test]
fn policy_reaps_only_with_both_keys() {
    let dir = tempfile::tempdir().unwrap();
    let policy = write(dir.path().join("policy.toml"), REAP, 0o600);
    let dry = write(dir.path().join("dry.toml"), &REAP.replace("= false", "= true"), 0o600);
    let watch = |policy: &str, more: &[&str]| {
        let words = ["--json", "--sim", "p100-ghost", "watch", "--for", "30m", "--policy", policy];
        run(&[&words, more].concat())
    };
    for output in [watch(&policy, &[]), watch(&dry, &[])] {
        let events = events(&output);
        assert_eq!(names(&events), ["raised", "reap-warning", "reap-planned"], "{output:?}");
        assert_eq!(events[2]["reap"]["targets"][0]["pid"], 100_562);
        assert_eq!(events[2]["reap"]["report"], Value::Null);
        assert_eq!(events[1]["reap_in_ms"], 240_000);
        assert_eq!(events[1]["dry_run"], true);
    }
    let message = run(&["--sim", "p100-ghost", "watch", "--for", "30m", "--policy", &policy]);
    let message = String::from_utf8(message.stdout).unwrap();
    assert!(
        message.contains(" would be ended in ") && !message.contains(" will be ended"),
        "{message}"
    );
    let refused = watch(&dry, &["--reap"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(reported(&refused).contains("no section [reap] with dry_run = false"), "{refused:?}");
    let output = watch(&policy, &["--reap"]);
    let events = events(&output);
    assert_eq!(names(&events), ["raised", "reap-warning", "reaped", "cleared"], "{output:?}");
    assert_eq!(events[1]["dry_run"], false);
    let report = &events[2]["reap"]["report"];
    assert_eq!(report["complete"], true, "{report}");
    assert_eq!(events[0]["finding_id"], events[3]["finding_id"]);
}

#[test]
fn policy_changeable_by_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = write(dir.path().join("open.toml"), REAP, 0o666);
    let wrong = write(dir.path().join("wrong.toml"), "[findings]\nafer = \"1m\"\n", 0o600);
    let fine = write(dir.path().join("fine.toml"), &REAP.replace("admin", "root"), 0o600);
    for words in [["watch", "--check-policy"], ["watch", "--policy"]] {
        let refused = run(&[&words[..], &[open.as_str()]].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let message = reported(&refused);
        assert!(message.contains("writable by others (mode 0666)"), "{message}");
        assert!(message.contains("hint: users who can change a policy"), "{message}");
        let refused = run(&[&words[..], &[wrong.as_str()]].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(reported(&refused).contains("line 2: unknown key 'afer'; did you mean 'after'?"));
    }
    let valid = run(&["watch", "--check-policy", &fine]);
    assert_eq!(valid.status.code(), Some(0));
    assert!(out(&valid).ends_with("valid; reaps by 1 rule, at most 2 processes an hour\n"));
    // The check refuses whatever the watcher would refuse.
    let mail = write(dir.path().join("mail.toml"), "[notify]\non_finding = [\"mail\"]", 0o600);
    let nobody = REAP.replace("admin", "nobody-here");
    let nobody = write(dir.path().join("nobody.toml"), &nobody, 0o600);
    for (policy, why) in [
        (&mail, "which is not absolute"),
        (&nobody, "reap.rule 1: there is no account 'nobody-here'"),
    ] {
        for words in [["watch", "--check-policy"], ["watch", "--policy"]] {
            let refused = run(&[&words[..], &[policy.as_str()]].concat());
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert!(reported(&refused).contains(why), "{refused:?}");
        }
    }
    let former = write(dir.path().join("former.toml"), "[tell]\nowner = true\n", 0o600);
    let warned = run(&["watch", "--check-policy", &former]);
    assert_eq!(warned.status.code(), Some(0), "{warned:?}");
    assert!(reported(&warned).contains("rename [tell] to [notify]"), "{warned:?}");
    let far = REAP.replace("users", "gpus = [\"0\", \"77\"]\nusers");
    let far = write(dir.path().join("far.toml"), &far, 0o600);
    let warned = run(&["--sim", "p100-ghost", "watch", "--check-policy", &far]);
    assert_eq!(warned.status.code(), Some(0), "{warned:?}");
    let message = reported(&warned);
    assert!(
        message.contains("GPU 77, which this machine does not have") && !message.contains("GPU 0")
    );
    let missing = run(&["watch", "--check-policy", "/nonexistent/policy.toml"]);
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let message = reported(&missing);
    assert!(
        message.contains("read the policy '/nonexistent/policy.toml': no such file"),
        "{message}"
    );
    assert!(message.contains("hint: an empty policy reports every finding"), "{message}");
}

#[test]
fn program_gets_each_event_and_its_failure_is_not_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let got = dir.path().join("got");
    let script = format!("#!/bin/sh\ncat >> '{}'\nexit $1\n", got.display());
    let hook = write(dir.path().join("hook"), &script, 0o700);
    let words = ["--sim", "p100-ghost", "watch", "--for", "5m", "--on-finding", &hook];
    for code in ["0", "3"] {
        let _ = fs::remove_file(&got);
        let output = run(&[&words[..], &[code]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let event: Value = serde_json::from_str(&fs::read_to_string(&got).unwrap()).unwrap();
        assert_eq!(event["event"], "raised");
        assert_eq!(event["finding"]["suspects"][0]["pid"], 100_562);
        let message = reported(&output);
        assert_eq!(message.contains("exited with 3"), code == "3", "{message}");
    }
    let open = write(dir.path().join("open"), &script, 0o777);
    for (program, why) in [(open.as_str(), "writable by others"), ("cat", "which is not absolute")]
    {
        let refused = run(&["--sim", "labbox", "watch", "--for", "1m", "--on-finding", program]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(reported(&refused).contains(why), "{refused:?}");
    }
}

/// A running watcher, and the first line that it has printed.
fn started(policy: &Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = by_signals()
        .args(["--sim", "labbox", "watch", "--every", "1h", "--policy"])
        .arg(policy)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("watched every 3600 s"), "{line}");
    (child, lines)
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn hangup_reads_the_policy_again_and_termination_ends_the_watch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.toml");
    write(path.clone(), "[findings]\nafter = \"1m\"\n", 0o600);
    let (mut child, _lines) = started(&path);
    let mut message = BufReader::new(child.stderr.take().unwrap());
    for (text, expected) in [
        ("[findings]\nafter = \"2m\"\n", "reloaded"),
        ("[findings]\nafer = \"2m\"\n", "the policy is unchanged: failed to read the policy"),
    ] {
        write(path.clone(), text, 0o600);
        signal(&child, rustix::process::Signal::HUP);
        let mut line = String::new();
        message.read_line(&mut line).unwrap();
        assert!(line.contains(expected), "{line}");
    }
    signal(&child, rustix::process::Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn history_is_continued_but_not_where_others_can_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    let at = path.to_str().unwrap();
    let words = ["--sim", "labbox", "watch", "--for", "10m", "--every", "1m", "--history", at];
    for _ in 0..2 {
        let output = run(&words);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(reported(&output), "");
    }
    let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.count() >= 3, "data, index and lock");
    // No file may exceed 8 KiB, as on a full disk.
    let full = dir.path().join("full");
    let line = format!(
        "ulimit -f 16; exec \"$0\" --sim p100-ghost watch --for 10m --every 1s --history '{}'",
        full.display()
    );
    let output = Command::new("sh").args(["-c", &line, GPUWS]).output().unwrap();
    let said = reported(&output);
    let (first, last) = (said.lines().next().unwrap(), said.lines().last().unwrap());
    assert!(first.starts_with("gpuws: failed to append to '"), "{said}");
    assert!(last.ends_with(" samples could not be written"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = run(&words);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
