//! Publication of entries of the caller.

use super::kept_fd;
use super::names::{KEPT, NEW, PLACE, WAIT, file_prefix, of_place};
use super::ofd::{self, Lock};
use super::record_format::{place_of, write};
use super::user_dir::UserDir;
use crate::fault;
use crate::timer::timespec;
use gpu_core::{EntryKind, LeaseEntry, LeaseGuard, LeaseId, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timestamps};
use rustix::io::{Errno, FdFlags};
use rustix::time::Timespec;
use std::cell::OnceCell;

/// All users may read an entry, only its owner may write it.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);

/// An attempt or a lease of the caller, alive until this is dropped.
///
/// No program inherits its file: a started program may belong to another user, and readers trust
/// the content of the file as its owner's. Programs inherit a second, empty file.
pub(super) struct Published {
    file: OwnedFd,
    stat: Stat,
    user: UserDir,
    kind: EntryKind,
    id: LeaseId,
    random: String,
    kept: OnceCell<(OwnedFd, Stat)>,
    /// It ends with the processes that inherited it, not with this one.
    left: bool,
}

impl Published {
    /// Publishes an entry: it is written and locked under a name that no reader uses, and only then
    /// renamed. A reader that sees it sees all of it; if it is unlocked, it has ended.
    pub(super) fn new(
        user: UserDir,
        kind: EntryKind,
        entry: &LeaseEntry,
        random: &str,
    ) -> Result<Self> {
        let text = write(entry)?;
        let name = format!("{}{}", file_prefix(kind), entry.id);
        let kept = create_inheritable(&user, entry, random)?;
        let (file, stat) = match make_locked(&user, &name, &text, random) {
            Ok(made) => made,
            Err(error) => {
                if let Some((_, stat)) = kept.get() {
                    user.dir.remove(&format!("{KEPT}{}", entry.id), stat);
                }
                return Err(error);
            }
        };
        let (id, random) = (entry.id.clone(), random.to_owned());
        Ok(Published { file, stat, user, kind, id, random, kept, left: false })
    }

    fn name(&self) -> String {
        format!("{}{}", file_prefix(self.kind), self.id)
    }

    fn kept_name(&self) -> String {
        format!("{KEPT}{}", self.id)
    }

    /// Returns the inherited file, and creates it if it is missing.
    fn kept(&self) -> Result<&OwnedFd> {
        if let Some((file, _)) = self.kept.get() {
            return Ok(file);
        }
        let made = make_kept(&self.user, &self.kept_name(), &self.random)?;
        Ok(&self.kept.get_or_init(|| made).0)
    }

    fn touch(&self) -> rustix::io::Result<()> {
        if let Some((kept, _)) = self.kept.get() {
            rustix::fs::futimens(kept, &now())?;
        }
        rustix::fs::futimens(&self.file, &now())
    }
}

/// Creates the file that others can inherit, before the lease gets its name. If the lease had its
/// name before, an old file may exist.
fn create_inheritable(
    user: &UserDir,
    entry: &LeaseEntry,
    random: &str,
) -> Result<OnceCell<(OwnedFd, Stat)>> {
    let name = format!("{KEPT}{}", entry.id);
    let is_there = || {
        rustix::fs::statat(&user.dir.fd, &name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| user.is_own(&stat))
    };
    match make_kept(user, &name, random) {
        Ok(made) => Ok(OnceCell::from(made)),
        Err(_) if is_there() => Ok(OnceCell::new()),
        Err(error) => Err(error),
    }
}

/// Creates a file that jobs inherit, with a descriptor that their scripts do not close by accident.
fn make_kept(user: &UserDir, name: &str, random: &str) -> Result<(OwnedFd, Stat)> {
    let (file, stat) = make_locked(user, name, &[], random)?;
    Ok((kept_fd::moved(file), stat))
}

