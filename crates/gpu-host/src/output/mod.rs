//! Output files that the user names.
//!
//! The main decision is that an existing file is never written in place if a new file can replace
//! it; a link, a second name or a FIFO planted by another user therefore has no effect. Only
//! symbolic links of the user and of root are followed.

mod part;

pub use part::Part;

use crate::{PathTrust, TrustedDir, is_own as is_own_user};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The maximum number of symbolic links in a path, as in the kernel (path_resolution(7)).
const LINKS: usize = 40;

/// The maximum number of temporary names to try.
const NAMES: u32 = 100;

/// The mode of a new file before the umask: all users may read and write.
const USUAL: Mode = Mode::from_raw_mode(0o666);

/// The error for an output file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("write '{}'", path.display())]
pub struct OutputError {
    path: PathBuf,
    #[source]
    why: Why,
}

/// Why an output file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// The operating system returned an error.
    #[error(transparent)]
    Io(io::Error),
    /// The path has no file name.
    #[error("the path has no file name")]
    NoName,
    /// Another user can replace the directory, or a link in its path.
    #[error("{0}")]
    Untrusted(String),
    /// The existing file must not be written.
    #[error("{0}")]
    Refused(String),
    /// The name is in use.
    #[error("it already exists")]
    Exists,
}

impl OutputError {
    fn new(path: &Path, why: Why) -> Self {
        OutputError { path: path.to_owned(), why }
    }

    /// Returns why the file cannot be written.
    pub fn into_why(self) -> Why {
        self.why
    }
}

/// Creates a file, which replaces any regular file of this name, and opens it for writing.
///
/// A character device or a descriptor (`/dev/null`, `/dev/fd/3`) is opened as it is. If the
/// directory takes no new file, the user's own file is truncated instead.
///
/// # Errors
/// If the path is a FIFO, a directory or another user's symbolic link, or if the file cannot be
/// created.
pub fn create(path: &Path) -> Result<File, OutputError> {
    let destination = Destination::find(path)?;
    match destination.opened(OFlags::TRUNC)? {
        Some(file) => Ok(file),
        None => match destination.temporary() {
            Ok((name, file)) => destination.put(&name).map(|()| file.into()),
            Err(errno) => destination.emptied(errno).map(Into::into),
        },
    }
}

/// Replaces a file with this content, completely or not at all, under the rules of [`create`].
///
/// # Errors
/// As for [`create`].
pub fn replace(path: &Path, content: &[u8]) -> Result<(), OutputError> {
    let destination = Destination::find(path)?;
    let mut file = match destination.opened(OFlags::TRUNC)? {
        Some(file) => file,
        None => match destination.temporary() {
            Ok((name, file)) => {
                let mut file = File::from(file);
                if let Err(error) = file.write_all(content) {
                    destination.dir.remove(&name);
                    return Err(destination.failed(error));
                }
                return destination.put(&name);
            }
            Err(errno) => destination.emptied(errno)?.into(),
        },
    };
    file.write_all(content).map_err(|error| destination.failed(error))
}

/// Writes a new file, completely or not at all.
///
/// # Errors
/// If the path exists, or the file cannot be created or written.
pub fn write_new(path: &Path, content: &[u8]) -> Result<(), OutputError> {
    let mut part = Part::create(path)?;
    let written = part.file.write_all(content);
    written.map_err(|error| OutputError::new(path, Why::Io(error)))?;
    part.finish(path)
}

