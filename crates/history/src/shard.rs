//! The files of a day, for reading.

use crate::chunk;
use crate::damage::{Damage, DamageKind};
use crate::day::{Day, FileKind};
use crate::dir::HistoryDir;
use crate::entry::{self, Entry, Header, SIZE};
use crate::image::MAX_FRAME;
use crate::writer::{MAX_ENTRIES, newer};
use gpu_core::{Result, Timestamp};
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

/// The maximum expansion of a frame: the bytes when it is read, for each byte that a frame of its
/// chunk has in the files on average, its entry included. A frame of 10,000 idle processes, 6 MB,
/// was written in about 300 bytes.
pub(crate) const MAX_EXPANSION: u64 = 1 << 16;
/// No chunk has more entries: its frames, the copy of the key frame, and damaged ones.
pub(crate) const MAX_CHUNK: usize = 2 * chunk::LENGTH as usize;

/// The summary of a day, without its entries.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) day: Day,
    /// How many frames it has.
    pub(crate) frames: usize,
    /// The earliest and the latest time of the frames.
    pub(crate) span: Option<(Timestamp, Timestamp)>,
    /// How many entries of the index were read.
    entries: u64,
    /// The end of the data of the last entry; `None` if it is damaged.
    end: Option<u64>,
    /// The identity of its data file and its index file.
    files: [Option<Identity>; 2],
}

/// The entries of a day, and its data.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) day: Day,
    data: io::Result<File>,
    /// The entries of the index; `None` for a damaged one.
    entries: Vec<Option<Entry>>,
    /// The entries that are frames.
    frames: Vec<u32>,
    /// The entries that own their data, in the order of the data: no byte belongs to two.
    owners: Vec<(u32, Range<u64>)>,
    /// The entries with data that belongs to another entry.
    overlapping: BTreeSet<u32>,
    /// The chunks: the first entry of each, how many frames it has, and its bytes in both files.
    chunks: Vec<Chunk>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    first: u32,
    frames: u64,
    bytes: u64,
}

impl Summary {
    /// Reads the index of a day, and adds the damage in it.
    ///
    /// # Errors
    /// `Invalid` if it has another version.
    pub(crate) fn read(dir: &HistoryDir, day: Day, damage: &mut Vec<Damage>) -> Result<Self> {
        let end = Some(SIZE as u64);
        let mut summary = Summary { day, frames: 0, span: None, entries: 0, end, files: [None; 2] };
        let mut found = |file, what| {
            damage.push(Damage { day, file, offset: 0, what, frames: 0 });
        };
        let data = open(dir, FileKind::Data, day)?;
        let written = data.as_ref().ok().and_then(|(data, _)| data.metadata().ok());
        match open(dir, FileKind::Index, day)? {
            Ok((index, is_damaged)) => {
                if is_damaged {
                    found(FileKind::Index, DamageKind::Header);
                }
                summary.read_more(&index, damage);
                let indexed = index.metadata().ok();
                summary.files = [&written, &indexed].map(|file| file.as_ref().map(identity));
                // A recorder writes an entry after its data, so an older index may lack an entry.
                if let Some((written, indexed)) = written.zip(indexed)
                    && time(&indexed) > time(&written)
                {
                    summary.read_more(&index, damage);
                    damage.extend(summary.not_in_index(written.len()));
                }
            }
            Err(why) => found(FileKind::Index, why),
        }
        let file = FileKind::Data;
        let mut found = |what, frames| damage.push(Damage { day, file, offset: 0, what, frames });
        match data {
            Ok((_, false)) => {}
            Ok((_, true)) => found(DamageKind::Header, 0),
            Err(why) => found(why, summary.frames),
        }
        Ok(summary)
    }

    /// Returns whether a recorder has replaced its files since.
    pub(crate) fn is_replaced(&self, dir: &HistoryDir) -> bool {
        let file = |kind| Some(identity(&dir.open(kind, self.day, false).ok()?.metadata().ok()?));
        let now = [FileKind::Data, FileKind::Index].map(file);
        // A removed file may still be open.
        now.into_iter().zip(self.files).any(|(now, before)| now.is_some() && now != before)
    }

