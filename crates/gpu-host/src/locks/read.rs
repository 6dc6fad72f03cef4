//! Whether an entry is alive, and its content.

use super::names::{KEPT, LEASE, PLACE, WAIT, of_place};
use super::ofd;
use super::record_format::{self, SMALL};
use super::user_dir::UserDir;
use crate::fault;
use crate::timer::{now, timespec};
use gpu_core::{LeaseEntry, QUEUE_STALL_TIMEOUT, QueuePlace, Result, Waiter};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// Whether files with several names are locked, by file system and inode. The kernel walks all
/// locks of a file for each query, so a read queries each file once, however many names it has.
///
/// If another file has the inode by now, it was created after this read had begun, and a read need
/// not see it.
pub(super) type Answers = HashMap<(u64, u64), bool>;

// The widths of these differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn is_locked(file: &OwnedFd, stat: &Stat, answers: &mut Answers) -> rustix::io::Result<bool> {
    if stat.st_nlink <= 1 {
        return ofd::is_write_locked(file);
    }
    let id = (stat.st_dev as u64, stat.st_ino as u64);
    if let Some(answer) = answers.get(&id) {
        return Ok(*answer);
    }
    let answer = ofd::is_write_locked(file)?;
    answers.insert(id, answer);
    Ok(answer)
}

/// Opens the file of an attempt or a lease; `None` if it is dead, or not a file of its owner.
///
/// # Errors
/// `Io` if the check fails: an unreadable entry must not count as dead.
pub(super) fn living_file(
    user: &UserDir,
    name: &str,
    id: &str,
    answers: &mut Answers,
) -> Result<Option<(OwnedFd, Stat)>> {
    let failed = |what: &str, errno| {
        let path = user.dir.path.join(name);
        fault::file(format!("check whether lease '{}' is alive: {what}", path.display()), errno)
    };
    let opened = user.dir.open_entry(name, OFlags::empty());
    let Some(file) = opened.map_err(|errno| failed("open it", errno))? else { return Ok(None) };
    let stat = rustix::fs::fstat(&file).map_err(|errno| failed("query its owner", errno))?;
    if !user.is_own(&stat) || !is_regular(&stat) {
        return Ok(None);
    }
    // From here on, the owner cannot cause a failure, and no failure means that the lease has
    // ended.
    let is_alive = is_locked(&file, &stat, answers)
        .and_then(|locked| if locked { Ok(true) } else { is_kept(user, id, answers) });
    let is_alive = is_alive.map_err(|errno| failed("query its lock (F_OFD_GETLK)", errno))?;
    Ok(is_alive.then_some((file, stat)))
}

/// Returns whether processes that inherited a lease from its maker keep it alive: by a lock on a
/// file of the same owner, whose content is not read.
///
/// # Errors
/// Those of the kernel, except for a file that does not exist or cannot be a lock of the owner.
pub(super) fn is_kept(user: &UserDir, id: &str, answers: &mut Answers) -> rustix::io::Result<bool> {
    let file = user.dir.open_entry(&format!("{KEPT}{id}"), OFlags::empty())?;
    let Some(file) = file else { return Ok(false) };
    let stat = rustix::fs::fstat(&file)?;
    Ok(user.is_own(&stat) && is_regular(&stat) && is_locked(&file, &stat, answers)?)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Returns whether the content of a file is damaged, by an error of this file alone. Its owner can
/// cause that: on Btrfs, for example, by direct writes (open(2), `O_DIRECT`) of memory that changes
/// meanwhile.
pub(super) fn is_damaged(errno: Errno) -> bool {
    // ext4 and XFS return the second and third as EFSCORRUPTED and EFSBADCRC.
    matches!(errno, Errno::IO | Errno::UCLEAN | Errno::BADMSG | Errno::NODATA | Errno::ILSEQ)
}

/// Returns the existing files of a lease.
pub(super) fn files(user: &UserDir, lease: &LeaseEntry) -> Vec<PathBuf> {
    let is_own = |name: &String| {
        let stat = user.dir.stat(name);
        stat.is_ok_and(|stat| user.is_own(&stat))
    };
    let names = [LEASE, KEPT].map(|kind| format!("{kind}{}", lease.id));
    names.into_iter().filter(is_own).map(|name| user.dir.path.join(name)).collect()
}

/// Reads a file of at most `limit` bytes into `text`; false if it is larger, or not regular.
///
/// # Errors
/// The kernel's.
pub(super) fn text(
    file: &OwnedFd,
    stat: &Stat,
    limit: usize,
    text: &mut Vec<u8>,
) -> rustix::io::Result<bool> {
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if !is_regular(stat) || size > limit {
        return Ok(false);
    }
    text.resize(size, 0);
    let mut filled = 0;
    while filled < size {
        match rustix::io::pread(file, &mut text[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    text.truncate(filled);
    Ok(true)
}

/// Returns the claim at a place in the queue of a user; `None` when it is dead.
///
/// # Errors
/// `Io` if its state cannot be read.
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
        let mut content = Vec::new();
        let is_read = match text(&file, &stat, SMALL.bytes, &mut content) {
            // Without a known request it has no place in the order.
            Err(errno) if is_damaged(errno) => return Ok(None),
            is_read => is_read?,
        };
        let entry = is_read.then(|| record_format::waiter(&name, queue.owner, &content)).flatten();
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
    /// Opens it without waiting for a writer; `None` if there is no FIFO or no writer.
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
                // No process writes data; if its owner writes some anyway, it means nothing.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn read_asks_once_for_a_file_with_several_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let open = |name: &str| OwnedFd::from(File::open(at(name)).unwrap());
        let maker = File::create(at("lease-a")).unwrap();
        assert_eq!(ofd::try_lock(&maker, ofd::Lock::Write), Ok(true));
        let ask = |name: &str, answers: &mut Answers| {
            let file = open(name);
            is_locked(&file, &rustix::fs::fstat(&file).unwrap(), answers).unwrap()
        };
        // One name: the kernel answers each time.
        let mut answers = Answers::new();
        assert!(ask("lease-a", &mut answers));
        ofd::unlock(&maker).unwrap();
        assert!(!ask("lease-a", &mut answers));
        // Several names: the first answer counts throughout the read, and not longer.
        fs::hard_link(at("lease-a"), at("lease-b")).unwrap();
        assert_eq!(ofd::try_lock(&maker, ofd::Lock::Write), Ok(true));
        assert!(ask("lease-a", &mut answers));
        ofd::unlock(&maker).unwrap();
        assert!(ask("lease-b", &mut answers), "the kernel is not asked again");
        assert!(!ask("lease-b", &mut Answers::new()));
    }
}
