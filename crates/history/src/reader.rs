//! Reads a history.

use crate::chunk;
use crate::codec;
use crate::cost;
use crate::damage::{Damage, DamageKind};
use crate::dir::HistoryDir;
use crate::entry::SIZE;
use crate::frame::Frame;
use crate::image::{self, Image};
use crate::shard::{Shard, Summary};
use crate::unflatten;
use gpu_core::{KernelDriver, Result, Timestamp};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Reads a history, which a recorder may still write.
///
/// Frames are numbered from 0 in the order in which they were recorded. A frame that is damaged
/// keeps its number and cannot be read.
#[derive(Debug)]
pub struct Reader {
    dir: HistoryDir,
    days: Vec<Summary>,
    /// The day of the last frame that was read.
    shard: Option<(usize, Shard)>,
    /// The frames on the path to the last one that was read, with their positions in the index and
    /// their checksums.
    path: Vec<(usize, u32, Image)>,
    /// The entries of that day with unreadable data, so that each is read once.
    unreadable: BTreeMap<usize, DamageKind>,
    /// The last group of frames found to be lost together, with the reason.
    row: Option<(Range<usize>, Damage)>,
    damage: Vec<Damage>,
    drivers: Vec<Arc<dyn KernelDriver>>,
}

impl Reader {
    fn of(dir: impl Into<OwnedFd>) -> Self {
        Reader {
            dir: HistoryDir::new(dir.into()),
            days: Vec::new(),
            shard: None,
            path: Vec::new(),
            unreadable: BTreeMap::new(),
            row: None,
            damage: Vec::new(),
            drivers: Vec::new(),
        }
    }

    /// Explains the messages of these drivers in the frames ([`Snapshot::explain`](gpu_core::Snapshot::explain)).
    #[must_use]
    pub fn with_drivers(self, drivers: &[Arc<dyn KernelDriver>]) -> Self {
        Reader { drivers: drivers.to_vec(), ..self }
    }

