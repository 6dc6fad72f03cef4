//! The commands of the program, from its help texts.

use crate::live::{GPUWS, text};
use std::process::{Command, Output, Stdio};

/// Commands that refuse `--json`, with arguments that are valid without it.
const WITHOUT_JSON: [&[&str]; 10] = [
    &["top"],
    &["export"],
    &["dmon", "-c", "1"],
    &["pmon", "-c", "1"],
    &["query", "--query-gpu=index", "--format=csv"],
    &["demo"],
    &["sim", "labbox", "--", "true"],
    &["slurm", "health"],
    &["completions", "bash"],
    &["man"],
];

/// Returns the commands that print JSON, their words separated by blanks.
pub(super) fn with_json() -> Vec<String> {
    let mut all = Vec::new();
    collect(&[], &mut all);
    for words in WITHOUT_JSON {
        let output = run(&[&["--json"], words].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
        assert!(output.stdout.is_empty() && message.contains("--json"), "{words:?}: {message}");
        let before = all.len();
        all.retain(|command| command != words[0]);
        assert_eq!(all.len() + 1, before, "{words:?} is a command");
    }
    all
}

fn collect(words: &[&str], all: &mut Vec<String>) {
    let help = text(&run(&[words, &["-h"]].concat()).stdout);
    let Some((_, listed)) = help.split_once("\nCommands:\n") else {
        return all.push(words.join(" "));
    };
    let rows = listed.lines().take_while(|line| !line.is_empty());
    // A row that continues the one before is indented further.
    let names = rows.filter_map(|row| row.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        collect(&[words, &[name]].concat(), all);
    }
}

/// Runs the program without input.
pub(crate) fn run(words: &[&str]) -> Output {
    Command::new(GPUWS).args(words).stdin(Stdio::null()).output().expect("gpuws runs")
}
