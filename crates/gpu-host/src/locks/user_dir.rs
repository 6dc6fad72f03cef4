//! The directory of each user: the owner of an entry is the owner of its directory.
//!
//! Only its owner can give a name to a file in it, and the sticky parent directory keeps others
//! from renaming or removing it. So no user can create an entry of another user, with whatever
//! links, and the link count of a file means nothing.

use super::dir::Dir;
use super::names::QUEUE;
use super::random_hex;
use crate::fault;
use crate::trusted_dir::overflow_user;
use gpu_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FileType, Mode, Stat, StatxFlags};
use rustix::io::Errno;
use std::cell::LazyCell;
use std::collections::HashMap;
use std::ffi::CStr;

/// The name prefix of a user's directory.
pub(super) const USER: &str = "u";

/// The most names that are listed in the shared directory. It is the default number of files of an
/// in-memory file system (tmpfs(5), `nr_inodes`): a user who can create that many can fill it
/// altogether.
const SHARED_NAMES: usize = 1 << 20;

/// How many directories of one user are read, the first ones by name. gpuws creates one for each
/// user, or two if another user took the usual name, and prefers the earlier name; only their owner
/// can create more.
const DIRS_PER_USER: u32 = 256;

/// A user's files beyond this count are ignored, which harms only that user.
const USER_NAMES: usize = 1 << 14;
/// The same for the queue of a user.
pub(super) const QUEUE_NAMES: usize = 1 << 16;

/// The directory of a user, held open, or its queue directory.
#[derive(Debug)]
pub(super) struct UserDir {
    pub(super) dir: Dir,
    pub(super) owner: u32,
    /// Its name in the parent directory.
    pub(super) name: String,
}

impl UserDir {
    /// Visits the directories of all users in a shared directory, with one open at a time: there
    /// may be more than the limit on open files. Of each user, it visits [`DIRS_PER_USER`].
    ///
    /// # Errors
    /// `Io` when the caller or the machine cannot list or open them: an unreadable entry must not
    /// count as missing. `Invalid` when there are more names than readers accept. Those of `visit`.
    pub(super) fn each(shared: &Dir, visit: &mut dyn FnMut(UserDir) -> Result<()>) -> Result<()> {
        let path = shared.path.display();
        let (mut names, is_cut) = shared
            .names(USER, SHARED_NAMES, usize::MAX)
            .map_err(|errno| fault::file(format!("list leases in '{path}'"), errno))?;
        if is_cut {
            let what = format!("list leases in '{path}', which has over {SHARED_NAMES} files");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        names.sort_unstable();
        let mut counts: HashMap<u32, u32> = HashMap::new();
        // An unmapped user looks like many others.
        let overflow = LazyCell::new(overflow_user);
        for name in names {
            let name = format!("{}{USER}{name}", shared.prefix);
            if displayed_owner(shared, &name).is_some_and(|owner| {
                counts.get(&owner) >= Some(&DIRS_PER_USER) && owner != *overflow
            }) {
                continue;
            }
            let Some((dir, stat)) = Self::opened(shared, &name)? else { continue };
            // Ignored directories have cost an open too.
            *counts.entry(stat.st_uid).or_default() += 1;
            if is_dir_of_its_owner(&stat) {
                visit(UserDir { dir, owner: stat.st_uid, name })?;
            }
        }
        Ok(())
    }

    /// Opens the directory of a user; `None` for anything else.
    ///
    /// # Errors
    /// `Io` if the caller or the machine is at fault.
    pub(super) fn open(shared: &Dir, name: &str) -> Result<Option<Self>> {
        let user = Self::opened(shared, name)?.filter(|(_, stat)| is_dir_of_its_owner(stat));
        Ok(user.map(|(dir, stat)| UserDir { dir, owner: stat.st_uid, name: name.to_owned() }))
    }

    fn opened(shared: &Dir, name: &str) -> Result<Option<(Dir, Stat)>> {
        shared.open_dir(name).map_err(|errno| {
            fault::file(format!("open the lease directory '{}'", shared.show(name)), errno)
        })
    }

    /// Returns the caller's own directory, and creates it if it is missing.
    ///
    /// # Errors
    /// `Io` when it cannot be created or opened.
    pub(super) fn own(shared: &Dir) -> Result<Self> {
        let caller = rustix::process::geteuid().as_raw();
        let usual = format!("{}{USER}{caller}", shared.prefix);
        if let Some(own) = Self::open_own(shared, &usual, caller)? {
            return Ok(own);
        }
        if make(shared, &usual)?
            && let Some(own) = Self::open_own(shared, &usual, caller)?
        {
            return Ok(own);
        }
        // Another user has the usual name.
        if let Some(own) = Self::first_of(shared, caller)? {
            return Ok(own);
        }
        // Other claims of the same user may be at the same point, and another user can slow down
        // listings. The name contains the time: a later directory never takes precedence over an
        // earlier one, and no process keeps using one that is removed below.
        let ticket = crate::timer::since_boot().as_nanos();
        let other = format!("{usual}-{ticket:016x}-{}", random_hex()?);
        make(shared, &other)?;
        let own = Self::first_of(shared, caller)?.ok_or_else(|| {
            let what = format!("create the lease directory '{}'", shared.show(&other));
            Error::new(ErrorKind::Io, what)
        })?;
        if own.name != other {
            // Another program of this user was faster; no process has used this one yet.
            let _ = rustix::fs::unlinkat(&shared.fd, &other, AtFlags::REMOVEDIR);
        }
        Ok(own)
    }

    /// Returns the first directory of the caller by name.
    fn first_of(shared: &Dir, caller: u32) -> Result<Option<Self>> {
        let mut first = None;
        Self::each(shared, &mut |user| {
            if user.owner == caller && first.is_none() {
                user.open_to_readers()?;
                first = Some(user);
            }
            Ok(())
        })?;
        Ok(first)
    }

    fn open_own(shared: &Dir, name: &str, caller: u32) -> Result<Option<Self>> {
        let own = Self::open(shared, name)?.filter(|user| user.owner == caller);
        own.map(|user| user.open_to_readers().map(|()| user)).transpose()
    }

    /// Returns the user's queue directory; `None` if there is none.
    ///
    /// # Errors
    /// `Io` if the caller or the machine is at fault.
    pub(super) fn queue(&self) -> Result<Option<Self>> {
        Ok(Self::open(&self.dir, QUEUE)?.filter(|queue| queue.owner == self.owner))
    }

    /// Returns the caller's own queue directory, and creates it if it is missing.
    ///
    /// # Errors
    /// `Io` when it cannot be created or opened.
    pub(super) fn own_queue(&self) -> Result<Self> {
        if let Some(queue) = Self::open_own(&self.dir, QUEUE, self.owner)? {
            return Ok(queue);
        }
        make(&self.dir, QUEUE)?;
        Self::open_own(&self.dir, QUEUE, self.owner)?.ok_or_else(|| {
            let path = self.dir.show(QUEUE);
            Error::new(
                ErrorKind::Io,
                format!("use '{path}', which is not a directory owned by the caller"),
            )
        })
    }

    /// Lets all users read the caller's own directory, whatever the umask at its creation: a lease
    /// that others do not see is granted twice.
    fn open_to_readers(&self) -> Result<()> {
        let dir = &self.dir;
        let failed = |errno| {
            fault::file(format!("open the lease directory '{}'", dir.path.display()), errno)
        };
        let stat = rustix::fs::fstat(&dir.fd).map_err(failed)?;
        if Mode::from_raw_mode(stat.st_mode) == mode() {
            Ok(())
        } else {
            rustix::fs::fchmod(&dir.fd, mode()).map_err(failed)
        }
    }

    /// Visits its names, each with its inode number.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn list(&self, mut visit: impl FnMut(&CStr, u64)) -> rustix::io::Result<()> {
        let each = |name: &CStr, inode: u64| {
            visit(name, inode);
            true
        };
        self.dir.list(USER_NAMES, each).map(|_| ())
    }

