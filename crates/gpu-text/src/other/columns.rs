//! Tables with a line of column names: rocm-smi, amd-smi and xpu-smi print them with blanks or, as
//! CSV, with commas between the cells.
//!
//! Cells are split at two or more blanks, not at the columns of the header, because the widths of
//! cells and names do not always agree. If a row then has another number of cells, because a single
//! blank separates two of them, its words go to the columns that they are below.

use super::keys::{self, Field, words};
use super::listing::{Listing, is_pid};
use crate::document::Tool;
use crate::work_meter;
use std::ops::Range;

/// The maximum number of columns; the widest known table has 30, CSV of all metrics some hundreds.
const MAX_COLUMNS: usize = 128;
const MAX_COLUMNS_OF_CSV: usize = 1024;

/// The column names of a table, of [`words`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    names: Vec<String>,
    /// The characters at which the columns start and end; none in CSV.
    spans: Vec<Range<usize>>,
}

impl Header {
    /// Parses a line of column names: the index of a device or a PID, and a known value.
    pub(super) fn of(line: &str) -> Option<Self> {
        work_meter::add(line.len());
        // Cells of blanks may contain commas, as in `Partitions (Mem, Compute)`.
        let commas = !line.contains("  ") && !line.contains('\t') && line.contains(',');
        let cells = if commas { comma_cells(line) } else { cells(line) };
        let is_name = |cell: &&str| cell.starts_with(|c: char| c.is_ascii_alphabetic() || c == '[');
        let most = if commas { MAX_COLUMNS_OF_CSV } else { MAX_COLUMNS };
        if cells.len() > most || !cells.iter().all(|cell| commas || is_name(cell)) {
            return None;
        }
        let mut names: Vec<String> = cells.iter().map(|cell| words(cell)).collect();
        let has = |known: &[&str]| names.iter().any(|name| known.contains(&name.as_str()));
        let is_value = |name: &String| {
            !matches!(name.as_str(), "memory" | "temp")
                && keys::of_device(None, name).is_some_and(|(field, ..)| field != Field::Name)
        };
        let is_known = if names.iter().any(|name| is_pid(name)) {
            has(&["vram mem", "vram used", "deviceid"])
        } else {
            names.iter().take(3).any(|name| is_index(name)) && names.iter().any(is_value)
        };
        if !is_known {
            return None;
        }
        // The rows of parts of a device and of its possible modes have no values of the device.
        if has(&["tileid", "tile id", "profile index"]) {
            names.iter_mut().filter(|name| !is_index(name)).for_each(String::clear);
        }
        let spans = if commas { Vec::new() } else { spans(line, &cells) };
        Some(Header { names, spans })
    }

    pub(super) fn is_of_processes(&self) -> bool {
        self.names.iter().any(|name| is_pid(name))
    }

    /// Returns the names of the columns.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the tool that prints these columns.
    pub(super) fn tool(&self) -> Tool {
        const OF_ROCM: [&str; 7] =
            ["device", "avgpwr", "pwrcap", "vram %", "process name", "node", "gfx ver"];
        let has = |known: &str| self.names.iter().any(|name| name == known);
        if OF_ROCM.into_iter().any(has) {
            Tool::RocmSmi
        } else if has("deviceid") || has("device id") {
            Tool::XpuSmi
        } else {
            Tool::AmdSmi
        }
    }

    /// Reads a row; `is_open`: the text may end in the middle of its last cell. Returns false if it
    /// is no row of these columns.
    pub(super) fn row(&self, line: &str, is_open: bool, listing: &mut Listing) -> bool {
        let mut cells = if self.spans.is_empty() { comma_cells(line) } else { cells(line) };
        if cells.len() < self.names.len() && is_open {
            cells.pop();
        } else if cells.len() != self.names.len() {
            cells = self.below(line);
        }
        if cells.len() > self.names.len() || cells.len() < self.names.len() && !is_open {
            return false;
        }
        listing.row(&pairs(&self.names, &cells))
    }

    /// Splits a row into the words below each column; a word belongs to the column that it overlaps
    /// most. Empty if a column or a word has no other.
    fn below<'a>(&self, line: &'a str) -> Vec<&'a str> {
        let words: Vec<&str> = line.split_whitespace().take(4 * MAX_COLUMNS).collect();
        let mut cells: Vec<Range<usize>> = Vec::new();
        let bytes = |word: &str| {
            let start = word.as_ptr() as usize - line.as_ptr() as usize;
            start..start + word.len()
        };
        for (word, span) in words.iter().zip(spans(line, &words)) {
            work_meter::add(self.spans.len());
            let overlap = |column: &Range<usize>| {
                column.end.min(span.end).saturating_sub(column.start.max(span.start))
            };
            let best = (0..self.spans.len()).rev().max_by_key(|at| overlap(&self.spans[*at]));
            let Some(at) = best.filter(|at| overlap(&self.spans[*at]) > 0) else {
                return Vec::new();
            };
            if at == cells.len() {
                cells.push(bytes(word));
            } else if let Some(cell) = cells.get_mut(at) {
                cell.end = bytes(word).end;
            } else {
                return Vec::new();
            }
        }
        cells.into_iter().filter_map(|cell| line.get(cell)).collect()
    }
}

fn is_index(name: &str) -> bool {
    keys::INDEXES.contains(&name)
}

/// Returns the characters at which the cells of a line start and end.
fn spans(line: &str, cells: &[&str]) -> Vec<Range<usize>> {
    let (mut byte, mut count) = (0, 0);
    let mut spans = Vec::new();
    for cell in cells {
        let start = cell.as_ptr() as usize - line.as_ptr() as usize;
        count += line.get(byte..start).map_or(0, |between| between.chars().count());
        let end = count + cell.chars().count();
        spans.push(count..end);
        (byte, count) = (start + cell.len(), end);
    }
    spans
}

/// Pairs the names of columns with the cells of a row.
pub(super) fn pairs<'a>(names: &'a [String], cells: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    names.iter().map(String::as_str).zip(cells.iter().copied()).collect()
}

/// Splits a row at tabs and at two or more blanks. A cell that ends with a comma goes on, as in
/// `0x74a1,   28851`.
pub(super) fn cells(line: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let (mut start, mut rest) = (0, line);
    while let Some(end) = rest.find(['\t', ' ']) {
        let at = line.len() - rest.len() + end;
        let blanks = rest[end..].len() - rest[end..].trim_start_matches(['\t', ' ']).len();
        let separates = blanks > 1 || rest[end..].starts_with('\t');
        if separates && !line[start..at].ends_with(',') {
            cells.push(line[start..at].trim());
            start = at + blanks;
        }
        rest = &rest[end + blanks..];
    }
    cells.push(line[start..].trim());
    cells.retain(|cell| !cell.is_empty());
    cells
}

/// Splits a row of CSV; a cell in quotes may contain commas.
fn comma_cells(line: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let separates = |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    line.split(separates).map(|cell| cell.trim().trim_matches('"')).collect()
}