    /// Returns the last frame of the history in this directory; `None` if there is none. It reads
    /// no more days than needed, and skips a day whose last chunk is damaged.
    ///
    /// # Errors
    /// As [`open`](Reader::open).
    pub fn last(dir: impl Into<OwnedFd>) -> Result<Option<Frame>> {
        codec::check()?;
        let mut reader = Reader::of(dir);
        for day in reader.dir.days()?.into_keys().rev() {
            reader.days = vec![Summary::read(&reader.dir, day, &mut Vec::new())?];
            reader.forget_day();
            let mut last = (0..reader.len()).rev().take(chunk::LENGTH.into());
            if let Some(frame) = last.find_map(|number| reader.frame(number)) {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Opens the history in this directory. It reads every index, but no data yet.
    ///
    /// # Errors
    /// `Io` when the directory cannot be read; `Invalid` when a newer version has written a file;
    /// `Unsupported` without the feature `zstd`.
    pub fn open(dir: impl Into<OwnedFd>) -> Result<Self> {
        codec::check()?;
        let mut reader = Reader::of(dir);
        let mut found = Vec::new();
        for day in reader.dir.days()?.into_keys() {
            reader.days.push(Summary::read(&reader.dir, day, &mut found)?);
        }
        reader.add_all(found);
        Ok(reader)
    }

    /// Finds the frames that were added since, and returns whether there are any. If the files of the
    /// last day were removed and made again, it has other frames now.
    ///
    /// # Errors
    /// As [`open`](Reader::open).
    pub fn refresh(&mut self) -> Result<bool> {
        let before = self.len();
        let last = self.days.last().map(|day| day.day);
        (self.row, self.unreadable) = (None, BTreeMap::new());
        let mut found = Vec::new();
        let mut is_replaced = false;
        if let Some(last) = self.days.last_mut() {
            is_replaced = last.is_replaced(&self.dir);
            if is_replaced {
                *last = Summary::read(&self.dir, last.day, &mut found)?;
                self.damage.retain(|known| known.day != last.day);
                self.shard = None;
            } else {
                // A truncated entry may be complete by now.
                self.damage
                    .retain(|known| known.day != last.day || known.what != DamageKind::TornEntry);
                // A removed day keeps its frames; reading one reports it as damaged.
                let _ = last.refresh(&self.dir, &mut found);
            }
        }
        for day in self.dir.days()?.into_keys().filter(|day| Some(*day) > last) {
            self.days.push(Summary::read(&self.dir, day, &mut found)?);
        }
        if let Some((at, shard)) = &mut self.shard
            && shard.len() < self.days[*at].frames
        {
            shard.refresh(&self.dir, &self.days[*at]);
        }
        self.add_all(found);
        Ok(is_replaced || self.len() > before)
    }

    /// Returns the number of frames, damaged ones included.
    pub fn len(&self) -> usize {
        self.days.iter().map(|day| day.frames).sum()
    }

    /// Returns whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the earliest and the latest time of a frame; `None` if there is no frame.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        let spans = self.days.iter().filter_map(|day| day.span);
        spans.reduce(|(from, to), (other, until)| (from.min(other), to.max(until)))
    }

    /// Returns the damage found so far, in the order of the files. Damaged data is found only when
    /// it is read; [`check`](Reader::check) reads all of it.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns the time of a frame; `None` if there is no such frame.
    pub fn time(&mut self, number: usize) -> Option<Timestamp> {
        let (shard, at) = self.find(number)?;
        shard.frame(at).map(|(_, entry)| entry.time)
    }

    /// Returns whether a recorder started with this frame; earlier events are unknown.
    pub fn starts_run(&mut self, number: usize) -> bool {
        let frame = self.find(number).and_then(|(shard, at)| shard.frame(at));
        frame.is_some_and(|(_, entry)| entry.starts_run)
    }

    /// Returns the number of the last frame at or before this time; `None` if all are later.
    pub fn position(&mut self, time: Timestamp) -> Option<usize> {
        let starts = |day: &Summary| day.span.is_some_and(|(first, _)| first <= time);
        let day = self.days.iter().rposition(starts)?;
        let before: usize = self.days[..day].iter().map(|day| day.frames).sum();
        Some(before + self.load(day).last_until(time)?)
    }

    /// Returns the number of the first frame at or after this time, in the order of recording; the
    /// number of frames if there is none. Later frames may be earlier in time, if the clock was set
    /// back.
    pub fn first_since(&mut self, time: Timestamp) -> usize {
        let ends = |day: &Summary| day.span.is_some_and(|(_, last)| last >= time);
        let Some(day) = self.days.iter().position(ends) else { return self.len() };
        let before: usize = self.days[..day].iter().map(|day| day.frames).sum();
        before + self.load(day).first_since(time)
    }

    /// Returns a frame; `None` if it is damaged or there is none. Damage is added to
    /// [`damage`](Reader::damage).
    pub fn frame(&mut self, number: usize) -> Option<Frame> {
        let (_, at) = self.find(number)?;
        let (shard, at) = self.shard.as_ref().map(|(_, shard)| shard).zip(Some(at))?;
        let (at, _) = shard.frame(at)?;
        let read = walk(shard, &mut self.path, &mut self.unreadable, at);
        let frame = read.and_then(|()| {
            let (_, _, image) = self.path.last().ok_or((at, DamageKind::Base))?;
            let frame = unflatten::unflatten::<Frame>(&image.flat, &image.texts);
            frame.map_err(|_| (at, DamageKind::Malformed))
        });
        match frame {
            Ok(mut frame) => {
                frame.snapshot.explain(&self.drivers);
                Some(frame)
            }
            Err((damaged, what)) => {
                let is_known = |(row, known): &(Range<usize>, Damage)| {
                    row.contains(&damaged) && known.what == what
                };
                if !self.row.as_ref().is_some_and(is_known) {
                    let row = cost::is_in_rows(&what).then(|| cost::row(shard, damaged, &what));
                    let damage = cost::of(shard, damaged, what);
                    self.row = row.map(|row| (row, damage.clone()));
                    add(&mut self.damage, damage);
                }
                None
            }
        }
    }

    /// Returns the last readable frame at or before this time.
    pub fn at(&mut self, time: Timestamp) -> Option<Frame> {
        let position = self.position(time)?;
        (0..=position).rev().find_map(|number| self.frame(number))
    }

    /// Returns the readable frames from the last one at or before this time on; all if there is
    /// none.
    pub fn from(&mut self, time: Timestamp) -> impl Iterator<Item = Frame> + '_ {
        let start = self.position(time).unwrap_or(0);
        (start..self.len()).filter_map(|number| self.frame(number))
    }

    /// Returns up to `count` readable frames that lead to this one, oldest first, at least this
    /// long apart. None is from before the recorder started, because the machine may have rebooted
    /// before that.
    pub fn leading_to(&mut self, number: usize, count: usize, apart: Duration) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::new();
        for at in (0..=number).rev() {
            let far = |frame: &Frame, time: Timestamp| frame.time().since(time) >= apart;
            let time = self.time(at);
            if time.is_some_and(|time| frames.last().is_none_or(|frame| far(frame, time))) {
                frames.extend(self.frame(at));
            }
            if frames.len() >= count || self.starts_run(at) {
                break;
            }
        }
        frames.reverse();
        frames
    }

