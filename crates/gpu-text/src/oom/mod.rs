//! Out-of-memory messages of GPU programs, as events with figures.
//!
//! A log is parsed as a whole and not line by line, because the messages are wrapped, indented,
//! quoted and mixed with progress bars. The log is flattened to one sequence of words;
//! characteristic words mark the messages; and the text from one mark to the next is parsed for the
//! figures of its wording. Figures are kept as printed, even if they are implausible.

mod bfc;
mod dedup;
mod engines;
mod event;
mod figure;
mod flatten;
mod libraries;
mod passage;
mod pieces;
mod prefix;
mod reader;
mod scan;
mod short;
mod short_messages;
mod torch;
mod wrap;
mod xla;

pub use engines::{Fact, Unit};
pub use event::{
    Bin, Block, ChunkSum, Dump, Event, Framework, Pool, Region, Rematerialization, Report, Tensor,
    Wording,
};
pub use figure::Figure;
pub use pieces::LogReader;
pub use short::Short;

/// The maximum number of events kept.
const MAX_EVENTS: usize = 1000;

/// The maximum number of rows of a dump kept: bins, sums, blocks and statistics, each.
const MAX_ROWS: usize = 1 << 20;

/// The maximum number of rows kept of all dumps together.
const MAX_ALL_ROWS: usize = 2 * MAX_ROWS;

/// Parses every out-of-memory message in a log.
///
/// Total: for any bytes, it returns the messages that it recognises, possibly none. A repeated
/// message is one event with a higher [`Event::times`]. [`LogReader`] does the same for a log of
/// any length.
pub fn read(bytes: &[u8]) -> Report {
    let mut log = LogReader::default();
    log.push(bytes);
    log.finish()
}

#[cfg(test)]
mod tests;
