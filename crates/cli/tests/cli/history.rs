//! `gpuws record --for`, and the commands that replay a history.

use crate::live::{out, script};
use crate::program::{Ended, files, gpuws, skipped};
use crate::run::may_unshare;
use nix::sys::signal::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

fn dir() -> TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn run(dir: &Path, line: &str) -> Ended {
    gpuws(dir, &line.split(' ').collect::<Vec<_>>())
}

/// Returns the lines that a successful command prints.
fn lines(dir: &Path, line: &str) -> Vec<String> {
    let ended = run(dir, line);
    assert!(ended.code < 2, "{line}: {}", ended.stderr);
    ended.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn recorded_machine_is_shown_and_diagnosed_as_it_was() {
    let dir = dir();
    let message = lines(dir.path(), "--sim p100-ghost record --for 2m --names past");
    assert_eq!(message[0].split(',').next(), Some("120 samples written to past"));
    assert_eq!(files(&dir.path().join("past")), ["data_2019-11-21", "index_2019-11-21", "lock"]);

    let status = lines(dir.path(), "status --replay past --at 2019-11-21T10:30:00Z");
    let now = lines(dir.path(), "--sim p100-ghost status");
    assert!(status[0].starts_with("recording of simulated machine p100-ghost, 2019-11-21 "));
    assert_eq!(status[1..6], now[1..6]);
    let next = status.iter().find_map(|line| Some(line.split_once("   gpuws ")?.1)).unwrap();
    assert!(next.starts_with("doctor --replay past --at 2019-11-21T10:30:00"), "{status:?}");
    assert!(lines(dir.path(), next)[2].starts_with("GHOST  GPU 0"), "{next}");

    let doctor = lines(dir.path(), "doctor --replay past --at=-1s");
    assert!(doctor[2].starts_with("GHOST  GPU 0"), "{doctor:?}");
    let ended = run(dir.path(), "doctor --replay past --json");
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(
        (ended.code, &json["origin"], &json["machine"]),
        (1, &"recorded".into(), &().into())
    );
    let recording = json["recording"].as_str().expect("a text");
    assert!(recording.starts_with("simulated machine p100-ghost, 2019-11-21 "), "{recording}");
}

/// The first program of a PID namespace may be in a process group from outside, which has no number
/// there.
#[test]
fn recorder_works_without_a_known_process_group() {
    if !may_unshare("--pid") {
        return skipped("no PID namespace can be created here");
    }
    let record = "unshare --pid --fork \"$0\" record --for 3s --names past";
    let output = script("healthy-box", record);
    assert!(out(&output).starts_with("3 samples written to past"), "{output:?}");
}

#[test]
fn file_has_the_health_of_the_devices() {
    let dir = dir();
    lines(dir.path(), "--sim sick-gpus record --names one.gpuws");
    let kinds = |source: &str| -> Vec<String> {
        let ended = run(dir.path(), &format!("--sim {source} doctor --json"));
        let json: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let findings = json["findings"].as_array().expect("a list").iter();
        findings.map(|finding| format!("{} {}", finding["kind"], finding["gpus"])).collect()
    };
    let of_machine = kinds("sick-gpus");
    assert!(of_machine.len() >= 10, "{of_machine:?}");
    assert_eq!(kinds("one.gpuws"), of_machine);
}

#[test]
fn doctor_sees_whether_a_process_computed_before() {
    let dir = dir();
    lines(dir.path(), "--sim labbox record --for 3m --names past");
    let whole = lines(dir.path(), "doctor --replay past").join("\n");
    assert!(whole.contains("no compute observed"), "{whole}");
    // The evidence of hours does not depend on the samples that are diagnosed together.
    lines(dir.path(), "--sim labbox record --for 1h --names hours");
    let one = lines(dir.path(), "doctor --replay hours --looks 1").join("\n");
    assert!(one.contains("idle in 61 samples over 59 min"), "{one}");
}

#[test]
fn replays_use_evidence_from_before_the_sample() {
    let dir = dir();
    // At this moment, the GPU of bob's process is idle, and its CPU is not.
    lines(dir.path(), "--sim shared-lab record --for 16m --every 5s --names past");
    let status = lines(dir.path(), "status --replay past -i 0").join("\n");
    let row = status.lines().find(|line| line.contains("finetune.py")).expect(&status);
    assert!(!row.contains("idle holder"), "{row}");
    let doctor = lines(dir.path(), "doctor --replay past --gpu 0").join("\n");
    assert!(doctor.contains("\n0 findings."), "{doctor}");
}

#[test]
fn history_is_anonymous_and_not_continued_without_names() {
    let dir = dir();
    lines(dir.path(), "--sim labbox record --for 5s past");
    let shown = lines(dir.path(), "status --replay past").join("\n");
    for private in ["alice", "train.py", "labbox  "] {
        assert!(!shown.contains(private), "{private}: {shown}");
    }
    for (user, warning) in [
        ("anon-3", ""),
        ("alice", "gpuws: --user alice: no process at this time belongs to them\n"),
    ] {
        let ended = run(dir.path(), &format!("status --replay past --user {user}"));
        assert_eq!((ended.code, ended.stderr.as_str()), (0, warning));
    }
    let report = lines(dir.path(), "report past").join("\n");
    for shown in [&shown, &report] {
        assert!(
            shown.contains("anon-3 ")
                && ["1001", "1002", "1003"].iter().all(|uid| !shown.contains(uid)),
            "{shown}"
        );
    }
    let again = run(dir.path(), "--sim labbox record --for 5s past");
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("each recorder numbers users anew"), "{}", again.stderr);
    let again = run(dir.path(), "--sim labbox record --for 5s --names past");
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("always record names"), "{}", again.stderr);

    lines(dir.path(), "--sim labbox record --for 5s --names named");
    let message = lines(dir.path(), "--sim labbox record --for 5s --names named");
    assert!(message[0].starts_with("5 samples"), "{message:?}");
}

