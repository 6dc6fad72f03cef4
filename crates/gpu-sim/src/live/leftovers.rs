//! The directories of sessions that ended without removing them.
//!
//! A session is alive while a process has its lock file open: the `gpuws sim` that created it, or a
//! program that it started, except the simulated processes, which end with their session. The kernel releases the lock with the last of them. The file contains
//! its own device and inode numbers, so the copy of a session's directory is not taken for a
//! session.

use super::LiveError;
use super::error::io;
use crate::Session;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Stat,
    flock, fstat, open, openat, openat2, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::geteuid;
use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The prefix of the names of session directories.
pub(super) const PREFIX: &str = "gpuws-sim-";

const ALIVE: &str = Session::ALIVE;

/// The lowest descriptor numbers to try for the lock file: far from those that scripts use, within
/// the caller's limit.
const NUMBERS: [i32; 4] = [100, 50, 20, 10];

/// The maximum number of directories to check, so that a large directory causes no delay.
const MAX: usize = 256;

/// The maximum depth of subdirectories in a session's directory.
const DEPTH: usize = 64;

/// The maximum length of a lock file, in bytes; it contains two numbers.
const NAME: usize = 64;

/// Marks the session in a new directory as alive, for as long as this program or one that it starts
/// from here on lives.
///
/// # Errors
/// If the lock file cannot be created or locked.
pub(super) fn begin(dir: &Path) -> Result<OwnedFd, LiveError> {
    let made = || -> rustix::io::Result<OwnedFd> {
        let new = dir.join("new-alive");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = open(&new, flags, Mode::RUSR | Mode::WUSR)?;
        let high_fd = NUMBERS.iter().find_map(|number| fcntl_dupfd_cloexec(&file, *number).ok());
        let file = high_fd.unwrap_or(file);
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        rustix::io::write(&file, name(&fstat(&file)?).as_bytes())?;
        // The file is locked before it gets its name.
        renameat_with(CWD, &new, CWD, dir.join(ALIVE), RenameFlags::NOREPLACE)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(file)
    };
    made().map_err(|errno| io("lock the session's directory", errno.into()))
}

/// Removes the directories of the caller's sessions that have ended. A failed removal is left to
/// the next call. A directory without a lock file is kept, because its session may be starting.
pub(super) fn clear(parent: &Path) {
    let own = |entry: &std::fs::DirEntry| {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        is_named
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(own).take(MAX) {
        let dir = entry.path();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = open(dir.join(ALIVE), flags, Mode::empty()) else { continue };
        let is_over = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_over && is_itself(&file).unwrap_or(false) {
            remove(&dir);
        }
    }
}

/// Removes the directory of a session with its contents, except for mounts. If a removal fails, the
/// rest is kept, including the lock file.
pub(super) fn remove(dir: &Path) {
    let removed = || -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(dir, flags, Mode::empty())?;
        empty(&opened, &|name| name.to_bytes() == ALIVE.as_bytes(), 0)?;
        empty(&opened, &|_| false, 0)?;
        rustix::fs::rmdir(dir)
    };
    // The next clean-up tries again.
    let _ = removed();
}

