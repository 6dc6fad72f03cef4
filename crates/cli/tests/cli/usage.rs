//! `gpuws report` on recordings and histories, with golden files.
//! `SNAPSHOTS=overwrite cargo test -p gpuws usage::` updates them.

use crate::program::{Ended, ended, machine_from};
use serde_json::Value;
use snapbox::{Data, assert_data_eq};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn run(dir: &Path, line: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(line.split(' ')).current_dir(dir).env("TZ", "UTC").stdin(Stdio::null());
    ended(command.output().expect("gpuws runs"))
}

fn printed(dir: &Path, line: &str) -> String {
    let ended = run(dir, line);
    assert_eq!(ended.code, 0, "{line}: {}", ended.stderr);
    assert_eq!(ended.stderr, "", "{line}: a pipe sees no progress");
    ended.stdout
}

/// Twelve hours of a machine, a sample a minute.
fn history() -> TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    printed(dir.path(), "--sim labbox record --for 12h --every 1m --names past");
    dir
}

fn hold(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report").join(name);
    assert_data_eq!(text.to_owned(), Data::read_from(&path, None).raw());
}

#[test]
fn report_has_a_table_for_users_jobs_gpus_and_days() {
    let dir = history();
    let tables: Vec<String> = ["user", "job", "gpu", "day"]
        .iter()
        .map(|by| {
            let line = format!("report past --by {by}");
            format!("$ gpuws {line}\n{}", printed(dir.path(), &line))
        })
        .collect();
    hold("tables.txt", &tables.join("\n"));
    hold("users.csv", &printed(dir.path(), "report past --format csv").replace('\r', ""));
    assert!(tables.iter().all(|table| table.lines().all(|line| line.chars().count() <= 80)));
}

