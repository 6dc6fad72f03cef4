//! Outputs with a name and a value in each line: the trees of amd-smi, `GPU[0] : name: value` of
//! rocm-smi, and the samples of radeontop.

use super::listing::{Key, Listing};
use crate::document::Tool;

/// The maximum number of sections within each other; amd-smi has four.
const MAX_DEPTH: usize = 16;

/// The sections around a line of a tree, each with its indentation.
#[derive(Default)]
pub(super) struct Tree {
    sections: Vec<(usize, String)>,
    is_in: bool,
}

impl Tree {
    /// Reads a line of amd-smi's `list`, `static`, `metric` or `process`; returns whether it is one.
    pub(super) fn line(&mut self, line: &str, listing: &mut Listing) -> bool {
        let text = line.trim();
        if let Some(index) = tree_device(text) {
            listing.tool(Tool::AmdSmi);
            listing.device(Key::Index(index));
            (self.is_in, self.sections) = (true, Vec::new());
            return true;
        }
        let indent = line.len() - line.trim_start().len();
        self.is_in &= indent > 0;
        if !self.is_in {
            return false;
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_- ".contains(&b))
        };
        let Some((name, value)) = text.split_once(':').filter(|(name, _)| is_name(name)) else {
            // Otherwise, a list goes on.
            if text.starts_with("No running process") {
                listing.lists_own_processes();
            }
            return true;
        };
        while self.sections.last().is_some_and(|(at, _)| *at >= indent) {
            self.sections.pop();
        }
        let (value, is_process) = (value.trim(), self.is_in_process());
        if name == PROCESS {
            listing.lists_own_processes();
            if value.is_empty() {
                listing.start_own_process();
            }
        } else if is_process {
            if name == "NAME" && listing.has_pid() {
                listing.start_own_process();
            }
            listing.process_value(name, value);
        } else {
            listing.value(self.sections.last().map(|(_, name)| name.as_str()), name, value);
        }
        if value.is_empty() && self.sections.len() < MAX_DEPTH {
            self.sections.push((indent, name.to_owned()));
        }
        true
    }

    fn is_in_process(&self) -> bool {
        self.sections.iter().any(|(_, name)| name == PROCESS)
    }
}

/// The section of a process.
const PROCESS: &str = "PROCESS_INFO";

/// Parses the line above a device in a tree of amd-smi: `GPU: 0`.
pub(super) fn tree_device(line: &str) -> Option<u32> {
    line.strip_prefix("GPU: ")?.trim().parse().ok()
}

/// Parses a line of rocm-smi about one device: `GPU[0] : name: value`.
pub(super) fn rocm_device(line: &str) -> Option<(u32, &str, &str)> {
    let (index, rest) = line.trim().strip_prefix("GPU[")?.split_once(']')?;
    let rest = rest.trim_start().strip_prefix(':')?;
    let (name, value) = rest.split_once(": ").unwrap_or((rest, ""));
    Some((index.parse().ok()?, name, value))
}

/// Reads a sample of radeontop: `1.5: bus 03, gpu 5.00%, …, vram 20.00% 1634.50mb, …`; returns
/// whether the line is one.
pub(super) fn radeontop(line: &str, listing: &mut Listing) -> bool {
    let Some(values) = radeontop_values(line) else { return false };
    listing.tool(Tool::Radeontop);
    listing.device(Key::Only);
    for value in values.split(',').map(str::trim) {
        match value.split_once(' ') {
            Some(("gpu", percent)) => listing.value(None, "GPU%", percent),
            Some(("vram", figures)) => {
                // The share of the total, then the amount.
                let amount = figures.split(' ').nth(1).unwrap_or_default();
                listing.value(None, "VRAM used", amount);
            }
            _ => {}
        }
    }
    true
}

/// Returns the values of a sample of radeontop, behind its time.
pub(super) fn radeontop_values(line: &str) -> Option<&str> {
    let (time, values) = line.trim().split_once(": ")?;
    let is_time = time.contains('.') && time.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let has = |name: &str| values.split(", ").take(2).any(|value| value.starts_with(name));
    (is_time && has("gpu ") && values.contains("vram ")).then_some(values)
}