/// Opens a file of the user's own for appending, and creates it if it does not exist.
///
/// # Errors
/// As for [`create`], and if the file belongs to another user or has several hard links.
pub fn append(path: &Path) -> Result<File, OutputError> {
    let destination = Destination::find(path)?;
    if let Some(file) = destination.opened(OFlags::APPEND)? {
        return Ok(file);
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let file = destination
        .dir
        .open(&destination.name, flags)
        .map_err(|errno| destination.failed(errno))?;
    destination.own(&file)?;
    Ok(file.into())
}

/// The directory of an output file, held open.
#[derive(Debug)]
struct Dir(TrustedDir);

impl Dir {
    /// Opens the directory of a file.
    ///
    /// # Errors
    /// If it does not exist, or its path contains another user's symbolic link.
    fn of(path: &Path) -> Result<(Self, OsString), OutputError> {
        let name = path.file_name().ok_or_else(|| OutputError::new(path, Why::NoName))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = TrustedDir::open(dir.unwrap_or(Path::new(".")), PathTrust::AsGiven);
        let dir = dir.map_err(|error| {
            let errno = error.source().and_then(|source| source.downcast_ref::<Errno>());
            OutputError::new(
                path,
                match errno.copied() {
                    Some(errno) => Why::Io(errno.into()),
                    None => Why::Untrusted(error.to_string()),
                },
            )
        })?;
        Ok((Dir(dir), name.to_owned()))
    }

    /// Returns the status of a file without following a link; `None` if it does not exist.
    fn stat(&self, name: &OsString) -> rustix::io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => stat.map(Some),
        }
    }

    /// Creates a file under an unused temporary name.
    fn temporary(&self) -> rustix::io::Result<(OsString, OwnedFd)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        for number in 0..NAMES {
            let name = OsString::from(format!(".gpuws-{}-{number}.part", std::process::id()));
            match self.open(&name, flags) {
                Err(Errno::EXIST) => {}
                file => return Ok((name, file?)),
            }
        }
        Err(Errno::EXIST)
    }

    /// Renames a file, which replaces any file of the new name.
    fn rename(&self, old: &OsString, new: &OsString) -> rustix::io::Result<()> {
        rustix::fs::renameat(&self.0, old, &self.0, new)
    }

    /// Gives a file a second name. This fails if the name exists.
    fn link(&self, old: &OsString, new: &OsString) -> rustix::io::Result<()> {
        rustix::fs::linkat(&self.0, old, &self.0, new, AtFlags::empty())
    }

    /// Removes a temporary file.
    fn remove(&self, name: &OsString) {
        // If another process removed it first, nothing remains to be done.
        let _ = rustix::fs::unlinkat(&self.0, name, AtFlags::empty());
    }

    /// Opens a file without following a link and without waiting for a FIFO.
    fn open(&self, name: &OsString, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, USUAL)
    }

    /// Returns whether the directory contains the descriptors of a process (`/proc/PID/fd`).
    fn has_descriptors(&self) -> bool {
        let is_proc =
            rustix::fs::fstatfs(&self.0).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC);
        is_proc && self.0.path().ends_with("fd")
    }
}

/// The location of an output file, with all symbolic links resolved.
struct Destination<'a> {
    dir: Dir,
    name: OsString,
    found: Option<Stat>,
    /// The path as given.
    path: &'a Path,
}

impl<'a> Destination<'a> {
    fn find(path: &'a Path) -> Result<Self, OutputError> {
        let mut next = path.to_owned();
        for _ in 0..LINKS {
            let (dir, name) = Dir::of(&next)?;
            let found = dir.stat(&name);
            let destination = Destination { dir, name, found: None, path };
            let found = found.map_err(|errno| destination.failed(errno))?;
            let is_link = found.as_ref().is_some_and(|stat| kind(stat) == FileType::Symlink);
            if !is_link || destination.dir.has_descriptors() {
                return Ok(Destination { found, ..destination });
            }
            next = destination.target()?;
        }
        Err(OutputError::new(path, Why::Io(Errno::LOOP.into())))
    }

    /// Returns the target of a symbolic link that may be followed.
    fn target(&self) -> Result<PathBuf, OutputError> {
        let link = self.dir.open(&self.name, OFlags::PATH).map_err(|errno| self.failed(errno))?;
        let stat = rustix::fs::fstat(&link).map_err(|errno| self.failed(errno))?;
        if !is_own(&stat) || stat.st_nlink != 1 {
            return Err(self.refused("it is a symbolic link of another user"));
        }
        // Read from the opened link, because its name may belong to another file by now.
        let target = rustix::fs::readlinkat(&link, "", Vec::new());
        let target = target.map_err(|errno| self.failed(errno))?;
        Ok(self.dir.0.path().join(OsString::from_vec(target.into_bytes())))
    }