    /// Returns the damage of data of this length that continues after the last entry.
    fn not_in_index(&self, length: u64) -> Option<Damage> {
        let offset = self.end.filter(|end| *end < length)?;
        let (file, what) = (FileKind::Data, DamageKind::NotInIndex);
        Some(Damage { day: self.day, file, offset, what, frames: 0 })
    }

    /// Reads entries that were added to the index since.
    pub(crate) fn refresh(&mut self, dir: &HistoryDir, damage: &mut Vec<Damage>) -> Result<()> {
        let index = dir.open(FileKind::Index, self.day, false)?;
        self.read_more(&index, damage);
        Ok(())
    }

    fn read_more(&mut self, index: &File, damage: &mut Vec<Damage>) {
        let day = self.day;
        let (first, mut count) = (self.entries, 0);
        let ended = read_entries(index, first, |entry| {
            let ends = |entry: Entry| entry.offset.saturating_add(entry.length.into());
            self.end = entry.map(ends);
            match entry {
                Some(Entry { is_copy: true, .. }) => {}
                Some(Entry { time, .. }) => {
                    self.frames += 1;
                    let (from, to) = self.span.unwrap_or((time, time));
                    self.span = Some((from.min(time), to.max(time)));
                }
                None => damage.push(Damage {
                    day,
                    file: FileKind::Index,
                    offset: position(first + count),
                    what: DamageKind::Entry,
                    frames: 1,
                }),
            }
            count += 1;
        });
        self.entries = first + count;
        let what = match ended {
            Ok(false) => return,
            Ok(true) => DamageKind::TornEntry,
            Err(error) => DamageKind::Unreadable(error.to_string()),
        };
        let offset = position(self.entries);
        damage.push(Damage { day, file: FileKind::Index, offset, what, frames: 1 });
    }
}

impl Shard {
    /// Reads the entries that a summary counted, and opens the data.
    pub(crate) fn open(dir: &HistoryDir, summary: &Summary) -> Self {
        let none = Err(io::ErrorKind::NotFound.into());
        let mut shard = Shard {
            day: summary.day,
            data: none,
            entries: Vec::new(),
            frames: Vec::new(),
            owners: Vec::new(),
            overlapping: BTreeSet::new(),
            chunks: Vec::new(),
        };
        shard.refresh(dir, summary);
        shard
    }

    /// Reads the entries that a summary has counted since, and opens the data if it could not be
    /// opened before.
    pub(crate) fn refresh(&mut self, dir: &HistoryDir, summary: &Summary) {
        if self.data.is_err() {
            let data = dir.open(FileKind::Data, self.day, false);
            self.data = data.map_err(|error| io::Error::other(error.fault().text));
        }
        let Ok(index) = dir.open(FileKind::Index, self.day, false) else { return };
        // Data that cannot be read is in no summary.
        let _ = read_entries(&index, self.entries.len() as u64, |entry| {
            if self.frames.len() < summary.frames {
                if entry.is_some_and(|entry| !entry.is_copy) {
                    self.frames.push(self.entries.len() as u32);
                }
                self.add(entry);
            }
        });
    }

    fn add(&mut self, entry: Option<Entry>) {
        let at = self.entries.len() as u32;
        self.entries.push(entry);
        let begins = entry.is_some_and(|entry| entry.position == 0 && !entry.is_copy);
        if begins || self.chunks.is_empty() {
            self.chunks.push(Chunk { first: at, frames: 0, bytes: 0 });
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.bytes += SIZE as u64;
            chunk.frames += u64::from(entry.is_some_and(|entry| !entry.is_copy));
        }
        let Some(entry) = entry else { return };
        let data = entry.offset..entry.offset.saturating_add(entry.length.into());
        while let Some((other, owned)) = self.owners.last().cloned()
            && data.start < owned.end
        {
            // A recorder appends. If a power cut lost data before that, the recorder's first frame
            // occupies the position of the lost data.
            if !entry.starts_run {
                self.overlapping.insert(at);
                return;
            }
            self.overlapping.insert(other);
            self.owners.pop();
            let chunk = self.chunks.partition_point(|chunk| chunk.first <= other) - 1;
            self.chunks[chunk].bytes -= owned.end - owned.start;
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.bytes += data.end - data.start;
        }
        self.owners.push((at, data));
    }

