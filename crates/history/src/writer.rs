//! Writes a history.

use crate::chunk;
use crate::codec;
use crate::day::{Day, FileKind};
use crate::dir::HistoryDir;
use crate::entry::{self, Entry, Header, SIZE};
use crate::flatten::flatten;
use crate::frame::Frame;
use crate::image::{self, Image};
use crate::texts::Texts;
use gpu_core::{Error, ErrorKind, Result, Timestamp};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// The most entries of a day: more than 20 a second.
pub(crate) const MAX_ENTRIES: u64 = 2 << 20;

/// How long frames are kept. Whole days are removed, the oldest first, and never the current one;
/// at most one day with each chunk of frames, and none with the first chunk of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Remove a day when all of it is older than this, by the clock of two chunks in succession: the
    /// clock may be wrong for a while.
    pub max_age: Option<Duration>,
    /// Remove days while all together take more than this, in bytes.
    pub max_bytes: Option<u64>,
}

/// Writes a history, one frame after the other.
///
/// Frames are in the page cache when [`add`](Writer::add) returns: they survive the end of the
/// process, and all but the last half minute survives a crash of the machine.
#[derive(Debug)]
pub struct Writer {
    dir: HistoryDir,
    retention: Retention,
    shard: Option<Shard>,
    chunk: Chunk,
    /// The time of the last key frame.
    last_key: Option<Timestamp>,
    written: u64,
    frames: u64,
    /// Excludes other recorders.
    lock: File,
    /// The history is anonymous: without names.
    is_anonymous: bool,
}

/// The files of the current day.
#[derive(Debug)]
struct Shard {
    day: Day,
    data: File,
    index: File,
}

/// The frames that the next ones may be compared with.
#[derive(Debug, Default)]
struct Chunk {
    /// The index of the next frame; 0 if it starts a chunk.
    next: u16,
    texts: Texts,
    /// The frames on the path to the last one, with their indices and checksums.
    path: Vec<(u16, u32, Image)>,
    /// The bytes of the key frame, until they are stored again.
    key: Vec<u8>,
}

impl Writer {
    /// Starts to write to the history in this directory, to which only root and the caller may
    /// write (`gpu_host::TrustedDir` opens such directories). An existing history is continued,
    /// even after a torn end.
    ///
    /// # Errors
    /// `Invalid` when others may write to the directory, another recorder writes there, or the
    /// history is without names; `Io` when it cannot be used; `Unsupported` without the feature
    /// `zstd`.
    pub fn open(dir: impl Into<OwnedFd>, retention: Retention) -> Result<Self> {
        let writer = Self::locked(dir, retention)?;
        match writer.dir.is_anonymous()? {
            true => Err(never_continued()),
            false => Ok(writer),
        }
    }

    /// Starts to write a history without names. It cannot be continued, because each recorder
    /// numbers users anew. The directory has no history yet.
    ///
    /// # Errors
    /// As [`open`](Writer::open); `Invalid` when there is a history.
    pub fn open_anonymous(dir: impl Into<OwnedFd>, retention: Retention) -> Result<Self> {
        let writer = Self::locked(dir, retention)?;
        if !writer.dir.days()?.is_empty() {
            return Err(never_continued());
        }
        writer.dir.mark_anonymous()?;
        Ok(Writer { is_anonymous: true, ..writer })
    }