#[test]
fn history_of_another_machine_is_not_continued() {
    let dir = dir();
    lines(dir.path(), "--sim p100-ghost record --for 60s --names past");
    for command in ["record --for 60s --names past", "watch --history past"] {
        let ended = run(dir.path(), &format!("--sim labbox {command}"));
        assert_eq!(ended.code, 2, "{command}: {}", ended.stderr);
        let why = "past': it has samples of simulated machine p100-ghost, not of simulated machine \
                   labbox; use another directory";
        assert!(ended.stderr.contains(why), "{command}: {}", ended.stderr);
    }
    let message = lines(dir.path(), "--sim p100-ghost record --for 60s --names past");
    assert!(message[0].starts_with("60 samples written to past"), "{message:?}");
}

#[test]
fn reports_moment_outside_history_and_missing_history() {
    let dir = dir();
    lines(dir.path(), "--sim p100-ghost record --for 60s --names past");
    fs::create_dir(dir.path().join("empty")).expect("created");
    for (line, code, why) in [
        ("status --replay past --at 2019-11-20", 2, "it covers 2019-11-21 "),
        ("doctor --replay past --at=-1h", 2, "it covers 2019-11-21 "),
        ("status --replay past --at 2030-01-01", 2, "it covers 2019-11-21 "),
        ("status --replay empty", 2, "history 'empty': it has no sample"),
        ("status --replay missing", 3, "record --for writes a history"),
        ("status --replay past --at soon", 2, "expected e.g. 2026-11-24T10:00"),
        ("status --replay past -l 1", 2, "-l and --mine apply to this machine"),
        ("status --replay past -q", 2, "cannot be used with"),
        ("--sim labbox status --replay past", 2, "cannot be used with"),
        ("--sim labbox doctor --replay past", 2, "cannot be used with"),
        ("status --at 10:00", 2, "--replay <DIR>"),
        ("--sim labbox record --for 1m --looks 3 new", 2, "cannot be used with"),
    ] {
        let ended = run(dir.path(), line);
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{line}: {}", ended.stderr);
    }
}

#[test]
fn damage_is_reported_and_the_previous_frame_shown() {
    let dir = dir();
    lines(dir.path(), "--sim p100-ghost record --for 60s --names past");
    let data = dir.path().join("past/data_2019-11-21");
    let length = fs::metadata(&data).expect("recorded").len();
    fs::OpenOptions::new()
        .write(true)
        .open(&data)
        .expect("opened")
        .set_len(length - 1)
        .expect("cut");
    let ended = run(dir.path(), "status --replay past");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains(":58\n"), "{}", ended.stdout);
    assert!(ended.stderr.contains("sample cut off, 1 sample lost"), "{}", ended.stderr);
}

