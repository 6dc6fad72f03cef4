//! Invalid input causes an error that names file and line, the documented exit code, and no output.

use crate::program::{ended, files, gpuws, machine};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn machine_loads_from_dir() {
    let dir = machine(|text| text);
    let seen = gpuws(dir.path(), &["--sim", "./box", "doctor"]);
    assert_eq!(seen.code, 1, "{}", seen.stderr);
    assert!(seen.stdout.starts_with("simulated machine box"), "{}", seen.stdout);
}

#[test]
fn unknown_field_error_names_file_and_line() {
    let dir = machine(|text| text.replace("on_term", "on_trem"));
    let line = fs::read_to_string(dir.path().join("box/machine.toml")).expect("a file");
    let line = 1 + line.lines().position(|line| line.contains("on_trem")).expect("the file opens");
    let refused = gpuws(dir.path(), &["--sim", "./box", "doctor"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    let expected =
        format!("machine.toml line {line}: unknown field 'on_trem'; did you mean 'on_term'?");
    assert!(
        refused.stderr.starts_with("gpuws: failed to read machine 'box'"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    let none = tempfile::tempdir().expect("temporary directory");
    let path = none.path().to_str().expect("UTF-8");
    let refused = gpuws(dir.path(), &["--sim", path, "status"]);
    let expected = format!("gpuws: failed to find 'machine.toml' in '{path}'");
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.starts_with(&expected), "{}", refused.stderr);
}

#[test]
fn recording_outside_machine_dir_is_rejected() {
    let dir = machine(|text| text.replace("\"nvidia-smi.txt\"", "\"../../etc/passwd\""));
    let refused = gpuws(dir.path(), &["--sim", "./box", "doctor"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("passwd"), "{}", refused.stderr);
}

#[test]
fn truncated_recording_is_rejected_with_line() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let recorded = gpuws(dir.path(), &["--sim", "p100-ghost", "record", "a.gpuws", "--names"]);
    assert_eq!(recorded.code, 0, "{}", recorded.stderr);
    let whole = fs::read(dir.path().join("a.gpuws")).expect("a recording");
    let replayed = gpuws(dir.path(), &["--sim", "a.gpuws", "doctor"]);
    assert_eq!(replayed.code, 1, "{}", replayed.stderr);
    assert!(replayed.stdout.contains("100562  t2t-decoder"), "{}", replayed.stdout);
    for cut in [1, whole.len() / 3, whole.len() / 2, whole.len() - 2] {
        fs::write(dir.path().join("cut.gpuws"), &whole[..cut]).expect("written");
        let refused = gpuws(dir.path(), &["--sim", "cut.gpuws", "doctor"]);
        assert_eq!(refused.code, 2, "{cut}: {}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("cut.gpuws"), "{}", refused.stderr);
        assert!(refused.stderr.contains("line "), "{cut}: {}", refused.stderr);
    }
}

#[test]
fn protect_rejects_unknown_name() {
    let here = Path::new(".");
    let refused = gpuws(here, &["--sim", "labbox", "reap", "--protect", "carol", "--yes"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    let kept = gpuws(here, &["--sim", "labbox", "reap", "--protect", "user:carol", "--yes"]);
    assert_eq!(kept.code, 1, "{}", kept.stdout);
    assert!(kept.stdout.contains("it is on the protect list"), "{}", kept.stdout);
}

#[test]
fn reap_rejects_unknown_user() {
    let here = Path::new(".");
    let refused = gpuws(here, &["--sim", "labbox", "reap", "--user", "carl"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("reap for user 'carl'"), "{}", refused.stderr);
    let planned = gpuws(here, &["--sim", "labbox", "reap", "--user", "carol"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stdout.contains("19777"), "{}", planned.stdout);
}

#[test]
fn record_never_overwrites_file() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("mine"), "mine").expect("written");
    let refused = gpuws(dir.path(), &["--sim", "p100-ghost", "record", "mine"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(fs::read_to_string(dir.path().join("mine")).expect("there"), "mine");
    let nowhere = gpuws(dir.path(), &["--sim", "p100-ghost", "record", "no/such/directory"]);
    assert_eq!(nowhere.code, 3, "{}", nowhere.stderr);
    assert_eq!(files(dir.path()), ["mine"]);
}

#[test]
fn record_anonymizes_by_default() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let recorded = gpuws(dir.path(), &["--sim", "labbox", "record", "a"]);
    assert_eq!(recorded.code, 0, "{}", recorded.stderr);
    let text = fs::read_to_string(dir.path().join("a")).expect("a recording");
    for name in ["alice", "bob", "carol", "train.py", "notebook"] {
        assert!(!text.contains(name), "{name}: {text}");
    }
}

#[test]
fn invalid_arguments_exit_with_usage_error() {
    let here = Path::new(".");
    for words in [
        &["no-such-word"][..],
        &["--sim", "no-such-machine", "doctor"],
        &["--sim", "p100-ghost", "reap", "--gpu", "7"],
        &["--sim", "p100-ghost", "reap", "--pid", "x"],
        &["--sim", "p100-ghost", "doctor", "--looks", "0"],
        &["demo", "no-such-machine"],
        &["parse"],
        &["--sim", "labbox", "status", "-i", "7"],
        &["--sim", "labbox", "status", "-i", "GPU-none"],
        &["--sim", "labbox", "status", "-i", "x"],
        &["--sim", "labbox", "status", "--format", "csv"],
        &["--sim", "labbox", "status", "--format", "table"],
        &["--sim", "labbox", "--json", "status", "--format", "gpustat-json"],
        &["--sim", "labbox", "query"],
        &["--sim", "labbox", "query", "--query-gpu=index"],
        &["--sim", "labbox", "query", "--query-gpu=index", "--format=xml"],
        &["--sim", "labbox", "query", "--query-gpu=index", "--format=csv", "-l", "0"],
        &["--sim", "labbox", "reset"],
        &["--sim", "labbox", "reset", "9", "--yes"],
    ] {
        let refused = gpuws(here, words);
        assert_eq!(refused.code, 2, "{words:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{words:?}");
        assert!(!refused.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn closed_pipe_is_not_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(["demo"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpuws runs");
    drop(child.stdout.take());
    let ended = ended(child.wait_with_output().expect("gpuws ends"));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn pipe_closed_before_the_start_changes_no_exit_code() {
    let code = |words: &str, closed: bool| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
        command.args(words.split(' ')).stderr(Stdio::null());
        match closed {
            true => command.stdout(writer),
            false => command.stdout(Stdio::null()),
        };
        drop(reader);
        command.status().expect("gpuws runs").code()
    };
    for words in [
        "--help",
        "run --help",
        "help run",
        "--version",
        "completions bash",
        "man",
        "demo",
        "mem env --help",
        "--sim labbox status",
        "--sim labbox --json status",
        "--sim labbox doctor",
        "--sim labbox query --query-gpu=index --format=csv",
        "--sim labbox leases",
        "--sim labbox topo",
        "--sim labbox holders",
        "--nosuch",
    ] {
        let expected = code(words, false);
        assert!(matches!(expected, Some(0..=2)), "{words}: {expected:?}");
        assert_eq!(code(words, true), expected, "{words}");
    }
    assert_eq!(code("--sim labbox status -l 1", true), Some(0), "it ends");
    // A usage error keeps its exit code even if the reader of the pipe is gone.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    let status = command.arg("--nosuch").stderr(writer).status().expect("gpuws runs");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn reap_by_pid_without_driver_cannot_observe() {
    let refused = gpuws(Path::new("."), &["--sim", "no-driver", "reap", "--pid", "5"]);
    assert_eq!(refused.code, 3, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("refused 5"), "{}", refused.stdout);
    assert!(refused.stderr.contains("no NVIDIA driver"), "{}", refused.stderr);
}

#[test]
fn diagnosis_without_driver_is_an_object_too() {
    let ended = gpuws(Path::new("."), &["--sim", "no-driver", "--json", "doctor"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    let object: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(object["driver_error"]["what"].is_string(), "{object}");
    assert_eq!(object["findings"], serde_json::json!([]));
    assert!(!ended.stderr.is_empty());
}