    /// Reads all data, compares it with its checksums, and returns all damage.
    pub fn check(&mut self) -> &[Damage] {
        for day in 0..self.days.len() {
            for damage in cost::all(self.load(day)) {
                add(&mut self.damage, damage);
            }
        }
        &self.damage
    }

    /// Adds the damage in the indexes, with the frames that are lost with it.
    fn add_all(&mut self, found: Vec<Damage>) {
        for mut damage in found {
            let day = self.days.iter().position(|day| day.day == damage.day);
            if let (DamageKind::Entry, Some(day)) = (&damage.what, day) {
                let at = damage.offset / SIZE as u64 - 1;
                damage = cost::of(self.load(day), at as usize, DamageKind::Entry);
            }
            add(&mut self.damage, damage);
        }
    }

    /// Returns the day of a frame, loaded, and its number in it.
    fn find(&mut self, number: usize) -> Option<(&Shard, usize)> {
        let mut left = number;
        for day in 0..self.days.len() {
            match left.checked_sub(self.days[day].frames) {
                Some(rest) => left = rest,
                None => return Some((self.load(day), left)),
            }
        }
        None
    }

    fn forget_day(&mut self) {
        (self.shard, self.path) = (None, Vec::new());
        (self.row, self.unreadable) = (None, BTreeMap::new());
    }

    fn load(&mut self, day: usize) -> &Shard {
        if self.shard.as_ref().is_none_or(|(at, _)| *at != day) {
            self.forget_day();
        }
        let summary = &self.days[day];
        &self.shard.get_or_insert_with(|| (day, Shard::open(&self.dir, summary))).1
    }
}

/// Makes `path` the path to the frame with this entry, without rereading the part that it shares
/// with the path to the last frame.
///
/// # Errors
/// The damaged entry, and the kind of damage.
fn walk(
    shard: &Shard,
    path: &mut Vec<(usize, u32, Image)>,
    unreadable: &mut BTreeMap<usize, DamageKind>,
    at: usize,
) -> Result<(), (usize, DamageKind)> {
    let wanted = shard.path(at).ok_or((at, DamageKind::Base))?;
    let same = path.iter().zip(&wanted).take_while(|((at, ..), wanted)| wanted.contains(at));
    path.truncate(same.count());
    for copies in &wanted[path.len()..] {
        let none = Image::default();
        let base = path.last();
        let (crc, image) = base.map_or((None, &none), |(_, crc, image)| (Some(*crc), image));
        let mut failure = None;
        let mut read = None;
        for at in copies {
            let Some(entry) = shard.entry(*at) else { continue };
            let decoded = match unreadable.get(at) {
                Some(known) => Err(known.clone()),
                None => shard
                    .data(*at, crc)
                    .and_then(|bytes| image::decode(&bytes, image, shard.most_expanded(*at))),
            };
            match decoded {
                Ok(image) => {
                    read = Some((*at, entry.crc, image));
                    break;
                }
                Err(what) => {
                    unreadable.insert(*at, what.clone());
                    failure = failure.or(Some((*at, what)));
                }
            }
        }
        path.push(read.ok_or_else(|| failure.unwrap_or((at, DamageKind::Base)))?);
    }
    Ok(())
}