/// Creates a file that is locked for writing, and complete, when it gets its name.
fn make_locked(user: &UserDir, name: &str, text: &[u8], random: &str) -> Result<(OwnedFd, Stat)> {
    make(user, name, text, random, |file| {
        if ofd::try_lock(file, Lock::Write)? { Ok(()) } else { Err(Errno::AGAIN) }
    })
}

/// Creates a file that is complete when it gets its name.
fn make(
    user: &UserDir,
    name: &str,
    text: &[u8],
    random: &str,
    ready: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
) -> Result<(OwnedFd, Stat)> {
    let dir = &user.dir;
    let new = format!("{NEW}{}-{random}", std::process::id());
    let failed = |errno| fault::file(format!("write lease '{}'", dir.show(name)), errno);
    let file = dir.make_file(&new).map_err(failed)?;
    let published = (|| {
        let mut rest = text;
        while !rest.is_empty() {
            match rustix::io::write(&file, rest) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        ready(&file)?;
        // Whatever the umask: all users may read it, and only its owner may lock it.
        rustix::fs::fchmod(&file, MODE)?;
        rustix::fs::renameat_with(&dir.fd, &new, &dir.fd, name, RenameFlags::NOREPLACE)
    })();
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if let Err(errno) = published {
        dir.remove(&new, &stat);
        return Err(failed(errno));
    }
    Ok((file, stat))
}

fn now() -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
}

/// Returns the times of a place in the queue that was renewed just now. The modification time is
/// from the monotonic clock, which no step of the wall clock changes; the access time is from the
/// wall clock, for cleaners of old files.
fn beat() -> Timestamps {
    let last_modification = timespec(crate::timer::now());
    Timestamps { last_modification, ..now() }
}

/// Sets whether a program that is started now gets a descriptor.
fn set_inherited(fd: &OwnedFd, yes: bool) -> Result<()> {
    let flags = if yes { FdFlags::empty() } else { FdFlags::CLOEXEC };
    rustix::io::fcntl_setfd(fd, flags)
        .map_err(|errno| fault::file("change lock inheritance", errno))
}

impl LeaseGuard for Published {
    fn confirm(&mut self) -> Result<()> {
        if self.kind != EntryKind::Attempt {
            return Ok(());
        }
        let dir = &self.user.dir;
        let lease = format!("{}{}", file_prefix(EntryKind::Lease), self.id);
        let failed = |errno| fault::file(format!("write lease '{}'", dir.show(&lease)), errno);
        // After a cleaner has removed the name, it may refer to another file, or to none.
        if !dir.is_at(&self.name(), &self.stat).map_err(failed)? {
            return Err(failed(Errno::NOENT));
        }
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&dir.fd, self.name(), &dir.fd, &lease, flags).map_err(failed)?;
        self.kind = EntryKind::Lease;
        Ok(())
    }

    fn inherit(&self, yes: bool) -> Result<()> {
        if yes {
            set_inherited(self.kept()?, true)
        } else {
            self.kept.get().map_or(Ok(()), |(kept, _)| set_inherited(kept, false))
        }
    }

    fn renew(&self) -> Result<bool> {
        let name = self.name();
        let failed =
            |errno| fault::file(format!("renew lease '{}'", self.user.dir.show(&name)), errno);
        self.touch().map_err(failed)?;
        self.user.dir.is_at(&name, &self.stat).map_err(failed)
    }

    fn leave(mut self: Box<Self>) {
        self.left = true;
    }
}

impl Drop for Published {
    /// Ends it for all owners of its descriptor and cleans up, unless [`leave`](LeaseGuard::leave)
    /// left it to them.
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // Remove the names first: a reader that finds an unlocked file may remove its name, and
        // must not remove the next entry with that name. Closing alone would leave the locks to a
        // program that got a copy. A failure here cannot be repaired, and no decision depends on
        // the remains.
        let _ = self.touch();
        let name = self.name();
        if self.kind == EntryKind::Lease {
            super::history::keep(&self.user, &name, &self.id, &self.stat);
        } else {
            self.user.dir.remove(&name, &self.stat);
        }
        if let Some((kept, stat)) = self.kept.get() {
            self.user.dir.remove(&self.kept_name(), stat);
            let _ = ofd::unlock(kept);
        }
        let _ = ofd::unlock(&self.file);
        if self.kind == EntryKind::Lease {
            super::history::clear(&self.user);
        }
    }
}

