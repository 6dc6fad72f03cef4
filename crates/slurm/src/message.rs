//! The messages from the process that cleans to the one that slurmd waits for.
//!
//! slurmd reads the output of a script to its end and drains the node if the script fails. A
//! separate process therefore does the cleaning: it inspects processes of users, which could make
//! it wait. Its standard output has a line for each change of the held devices.

use crate::held::is_own_reason;

/// The last line of a process that finished.
const DONE: &str = "done";
/// No device is held any more.
const FREE: &str = "free";
/// The prefix of the line with the reason to drain the node.
const HELD: &str = "held ";

/// What the process reported by its end, or by the time limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerReport {
    /// The reason to drain the node: a device is held.
    pub reason: Option<String>,
    /// The process finished.
    pub is_done: bool,
}

impl WorkerReport {
    /// Returns the lines of this state.
    pub fn lines(&self) -> String {
        let held = match &self.reason {
            Some(reason) => format!("{HELD}{reason}\n"),
            None => format!("{FREE}\n"),
        };
        if self.is_done { format!("{held}{DONE}\n") } else { held }
    }

    /// Reads the last state from the output of the process.
    pub fn read(text: &str) -> Self {
        let mut report = WorkerReport::default();
        for line in text.lines() {
            match line.strip_prefix(HELD) {
                Some(reason) if is_own_reason(reason) => report.reason = Some(reason.to_owned()),
                Some(_) => {}
                None if line == FREE => report.reason = None,
                None => report.is_done = line == DONE,
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_state_counts_even_if_the_end_is_missing() {
        let reason = "gpuws: GPU 1 held by 4711".to_owned();
        let held = WorkerReport { reason: Some(reason.clone()), is_done: false };
        assert_eq!(WorkerReport::read(&held.lines()), held);
        let freed = WorkerReport { reason: None, is_done: true };
        assert_eq!(WorkerReport::read(&format!("{}{}", held.lines(), freed.lines())), freed);
        let cut = format!("{}held gpuws: GPU 1 held b", held.lines());
        assert_eq!(WorkerReport::read(&cut), held, "a line that was cut says nothing");
        assert_eq!(WorkerReport::read(""), WorkerReport::default());
    }
}