/// Adds damage. For known damage, updates its cost: as a history grows, the damage costs more
/// frames, or a copy appears.
fn add(known: &mut Vec<Damage>, damage: Damage) {
    match known.binary_search_by(|known| known.sort_key().cmp(&damage.sort_key())) {
        Ok(at) => known[at] = damage,
        Err(at) => known.insert(at, damage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::day::{Day, FileKind};
    use crate::entry::Entry;
    use crate::image::EXPANDED;
    use crate::shard::MAX_EXPANSION;
    use crate::{Retention, Writer};
    use gpu_core::{Bytes, Origin, Pid, ProcessInfo, Reading, Snapshot, StartTime};
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};

    const START: u64 = 1_795_478_400_000;

    fn file(dir: &Path, kind: FileKind) -> PathBuf {
        dir.join(kind.name(Day::of(Timestamp(START)).unwrap()))
    }

    /// Records frames of a machine with this many idle processes, a second apart.
    fn record(dir: &Path, frames: u64, processes: u32) {
        let mut writer = Writer::open(File::open(dir).unwrap(), Retention::default()).unwrap();
        for second in 0..frames {
            let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(START + 1000 * second));
            for pid in 1..=processes {
                let mut info = ProcessInfo::from_name(Pid(pid), "python");
                info.key.start = Some(StartTime(u64::from(pid) * 7919));
                info.resident = Ok(Bytes(u64::from(pid) * 4096));
                snapshot.processes.insert(Pid(pid), Reading::Ok(info).into());
            }
            writer.add(&Frame { snapshot, leases: Ok(Vec::new()) }).unwrap();
        }
    }

    /// Reads all frames; returns how many could be read, the expanded bytes, and the damage.
    fn read(dir: &Path) -> (usize, u64, Vec<String>) {
        let mut reader = Reader::open(File::open(dir).unwrap()).unwrap();
        let before = EXPANDED.get();
        let read = (0..reader.len()).filter(|number| reader.frame(*number).is_some()).count();
        let expanded = EXPANDED.get() - before;
        let found = reader.damage().to_vec();
        assert_eq!(reader.check(), found, "all of it was found by reading");
        (read, expanded, found.iter().map(ToString::to_string).collect())
    }

    fn entries(dir: &Path) -> Vec<Entry> {
        let index = fs::read(file(dir, FileKind::Index)).unwrap();
        index[SIZE..].as_chunks().0.iter().map(|bytes| Entry::read(bytes).unwrap()).collect()
    }

    fn write_entries(dir: &Path, entries: impl Iterator<Item = Entry>) {
        let path = file(dir, FileKind::Index);
        let header = fs::read(&path).unwrap()[..SIZE].to_vec();
        let bytes = entries.flat_map(|entry| entry.bytes());
        fs::write(path, header.into_iter().chain(bytes).collect::<Vec<u8>>()).unwrap();
    }

    #[test]
    fn data_of_several_entries_is_expanded_once() {
        for starts_run in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            record(dir.path(), 1, 500);
            let (read_once, expanded_once, _) = read(dir.path());
            assert_eq!(read_once, 1);
            let first = entries(dir.path())[0];
            let copies = (0..3000).map(|number| Entry {
                time: Timestamp(START + number),
                starts_run: starts_run || number == 0,
                ..first
            });
            write_entries(dir.path(), copies);
            let (read, expanded, damage) = read(dir.path());
            assert_eq!((read, expanded), (1, expanded_once));
            // The last entry that starts a run has the data of the entries lost before it.
            let lost = if starts_run { 32 } else { 64 };
            let expected =
                format!("byte {lost}: sample at the position of another, 2999 samples lost");
            assert!(damage.len() == 1 && damage[0].ends_with(&expected), "{damage:?}");
        }
    }

    #[test]
    fn part_of_another_entrys_data_is_damage_too() {
        let dir = tempfile::tempdir().unwrap();
        record(dir.path(), 3, 50);
        let mut all = entries(dir.path());
        let second = &mut all[1];
        (second.offset, second.length) = (second.offset - 1, second.length + 1);
        write_entries(dir.path(), all.into_iter());
        let (read, _, damage) = read(dir.path());
        assert_eq!((read, damage.len()), (2, 1), "the third is compared with the first");
        assert!(damage[0].ends_with("byte 64: sample at the position of another, 1 sample lost"));
    }

    #[test]
    fn idle_processes_expand_less_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        record(dir.path(), 200, 1000);
        let (read, expanded, damage) = read(dir.path());
        assert_eq!((read, damage.len()), (200, 0));
        let files = [FileKind::Data, FileKind::Index].map(|kind| file(dir.path(), kind));
        let bytes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(expanded < bytes * MAX_EXPANSION / 16, "{expanded} of {bytes}");
    }

    #[test]
    fn frame_beyond_the_limit_is_damage_before_it_is_expanded() {
        let dir = tempfile::tempdir().unwrap();
        record(dir.path(), 2, 300);
        let reader = &mut Reader::open(File::open(dir.path()).unwrap()).unwrap();
        let shard = reader.load(0);
        let (key, crc) = (shard.data(0, None).unwrap(), shard.entry(0).unwrap().crc);
        let next = shard.data(1, Some(crc)).unwrap();
        let limit = shard.most_expanded(1);
        assert_eq!(limit as u64, (shard.data_length() - 32 + 64) / 2 * MAX_EXPANSION);
        let mut base = Image::default();
        for bytes in [key, next] {
            let before = EXPANDED.get();
            let image = image::decode(&bytes, &base, usize::MAX).unwrap();
            let size = (EXPANDED.get() - before) as usize;
            assert!(image::decode(&bytes, &base, size).is_ok());
            let refused = image::decode(&bytes, &base, size - 1).unwrap_err();
            assert_eq!(refused, DamageKind::Expansion);
            let before = EXPANDED.get();
            let structure = size - image.flat.bytes();
            let refused = image::decode(&bytes, &base, structure.saturating_sub(1)).unwrap_err();
            assert_eq!((refused, EXPANDED.get()), (DamageKind::Expansion, before));
            base = image;
        }
    }
}