    fn locked(dir: impl Into<OwnedFd>, retention: Retention) -> Result<Self> {
        codec::check()?;
        let dir = HistoryDir::new(dir.into());
        dir.check_owner()?;
        let lock = dir.lock()?;
        Ok(Writer {
            dir,
            retention,
            shard: None,
            chunk: Chunk::default(),
            last_key: None,
            written: 0,
            frames: 0,
            lock,
            is_anonymous: false,
        })
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// `Io` when it cannot be written: it is then left out, and the next one can be added. Also
    /// when old days cannot be removed; the frame is then written. `Invalid` when a newer version
    /// has written files of this day, or a frame is too large.
    pub fn add(&mut self, frame: &Frame) -> Result<()> {
        let added = self.try_add(frame);
        if added.is_err() {
            // No frame is compared with one that may be missing.
            self.chunk = Chunk::default();
            return added;
        }
        match self.chunk.next {
            1 => self.retain(frame.time()),
            _ => Ok(()),
        }
    }

    fn try_add(&mut self, frame: &Frame) -> Result<()> {
        let time = frame.time();
        let day = Day::of(time)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "record a time after the year 9999"))?;
        self.replace_removed()?;
        if self.shard.as_ref().is_none_or(|shard| shard.day != day) {
            self.sync()?;
            self.chunk = Chunk::default();
            self.shard = Some(Shard::open(&self.dir, day)?);
        }
        let Some(shard) = &self.shard else { return Ok(()) };
        if self.chunk.next == 0 {
            self.chunk = Chunk::default();
        }
        if self.chunk.next == chunk::COPY {
            let key = Entry {
                time,
                position: 0,
                starts_run: false,
                is_copy: true,
                crc: entry::crc(None, &self.chunk.key),
                offset: 0,
                length: 0,
            };
            self.written += shard.append(key, &self.chunk.key)?;
            self.chunk.key = Vec::new();
        }
        let position = self.chunk.next;
        let (bytes, crc) = self.chunk.encode(frame)?;
        let entry = Entry {
            time,
            position,
            starts_run: self.last_key.is_none(),
            is_copy: false,
            crc,
            offset: 0,
            length: 0,
        };
        self.written += shard.append(entry, &bytes)?;
        self.frames += 1;
        if position == 0 {
            self.chunk.key = bytes;
        }
        self.chunk.next = (position + 1) % chunk::LENGTH;
        Ok(())
    }

    /// Recreates files that were removed meanwhile; a new run begins then.
    fn replace_removed(&mut self) -> Result<()> {
        let is_removed = |file: &File| file.metadata().is_ok_and(|file| file.nlink() == 0);
        let lost_lock = is_removed(&self.lock);
        if lost_lock {
            let lock = self.dir.lock()?;
            // Another recorder may have written here.
            match (self.is_anonymous, self.dir.is_anonymous()?) {
                (true, false) if self.dir.days()?.is_empty() => self.dir.mark_anonymous()?,
                (before, now) if before == now => {}
                _ => return Err(never_continued()),
            }
            self.lock = lock;
        }
        let removed = |shard: &Shard| is_removed(&shard.data) || is_removed(&shard.index);
        if lost_lock || self.shard.as_ref().is_some_and(removed) {
            (self.shard, self.last_key) = (None, None);
        }
        Ok(())
    }

    /// Removes the oldest day if it exceeds the retention, after a key frame of this time is
    /// written.
    fn retain(&mut self, time: Timestamp) -> Result<()> {
        let Some(before) = self.last_key.replace(time) else { return Ok(()) };
        let Retention { max_age, max_bytes } = self.retention;
        if self.retention == Retention::default() {
            return Ok(());
        }
        let days = self.dir.days()?;
        let bytes: u64 = days.values().sum();
        let today = self.shard.as_ref().map(|shard| shard.day);
        let Some(oldest) = days.into_keys().find(|day| Some(*day) != today) else { return Ok(()) };
        let is_old = max_age.is_some_and(|age| time.min(before).since(oldest.end()) > age);
        if is_old || max_bytes.is_some_and(|most| bytes > most) {
            self.dir.remove(oldest)
        } else {
            Ok(())
        }
    }

    /// Returns how many bytes it has written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns how many frames it has written.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Waits until all frames are on disk.
    ///
    /// # Errors
    /// `Io` when they cannot be written.
    pub fn sync(&self) -> Result<()> {
        let Some(shard) = &self.shard else { return Ok(()) };
        let synced = shard.data.sync_data().and_then(|()| shard.index.sync_data());
        synced.map_err(|error| {
            Error::new(ErrorKind::Io, "write the history to disk").with_source(error)
        })
    }
}

