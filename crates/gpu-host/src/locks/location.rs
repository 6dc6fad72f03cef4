//! Which folders leases are kept in.

use super::folder::{Folder, Trust};
use crate::fault;
use gpu_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// What names begin with in a folder that is not for leases alone.
const IN_TMP: &str = ".gpuws-";

/// Where leases are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Machine { run: PathBuf, tmp: PathBuf },
    Named(PathBuf),
}

impl Place {
    /// Returns the place that all users of a machine share: `gpuws` below `run`, which root makes
    /// on its first claim, and otherwise `tmp` itself; `/run` and `/tmp` on a real one. In either,
    /// each user has a folder, which is that user's to empty.
    pub fn machine(run: impl Into<PathBuf>, tmp: impl Into<PathBuf>) -> Self {
        Place(Kind::Machine { run: run.into(), tmp: tmp.into() })
    }

    /// Returns a folder of the caller or of root, for a session or for those who agree on it.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Place(Kind::Named(path.into()))
    }

    /// Returns the folders as they are now: new entries belong in the first, all are read.
    ///
    /// They are looked for at every call. A folder that root makes while another is in use is
    /// seen by whoever publishes after that, and by whoever looks again after that.
    pub(super) fn folders(&self) -> Result<Vec<Folder>> {
        match &self.0 {
            Kind::Named(path) => match Folder::open(path, "", Trust::Named)? {
                Some(folder) => Ok(vec![folder]),
                None => Err(no_such_folder(path)),
            },
            Kind::Machine { run, tmp } => {
                let made = Folder::open(&run.join("gpuws"), "", Trust::Shared)?;
                match (made, Folder::open(tmp, IN_TMP, Trust::Shared)) {
                    (Some(made), Ok(Some(tmp))) => Ok(vec![made, tmp]),
                    (Some(made), Ok(None)) => Ok(vec![made]),
                    // A /tmp that is not everybody's holds no leases.
                    (Some(made), Err(error)) if error.kind() == ErrorKind::Invalid => {
                        Ok(vec![made])
                    }
                    (None, Ok(Some(tmp))) => Ok(vec![tmp]),
                    (None, Ok(None)) => Err(no_such_folder(tmp)),
                    // There may be leases in one that could not be opened this time.
                    (_, Err(error)) => Err(error),
                }
            }
        }
    }

    /// Returns the folder in which new entries belong, as it is now.
    pub(super) fn first(&self) -> Result<Folder> {
        let first = self.folders()?.into_iter().next();
        first.ok_or_else(|| Error::new(ErrorKind::Io, "find the lease directory"))
    }

    /// Makes the folder below `run`, where the caller is root and it is missing.
    pub(super) fn prepare(&self) -> Result<()> {
        let Kind::Machine { run, .. } = &self.0 else { return Ok(()) };
        let path = run.join("gpuws");
        let exists = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if exists || !rustix::process::geteuid().is_root() || !is_owned_by_root(run) {
            return Ok(());
        }
        match make(run, &path) {
            // Somebody was faster, or it is not to be: /tmp will do.
            Ok(()) | Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(()),
            Err(errno) => Err(fault::file(format!("make '{}'", path.display()), errno)),
        }
    }
}

/// Makes a folder elsewhere and gives it its name when it is as it should be: nobody is to find
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

/// Returns whether a folder is root's, and only root makes files in it.
fn is_owned_by_root(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| {
        let mode = Mode::from_raw_mode(stat.st_mode);
        stat.st_uid == 0 && !mode.intersects(Mode::WGRP | Mode::WOTH)
    })
}

fn no_such_folder(path: &Path) -> Error {
    let what = format!("keep leases in '{}', which does not exist", path.display());
    Error::new(ErrorKind::Invalid, what)
}
