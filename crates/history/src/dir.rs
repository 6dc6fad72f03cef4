//! The directory of a history.

use crate::day::{Day, FileKind};
use gpu_core::{Error, ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The file that a recorder locks.
const LOCK: &str = "lock";

/// The file that marks a history without names.
const ANONYMOUS: &str = "anonymous";

/// The directory of a history, held open: its file names are fixed, and links are not followed.
#[derive(Debug)]
pub(crate) struct HistoryDir(OwnedFd);

pub(crate) fn failed(what: impl Into<String>, errno: Errno) -> Error {
    Error::new(ErrorKind::Io, what).with_source(errno)
}

impl HistoryDir {
    pub(crate) fn new(dir: OwnedFd) -> Self {
        HistoryDir(dir)
    }

    /// Verifies that only root and the caller can change the contents of the directory.
    pub(crate) fn check_owner(&self) -> Result<()> {
        let what = "use the directory of the history";
        let stat = rustix::fs::fstat(&self.0).map_err(|errno| failed(what, errno))?;
        let refused = |why: String| Error::new(ErrorKind::Invalid, what).with_source(why);
        if ![0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid) {
            return Err(refused(format!("it belongs to user {}", stat.st_uid)));
        }
        match Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
            true => Err(refused("others may write to it".to_owned())),
            false => Ok(()),
        }
    }

    /// Locks the directory for one recorder, for as long as the returned file is open. The file
    /// contains the recorder's PID.
    pub(crate) fn lock(&self) -> Result<File> {
        let what = "lock the history";
        let file = self.file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let pid = std::process::id().to_string();
                // Another program may own the file. The PID only helps to find this recorder, so a
                // full disk is not an error.
                if recorder(&file).is_some() || file.metadata().is_ok_and(|file| file.len() == 0) {
                    let _ = file.set_len(0).and_then(|()| file.write_all_at(pid.as_bytes(), 0));
                }
                Ok(file)
            }
            Err(Errno::WOULDBLOCK) => {
                let pid = recorder(&file);
                let who = pid.map_or("another recorder".to_owned(), |pid| {
                    format!("another recorder, process {pid},")
                });
                let why = format!("{who} is writing it; stop it or use another directory");
                Err(Error::new(ErrorKind::Invalid, what).with_source(why))
            }
            Err(errno) => Err(failed(what, errno)),
        }
    }

    /// Marks the history as anonymous: without names.
    pub(crate) fn mark_anonymous(&self) -> Result<()> {
        self.file(ANONYMOUS, OFlags::RDWR | OFlags::CREATE).map(drop)
    }

    /// Returns whether the history is anonymous: without names.
    pub(crate) fn is_anonymous(&self) -> Result<bool> {
        match rustix::fs::statat(&self.0, ANONYMOUS, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed("determine whether the history has names", errno)),
        }
    }

    /// Opens the file of a day.
    pub(crate) fn open(&self, kind: FileKind, day: Day, writes: bool) -> Result<File> {
        let flags = if writes { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDONLY };
        self.file(&kind.name(day), flags)
    }

    fn file(&self, name: &str, flags: OFlags) -> Result<File> {
        let what = || format!("open '{name}' of the history");
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(|errno| failed(what(), errno))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed(what(), errno))?;
        if is_file(&stat) {
            Ok(file.into())
        } else {
            Err(Error::new(ErrorKind::Invalid, what()).with_source("not a regular file"))
        }
    }

    /// Returns the days that have files, with the total size of both files of each.
    pub(crate) fn days(&self) -> Result<BTreeMap<Day, u64>> {
        let list = || -> rustix::io::Result<BTreeMap<Day, u64>> {
            let mut days = BTreeMap::new();
            // The directory may be open as a bare reference (`O_PATH`).
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(&self.0, ".", flags, Mode::empty())?;
            for entry in Dir::new(dir)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                let kinds = [FileKind::Data, FileKind::Index];
                let Some(day) = kinds.into_iter().find_map(|kind| Day::of_file(kind, name)) else {
                    continue;
                };
                let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
                // It may have been removed since.
                if let Ok(stat) = stat
                    && is_file(&stat)
                {
                    *days.entry(day).or_default() += u64::try_from(stat.st_size).unwrap_or(0);
                }
            }
            Ok(days)
        };
        list().map_err(|errno| failed("list the files of the history", errno))
    }

    /// Removes the files of a day.
    pub(crate) fn remove(&self, day: Day) -> Result<()> {
        // The index first: without it, readers do not expect the data.
        for name in [FileKind::Index, FileKind::Data].map(|kind| kind.name(day)) {
            match rustix::fs::unlinkat(&self.0, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(format!("remove '{name}' of the history"), errno)),
            }
        }
        Ok(())
    }
}

/// Returns the PID in a lock file.
fn recorder(lock: &File) -> Option<u32> {
    let mut pid = [0; 11];
    let length = lock.read_at(&mut pid, 0).ok()?;
    std::str::from_utf8(pid.get(..length)?).ok()?.parse().ok()
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}