    /// Returns the names in it, at most `most`, if it is a queue directory; none if its owner has
    /// removed it.
    ///
    /// # Errors
    /// `Io` if the caller or the machine is at fault.
    pub(super) fn places(&self, most: usize) -> Result<Vec<String>> {
        match self.dir.names("", most, most) {
            Err(Errno::NOENT) => Ok(Vec::new()),
            names => names.map(|(names, _)| names).map_err(|errno| {
                let path = self.dir.path.display();
                fault::file(format!("list leases in '{path}'"), errno)
            }),
        }
    }

    /// Returns whether a file may belong to an entry: its owner created it, and no other user may
    /// write to it.
    pub(super) fn is_own(&self, stat: &Stat) -> bool {
        stat.st_uid == self.owner && only_owner_writes(stat)
    }
}

fn mode() -> Mode {
    Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH
}

/// Returns the owner of a file, without opening it; `None` if it is unknown. A file system in user
/// space, which any user may mount on a directory of their own, is not queried, because it might
/// never answer.
///
/// Use the answer only to skip a directory: a user who replaces the file, or forges its owner, only
/// has their own directory skipped.
fn displayed_owner(shared: &Dir, name: &str) -> Option<u32> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&shared.fd, name, flags, StatxFlags::UID).ok()?;
    Some(stat.stx_uid)
}

/// Creates a directory; false if the name is taken.
fn make(shared: &Dir, name: &str) -> Result<bool> {
    match rustix::fs::mkdirat(&shared.fd, name, mode()) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => {
            let what = format!("create the lease directory '{}'", shared.show(name));
            Err(fault::file(what, errno))
        }
    }
}

fn is_dir_of_its_owner(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory && only_owner_writes(stat)
}

fn only_owner_writes(stat: &Stat) -> bool {
    !Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH)
}
