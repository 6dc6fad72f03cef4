//! What the tools of AMD and Intel print about devices and processes.
//!
//! rocm-smi, amd-smi, xpu-smi, intel_gpu_top, radeontop and amdgpu_top have many formats, and each
//! version changes some columns and keys. So no format of one version is known here: the values go
//! by the words of their names (`keys`), whether these are columns, keys or sections, and every
//! format fills the same devices and processes (`listing`).

mod boxes;
mod columns;
mod json;
mod keys;
mod lines;
mod listing;

use crate::document::{Document, Tool};
use crate::text::Text;
use crate::work_meter;
use boxes::Boxes;
use columns::Header;
use lines::Tree;
use listing::{Key, Listing};

/// Texts that only these tools print, each with its tool.
const TITLES: [(&str, Tool); 6] = [
    ("ROCm System Management Interface", Tool::RocmSmi),
    ("End of ROCm SMI Log", Tool::RocmSmi),
    ("KFD process information", Tool::RocmSmi),
    ("No KFD PIDs currently running", Tool::RocmSmi),
    ("= KFD Processes =", Tool::RocmSmi),
    ("XPU-SMI v", Tool::XpuSmi),
];

/// The number of lines of a table within which its columns identify the tool.
const HEAD: usize = 4;

/// Returns whether a line belongs to one of these outputs; `following` has the lines after it.
pub(crate) fn is_start<'a>(line: &str, following: impl Iterator<Item = &'a str> + Clone) -> bool {
    if line.starts_with(['+', '|']) {
        const SIGNS: [&str; 5] =
            ["| AMD-SMI ", "XPU-SMI v", "GPU-Name |", " GTT_MEM ", "| Device ID "];
        let has_sign = |line: &str| {
            work_meter::add(line.len());
            SIGNS.iter().any(|sign| line.contains(sign))
        };
        return has_sign(line) || following.take(HEAD).any(has_sign);
    }
    let is_tree = || {
        let below = following.clone().next().unwrap_or_default();
        lines::tree_device(line).is_some() && below.starts_with("    ") && below.contains(':')
    };
    TITLES.iter().any(|(title, _)| line.contains(title))
        || lines::rocm_device(line).is_some_and(|(_, _, value)| !value.is_empty())
        || is_tree()
        || lines::radeontop_values(line).is_some()
        || Header::of(line).is_some()
        || json::tool(line, following).is_some()
}

/// Returns whether some line of a text starts JSON of these tools.
pub(crate) fn is_json_within(text: &str) -> bool {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if json::tool(line.trim(), lines.clone()).is_some() {
            return true;
        }
    }
    false
}

/// Parses the text.
pub(crate) fn parse(text: &Text) -> Document {
    let mut listing = Listing::new();
    let mut state = State::default();
    let open = text.open_line();
    // The end of the JSON in the text, and whether it is cut there.
    let mut json = None;
    let mut lines = text.lines();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        let json_line = line.trim_start();
        let at = json_line.as_ptr() as usize - text.as_str().as_ptr() as usize;
        if json.is_none()
            && let Some(tool) = json::tool(json_line, lines.clone().map(|(_, line)| line))
        {
            let (read, is_cut) =
                json::read(text.as_str().get(at..).unwrap_or_default(), &mut listing);
            listing.tool(tool);
            json = Some((at + read, is_cut));
        }
        match &mut json {
            Some((end, _)) if at + json_line.trim_end().len() <= *end => {}
            Some((_, is_cut)) if *is_cut => {
                *is_cut = false;
                listing.unread(number, line, "incomplete JSON");
            }
            _ if state.line(line, open == Some(number), &mut listing) => {}
            _ => listing.unread(number, line, "not a line of a known table or list"),
        }
        if std::mem::take(&mut listing.is_full) {
            listing.unread(number, line, "row limit exceeded");
        }
    }
    state.boxes.end_device(&mut listing);
    listing.finish()
}

/// The state between lines.
#[derive(Default)]
struct State {
    header: Option<Header>,
    boxes: Boxes,
    tree: Tree,
}

impl State {
    /// Reads a line; returns whether it has a meaning.
    fn line(&mut self, line: &str, is_open: bool, listing: &mut Listing) -> bool {
        let text = line.trim();
        if text.starts_with(['|', '+']) {
            return self.boxes.line(text, listing);
        }
        if self.tree.line(line, listing) || lines::radeontop(text, listing) {
            return true;
        }
        if let Some((index, name, value)) = lines::rocm_device(text) {
            listing.tool(Tool::RocmSmi);
            listing.device(Key::Index(index));
            listing.value(None, name, value);
            return true;
        }
        if let Some(header) = Header::of(line) {
            listing.tool(header.tool());
            if header.is_of_processes() {
                listing.lists_processes();
            }
            self.header = Some(header);
            return true;
        }
        if let Some(version) = text.strip_prefix("Driver version: ") {
            listing.value(None, "driver version", version);
            return true;
        }
        if let Some((_, tool)) = TITLES.iter().find(|(title, _)| text.contains(title)) {
            listing.tool(*tool);
            if text.contains("No KFD PIDs") {
                listing.lists_processes();
            }
            return true;
        }
        if is_heading(text) {
            return true;
        }
        let Some(header) = &self.header else { return false };
        if header.row(line, is_open, listing) {
            return true;
        }
        // rocm-smi 6.0 prints the name of a device below its row.
        let is_name = header.names().iter().any(|name| name == "model revision")
            && columns::cells(text).len() == 1;
        if is_name {
            listing.value(None, "name", text);
        }
        is_name
    }
}

/// Returns whether a line is a heading: a rule, a title in one, the second line of column names
/// (`Name (20 chars)  (Junction)`) or the name of the table below (`PROCESS INFO:`).
fn is_heading(text: &str) -> bool {
    let is_title = text.starts_with("==") && text.ends_with("==");
    let is_second = text.starts_with("Name (") || text.starts_with('(') && text.ends_with(')');
    let is_name = text.strip_suffix(':').is_some_and(|name| {
        name.bytes().all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b' '))
    });
    is_title || is_second || is_name
}

#[cfg(test)]
mod tests;