    /// Returns whether the data of an entry belongs to another entry.
    pub(crate) fn overlaps(&self, at: usize) -> bool {
        self.overlapping.contains(&(at as u32))
    }

    /// Returns the most bytes to which a frame may expand.
    pub(crate) fn most_expanded(&self, at: usize) -> usize {
        let chunk = self.chunks.partition_point(|chunk| chunk.first as usize <= at);
        let Some(chunk) = chunk.checked_sub(1).map(|chunk| self.chunks[chunk]) else { return 0 };
        // A truncated frame may claim any length.
        let files = self.data_length() + (self.entries.len() * SIZE) as u64;
        let mean = chunk.bytes.min(files) / chunk.frames.max(1);
        usize::try_from(mean.saturating_mul(MAX_EXPANSION)).unwrap_or(usize::MAX)
    }

    /// Returns the number of frames.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the first frame, in the order of recording, that is not before this time; the number
    /// of frames if there is none.
    pub(crate) fn first_since(&self, time: Timestamp) -> usize {
        let is_since =
            |number: &usize| self.frame(*number).is_some_and(|(_, entry)| entry.time >= time);
        (0..self.len()).find(is_since).unwrap_or(self.len())
    }

    /// Returns the index of a frame's entry, and the entry.
    pub(crate) fn frame(&self, number: usize) -> Option<(usize, Entry)> {
        let at = *self.frames.get(number)? as usize;
        Some((at, self.entries[at]?))
    }

    /// Returns the frame with the latest time that is not after this one, the last of those with
    /// the same time. The order is that of recording, and the clock may have been set back in
    /// between.
    pub(crate) fn last_until(&self, time: Timestamp) -> Option<usize> {
        let times = (0..self.len()).filter_map(|number| Some((self.frame(number)?.1.time, number)));
        times.filter(|(at, _)| *at <= time).max().map(|(_, number)| number)
    }

    /// Returns the positions of the data of the frames on the path to one, the key frame first; for
    /// the key frame also the position of its copy. `None` if one of them is not in the index.
    ///
    /// If a frame is not in the index, a wrong one may be among them; its checksum will not match.
    pub(crate) fn path(&self, at: usize) -> Option<Vec<Vec<usize>>> {
        let position = self.entries[at]?.position;
        let mut positions = chunk::path(position);
        let mut path = vec![vec![at]];
        positions.pop();
        let before = self.entries[..at].iter().enumerate().rev().take(MAX_CHUNK);
        let mut before = before.filter_map(|(at, entry)| Some((at, (*entry)?)));
        let mut last = position;
        while let Some(wanted) = positions.pop() {
            let mut found = Vec::new();
            for (at, entry) in before.by_ref() {
                match (entry.is_copy, entry.position) {
                    (true, _) if wanted == 0 => found.push(at),
                    (true, _) => {}
                    // The start of the chunk is lost.
                    (false, position) if position >= last => break,
                    (false, position) => {
                        last = position;
                        if position == wanted {
                            found.push(at);
                        }
                        if position <= wanted {
                            break;
                        }
                    }
                }
            }
            path.push(found);
        }
        if let Some(key) = path.last_mut() {
            key.extend(self.copy_after(at));
        }
        path.reverse();
        path.iter().all(|found| !found.is_empty()).then_some(path)
    }

    /// Returns the position of the copy of a chunk's key frame, if it comes after this frame.
    fn copy_after(&self, at: usize) -> Option<usize> {
        let after = self.entries.iter().enumerate().skip(at + 1).take(MAX_CHUNK);
        let after = after.filter_map(|(at, entry)| Some((at, (*entry)?)));
        let mut after = after.take_while(|(_, entry)| entry.is_copy || entry.position != 0);
        after.by_ref().take(chunk::LENGTH.into()).find(|(_, entry)| entry.is_copy).map(|(at, _)| at)
    }