#[test]
fn report_of_recording_equals_report_of_history() {
    let dir = history();
    printed(dir.path(), "--sim labbox record --looks 721 --every 1m --names past.gpuws");
    // The history ends a minute earlier.
    let [history, recording] = ["past", "past.gpuws"].map(|path| {
        let rows = printed(dir.path(), &format!("report {path} --until 21:59 --format csv"));
        rows.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(history.len(), 5);
    assert_eq!(history, recording);
}

#[test]
fn page_is_written_to_a_file_and_json_to_standard_output() {
    let dir = history();
    assert_eq!(printed(dir.path(), "report past --format html -o usage.html"), "");
    let page = fs::read_to_string(dir.path().join("usage.html")).expect("it was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for part in ["alice", "unlisted", "python notebook.py", "<svg ", "prefers-color-scheme"] {
        assert!(page.contains(part), "{part}");
    }
    let object: Value = serde_json::from_str(&printed(dir.path(), "--json report past")).unwrap();
    assert_eq!((&object["schema"], &object["origin"]), (&1.into(), &"simulated".into()));
    assert_eq!(object["watched_ms"], 719 * 60_000);
    let held = |list: &str| -> u64 {
        let rows = object[list].as_array().expect("a list");
        rows.iter().map(|row| row["held_ms"].as_u64().expect("a number")).sum()
    };
    assert_eq!(held("gpus"), 3 * 719 * 60_000, "one of four is free");
    assert_eq!([held("users"), held("jobs"), held("days")], [held("gpus"); 3]);
}

#[test]
fn report_replaces_no_file() {
    let dir = history();
    printed(dir.path(), "report past -o usage.txt");
    let before = fs::read(dir.path().join("usage.txt")).unwrap();
    let ended = run(dir.path(), "report past --by gpu -o usage.txt");
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("it already exists"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--force"), "{}", ended.stderr);
    assert_eq!(fs::read(dir.path().join("usage.txt")).unwrap(), before);
}

#[test]
fn report_replaces_a_regular_file_on_request() {
    let dir = history();
    let report =
        |by: &str, file: &str| run(dir.path(), &format!("report past --by {by} -o {file} --force"));
    assert_eq!(report("user", "usage.txt").code, 0, "no file is there yet");
    assert_eq!(report("gpu", "usage.txt").code, 0);
    let replaced = fs::read_to_string(dir.path().join("usage.txt")).unwrap();
    assert_eq!(replaced, printed(dir.path(), "report past --by gpu"));
    fs::create_dir(dir.path().join("dir")).unwrap();
    for file in ["dir", "/dev/null"] {
        let refused = report("gpu", file);
        assert_eq!(refused.code, 2, "{file}");
        assert!(refused.stderr.contains("it is not a regular file"), "{}", refused.stderr);
    }
    let parts = fs::read_dir(dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
}

#[test]
fn report_covers_the_requested_time_and_leaves_gaps_out() {
    let dir = history();
    let head = |line: &str| printed(dir.path(), line).lines().nth(1).map(str::to_owned);
    assert_eq!(head("report past --since -1h").unwrap(), "4 GPUs, 60 min watched in 61 samples");
    assert_eq!(
        head("report past --since 12:00 --until 12:10").unwrap(),
        "4 GPUs, 10 min watched in 11 samples"
    );
    assert_eq!(
        head("report past --step 5m").unwrap(),
        "4 GPUs, 11 h 59 min watched in 145 samples"
    );
    let gaps = printed(dir.path(), "report past --gap 30s");
    assert!(
        gaps.ends_with(
            "\n719 gaps of 11 h 59 min not watched, the longest 60 s from \
                            2025-03-03 21:58:00\nno usage is counted: no interval is shorter \
                            than --gap\n"
        ),
        "{gaps}"
    );
    // The default gap follows the step; samples that are used are at most twice a step apart.
    let rare = head("report past --step 10m").unwrap();
    assert_eq!(rare, "4 GPUs, 11 h 59 min watched in 73 samples");
    for line in ["report past --gap 1s", "report past --step 10m --gap 10m"] {
        let refused = run(dir.path(), line);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{line}");
        assert!(
            refused.stderr.contains("--gap is shorter than twice --step"),
            "{}",
            refused.stderr
        );
    }
    let all = head("report past").unwrap();
    assert_eq!(head("report past --since=-99999d"), Some(all));
    let never = run(dir.path(), "report past --until=-99999d");
    assert_eq!(never.code, 2, "{}{}", never.stdout, never.stderr);
    let none = run(dir.path(), "report past --until 9999-12-31T23:59:59");
    assert_eq!(none.code, 2, "{}{}", none.stdout, none.stderr);
    assert!(none.stderr.contains("the calendar has no such time"), "{}", none.stderr);
    let later = run(dir.path(), "report past --since 2030-01-01");
    let why = "gpuws: failed to find a sample in 'past': it covers 2025-03-03 10:00:00 to ";
    assert!(later.code == 2 && later.stderr.starts_with(why), "{}", later.stderr);
}

#[test]
fn samples_from_before_the_clock_was_set_back_are_reported() {
    let dir = history();
    // It starts at the same time as the other one.
    printed(dir.path(), "--sim labbox record --for 6m --every 1m --names past");
    let table = printed(dir.path(), "report past");
    assert_eq!(table.lines().nth(1), Some("4 GPUs, 12 h 4 min watched in 726 samples"));
    let title = "simulated machine labbox, 2025-03-03 10:00:00 to 2025-03-03 21:59:00";
    assert_eq!(table.lines().next(), Some(title), "the earliest and the latest sample");
    let note = "\nthe clock was set back 1 time: the times before and after overlap\n";
    assert!(table.ends_with(note), "{table}");
}

#[test]
fn jobs_of_working_processes_are_named() {
    let dir = machine_from("labbox", |text| {
        let process = "[[process]]\npid = 21044\n";
        let job = "cgroup = \"/system.slice/slurmstepd.scope/job_4711\"\n\
                   workload = { kind = \"slurm-job\", id = \"4711\" }\n";
        text.replacen(process, &format!("{process}{job}"), 1)
    });
    printed(dir.path(), "--sim box record --for 10s --names past");
    let table = printed(dir.path(), "report past --step 0 --by job");
    let alice = table.lines().find(|line| line.contains("alice")).expect("her job");
    assert!(alice.starts_with("Slurm job 4711 "), "{table}");
}

#[test]
fn damage_of_history_is_named_and_the_rest_reported() {
    let dir = history();
    let data = dir.path().join("past/data_2025-03-03");
    let mut bytes = fs::read(&data).expect("the data");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&data, bytes).expect("it can be written");
    let table = printed(dir.path(), "report past");
    let last = table.lines().last().expect("a line");
    assert!(last.starts_with("damaged history: data_2025-03-03, byte "), "{table}");
    assert!(table.contains("\nalice "), "{table}");
}

#[test]
fn path_without_history_or_recording_is_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("text"), "text\n").expect("it can be written");
    fs::create_dir(dir.path().join("empty")).expect("it can be created");
    let failed = |path: &str| {
        let ended = run(dir.path(), &format!("report {path}"));
        assert_ne!(ended.code, 0, "{path}");
        ended.stderr
    };
    assert_eq!(
        failed("text"),
        "gpuws: failed to read recording 'text': line 1: not a recording: header missing\n\
         hint: pass the directory of gpuws record --for, or a file of gpuws record\n"
    );
    assert!(failed("absent").contains("failed to read recording 'absent': No such file"));
    assert_eq!(
        failed("empty"),
        "gpuws: failed to find a sample in 'empty'\n\
         hint: gpuws record --for writes a history to a directory\n"
    );
}

#[test]
fn hours_of_history_prove_a_hoarder_abandoned() {
    let dir = history();
    let ended = run(dir.path(), "doctor --replay past --gpu 2");
    let text = ended.stdout;
    for part in ["IDLE HOLDER  GPU 2", "confidence: high", "no compute for 11 h, in 720 samples"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let ended = run(dir.path(), "doctor --replay past --gpu 2 --at 12:00");
    assert!(ended.stdout.contains("confidence: likely"), "{}", ended.stdout);
}
