//! Files whose content only root and the caller control: policies, settings, and programs to start.

use crate::fault;
use crate::trusted_dir::{PathTrust, TrustedDir};
use gpu_core::{Error, ErrorKind, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// More links than on any honest path; the kernel's own limit (path_resolution(7)).
const LINKS: usize = 40;

/// A regular file, held open: it belongs to root or the caller, no group and no other user may
/// write to it, and no other user can exchange it for another one.
#[derive(Debug)]
pub struct TrustedFile {
    fd: OwnedFd,
    path: PathBuf,
}

impl TrustedFile {
    /// Opens a file, and follows links of root and the caller to it.
    ///
    /// # Errors
    /// `Invalid` when the path is not absolute, a directory on it is not [`PathTrust::Protected`],
    /// or the file is not regular, belongs to another user or is writable by others; `Io` when it
    /// cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_absolute() {
            return Err(refused(path, "is not absolute"));
        }
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            let name = path.file_name().ok_or_else(|| refused(&path, "has no name"))?;
            let above = path.parent().unwrap_or(Path::new("/"));
            let dir = TrustedDir::open(above, PathTrust::Protected)?;
            let here = dir.path().join(name);
            match open_at(&dir, &here, OFlags::RDONLY | OFlags::NONBLOCK) {
                Ok(fd) => {
                    check(&here, fd.as_fd(), FileType::RegularFile)?;
                    return Ok(TrustedFile { fd, path: here });
                }
                Err(Errno::LOOP) => path = target(&dir, &here)?,
                Err(errno) => return Err(failed(&here, errno)),
            }
        }
        Err(failed(&path, Errno::LOOP))
    }

    /// Reads a file as text of at most `most` bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`open`](TrustedFile::open), also for a dangling link, and [`text`](TrustedFile::text).
    pub fn text_of(path: &Path, most: u64) -> Result<Option<String>> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            _ => TrustedFile::open(path)?.text(most).map(Some),
        }
    }

    /// Returns its path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file, for a caller that reads a part of it.
    pub fn into_file(self) -> File {
        File::from(self.fd)
    }

    /// Returns the path of a program, without links.
    ///
    /// # Errors
    /// As [`open`](TrustedFile::open), and `Invalid` when it is not executable.
    pub(crate) fn program(path: &Path) -> Result<PathBuf> {
        let TrustedFile { fd, path: here } = TrustedFile::open(path)?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(&here, errno))?;
        let execute = Mode::XUSR | Mode::XGRP | Mode::XOTH;
        if Mode::from_raw_mode(stat.st_mode).intersects(execute) {
            Ok(here)
        } else {
            Err(refused(path, "is not executable"))
        }
    }

    /// Reads it as text of at most `most` bytes.
    ///
    /// # Errors
    /// `Invalid` when it is longer or not UTF-8; `Io` when it cannot be read.
    pub fn text(self, most: u64) -> Result<String> {
        let what = || format!("read '{}'", self.path.display());
        let mut bytes = Vec::new();
        let mut file = File::from(self.fd).take(most + 1);
        file.read_to_end(&mut bytes)
            .map_err(|error| Error::new(ErrorKind::Io, what()).with_source(error))?;
        if bytes.len() as u64 > most {
            let why = format!("it is longer than {most} bytes");
            return Err(Error::new(ErrorKind::Invalid, what()).with_source(why));
        }
        let text = String::from_utf8(bytes);
        text.map_err(|_| Error::new(ErrorKind::Invalid, what()).with_source("it is not UTF-8"))
    }
}

