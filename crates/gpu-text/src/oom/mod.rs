//! Out-of-memory messages of GPU programs, as events with figures.
//!
//! A log is parsed as a whole and not line by line, because the messages are wrapped, indented,
//! quoted and mixed with progress bars. It is flattened to one sequence of words; the few typical
//! positions of such messages are marked; and the text between one mark and the next is parsed for
//! the figures of this wording. Figures are kept as printed, even if they make no sense.

mod bfc;
mod dedup;
mod event;
mod figure;
mod flatten;
mod libraries;
mod reader;
mod short_messages;
mod torch;
mod wrap;
mod xla;

pub use event::{
    Bin, Block, ChunkSum, Dump, Event, Framework, Pool, Region, Rematerialization, Report, Tensor,
    Wording,
};
pub use figure::Figure;

use crate::text;

/// The most events that are kept.
const MAX_EVENTS: usize = 1000;

/// The most rows of a dump (bins, sums, blocks, statistics) that are kept of each.
const MAX_ROWS: usize = 1 << 20;

/// Parses every out-of-memory message in a log.
///
/// Total: whatever the bytes, it returns what it recognises, and no event if there is none. A
/// repeated message is one event with a higher [`Event::times`]. Of a log above 64 MiB it parses
/// the end, where such a message is.
pub fn read(bytes: &[u8]) -> Report {
    read_within(bytes, text::MAX_BYTES)
}

fn read_within(bytes: &[u8], most: usize) -> Report {
    let (head, tail) = end_of(bytes, most);
    let text = text::clean(tail);
    let mut report = reader::read(&flatten::flatten(&text));
    report.is_cut |= text.is_cut() || !head.is_empty();
    let lines_before = head.iter().filter(|byte| **byte == b'\n').count();
    for event in &mut report.events {
        event.line += lines_before;
    }
    report
}

/// Splits a log before the first whole line of its last bytes. UTF-16 is not split, because its
/// start identifies it.
fn end_of(bytes: &[u8], most: usize) -> (&[u8], &[u8]) {
    let over = bytes.len().saturating_sub(most);
    if over == 0 || bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return (&[], bytes);
    }
    let (_, end) = bytes.split_at(over);
    let rest_of_line = end.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.split_at(over + rest_of_line)
}

#[cfg(test)]
mod tests;
