//! The records of fixed size: the header of each file, and the entries of an index.

use crate::day::{Day, FileKind};
use gpu_core::Timestamp;

/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// The size of a header and of an entry, in bytes. It divides the size of a page, so that a reader
/// never sees half of an entry that is being written.
pub(crate) const SIZE: usize = 32;

/// The content of a file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// It is a file of this version.
    Known,
    /// It is a file of another version.
    Version(u32),
    /// It is damaged.
    Damaged,
}

impl Header {
    /// Returns the header of a file.
    pub(crate) fn bytes(kind: FileKind, day: Day) -> [u8; SIZE] {
        Self::versioned(kind, day, VERSION)
    }

    fn versioned(kind: FileKind, day: Day, version: u32) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(match kind {
            FileKind::Data => b"gpuwsdat",
            FileKind::Index => b"gpuwsidx",
        });
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[16..24].copy_from_slice(&day.start().0.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Reads the header of the file of a day.
    pub(crate) fn read(bytes: &[u8; SIZE], kind: FileKind, day: Day) -> Header {
        let version = u32_at(bytes, 8);
        match *bytes == Self::versioned(kind, day, version) {
            true if version == VERSION => Header::Known,
            true => Header::Version(version),
            false => Header::Damaged,
        }
    }
}

/// The location of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The time of its snapshot.
    pub(crate) time: Timestamp,
    /// Where it starts in the data.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) length: u32,
    /// Its index in its chunk.
    pub(crate) position: u16,
    /// A recorder started with it.
    pub(crate) starts_run: bool,
    /// It is the second copy of a key frame.
    pub(crate) is_copy: bool,
    /// The checksum of its data.
    pub(crate) crc: u32,
}

const STARTS_RUN: u16 = 1;
const IS_COPY: u16 = 2;

impl Entry {
    /// Returns whether data of this length ends before the end of the frame.
    pub(crate) fn is_beyond(&self, length: u64) -> bool {
        self.offset.checked_add(self.length.into()).is_none_or(|end| end > length)
    }

    pub(crate) fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let flags =
            if self.starts_run { STARTS_RUN } else { 0 } | if self.is_copy { IS_COPY } else { 0 };
        bytes[..8].copy_from_slice(&self.time.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.position.to_le_bytes());
        bytes[22..24].copy_from_slice(&flags.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.crc.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Reads an entry; `None` if it is damaged.
    pub(crate) fn read(bytes: &[u8; SIZE]) -> Option<Entry> {
        let flags = u16_at(bytes, 22);
        let entry = Entry {
            time: Timestamp(u64_at(bytes, 0)),
            offset: u64_at(bytes, 8),
            length: u32_at(bytes, 16),
            position: u16_at(bytes, 20),
            starts_run: flags & STARTS_RUN != 0,
            is_copy: flags & IS_COPY != 0,
            crc: u32_at(bytes, 24),
        };
        (entry.bytes() == *bytes).then_some(entry)
    }
}

/// Returns the checksum of the data of a frame. It includes the checksum of the frame that it is
/// compared with, so that it never matches with a different base.
pub(crate) fn crc(base: Option<u32>, data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&base.unwrap_or(0).to_le_bytes());
    hasher.update(data);
    hasher.finalize()
}

/// Writes the checksum of a record into its last four bytes.
fn seal(bytes: &mut [u8; SIZE]) {
    let crc = crc32fast::hash(&bytes[..SIZE - 4]);
    bytes[SIZE - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn u16_at(bytes: &[u8; SIZE], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; SIZE], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8; SIZE], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_damages_entry_and_header() {
        let entry = Entry {
            time: Timestamp(1_795_223_083_000),
            offset: 1 << 40,
            length: 517,
            position: 39,
            starts_run: true,
            is_copy: false,
            crc: 0xdead_beef,
        };
        let day = Day::of(entry.time).unwrap();
        let header = Header::bytes(FileKind::Index, day);
        assert_eq!(Entry::read(&entry.bytes()), Some(entry));
        assert_eq!(Header::read(&header, FileKind::Index, day), Header::Known);
        for bit in 0..SIZE * 8 {
            let flipped = |mut bytes: [u8; SIZE]| {
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            };
            assert_eq!(Entry::read(&flipped(entry.bytes())), None, "{bit}");
            let header = Header::read(&flipped(header), FileKind::Index, day);
            assert_eq!(header, Header::Damaged, "{bit}");
        }
        let newer = Header::versioned(FileKind::Data, day, 2);
        assert_eq!(Header::read(&newer, FileKind::Data, day), Header::Version(2));
        assert_eq!(Header::read(&newer, FileKind::Index, day), Header::Damaged);
    }

    #[test]
    fn checksum_depends_on_the_base_checksum() {
        assert_ne!(crc(Some(1), b"x"), crc(Some(2), b"x"));
        assert_eq!(crc(None, b"x"), crc(Some(0), b"x"));
    }
}