fn open_at(dir: &TrustedDir, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let name = path.file_name().unwrap_or_default();
    let flags = flags | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Returns where a link leads.
fn target(dir: &TrustedDir, path: &Path) -> Result<PathBuf> {
    let link = open_at(dir, path, OFlags::PATH).map_err(|errno| failed(path, errno))?;
    check(path, link.as_fd(), FileType::Symlink)?;
    // From the opened link, because its name may refer to another file by now.
    let target = rustix::fs::readlinkat(&link, "", Vec::new());
    let target = target.map_err(|errno| failed(path, errno))?;
    Ok(dir.path().join(PathBuf::from(OsString::from_vec(target.into_bytes()))))
}

fn check(path: &Path, fd: BorrowedFd<'_>, expected: FileType) -> Result<()> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| failed(path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != expected {
        return Err(refused(path, "is not a regular file"));
    }
    if ![0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid) {
        return Err(refused(path, &format!("belongs to user {}", stat.st_uid)));
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    // The mode of a link means nothing.
    if expected == FileType::RegularFile && mode.intersects(Mode::WGRP | Mode::WOTH) {
        let bits = mode.bits() & 0o7777;
        return Err(refused(path, &format!("is writable by others (mode {bits:04o})")));
    }
    Ok(())
}

fn failed(path: &Path, errno: Errno) -> Error {
    fault::file(format!("open '{}'", path.display()), errno)
}

fn refused(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("use the file '{}', which {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    fn file(path: PathBuf, mode: u32) -> PathBuf {
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn why(path: &Path) -> String {
        TrustedFile::open(path).unwrap_err().to_string()
    }

    #[test]
    fn own_file_is_read_through_own_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path().join("policy.toml"), 0o644);
        symlink("policy.toml", dir.path().join("link")).unwrap();
        symlink(dir.path().join("link"), dir.path().join("second")).unwrap();
        let opened = TrustedFile::open(&dir.path().join("second")).unwrap();
        assert_eq!(opened.path().file_name(), path.file_name());
        let refused = TrustedFile::program(&path).unwrap_err().to_string();
        assert!(refused.contains("is not executable"), "{refused}");
        assert_eq!(opened.text(4).unwrap(), "text");
        let long = TrustedFile::open(&path).unwrap().text(3).unwrap_err();
        assert_eq!(long.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn only_a_missing_file_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let text = |name: &str| TrustedFile::text_of(&dir.path().join(name), 4);
        assert_eq!((text("none").unwrap(), text("none/none").unwrap()), (None, None));
        file(dir.path().join("open"), 0o666);
        symlink("none", dir.path().join("link")).unwrap();
        assert!(text("open").is_err() && text("link").is_err());
        file(dir.path().join("own"), 0o600);
        assert_eq!(text("own").unwrap().as_deref(), Some("text"));
    }

    #[test]
    fn file_writable_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o666, 0o664, 0o646] {
            let path = file(dir.path().join(format!("{mode:o}")), mode);
            assert!(why(&path).contains("is writable by others"), "{}", why(&path));
        }
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let path = file(open.join("policy"), 0o644);
        assert!(why(&path).contains("is writable by others"), "{}", why(&path));
        symlink("circle", dir.path().join("circle")).unwrap();
        assert_eq!(
            TrustedFile::open(&dir.path().join("circle")).unwrap_err().kind(),
            ErrorKind::Io
        );
        assert!(why(dir.path()).contains("is not a regular file"));
        assert_eq!(TrustedFile::open(Path::new("x")).unwrap_err().kind(), ErrorKind::Invalid);
        let fifo = dir.path().join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        assert!(
            why(&fifo).contains("is not a regular file"),
            "the open does not wait for a writer"
        );
    }

    #[test]
    fn file_and_link_of_another_user_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path().join("theirs"), 0o644);
        symlink("/etc/hostname", dir.path().join("link")).unwrap();
        for name in ["theirs", "link"] {
            if let Err(error) = lchown(dir.path().join(name), Some(61_001), None) {
                use std::io::Write;
                let _ =
                    writeln!(std::io::stderr(), "skipped: a file cannot be given away: {error}");
                return;
            }
        }
        assert!(why(&path).contains("belongs to user 61001"));
        assert!(why(&dir.path().join("link")).contains("belongs to user 61001"));
    }
}
