//! The audit log as a file.

use crate::fault;
use crate::trusted_dir::TrustedDir;
use gpu_core::{Error, ErrorKind, Journal, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// An append-only file of lines.
///
/// Each line is one write at the end, so that concurrent writers do not mix their lines, and it is
/// on disk before [`append`](Journal::append) returns.
#[derive(Debug)]
pub struct FileJournal {
    path: PathBuf,
    file: Mutex<Opened>,
}

#[derive(Debug)]
struct Opened {
    fd: OwnedFd,
    /// The file ends in the middle of a line: a write was cut off, now or in an earlier run.
    torn: bool,
}

impl FileJournal {
    /// Opens a journal, or creates it, readable for the caller alone.
    ///
    /// # Errors
    /// `Io` when it cannot be opened; `Invalid` when it is a symbolic link or not a regular file,
    /// has a second hard link, or when another user owns it or its directory or may write to it:
    /// such a log proves nothing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let failed = |errno| fault::file(format!("open journal '{}'", path.display()), errno);
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = open_dir(dir.unwrap_or(Path::new("."))).map_err(failed)?;
        FileJournal::open_at(dir.as_fd(), path)
    }

    /// Opens a journal in an open directory, or creates it there as [`open`](Self::open) does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(dir: &TrustedDir, name: &str) -> Result<Self> {
        FileJournal::open_at(dir.as_fd(), dir.path().join(name))
    }

    fn open_at(dir: BorrowedFd<'_>, path: PathBuf) -> Result<Self> {
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let failed = |errno| fault::file(format!("open journal '{}'", path.display()), errno);
        own(&path, &rustix::fs::fstat(dir).map_err(failed)?, "is in a directory that")?;
        let name = path.file_name().ok_or_else(|| refused(&path, "has no file name"))?;
        let fd = match rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::LOOP) => return Err(refused(&path, "is a symbolic link")),
            fd => fd.map_err(failed)?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(&path, "is not a regular file"));
        }
        own(&path, &stat, "")?;
        if stat.st_nlink != 1 {
            return Err(refused(&path, "has several hard links"));
        }
        let torn = ends_inside_a_line(&fd, stat.st_size).map_err(failed)?;
        Ok(FileJournal { path, file: Mutex::new(Opened { fd, torn }) })
    }

    fn failed(&self) -> impl Fn(Errno) -> Error {
        |errno| fault::file(format!("write journal '{}'", self.path.display()), errno)
    }
}

impl Journal for FileJournal {
    fn append(&self, line: &str) -> Result<()> {
        if line.contains(['\n', '\r']) {
            return Err(Error::new(ErrorKind::Invalid, "write a multi-line entry to the journal"));
        }
        let mut opened = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let start = if opened.torn { "\n" } else { "" };
        let text = format!("{start}{line}\n");
        // Until the line is complete, the next write must start on a new line.
        opened.torn = true;
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&opened.fd, text.as_bytes()));
        if written.map_err(self.failed())? < text.len() {
            return Err(self.failed()(Errno::NOSPC));
        }
        opened.torn = false;
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&opened.fd)).map_err(self.failed())
    }
}

/// Opens a directory that is not a symbolic link: the creator of a link could redirect the log.
fn open_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
}

/// Verifies that a file or directory belongs to the caller, and that no other user can write to it.
fn own(path: &Path, stat: &Stat, what: &str) -> Result<()> {
    let why = if stat.st_uid != rustix::process::geteuid().as_raw() {
        "belongs to another user"
    } else if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        "is writable by others"
    } else {
        return Ok(());
    };
    Err(refused(path, format!("{what} {why}").trim_start()))
}

fn refused(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("open journal '{}', which {why}", path.display()))
}

