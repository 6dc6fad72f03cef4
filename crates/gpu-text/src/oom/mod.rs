//! Out-of-memory messages of GPU programs, as events with figures.
//!
//! A log is parsed as a whole and not line by line, because the messages are wrapped, indented,
//! quoted and mixed with progress bars. It is flattened to one sequence of words; the few typical
//! positions of such messages are marked; and the text between one mark and the next is parsed for
//! the figures of this wording. Figures are kept as printed, even if they make no sense.

mod bfc;
mod dedup;
mod engines;
mod event;
mod figure;
mod flatten;
mod libraries;
mod pieces;
mod prefix;
mod reader;
mod short_messages;
mod torch;
mod wrap;
mod xla;

pub use engines::{Fact, Short, Unit};
pub use event::{
    Bin, Block, ChunkSum, Dump, Event, Framework, Pool, Region, Rematerialization, Report, Tensor,
    Wording,
};
pub use figure::Figure;
pub use pieces::LogReader;

/// The most events that are kept.
const MAX_EVENTS: usize = 1000;

/// The most rows of a dump (bins, sums, blocks, statistics) that are kept of each.
const MAX_ROWS: usize = 1 << 20;

/// The most rows of all dumps together.
const MAX_ALL_ROWS: usize = 2 * MAX_ROWS;

/// Parses every out-of-memory message in a log.
///
/// Total: whatever the bytes, it returns what it recognises, and no event if there is none. A
/// repeated message is one event with a higher [`Event::times`]. [`LogReader`] does the same for a
/// log that is not in memory.
pub fn read(bytes: &[u8]) -> Report {
    let mut log = LogReader::default();
    log.push(bytes);
    log.finish()
}

#[cfg(test)]
mod tests;