    /// Opens a file that is written as it is; `None` for a regular or missing file.
    fn opened(&self, flags: OFlags) -> Result<Option<File>, OutputError> {
        let Some(found) = &self.found else { return Ok(None) };
        let opened = match kind(found) {
            FileType::RegularFile => return Ok(None),
            FileType::CharacterDevice => self.device(),
            // A descriptor of this process. The open must not wait for the reader of a FIFO.
            FileType::Symlink => {
                let flags = flags | OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let flags = flags | OFlags::CLOEXEC;
                rustix::fs::openat(&self.dir.0, &self.name, flags, Mode::empty())
            }
            FileType::Fifo => return Err(self.refused("it is a pipe")),
            FileType::Directory => return Err(self.refused("it is a directory")),
            _ => return Err(self.refused("it is not a regular file")),
        };
        // Later writes may wait for a slow reader.
        let opened = opened.and_then(|file| {
            rustix::fs::fcntl_setfl(&file, flags & OFlags::APPEND)?;
            Ok(file)
        });
        opened.map(|file| Some(file.into())).map_err(|errno| self.failed(errno))
    }

    /// Opens a character device. This fails if another file has replaced it.
    fn device(&self) -> rustix::io::Result<OwnedFd> {
        let file = self.dir.open(&self.name, OFlags::WRONLY)?;
        match kind(&rustix::fs::fstat(&file)?) {
            FileType::CharacterDevice => Ok(file),
            _ => Err(Errno::NXIO),
        }
    }

    /// Creates the new file, with the permissions of the existing one if that is the user's own.
    fn temporary(&self) -> rustix::io::Result<(OsString, OwnedFd)> {
        let (name, file) = self.dir.temporary()?;
        if let Some(found) = self.found.as_ref().filter(|found| is_own(found)) {
            let mode = Mode::from_raw_mode(found.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
            if let Err(errno) = rustix::fs::fchmod(&file, mode) {
                self.dir.remove(&name);
                return Err(errno);
            }
        }
        Ok((name, file))
    }

    /// Renames a temporary file to the final name.
    fn put(&self, temporary: &OsString) -> Result<(), OutputError> {
        self.dir.rename(temporary, &self.name).map_err(|errno| {
            self.dir.remove(temporary);
            self.failed(errno)
        })
    }

    /// Opens and truncates the user's own file in a directory that takes no new file.
    fn emptied(&self, why: Errno) -> Result<OwnedFd, OutputError> {
        let closed = [Errno::ACCESS, Errno::PERM, Errno::ROFS].contains(&why);
        if !closed || self.found.is_none() {
            return Err(self.failed(why));
        }
        let file = self.dir.open(&self.name, OFlags::WRONLY);
        let file = file.map_err(|errno| self.failed(errno))?;
        self.own(&file)?;
        rustix::fs::ftruncate(&file, 0).map_err(|errno| self.failed(errno))?;
        Ok(file)
    }

    /// Verifies that an opened file is a regular file of the user's own with a single name.
    fn own(&self, file: &OwnedFd) -> Result<(), OutputError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| self.failed(errno))?;
        match kind(&stat) {
            FileType::RegularFile if !is_own(&stat) => {
                Err(self.refused(&format!("it belongs to user {}", stat.st_uid)))
            }
            FileType::RegularFile if stat.st_nlink != 1 => {
                Err(self.refused("it has several hard links"))
            }
            FileType::RegularFile => Ok(()),
            _ => Err(self.refused("it is not a regular file")),
        }
    }

    fn failed(&self, error: impl Into<io::Error>) -> OutputError {
        OutputError::new(self.path, Why::Io(error.into()))
    }

    fn refused(&self, why: &str) -> OutputError {
        OutputError::new(self.path, Why::Refused(why.to_owned()))
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_own(stat: &Stat) -> bool {
    is_own_user(stat.st_uid)
}
