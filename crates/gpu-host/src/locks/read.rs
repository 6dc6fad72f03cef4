//! Which entries are alive, and their content.

use super::names::{KEPT, LEASE, PLACE, WAIT, file_prefix, of_place};
use super::ofd;
use super::record_format::{READ_LIMIT, parse};
use super::user_dir::UserDir;
use crate::fault;
use crate::timer::{now, timespec};
use gpu_core::{EntryKind, LeaseEntry, QUEUE_STALL_TIMEOUT, QueuePlace, Result, Waiter};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many live leases of one user are read, and as many attempts; a user who has an eighth of
/// that gets no further lease.
const MAX_LIVE_ENTRIES_PER_USER: usize = 2048;

/// Leases that were read before, by path: only their owner can change one.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<PathBuf, (EntryKind, FileStamp, LeaseEntry)>);

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl FileStamp {
    // The widths of these differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    fn of(stat: &Stat) -> Self {
        FileStamp {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }
}

impl Known {
    /// Returns the live attempts or leases in the directories that `each` visits.
    ///
    /// Each directory is listed, and all its entries are opened, before the call returns: an
    /// attempt that is confirmed while attempts are read is there when leases are read after that.
    ///
    /// # Errors
    /// `Io` if the caller or the machine cannot list a directory, check whether an entry is alive,
    /// or read a live one: it must not count as dead.
    pub(super) fn living(
        &mut self,
        kind: EntryKind,
        each: impl FnOnce(&mut dyn FnMut(&UserDir) -> Result<()>) -> Result<()>,
    ) -> Result<Vec<LeaseEntry>> {
        let file_prefix = file_prefix(kind);
        let mut found = HashMap::new();
        let mut counts: HashMap<u32, usize> = HashMap::new();
        each(&mut |user| {
            let living = counts.entry(user.owner).or_default();
            for id in user.names(file_prefix)? {
                if *living == MAX_LIVE_ENTRIES_PER_USER {
                    break;
                }
                let name = format!("{file_prefix}{id}");
                let path = user.dir.path.join(&name);
                if let Some((stamp, entry)) = self.read(user, &path, &name, (kind, &id))? {
                    *living += 1;
                    found.insert(path, (kind, stamp, entry));
                }
            }
            Ok(())
        })?;
        let entries = found.values().map(|(.., entry)| entry.clone()).collect();
        self.0.retain(|_, (known, ..)| *known != kind);
        self.0.extend(found);
        Ok(entries)
    }

    fn read(
        &mut self,
        user: &UserDir,
        path: &Path,
        name: &str,
        (kind, id): (EntryKind, &str),
    ) -> Result<Option<(FileStamp, LeaseEntry)>> {
        let failed = |what: &str, errno| {
            let path = path.display();
            fault::file(format!("check whether lease '{path}' is alive: {what}"), errno)
        };
        let opened = user.dir.open_entry(name, OFlags::empty());
        let Some(file) = opened.map_err(|errno| failed("open it", errno))? else { return Ok(None) };
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed("query its owner", errno))?;
        if !user.is_own(&stat) || !is_regular(&stat) {
            return Ok(None);
        }
        // From here on, no failure is its owner's, and none means that the lease has ended.
        let is_alive = ofd::is_write_locked(&file)
            .and_then(|locked| if locked { Ok(true) } else { is_kept(user, id) });
        if !is_alive.map_err(|errno| failed("query its lock (F_OFD_GETLK)", errno))? {
            return Ok(None);
        }
        let stamp = FileStamp::of(&stat);
        Ok(match self.0.remove(path).filter(|(_, known, _)| *known == stamp) {
            Some((_, stamp, entry)) => Some((stamp, entry)),
            None => read(&file, &stat, kind, id)
                .map_err(|errno| fault::file(format!("read lease '{id}'"), errno))?
                .map(|entry| (stamp, entry)),
        })
    }
}

