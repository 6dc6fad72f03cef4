//! The directories that contain leases.

use super::dir::{Dir, Trust};
use crate::fault;
use gpu_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The prefix of names in a directory that is not for leases alone.
const IN_TMP: &str = ".gpuws-";

/// The location of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseLocation(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Machine { run: PathBuf, tmp: PathBuf },
    Named(PathBuf),
}

impl LeaseLocation {
    /// Returns the location that all users of a machine share: `gpuws` below `run`, which root
    /// creates with its first claim, and otherwise `tmp` itself; `/run` and `/tmp` on a real
    /// machine. In either, each user has a directory, which that user may empty.
    pub fn machine(run: impl Into<PathBuf>, tmp: impl Into<PathBuf>) -> Self {
        LeaseLocation(Kind::Machine { run: run.into(), tmp: tmp.into() })
    }

    /// Returns a directory of the caller or of root, for a session or for users that agree on it.
    pub fn dir(path: impl Into<PathBuf>) -> Self {
        LeaseLocation(Kind::Named(path.into()))
    }

    /// Returns the current directories: new entries go to the first, all are read.
    ///
    /// They are looked up at every call. If root creates a directory while another is in use, every
    /// later publication and every later read uses it.
    pub(super) fn dirs(&self) -> Result<Vec<Dir>> {
        match &self.0 {
            Kind::Named(path) => match Dir::open(path, "", Trust::Named)? {
                Some(dir) => Ok(vec![dir]),
                None => Err(no_such_dir(path)),
            },
            Kind::Machine { run, tmp } => {
                let made = Dir::open(&run.join("gpuws"), "", Trust::Shared)?;
                match (made, Dir::open(tmp, IN_TMP, Trust::Shared)) {
                    (Some(made), Ok(Some(tmp))) => Ok(vec![made, tmp]),
                    (Some(made), Ok(None)) => Ok(vec![made]),
                    // A /tmp that is not shared by all users contains no leases.
                    (Some(made), Err(error)) if error.kind() == ErrorKind::Invalid => {
                        Ok(vec![made])
                    }
                    (None, Ok(Some(tmp))) => Ok(vec![tmp]),
                    (None, Ok(None)) => Err(no_such_dir(tmp)),
                    // A directory that could not be opened this time may contain leases.
                    (_, Err(error)) => Err(error),
                }
            }
        }
    }

    /// Returns the current directory for new entries.
    pub(super) fn first(&self) -> Result<Dir> {
        let first = self.dirs()?.into_iter().next();
        first.ok_or_else(|| Error::new(ErrorKind::Io, "find the lease directory"))
    }

    /// Creates the directory below `run` if it is missing and the caller is root.
    pub(super) fn prepare(&self) -> Result<()> {
        let Kind::Machine { run, .. } = &self.0 else { return Ok(()) };
        let path = run.join("gpuws");
        let exists = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if exists || !rustix::process::geteuid().is_root() || !is_owned_by_root(run) {
            return Ok(());
        }
        match make(run, &path) {
            // Another process was faster, or it is not possible: /tmp is used then.
            Ok(()) | Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(()),
            Err(errno) => Err(fault::file(format!("make '{}'", path.display()), errno)),
        }
    }
}

/// Creates a directory under another name and renames it when it is complete: no process may find
/// it with other modes, whatever the umask.
fn make(run: &Path, path: &Path) -> rustix::io::Result<()> {
    let new = run.join(format!(".gpuws-{}", std::process::id()));
    let clear = || rustix::fs::unlinkat(CWD, &new, AtFlags::REMOVEDIR);
    let _ = clear();
    rustix::fs::mkdir(&new, Mode::RWXU)?;
    let made = (|| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&new, flags, Mode::empty())?;
        rustix::fs::fchmod(&fd, Mode::RWXU | Mode::RWXG | Mode::RWXO | Mode::SVTX)?;
        rustix::fs::renameat_with(CWD, &new, CWD, path, RenameFlags::NOREPLACE)
    })();
    if made.is_err() {
        let _ = clear();
    }
    made
}

/// Returns whether root owns a directory and is the only user who can create files in it.
fn is_owned_by_root(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| {
        let mode = Mode::from_raw_mode(stat.st_mode);
        stat.st_uid == 0 && !mode.intersects(Mode::WGRP | Mode::WOTH)
    })
}

fn no_such_dir(path: &Path) -> Error {
    let what = format!("keep leases in '{}', which does not exist", path.display());
    Error::new(ErrorKind::Invalid, what)
        .with_source("create it, or name another with GPUWS_CLAIMS or --claims")
}
