//! `gpuws place`: graphs and models on simulated machines and on named devices.
//! `SNAPSHOTS=overwrite cargo test -p gpuws place::` updates the golden files.

mod graph;
mod model;

use crate::live::{out, text};
use crate::schema::commands::run;
use serde_json::{Value, json};
use snapbox::Data;
use std::path::Path;
use std::process::{Command, Output};

/// The common first example: `a` and `b` on the CPU, `c` free.
pub(crate) const FIRST: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/first.pbtxt");
/// A variable, an operation that changes it, and one that reads it after a control edge.
pub(crate) const CONTROL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/control.pbtxt");
/// The directory of a model of 8 billion parameters. It has only the configuration.
pub(crate) const LLAMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/llama");
/// A model with seven attention heads.
pub(crate) const ODD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/place/odd");

pub(crate) fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Compares the output of a command with a golden file. The command runs next to its inputs and
/// gets their names, not their paths: lines are wrapped, and the path of a checkout varies.
pub(crate) fn hold(golden: &str, words: &[&str]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/place");
    let name = |word: &str| match word {
        FIRST => "first.pbtxt".to_owned(),
        CONTROL => "control.pbtxt".to_owned(),
        LLAMA => "llama".to_owned(),
        other => other.to_owned(),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    let output = command.args(words.iter().map(|word| name(word))).current_dir(&dir).output();
    let shown = out(&output.expect("gpuws runs"));
    snapbox::assert_data_eq!(shown, Data::read_from(&dir.join(golden), None).raw());
}

/// Returns the exit code and the text of standard error.
pub(crate) fn refusal(words: &[&str]) -> (Option<i32>, String) {
    let output = run(words);
    assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
    (output.status.code(), text(&output.stderr))
}

pub(crate) fn graph_file(dir: &Path, name: &str, content: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}