fn never_continued() -> Error {
    Error::new(ErrorKind::Invalid, "continue the history").with_source(
        "without names, each recorder numbers users anew; use a new directory, or always record \
         names",
    )
}

impl Chunk {
    /// Returns the bytes of the next frame and their checksum.
    fn encode(&mut self, frame: &Frame) -> Result<(Vec<u8>, u32)> {
        let position = self.next;
        let base_position = chunk::base(position);
        while self.path.last().is_some_and(|(last, ..)| Some(*last) != base_position) {
            self.path.pop();
        }
        let none = Image::default();
        let base = self.path.last();
        let (base_crc, image) = base.map_or((None, &none), |(_, crc, image)| (Some(*crc), image));
        self.texts.truncate(image.texts.len());
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Invalid, "encode a frame of the history").with_source(error)
        };
        let flat = flatten(frame, &mut self.texts);
        let flat = flat.map_err(|error| failed(io::Error::other(error)))?;
        let steps = u32::from(position - base_position.unwrap_or(position));
        let (bytes, image) = image::encode(flat, &self.texts, image, steps).map_err(failed)?;
        let crc = entry::crc(base_crc, &bytes);
        self.path.push((position, crc, image));
        Ok((bytes, crc))
    }
}

impl Shard {
    /// Opens the files of a day, and prepares new and torn ones for more frames.
    fn open(dir: &HistoryDir, day: Day) -> Result<Self> {
        let open = |kind: FileKind| -> Result<File> {
            let file = dir.open(kind, day, true)?;
            let name = kind.name(day);
            let failed = |error| {
                Error::new(ErrorKind::Io, format!("continue '{name}' of the history"))
                    .with_source(error)
            };
            let length = file.metadata().map_err(failed)?.len();
            let mut header = [0; SIZE];
            let is_known = match length < SIZE as u64 {
                // New, or torn in its first record.
                true => false,
                false => {
                    file.read_exact_at(&mut header, 0).map_err(failed)?;
                    match Header::read(&header, kind, day) {
                        Header::Known => true,
                        Header::Version(version) => return Err(newer(&name, version)),
                        Header::Damaged => false,
                    }
                }
            };
            if !is_known {
                file.write_all_at(&Header::bytes(kind, day), 0).map_err(failed)?;
            }
            let torn = length % SIZE as u64;
            if kind == FileKind::Index && torn != 0 && length > SIZE as u64 {
                file.set_len(length - torn).map_err(failed)?;
            }
            Ok(file)
        };
        Ok(Shard { day, data: open(FileKind::Data)?, index: open(FileKind::Index)? })
    }

    /// Appends a frame and its entry; returns their size.
    fn append(&self, mut entry: Entry, bytes: &[u8]) -> Result<u64> {
        let failed = |kind: FileKind, error: io::Error| {
            let name = kind.name(self.day);
            Error::new(ErrorKind::Io, format!("append to '{name}' of the history"))
                .with_source(error)
        };
        let end = |kind, file: &File| match file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(failed(kind, error)),
        };
        let (data, index) = (end(FileKind::Data, &self.data)?, end(FileKind::Index, &self.index)?);
        let index = index - index % SIZE as u64;
        if index >= MAX_ENTRIES * SIZE as u64 {
            return Err(failed(FileKind::Index, io::Error::other("it is full")));
        }
        entry.offset = data;
        entry.length = bytes.len() as u32;
        if let Err(error) = self.data.write_all_at(bytes, data) {
            // The written data is not in the index; only its space would be lost.
            let _ = self.data.set_len(data);
            return Err(failed(FileKind::Data, error));
        }
        if let Err(error) = self.index.write_all_at(&entry.bytes(), index) {
            let _ = self.index.set_len(index).and_then(|()| self.data.set_len(data));
            return Err(failed(FileKind::Index, error));
        }
        Ok((bytes.len() + SIZE) as u64)
    }
}

pub(crate) fn newer(name: &str, version: u32) -> Error {
    let why = format!("it has format version {version}; expected {}", entry::VERSION);
    Error::new(ErrorKind::Invalid, format!("use '{name}' of the history")).with_source(why)
}
