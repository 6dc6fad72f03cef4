//! Tells when a lease ended (inotify).

use super::folder::Folder;
use super::names::{KEPT, LEASE, TRY};
use super::user_folder::{USER, UserFolder};
use crate::timer::{now, sleep, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, Result};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A lease loses its name by a rename or for ever. One whose processes were all killed is closed,
/// which comes an instant before the kernel unlocks it.
const ENDS: WatchFlags =
    WatchFlags::MOVED_FROM.union(WatchFlags::DELETE).union(WatchFlags::CLOSE_WRITE);

/// Another user's folder came.
const COMES: WatchFlags = WatchFlags::CREATE.union(WatchFlags::MOVED_TO);

/// So long at least between two readings of what happened, where nothing of it mattered.
const MIN_EVENT_INTERVAL: Duration = Duration::from_millis(20);

/// Which folders are watched, by file system and inode.
#[derive(Debug)]
pub(super) struct Watch {
    fd: OwnedFd,
    folders: Vec<(u64, u64)>,
    /// One of them was removed; another may have its inode by now.
    has_lost_watch: Cell<bool>,
}

impl Watch {
    pub(super) fn new() -> Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Watch { fd, folders: Vec::new(), has_lost_watch: Cell::new(false) })
    }

    /// Returns whether one of the folders is watched no more: then a new watch has to be made.
    pub(super) fn has_lost_watch(&self) -> bool {
        self.has_lost_watch.get()
    }

    /// Watches these folders too, and tells whether one of them is new.
    pub(super) fn follow(&mut self, shared: &[Folder]) -> gpu_core::Result<bool> {
        let failed = |errno| crate::fault::file("watch the lease directory", errno);
        let known = self.folders.len();
        for folder in shared {
            self.add(folder, COMES).map_err(failed)?;
            UserFolder::each(folder, &mut |user| self.add(&user.folder, ENDS).map_err(failed))?;
        }
        Ok(self.folders.len() > known)
    }

    fn add(&mut self, folder: &Folder, events: WatchFlags) -> Result<()> {
        let stat = rustix::fs::fstat(&folder.fd)?;
        // The widths of both differ between architectures.
        #[allow(clippy::unnecessary_cast)]
        let id = (stat.st_dev as u64, stat.st_ino as u64);
        if !self.folders.contains(&id) {
            let path = format!("/proc/self/fd/{}", folder.fd.as_raw_fd());
            inotify::add_watch(&self.fd, path, events)?;
            self.folders.push(id);
        }
        Ok(())
    }

    /// Forgets what has happened so far.
    pub(super) fn forget(&self) {
        let _ = self.changed(|_| false);
    }

    /// Waits until a lease may have ended, and tells whether one did. A signal ends the wait.
    pub(super) fn wait(&self, at_most: Duration, prefix: &str) -> Result<bool> {
        let end = now() + at_most;
        loop {
            let left = end.saturating_sub(now());
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) | Err(Errno::INTR) => return Ok(false),
                polled => polled?,
            };
            // A user's folder has the prefix where it lies in a folder that is not for leases alone.
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
            // Anybody can cause what does not matter, as fast as can be.
            sleep(MIN_EVENT_INTERVAL.min(end.saturating_sub(now())));
        }
    }

    /// Reads all that has happened, and tells whether something of it matters.
    fn changed(&self, matters: impl Fn(&str) -> bool) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 8 << 10];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        let mut changed = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    changed |= name.is_some_and(&matters);
                    // Too much happened to be told, or the folder is no more.
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