/// Returns whether processes that inherited a lease from its maker keep it alive: by a lock on a
/// file of the same owner, whose content is not read.
///
/// # Errors
/// Those of the kernel, except for a file that does not exist or cannot be a lock of the owner.
pub(super) fn is_kept(user: &UserDir, id: &str) -> rustix::io::Result<bool> {
    let file = user.dir.open_entry(&format!("{KEPT}{id}"), OFlags::empty())?;
    let Some(file) = file else { return Ok(false) };
    let stat = rustix::fs::fstat(&file)?;
    Ok(user.is_own(&stat) && is_regular(&stat) && ofd::is_write_locked(&file)?)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Returns the existing files of a lease.
pub(super) fn files(user: &UserDir, lease: &LeaseEntry) -> Vec<PathBuf> {
    let is_own = |name: &String| {
        let stat = rustix::fs::statat(&user.dir.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| user.is_own(&stat))
    };
    let names = [LEASE, KEPT].map(|kind| format!("{kind}{}", lease.id));
    names.into_iter().filter(is_own).map(|name| user.dir.path.join(name)).collect()
}

/// Reads the entry in a file, alive or not; `None` if it contains none.
///
/// # Errors
/// The kernel's.
pub(super) fn read(
    file: &OwnedFd,
    stat: &Stat,
    kind: EntryKind,
    name: &str,
) -> rustix::io::Result<Option<LeaseEntry>> {
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if !is_regular(stat) || size > READ_LIMIT {
        return Ok(None);
    }
    let mut text = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match rustix::io::pread(file, &mut text[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(parse(kind, name, stat.st_uid, &text[..filled]))
}

/// Returns the claim at a place in the queue of a user; `None` when it is dead.
///
/// # Errors
/// `Io` if that cannot be read.
pub(super) fn waiter(queue: &UserDir, place: &QueuePlace) -> Result<Option<Waiter>> {
    let name = of_place(place);
    let asked = || {
        let Some(fifo) = Fifo::open(queue, place)? else { return Ok(None) };
        if !fifo.has_writer()? {
            return Ok(None);
        }
        let file = queue.dir.open_entry(&format!("{PLACE}{name}"), OFlags::empty())?;
        let Some(file) = file else { return Ok(None) };
        let stat = rustix::fs::fstat(&file)?;
        if !queue.is_own(&stat) {
            return Ok(None);
        }
        let entry = read(&file, &stat, EntryKind::Waiter, &name)?;
        // A running claim does not write a renewal in the future.
        let beat = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(u64::MAX));
        let age = now().checked_sub(beat);
        let is_stalled = age.is_none_or(|age| age > QUEUE_STALL_TIMEOUT);
        Ok(entry.map(|entry| Waiter { entry, is_stalled }))
    };
    asked().map_err(|errno| {
        fault::file(format!("check whether claim '{}' is still waiting", place.id), errno)
    })
}

/// The FIFO of a place in the queue, for reading: its writer is the waiting claim.
pub(super) struct Fifo(OwnedFd);

impl Fifo {
    /// Opens it without waiting for a writer; `None` if there is none.
    ///
    /// # Errors
    /// As [`Dir::open_entry`](super::dir::Dir::open_entry).
    pub(super) fn open(queue: &UserDir, place: &QueuePlace) -> rustix::io::Result<Option<Self>> {
        let fd = queue.dir.open_entry(&format!("{WAIT}{}", place.id), OFlags::empty())?;
        let Some(fd) = fd else { return Ok(None) };
        let stat = rustix::fs::fstat(&fd)?;
        let is_fifo = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
        Ok((is_fifo && queue.is_own(&stat)).then_some(Fifo(fd)))
    }

    /// Returns whether a process has it open for writing: only then is there nothing to read *yet*
    /// (fifo(7), read(2)).
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn has_writer(&self) -> rustix::io::Result<bool> {
        loop {
            match rustix::io::read(&self.0, &mut [0; 64]) {
                Ok(0) => return Ok(false),
                // Nothing is ever written; data that its owner wrote anyway means nothing.
                Ok(_) | Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Waits until its last writer has closed it; false after `at_most` or a signal.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn wait(&self, at_most: Duration) -> rustix::io::Result<bool> {
        let mut hang_up = [PollFd::new(&self.0, PollFlags::empty())];
        match poll(&mut hang_up, Some(&timespec(at_most))) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}
