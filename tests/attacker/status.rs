//! The status of an attacker: its last steps, and the number of steps of each kind.

use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The number of steps to keep.
const KEPT: u64 = 256;
/// The length of each line.
const LINE: usize = 160;
/// The length of the summary, which precedes the lines.
const SUMMARY: usize = 8192;

/// The number of steps by kind, and how many of them the kernel permitted.
pub(crate) type Counts = BTreeMap<String, (u64, u64)>;

/// A file that the attacker inherits, because it could not open it.
pub(crate) struct Status {
    file: File,
    steps: u64,
    counts: Counts,
}

#[allow(dead_code, reason = "each program uses one side")]
impl Status {
    /// Creates the status in a file.
    pub(crate) fn new(file: File) -> Self {
        Status { file, steps: 0, counts: Counts::new() }
    }

    /// Records a step.
    pub(crate) fn note(&mut self, kind: &str, words: &str, result: &std::io::Result<()>) {
        let how = result.as_ref().map_or_else(|error| error.kind().to_string(), |()| "ok".into());
        let mut line =
            format!("{} {kind} {words}: {how}", self.steps).replace(char::is_control, "?");
        line.truncate(line.floor_char_boundary(LINE - 1));
        let line = format!("{line:<width$}\n", width = LINE - 1);
        let offset = SUMMARY as u64 + self.steps % KEPT * LINE as u64;
        // A failure cannot be reported.
        let _ = self.file.write_all_at(line.as_bytes(), offset);
        let count = self.counts.entry(kind.to_owned()).or_default();
        count.0 += 1;
        count.1 += u64::from(result.is_ok());
        self.steps += 1;
        if self.steps.is_multiple_of(64) {
            self.summarize(false);
        }
    }

    /// Writes the summary.
    pub(crate) fn summarize(&self, is_done: bool) {
        let summary = json!({ "steps": self.steps, "done": is_done, "counts": self.counts });
        let summary = format!("{:<width$}\n", summary.to_string(), width = SUMMARY - 1);
        let _ = self.file.write_all_at(summary.as_bytes(), 0);
    }
}

/// The part of the status that the test reads.
#[allow(dead_code, reason = "each program uses one side")]
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) steps: u64,
    pub(crate) done: bool,
    pub(crate) counts: Counts,
}

#[allow(dead_code, reason = "each program uses one side")]
impl Summary {
    /// Reads the summary; it is empty while it is being written.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let mut bytes = vec![0; SUMMARY];
        File::open(path).ok()?.read_exact_at(&mut bytes, 0).ok()?;
        let value: serde_json::Value = serde_json::from_slice(bytes.trim_ascii()).ok()?;
        let counts = serde_json::from_value(value["counts"].clone()).ok()?;
        Some(Summary { steps: value["steps"].as_u64()?, done: value["done"].as_bool()?, counts })
    }

    /// Returns the last steps, oldest first.
    pub(crate) fn last_steps(path: &Path, most: usize) -> Vec<String> {
        let bytes = std::fs::read(path).unwrap_or_default();
        let lines = bytes.get(SUMMARY..).unwrap_or_default().chunks(LINE);
        let mut steps: Vec<(u64, String)> = lines
            .filter_map(|line| {
                let line = String::from_utf8_lossy(line).trim().to_owned();
                Some((line.split(' ').next()?.parse().ok()?, line))
            })
            .collect();
        steps.sort_unstable();
        let skipped = steps.len().saturating_sub(most);
        steps.into_iter().skip(skipped).map(|(_, line)| line).collect()
    }
}
