//! What programs print when the memory of a GPU is not enough, as events with figures.
//!
//! A log is read whole and not line by line, since the messages come wrapped, indented, quoted and
//! between the lines of a progress bar. It is flattened to one run of words; the few places that a
//! message of this kind has are marked; and what stands between one mark and the next is read for
//! the figures that this wording gives. Figures are kept as printed, also where they make no sense.

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

/// How many events are kept.
const MAX_EVENTS: usize = 1000;

/// How many rows of a dump (bins, sums, blocks, statistics) are kept of each.
const MAX_ROWS: usize = 1 << 20;

/// Reads every message about memory that ran out in a log.
///
/// Total: whatever the bytes, it gives what there is to be understood, and no event where there
/// is none. The same message printed again is one event with a higher [`Event::times`]. Of a log
/// above 64 MiB the end is read, where such a message stands.
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

/// Splits a log before the first whole line of its last bytes. UTF-16 is not split: its beginning
/// tells what it is.
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
