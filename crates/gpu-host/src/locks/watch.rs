//! Detects the end of a lease (inotify).

use super::dir::Dir;
use super::names::{KEPT, LEASE, TRY};
use super::user_dir::{USER, UserDir};
use crate::timer::{now, sleep, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, Result};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A lease loses its name by a rename or permanently. If all its processes were killed, its file is
/// closed, just before the kernel unlocks it.
const ENDS: WatchFlags =
    WatchFlags::MOVED_FROM.union(WatchFlags::DELETE).union(WatchFlags::CLOSE_WRITE);

/// The directory of another user appeared.
const COMES: WatchFlags = WatchFlags::CREATE.union(WatchFlags::MOVED_TO);

/// The minimum interval between reads of irrelevant events.
const MIN_EVENT_INTERVAL: Duration = Duration::from_millis(20);

/// The watched directories, by file system and inode.
#[derive(Debug)]
pub(super) struct Watch {
    fd: OwnedFd,
    dirs: Vec<(u64, u64)>,
    /// One of them was removed; another may have its inode by now.
    has_lost_watch: Cell<bool>,
}

impl Watch {
    pub(super) fn new() -> Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Watch { fd, dirs: Vec::new(), has_lost_watch: Cell::new(false) })
    }

    /// Returns whether one of the directories is no longer watched, so that a new watch is needed.
    pub(super) fn has_lost_watch(&self) -> bool {
        self.has_lost_watch.get()
    }

    /// Watches these directories too, and returns whether one of them is new.
    pub(super) fn follow(&mut self, shared: &[Dir]) -> gpu_core::Result<bool> {
        let failed = |errno| crate::fault::file("watch the lease directory", errno);
        let known = self.dirs.len();
        for dir in shared {
            self.add(dir, COMES).map_err(failed)?;
            UserDir::each(dir, &mut |user| self.add(&user.dir, ENDS).map_err(failed))?;
        }
        Ok(self.dirs.len() > known)
    }

    fn add(&mut self, dir: &Dir, events: WatchFlags) -> Result<()> {
        let stat = rustix::fs::fstat(&dir.fd)?;
        // The widths of both differ between architectures.
        #[allow(clippy::unnecessary_cast)]
        let id = (stat.st_dev as u64, stat.st_ino as u64);
        if !self.dirs.contains(&id) {
            let path = format!("/proc/self/fd/{}", dir.fd.as_raw_fd());
            inotify::add_watch(&self.fd, path, events)?;
            self.dirs.push(id);
        }
        Ok(())
    }

    /// Discards all past events.
    pub(super) fn forget(&self) {
        let _ = self.changed(|_| false);
    }

    /// Waits until a lease may have ended, and returns whether one did. A signal ends the wait.
    pub(super) fn wait(&self, at_most: Duration, prefix: &str) -> Result<bool> {
        let end = now() + at_most;
        loop {
            let left = end.saturating_sub(now());
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) | Err(Errno::INTR) => return Ok(false),
                polled => polled?,
            };
            // The name of a user's directory has the prefix if its parent is not for leases alone.
            let matters = |name: &str| {
                [LEASE, TRY, KEPT].iter().any(|kind| name.starts_with(kind))
                    || name.strip_prefix(prefix).unwrap_or(name).starts_with(USER)
            };
            if self.changed(matters)? {
                return Ok(true);
            }
            if now() >= end {
                return Ok(false);
            }
            // Other users can cause irrelevant events at any rate.
            sleep(MIN_EVENT_INTERVAL.min(end.saturating_sub(now())));
        }
    }

    /// Reads all events, and returns whether one of them is relevant.
    fn changed(&self, matters: impl Fn(&str) -> bool) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 8 << 10];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        let mut changed = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    changed |= name.is_some_and(&matters);
                    // The event queue overflowed, or the directory is gone.
                    let lost = ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED;
                    changed |= event.events().intersects(lost);
                    if event.events().contains(ReadFlags::IGNORED) {
                        self.has_lost_watch.set(true);
                    }
                }
                Err(Errno::AGAIN) => return Ok(changed),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