    /// Returns an entry.
    pub(crate) fn entry(&self, at: usize) -> Option<Entry> {
        *self.entries.get(at)?
    }

    /// Returns the number of entries, damaged ones included.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is any data.
    pub(crate) fn has_data(&self) -> bool {
        self.data.is_ok()
    }

    /// Returns whether the data ends before the end of a frame.
    pub(crate) fn is_torn(&self, entry: &Entry) -> bool {
        entry.is_beyond(self.data_length())
    }

    /// Returns the length of the data, 0 if there is none.
    pub(crate) fn data_length(&self) -> u64 {
        let length = self.data.as_ref().ok().and_then(|data| data.metadata().ok());
        length.map_or(0, |metadata| metadata.len())
    }

    /// Reads the data of a frame, and verifies its checksum, which depends on that of the frame
    /// that it is compared with.
    pub(crate) fn data(
        &self,
        at: usize,
        base: Option<u32>,
    ) -> std::result::Result<Vec<u8>, DamageKind> {
        let Some(entry) = &self.entries[at] else { return Err(DamageKind::Entry) };
        if self.overlaps(at) {
            return Err(DamageKind::Overlap);
        }
        let unreadable = |error: &io::Error| DamageKind::Unreadable(error.to_string());
        let data = self.data.as_ref().map_err(unreadable)?;
        if self.is_torn(entry) {
            return Err(DamageKind::TornFrame);
        }
        if entry.length as usize > MAX_FRAME {
            return Err(DamageKind::Malformed);
        }
        let mut bytes = vec![0; entry.length as usize];
        data.read_exact_at(&mut bytes, entry.offset).map_err(|error| unreadable(&error))?;
        if entry::crc(base, &bytes) == entry.crc { Ok(bytes) } else { Err(DamageKind::Frame) }
    }
}

/// The device, the inode, which a later file may reuse, and the creation time if the file system
/// reports it.
type Identity = (u64, u64, Option<SystemTime>);

fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino(), file.created().ok())
}

/// Returns when a file was last written.
fn time(file: &Metadata) -> (i64, i64) {
    (file.mtime(), file.mtime_nsec())
}

/// Returns where an entry starts in its file.
pub(crate) fn position(entry: u64) -> u64 {
    (entry + 1) * SIZE as u64
}

/// Opens a file of a day, and returns whether its header is damaged, or why the file cannot be
/// read.
///
/// # Errors
/// `Invalid` if it has another version.
fn open(
    dir: &HistoryDir,
    kind: FileKind,
    day: Day,
) -> Result<std::result::Result<(File, bool), DamageKind>> {
    let file = match dir.open(kind, day, false) {
        Ok(file) => file,
        Err(error) => return Ok(Err(DamageKind::Unreadable(error.fault().text))),
    };
    let mut bytes = [0; SIZE];
    let header = file.read_exact_at(&mut bytes, 0).map(|()| Header::read(&bytes, kind, day));
    match header {
        Ok(Header::Version(version)) => Err(newer(&kind.name(day), version)),
        Ok(Header::Known) => Ok(Ok((file, false))),
        Ok(Header::Damaged) | Err(_) => Ok(Ok((file, true))),
    }
}

/// Passes the entries of an index from `first` on; `None` for a damaged one. Returns whether the
/// file ends in the middle of an entry.
fn read_entries(index: &File, first: u64, mut each: impl FnMut(Option<Entry>)) -> io::Result<bool> {
    let mut block = vec![0; 2048 * SIZE];
    let mut next = first;
    while next < MAX_ENTRIES {
        let mut filled = 0;
        while filled < block.len() {
            match index.read_at(&mut block[filled..], position(next) + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let (entries, torn) = block[..filled].as_chunks();
        entries.iter().for_each(|bytes| each(Entry::read(bytes)));
        next += entries.len() as u64;
        if filled < block.len() {
            return Ok(!torn.is_empty());
        }
    }
    Ok(false)
}
