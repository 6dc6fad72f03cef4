//! Call counts by function.

use gpu_sim::Session;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The maximum number of calls between two writes: a program that keeps NVML open and is killed
/// never shuts it down.
const BATCH: u64 = 64;

/// Call counts by function, and the file to write them to. They are written after every
/// [`BATCH`] calls, after the last shutdown and at exit, because not every program exits
/// normally.
pub(crate) struct Counts {
    calls: BTreeMap<&'static str, u64>,
    unwritten: BTreeMap<&'static str, u64>,
    dir: Option<PathBuf>,
    /// The process that registered the exit handler. A fork of it must not register another.
    registered: Option<u32>,
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Counts { calls: BTreeMap::new(), unwritten: BTreeMap::new(), dir: None, registered: None }
    }

    pub(crate) fn add(&mut self, function: &'static str) {
        *self.calls.entry(function).or_default() += 1;
        *self.unwritten.entry(function).or_default() += 1;
        if self.dir.is_some() && self.unwritten.values().sum::<u64>() >= BATCH {
            self.write_down();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.unwritten.clear();
        self.dir = None;
    }

    /// Returns how often a function was called; all functions together if none is named.
    pub(crate) fn get(&self, function: Option<&str>) -> u64 {
        match function {
            Some(function) => self.calls.get(function).copied().unwrap_or(0),
            None => self.calls.values().sum(),
        }
    }

    /// Sets the directory for the counts. `at_exit` registers the function that writes the last
    /// ones, and returns whether it could.
    pub(crate) fn append_to(&mut self, dir: &Path, at_exit: impl FnOnce() -> bool) {
        self.dir = Some(dir.to_owned());
        if self.registered.is_none() && at_exit() {
            self.registered = Some(std::process::id());
        }
    }

    /// Returns the line of counts that are not yet written. Function names need no escaping in
    /// JSON.
    fn line(&self, pid: u32) -> String {
        let mut line = format!("{{\"pid\":{pid},\"calls\":{{");
        for (number, (function, calls)) in self.unwritten.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(line, "{comma}\"{function}\":{calls}");
        }
        line.push_str("}}\n");
        line
    }

    /// Appends a line with the calls since the previous line.
    pub(crate) fn write_down(&mut self) {
        let pid = std::process::id();
        let wanted = self.registered == Some(pid) && !self.unwritten.is_empty();
        let Some(dir) = self.dir.as_ref().filter(|_| wanted) else { return };
        let file = OpenOptions::new().append(true).create(true).open(dir.join(Session::CALLS));
        if let Ok(mut file) = file {
            // A single write, so that lines of several processes do not mix. If the session is over
            // and its directory gone, there is no reader.
            let _ = file.write_all(self.line(pid).as_bytes());
        }
        self.unwritten.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_line_names_each_function_once() {
        let mut counts = Counts::new();
        assert_eq!(counts.line(7), "{\"pid\":7,\"calls\":{}}\n");
        for function in ["nvmlShutdown", "nvmlInit_v2", "nvmlShutdown"] {
            counts.add(function);
        }
        let line = "{\"pid\":7,\"calls\":{\"nvmlInit_v2\":1,\"nvmlShutdown\":2}}\n";
        assert_eq!(counts.line(7), line);
        assert_eq!((counts.get(None), counts.get(Some("nvmlShutdown"))), (3, 2));
        assert_eq!(counts.get(Some("nvmlDeviceGetName")), 0);
    }

    #[test]
    fn only_new_counts_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut counts = Counts::new();
        counts.append_to(dir.path(), || true);
        for function in ["nvmlInit_v2", "nvmlShutdown"] {
            counts.add(function);
            counts.write_down();
            counts.write_down();
        }
        counts.clear();
        let written = std::fs::read_to_string(dir.path().join(Session::CALLS)).unwrap();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.len(), 2, "{written}");
        assert!(lines[1].ends_with("{\"nvmlShutdown\":1}}"), "{written}");
    }
}