/// A place of the caller in the queue, alive until this is dropped.
///
/// It is alive while its FIFO has a writer. Processes that wait for it wait for the FIFO to hang
/// up, which costs one descriptor and wakes no others.
pub(super) struct InQueue {
    queue: UserDir,
    name: String,
    stat: Stat,
    wait: String,
    fifo: OwnedFd,
    fifo_stat: Stat,
}

impl InQueue {
    /// Publishes a place in the queue.
    pub(super) fn new(user: &UserDir, entry: &LeaseEntry, random: &str) -> Result<Self> {
        let text = write(entry)?;
        let queue = user.own_queue()?;
        let place = place_of(&LeaseEntry { owner: queue.owner, ..entry.clone() });
        let name = format!("{PLACE}{}", of_place(&place));
        let wait = format!("{WAIT}{}", entry.id);
        let (fifo, fifo_stat) = make_fifo(&queue, &wait, random)?;
        match make(&queue, &name, &text, random, |file| rustix::fs::futimens(file, &beat())) {
            Ok((_, stat)) => Ok(InQueue { queue, name, stat, wait, fifo, fifo_stat }),
            Err(error) => {
                queue.dir.remove(&wait, &fifo_stat);
                Err(error)
            }
        }
    }
}

/// Creates a FIFO that all users may read, and that has a writer when it gets its name.
fn make_fifo(queue: &UserDir, name: &str, random: &str) -> Result<(OwnedFd, Stat)> {
    let dir = &queue.dir;
    let new = format!("{NEW}{}-{random}-fifo", std::process::id());
    let failed = |errno| fault::file(format!("make '{}'", dir.show(name)), errno);
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(&dir.fd, &new, FileType::Fifo, mode, 0).map_err(failed)?;
    let made = (|| {
        // Open for reading as well, so that the open succeeds without a reader (fifo(7)).
        let fifo = dir.open_file(&new, OFlags::RDWR)?;
        rustix::fs::fchmod(&fifo, MODE)?;
        rustix::fs::renameat_with(&dir.fd, &new, &dir.fd, name, RenameFlags::NOREPLACE)?;
        let stat = rustix::fs::fstat(&fifo)?;
        Ok((fifo, stat))
    })();
    made.map_err(|errno| {
        // Only the caller's user creates files here, and no other process uses this name.
        let _ = rustix::fs::unlinkat(&dir.fd, &new, AtFlags::empty());
        failed(errno)
    })
}

impl LeaseGuard for InQueue {
    fn confirm(&mut self) -> Result<()> {
        Ok(())
    }

    fn inherit(&self, yes: bool) -> Result<()> {
        set_inherited(&self.fifo, yes)
    }

    fn renew(&self) -> Result<bool> {
        let dir = &self.queue.dir;
        let failed = |errno| fault::file(format!("renew '{}'", dir.show(&self.name)), errno);
        if !dir.is_at(&self.name, &self.stat).map_err(failed)? {
            return Ok(false);
        }
        let touched =
            rustix::fs::utimensat(&dir.fd, &self.name, &beat(), AtFlags::SYMLINK_NOFOLLOW);
        match touched {
            Err(Errno::NOENT) => Ok(false),
            touched => touched.map(|()| true).map_err(failed),
        }
    }

    fn leave(self: Box<Self>) {}
}

impl Drop for InQueue {
    fn drop(&mut self) {
        // Remove the name first, so that no process finds a place that is about to hang up.
        self.queue.dir.remove(&self.name, &self.stat);
        self.queue.dir.remove(&self.wait, &self.fifo_stat);
    }
}