fn ends_inside_a_line(fd: &OwnedFd, size: i64) -> rustix::io::Result<bool> {
    let Some(last) = u64::try_from(size).ok().and_then(|size| size.checked_sub(1)) else {
        return Ok(false);
    };
    let mut byte = [b'\n'];
    rustix::io::pread(fd, &mut byte, last)?;
    Ok(byte != [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn permissions(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn journal_appends_across_runs_with_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        FileJournal::open(&path).unwrap().append("{\"act\":1}").unwrap();
        FileJournal::open(&path).unwrap().append("{\"act\":2}").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"act\":1}\n{\"act\":2}\n");
        assert_eq!(permissions(&path), 0o600);
    }

    #[test]
    fn journal_under_untrusted_path_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("own")).unwrap();
        FileJournal::open(at("own/audit.jsonl")).unwrap();
        symlink(at("own"), at("link")).unwrap();
        assert!(FileJournal::open(at("link/audit.jsonl")).is_err(), "a directory that is a link");
        fs::hard_link(at("own/audit.jsonl"), at("own/twin")).unwrap();
        let twice = FileJournal::open(at("own/audit.jsonl")).unwrap_err().to_string();
        assert!(twice.contains("several hard links"), "{twice}");
        fs::create_dir(at("shared")).unwrap();
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
        let shared = FileJournal::open(at("shared/audit.jsonl")).unwrap_err().to_string();
        assert!(shared.contains("is in a directory that is writable"), "{shared}");
        assert!(!at("shared/audit.jsonl").exists());
    }

    #[test]
    fn journal_of_another_user_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["theirs", "mine"] {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(at("log"), "").unwrap();
        for path in [at("theirs"), at("log")] {
            if let Err(error) = std::os::unix::fs::chown(&path, Some(61_001), None) {
                use std::io::Write;
                let _ =
                    writeln!(std::io::stderr(), "skipped: a file cannot be given away: {error}");
                return;
            }
        }
        for (path, why) in [
            (at("log"), "which belongs to another user"),
            (at("theirs/log"), "which is in a directory that belongs to another user"),
            (at("mine/.."), "which has no file name"),
        ] {
            let error = FileJournal::open(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert_eq!(error.to_string(), format!("open journal '{}', {why}", path.display()));
        }
    }

    #[test]
    fn journal_opens_in_trusted_dir() {
        let dir = tempfile::tempdir().unwrap();
        let trusted = TrustedDir::open(dir.path(), crate::PathTrust::AsGiven).unwrap();
        FileJournal::open_in(&trusted, "log").unwrap().append("first").unwrap();
        FileJournal::open(dir.path().join("log")).unwrap().append("second").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), "first\nsecond\n");
    }

    #[test]
    fn torn_line_does_not_corrupt_following_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        drop(FileJournal::open(&path).unwrap());
        fs::write(&path, "{\"act\":1}\n{\"act").unwrap();
        let journal = FileJournal::open(&path).unwrap();
        journal.append("{\"act\":3}").unwrap();
        journal.append("{\"act\":4}").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"act\":1}\n{\"act\n{\"act\":3}\n{\"act\":4}\n");
    }

    #[test]
    fn concurrent_writers_do_not_interleave_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        std::thread::scope(|scope| {
            for letter in ["a", "b"] {
                let journal = FileJournal::open(&path).unwrap();
                scope.spawn(move || {
                    (0..50).for_each(|_| journal.append(&letter.repeat(99)).unwrap())
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 100);
        assert!(text.lines().all(|line| line == "a".repeat(99) || line == "b".repeat(99)));
    }

    #[test]
    fn entry_with_newline_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let journal = FileJournal::open(&path).unwrap();
        let error = journal.append("{}\n{\"act\":\"forged\"}").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn full_disk_is_an_error() {
        // Every write to it fails with ENOSPC; it is not a regular file, so it is put in place
        // after the checks.
        let fd = rustix::fs::open("/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        let file = Mutex::new(Opened { fd, torn: false });
        let journal = FileJournal { path: "/dev/full".into(), file };
        assert_eq!(journal.append("{}").unwrap_err().kind(), ErrorKind::Io);
        assert!(journal.file.lock().unwrap().torn, "the next entry must start a new line");
    }

    #[test]
    fn journal_writable_by_others_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("group"), "").unwrap();
        fs::set_permissions(at("group"), fs::Permissions::from_mode(0o660)).unwrap();
        fs::write(at("target"), "").unwrap();
        symlink(at("target"), at("link")).unwrap();
        let fifo = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, fifo, 0).unwrap();
        for name in ["group", "link", "fifo"] {
            let error = FileJournal::open(at(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
            assert!(error.to_string().starts_with("open journal '/"), "{error}");
        }
        fs::create_dir(at("directory")).unwrap();
        let error = FileJournal::open(at("directory")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "a directory cannot be opened for writing");
    }
}
