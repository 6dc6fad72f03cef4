//! The examples of the README and of the tour.

use super::live;
use super::program::gpuws;
use std::path::Path;
use std::process::Command;

/// The first session of a reader, who has only typed nvidia-smi so far.
#[test]
fn session_of_readme_runs_as_shown() {
    let readme = include_str!("../../../../README.md");
    assert!(readme.contains("gpuws sim labbox --live -- bash\n"));
    let session = readme.split_once("```console\n").and_then(|(_, rest)| rest.split_once("```"));
    let shown = session.expect("a session").0;
    let mut script = String::new();
    for command in shown.lines().filter_map(|line| line.strip_prefix("$ ")) {
        // The reader waits for the lines that a command prints.
        let wait = match command {
            starts if starts.ends_with('&') => "until gpuws leases | grep -q whole; do :; done",
            "kill %1" => "wait",
            _ => "",
        };
        script.push_str(&format!("printf '%s\\n' {command:?}\n{command}\n{wait}\n"));
    }
    let mut session = live::by_signals();
    session.args(["--quiet", "sim", "labbox", "--live", "--", "bash", "-c"]);
    session.arg(format!("exec 2>&1\n{script}")).env("NO_COLOR", "1").env("PATH", "/usr/bin:/bin");
    for name in live::HEEDED {
        session.env_remove(name);
    }
    let printed = live::text(&session.output().expect("gpuws runs").stdout);
    let me = Command::new("id").arg("-un").output().expect("id runs");
    let shown = shown.replace("\nalice ", &format!("\n{} ", live::text(&me.stdout).trim()));
    assert_eq!(alike(&printed), alike(&shown.replace("$ ", "")), "{printed}");
}

/// Returns the lines without their numbers and their order: PIDs and times differ, and a job in the
/// background prints at any time.
fn alike(text: &str) -> Vec<String> {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let words = |line: &str| line.replace(" · peak 0.0 GiB", "").replace(digits, " ");
    let line = |line: &str| words(line).split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().map(line).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn tour_shows_actual_output() {
    let tour = include_str!("../../../../docs/tour.md");
    let printed = |words: &[&str]| gpuws(Path::new("."), words).stdout;
    let doctor = printed(&["--sim", "p100-ghost", "doctor"]);
    assert!(tour.contains(&doctor), "{doctor}");
    let reap = printed(&["--sim", "p100-ghost", "reap", "--gpu", "0", "--yes"]);
    let act = reap.find("SIGTERM  ").map(|at| &reap[at..]).expect("it acts");
    assert!(tour.contains(act), "{act}");
}
