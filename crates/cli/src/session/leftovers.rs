//! Folders of sessions that nobody could clear away any more.
//!
//! A session is alive while somebody has its file open that was locked when it began: the `gpuws
//! sim` that made it, or whoever it started. The kernel lets go of the lock with the last of them.

use crate::failure::Failure;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, open, renameat_with};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the names of sessions' folders begin with.
pub(super) const PREFIX: &str = "gpuws-sim-";

const ALIVE: &str = "alive";

/// Far from the numbers that scripts use.
const NUMBER: i32 = 100;

/// So many are looked at, that a folder with very many does not keep anybody waiting.
const MOST: usize = 256;

/// Says that the session in a new folder is alive, for as long as this or a program started from
/// here on lives.
///
/// # Errors
/// When the file cannot be made or locked.
pub(super) fn begin(folder: &Path) -> Result<OwnedFd, Failure> {
    let made = || -> rustix::io::Result<OwnedFd> {
        let new = folder.join("new-alive");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = open(&new, flags, Mode::RUSR | Mode::WUSR)?;
        let file = fcntl_dupfd_cloexec(&file, NUMBER)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Whoever finds it by its name finds it locked.
        renameat_with(CWD, &new, CWD, folder.join(ALIVE), RenameFlags::NOREPLACE)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(file)
    };
    made().map_err(|errno| Failure::io("lock the session's folder", errno.into()))
}

/// Removes the folders of the caller's sessions that are over. What cannot be removed is left to
/// the next one; a folder that says nothing of being alive may be about to.
pub(super) fn clear(place: &Path) {
    let own = |entry: &std::fs::DirEntry| {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        is_named
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
    };
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries.filter(own).take(MOST) {
        let folder = entry.path();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = open(folder.join(ALIVE), flags, Mode::empty()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_lives_and_what_is_no_session_stays() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = place.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            folder
        };
        let alive = make("gpuws-sim-alive");
        let held = begin(&alive).unwrap();
        let copy = held.try_clone().unwrap();
        drop(begin(&make("gpuws-sim-over")).unwrap());
        drop(begin(&make("other-over")).unwrap());
        make("gpuws-sim-beginning");
        std::fs::write(place.path().join("gpuws-sim-file"), "x").unwrap();
        symlink(place.path().join("other-over"), place.path().join("gpuws-sim-link")).unwrap();
        let left = || {
            clear(place.path());
            let names = std::fs::read_dir(place.path()).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let others = ["gpuws-sim-beginning", "gpuws-sim-file", "gpuws-sim-link", "other-over"];
        assert_eq!(left(), [&["gpuws-sim-alive"][..], &others].concat());
        drop(held);
        assert_eq!(left().len(), 5, "somebody else has it open");
        drop(copy);
        assert_eq!(left(), others);
        assert!(place.path().join("other-over/alive").exists(), "no link is followed");
    }
}
