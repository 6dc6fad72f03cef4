//! What programs print when the memory of a GPU is not enough, as events with figures.
//!
//! A log is read whole and not line by line, since the messages come wrapped, indented, quoted and
//! between the lines of a progress bar. It is flattened to one run of words; the few places that a
//! message of this kind has are marked; and what stands between one mark and the next is read for
//! the figures that this wording gives. Figures are kept as printed, also where they make no sense.

mod bfc;
mod event;
mod figure;
mod flat;
mod plain;
mod reader;
mod torch;
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
/// is none. The same message printed again is one event with a higher [`Event::times`].
pub fn read(bytes: &[u8]) -> Report {
    let text = text::clean(bytes);
    let mut report = reader::read(&flat::flatten(&text));
    report.is_cut |= text.is_cut();
    report
}

#[cfg(test)]
mod tests;