#[test]
fn recorder_continues_after_unwritable_samples() {
    let dir = dir();
    // No file may exceed 8 KiB; the kernel's error is the same as that of a full disk.
    let record = |blocks: u32, past: &str| {
        let line = format!(
            "ulimit -f {blocks}; exec '{}' --sim p100-ghost record --for 5m --names {past}",
            env!("CARGO_BIN_EXE_gpuws")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(dir.path()).stdin(Stdio::null());
        crate::program::ended(command.output().expect("sh runs"))
    };
    let ended = record(16, "past");
    let wrong = ended.stderr.lines().collect::<Vec<_>>();
    assert_eq!((ended.code, wrong.len()), (1, 2), "{}", ended.stderr);
    assert!(wrong[0].contains("samples are missing: failed to append to '"), "{wrong:?}");
    let message = ended.stdout.split(' ').next().and_then(|count| count.parse::<u32>().ok());
    let count = message.expect("the number of samples");
    assert_eq!(wrong[1], format!("gpuws: {} samples could not be written", 300 - count));
    assert!((2..300).contains(&count), "{}", ended.stdout);
    let shown = lines(dir.path(), "report past --step 0");
    assert!(shown[1].ends_with(&format!("watched in {count} samples")), "{shown:?}");

    let ended = record(1, "none");
    assert_eq!((ended.code, ended.stdout.as_str()), (3, ""), "{}", ended.stderr);
}

/// A recorder of this machine that writes ten samples a second to `past`.
struct Recorder {
    dir: TempDir,
    child: Child,
}

impl Recorder {
    /// Starts it after these shell commands.
    fn start(before: &str) -> Self {
        let dir = dir();
        let line = format!("{before} exec \"$0\" record --for 1h --every 100ms --names past");
        let child = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_gpuws")])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let mut recorder = Recorder { dir, child };
        recorder.wait_for(3);
        recorder
    }

    fn entries(&self) -> u64 {
        let past = fs::read_dir(self.dir.path().join("past")).into_iter().flatten().flatten();
        let mut index =
            past.filter(|entry| entry.file_name().to_string_lossy().starts_with("index"));
        let length = index.next().and_then(|entry| entry.metadata().ok()).map_or(0, |of| of.len());
        (length / 32).saturating_sub(1)
    }

    /// Waits for this many more samples.
    fn wait_for(&mut self, more: u64) {
        let enough = self.entries() + more;
        while self.entries() < enough {
            let has_ended = self.child.try_wait().expect("it is our child").is_some();
            assert!(!has_ended, "it ended by itself");
            std::thread::yield_now();
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a PID"));
        nix::sys::signal::kill(pid, signal).expect("our child");
    }

    fn end(self) -> Ended {
        self.signal(Signal::SIGTERM);
        crate::program::ended(self.child.wait_with_output().expect("it ends"))
    }
}

#[test]
fn recorder_of_this_machine_stops_cleanly_at_a_signal() {
    let ended = Recorder::start("").end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains(" samples written to past, "), "{}", ended.stdout);
    assert!(!ended.stderr.contains("left: "), "no progress without a terminal: {}", ended.stderr);
}

#[test]
fn recorder_keeps_ignoring_inherited_ignored_signals() {
    // Like nohup, and like a shell for a background job. SIGTERM always ends it.
    let mut recorder = Recorder::start("trap '' HUP INT TERM;");
    recorder.signal(Signal::SIGHUP);
    recorder.signal(Signal::SIGINT);
    recorder.wait_for(3);
    assert_eq!(recorder.end().code, 0);
}

#[test]
fn recorder_reports_removal_of_its_directory() {
    let mut recorder = Recorder::start("");
    // While it runs, it could recreate the files before the directory is gone.
    recorder.signal(Signal::SIGSTOP);
    fs::remove_dir_all(recorder.dir.path().join("past")).expect("it is ours");
    recorder.signal(Signal::SIGCONT);
    let mut message = BufReader::new(recorder.child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    message.read_line(&mut line).expect("text");
    assert!(line.contains("samples are missing: failed to open '"), "{line}");
    assert_eq!(recorder.end().code, 1);
    let is_told = |line: String| line.ends_with("could not be written");
    assert!(message.lines().any(|line| is_told(line.expect("text"))));
}

#[test]
fn unwritable_report_error_names_its_file() {
    let dir = dir();
    lines(dir.path(), "--sim labbox record --for 60s --names past");
    // No file may exceed 512 bytes, as on a full disk.
    let line = "ulimit -f 1; exec \"$0\" report past --format html -o report.html";
    let mut command = Command::new("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_gpuws")]).current_dir(dir.path());
    let ended = crate::program::ended(command.output().expect("sh runs"));
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("failed to write to 'report.html': "), "{}", ended.stderr);
    assert_eq!(files(dir.path()), ["past"]);
}

#[test]
fn printed_commands_work_for_directory_named_like_an_option() {
    let dir = dir();
    let message = lines(dir.path(), "--sim labbox record --for 3s --names -- -past");
    let (_, next) = message[1].split_once("gpuws ").expect("a command");
    assert_eq!(next, "top --replay ./-past");
    let status = lines(dir.path(), "status --replay ./-past");
    let next = status.iter().find_map(|line| Some(line.split_once("   gpuws ")?.1)).expect("one");
    assert!(run(dir.path(), next).code < 2, "{next}");
}
