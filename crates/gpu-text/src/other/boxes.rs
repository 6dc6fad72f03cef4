//! Tables between bars: the default table of amd-smi and xpu-smi, and the lists of xpu-smi.
//!
//! A device has several rows, up to the next border; the names of their columns are in as many rows
//! above the first device. The lists of xpu-smi have a name and a value in each row.

use super::columns::{Header, cells, pairs};
use super::keys::words;
use super::listing::{Key, Listing, index};
use crate::document::Tool;
use gpu_core::PciBusId;

/// The maximum number of rows of a device, or of its column names.
const MAX_ROWS: usize = 16;

/// The state between the lines of a table.
#[derive(Default)]
pub(super) struct Boxes {
    /// For each row of a device, the names of its columns.
    names: Vec<Vec<String>>,
    /// The columns of the process table.
    processes: Option<Header>,
    /// The names and cells of the current device.
    device: Vec<(String, String)>,
    /// The number of rows of the current device.
    rows: usize,
    /// Whether a row has a name and a value.
    is_list: bool,
}

impl Boxes {
    /// Reads a line between bars, or a border; returns whether it has a meaning.
    pub(super) fn line(&mut self, line: &str, listing: &mut Listing) -> bool {
        if is_border(line) {
            self.end_device(listing);
            return true;
        }
        let inner = line.strip_prefix('|').unwrap_or(line);
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        let bars: Vec<&str> = inner.split('|').collect();
        let mut whole: Vec<&str> = bars.iter().flat_map(|cell| cells(cell)).collect();
        // A long name leaves one blank behind the bus ID.
        if let Some((bus, name)) = whole.first().and_then(|cell| cell.split_once(' '))
            && bus.parse::<PciBusId>().is_ok()
        {
            whole.splice(..1, [bus, name.trim()]);
        }
        if let [name, value] = bars[..]
            && self.is_row_of_list(name.trim(), value.trim(), listing)
        {
            return true;
        }
        if title(inner, listing) {
            (self.names, self.processes, self.is_list) = (Vec::new(), None, false);
            return true;
        }
        if let Some(header) = Header::of(inner).filter(Header::is_of_processes) {
            listing.tool(Tool::AmdSmi);
            listing.lists_processes();
            self.processes = Some(header);
            return true;
        }
        if let Some(header) = &self.processes {
            return inner.trim_start().starts_with("No running process")
                || header.row(inner, false, listing);
        }
        if inner.trim() == "Processes:" {
            return true;
        }
        if self.device.is_empty() && is_names(&whole) && self.names.len() < MAX_ROWS {
            let names: Vec<String> = whole.into_iter().map(words).collect();
            let is_xpu = names.iter().any(|name| name == "bus id");
            listing.tool(if is_xpu { Tool::XpuSmi } else { Tool::AmdSmi });
            self.names.push(names);
            return true;
        }
        self.row(&bars, &whole)
    }

    /// Reads a row of a device.
    fn row(&mut self, bars: &[&str], whole: &[&str]) -> bool {
        let filled = bars.iter().filter(|cell| !cell.trim().is_empty()).count();
        if filled == 1 && bars.len() > 1 {
            // The rest of a name that is too long for its row.
            let name = self.device.iter_mut().find(|(name, _)| name.ends_with("name"));
            let (Some((_, name)), [rest]) = (name, whole) else { return false };
            name.push(' ');
            name.push_str(rest);
            return true;
        }
        let Some(names) = self.names.get(self.rows).filter(|names| names.len() == whole.len())
        else {
            return false;
        };
        let row = pairs(names, whole).into_iter();
        self.device.extend(row.map(|(name, cell)| (name.to_owned(), cell.to_owned())));
        self.rows += 1;
        true
    }

    /// Reads a row of a list: `Device ID | 0`, `0 | Device Name: …` or `GPU Power (W) | 15`.
    fn is_row_of_list(&mut self, name: &str, value: &str, listing: &mut Listing) -> bool {
        if words(name) == "device id" {
            self.is_list = true;
            listing.tool(Tool::XpuSmi);
            index(value).into_iter().for_each(|index| listing.device(Key::Index(index)));
        } else if self.is_list {
            if let Some(index) = index(name) {
                listing.device(Key::Index(index));
            }
            let (name, value) = if name.is_empty() || index(name).is_some() {
                value.split_once(": ").unwrap_or((value, ""))
            } else {
                (name, value)
            };
            listing.value(None, name, value);
        }
        self.is_list
    }

    /// Hands the current device over.
    pub(super) fn end_device(&mut self, listing: &mut Listing) {
        let row: Vec<_> = self.device.iter().map(|(n, c)| (n.as_str(), c.as_str())).collect();
        if !row.is_empty() {
            listing.row(&row);
        }
        (self.device, self.rows) = (Vec::new(), 0);
    }
}

/// Returns whether a line is a border: bars, crosses and rules alone.
fn is_border(line: &str) -> bool {
    line.chars().all(|c| matches!(c, '|' | '+' | '-' | '=' | ' '))
}

/// Returns whether cells are names of columns: words without a number.
fn is_names(cells: &[&str]) -> bool {
    let is_name = |cell: &&str| cell.starts_with(|c: char| c.is_ascii_alphabetic());
    cells.len() > 1
        && cells.iter().all(|cell| is_name(cell) && *cell != "N/A" && !cell.ends_with('%'))
}

/// Reads a title with versions: `AMD-SMI 26.0.0  amdgpu version: 6.12.12`, `amdgpu Version: 6.19.4`,
/// `Intel XPU-SMI v2.1  Driver: …`.
fn title(inner: &str, listing: &mut Listing) -> bool {
    let lower = inner.to_ascii_lowercase();
    let tool = [("AMD-SMI", Tool::AmdSmi), ("XPU-SMI", Tool::XpuSmi)];
    let tool = tool.into_iter().find(|(name, _)| inner.contains(name));
    tool.into_iter().for_each(|(_, tool)| listing.tool(tool));
    let name = lower.split(':').next().unwrap_or_default();
    let is_title = tool.is_some()
        || name != lower && (name.ends_with("version") || name.ends_with("platform"));
    for name in ["amdgpu version:", "driver:"].iter().filter(|_| is_title) {
        let rest = lower.find(name).and_then(|at| inner.get(at + name.len()..));
        if let Some(version) = rest.and_then(|rest| rest.split_whitespace().next()) {
            listing.value(None, "Driver version", version);
        }
    }
    is_title
}