/// Removes the contents of a directory, except for the names that `stays` accepts.
fn empty(dir: &OwnedFd, stays: &dyn Fn(&CStr) -> bool, depth: usize) -> rustix::io::Result<()> {
    if depth > DEPTH {
        return Err(Errno::LOOP);
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || stays(name) {
            continue;
        }
        let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            // This fails for a mount point.
            unlinkat(dir, name, AtFlags::empty())?;
            continue;
        }
        empty(&inner(dir, name)?, &|_| false, depth + 1)?;
        unlinkat(dir, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Opens a subdirectory, unless it is a mount point.
fn inner(dir: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(dir, name, flags, Mode::empty(), resolve) {
        // Linux before 5.6, or a container whose seccomp filter does not allow the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let opened = openat(dir, name, flags, Mode::empty())?;
            if fstat(&opened)?.st_dev == fstat(dir)?.st_dev { Ok(opened) } else { Err(Errno::XDEV) }
        }
        opened => opened,
    }
}

/// Returns the content of a lock file: its device and inode numbers.
fn name(file: &Stat) -> String {
    format!("{} {}\n", file.st_dev, file.st_ino)
}

/// Returns whether a file contains its own numbers, and so is not a copy.
fn is_itself(file: &OwnedFd) -> rustix::io::Result<bool> {
    let mut text = [0; NAME];
    let filled = rustix::io::pread(file, &mut text, 0)?;
    Ok(text[..filled] == *name(&fstat(file)?).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    /// Ends the session in a directory. A program that another test is starting may keep the lock
    /// for a moment longer.
    fn end(held: OwnedFd, dir: &Path) {
        drop(held);
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let is_over = || {
            let file = open(dir.join(ALIVE), OFlags::RDONLY, Mode::empty()).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        while !is_over() {
            let _ = rustix::thread::nanosleep(&pause);
        }
    }

    /// Begins and ends a session in a directory.
    fn begin_and_end(dir: &Path) {
        end(begin(dir).unwrap(), dir);
    }

    #[test]
    fn live_sessions_and_other_dirs_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = parent.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        let alive = make("gpuws-sim-alive");
        let held = begin(&alive).unwrap();
        let copy = held.try_clone().unwrap();
        begin_and_end(&make("gpuws-sim-over"));
        begin_and_end(&make("other-over"));
        make("gpuws-sim-beginning");
        std::fs::write(parent.path().join("gpuws-sim-file"), "x").unwrap();
        symlink(parent.path().join("other-over"), parent.path().join("gpuws-sim-link")).unwrap();
        let left = || {
            clear(parent.path());
            let names = std::fs::read_dir(parent.path()).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let others = ["gpuws-sim-beginning", "gpuws-sim-file", "gpuws-sim-link", "other-over"];
        assert_eq!(left(), [&["gpuws-sim-alive"][..], &others].concat());
        drop(held);
        assert_eq!(left().len(), 5, "somebody else has it open");
        end(copy, &alive);
        assert_eq!(left(), others);
        assert!(parent.path().join("other-over/alive").exists(), "no link is followed");
    }
    #[test]
    fn copied_session_dir_is_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        let [over, copy] =
            ["gpuws-sim-over", "gpuws-sim-copy"].map(|name| parent.path().join(name));
        std::fs::create_dir(&over).unwrap();
        std::fs::create_dir(&copy).unwrap();
        begin_and_end(&over);
        std::fs::copy(over.join(ALIVE), copy.join(ALIVE)).unwrap();
        std::fs::write(over.join("session.json"), "{}").unwrap();
        std::fs::create_dir_all(over.join("dev/deep")).unwrap();
        symlink(&copy, over.join("dev/link")).unwrap();
        clear(parent.path());
        assert!(!over.exists() && copy.join(ALIVE).exists());
    }

    #[test]
    fn mounted_contents_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("gpuws-sim-over");
        let (mounted, elsewhere) = (dir.join("dev/data"), parent.path().join("elsewhere"));
        std::fs::create_dir_all(&mounted).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("file"), "kept").unwrap();
        begin_and_end(&dir);
        let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
            let status = std::process::Command::new(program).args(arguments).status();
            status.is_ok_and(|status| status.success())
        };
        // The bind mount is on the same file system, so its device number does not reveal it.
        if !run("mount", &["--bind".as_ref(), elsewhere.as_ref(), mounted.as_ref()]) {
            let why = "needs root to mount";
            return writeln!(std::io::stderr(), "skipped: what_is_mounted_stays: {why}").unwrap();
        }
        clear(parent.path());
        let left = elsewhere.join("file").exists() && dir.join(ALIVE).exists();
        let unmounted = run("umount", &[mounted.as_ref()]);
        assert!(left && unmounted);
        clear(parent.path());
        assert!(!dir.exists() && elsewhere.join("file").exists());
    }
}
