//! The damage in a history.

use crate::day::{Day, FileKind};
use std::fmt;

/// A damaged part of a history, and how many frames it costs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// The day of the file.
    pub day: Day,
    /// The damaged file of that day.
    pub file: FileKind,
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// The kind of damage.
    pub what: DamageKind,
    /// How many frames cannot be read because of it, including those that were compared with a
    /// damaged one; 0 if a copy was read instead, or if their number is unknown.
    pub frames: usize,
}

impl Damage {
    /// Returns what distinguishes it from other damage, in the order of the files.
    pub(crate) fn sort_key(&self) -> (Day, FileKind, u64, &DamageKind) {
        (self.day, self.file, self.offset, &self.what)
    }
}

/// The kind of damage to a part of a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// The file is missing or cannot be read.
    Unreadable(String),
    /// The header does not match its checksum; the rest is readable.
    Header,
    /// An entry of the index does not match its checksum.
    Entry,
    /// The index ends in the middle of an entry.
    TornEntry,
    /// The data ends before the frame does.
    TornFrame,
    /// The data of a frame does not match its checksum.
    Frame,
    /// The frame that others were compared with is not in the index.
    Base,
    /// The data of a frame matches its checksum but is not a frame.
    Malformed,
    /// The entry refers to data that belongs to another entry.
    Overlap,
    /// The frame is larger than the data of its chunk allows.
    Expansion,
    /// Data that is in no entry: the recorder ended before it wrote the entry, or the end of the
    /// index is lost.
    NotInIndex,
}

/// In the terms of the command line, where a frame is a sample.
impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DamageKind::Unreadable(why) => return write!(f, "unreadable: {why}"),
            DamageKind::Header => "damaged header",
            DamageKind::Entry => "damaged entry",
            DamageKind::TornEntry => "entry cut off",
            DamageKind::TornFrame => "sample cut off",
            DamageKind::Frame => "damaged sample",
            DamageKind::Base => "sample with a lost base",
            DamageKind::Malformed => "malformed sample",
            DamageKind::Overlap => "sample at the position of another",
            DamageKind::Expansion => "sample too large for its data",
            DamageKind::NotInIndex => "data that is not in the index",
        })
    }
}

impl fmt::Display for Damage {
    /// Writes `index_2026-11-24, byte 4128: damaged entry, 1 sample lost`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.name(self.day);
        let lost = match (&self.what, self.file, self.frames) {
            (DamageKind::Unreadable(_), FileKind::Index, _) => "all samples".to_owned(),
            (DamageKind::NotInIndex, _, _) => "an unknown number of samples".to_owned(),
            (DamageKind::TornEntry, _, _) => "at least 1 sample".to_owned(),
            (_, _, 0) => "nothing".to_owned(),
            (_, _, 1) => "1 sample".to_owned(),
            (_, _, count) => format!("{count} samples"),
        };
        write!(f, "{name}, byte {}: {}, {lost} lost", self.offset, self.what)
    }
}
