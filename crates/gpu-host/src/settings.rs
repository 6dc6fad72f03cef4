//! Files with settings, read only if no other user can have written them.

use crate::fault;
use crate::trusted_dir::{PathTrust, TrustedDir, is_own};
use gpu_core::{Error, ErrorKind, Result};
use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind as IoKind, Read};
use std::path::Path;

/// Reads a file with settings of at most `limit` bytes; `None` if it does not exist. `HOME` of root
/// may name a directory of somebody else, so every directory on the path is checked, and no link of
/// another user is followed.
///
/// # Errors
/// `Invalid` if another user owns the file or a directory on its path, or can write to it or
/// exchange it; if it is a link, no regular file, too long or no UTF-8. `Io` if it cannot be read.
pub fn read_settings(path: &Path, limit: usize) -> Result<Option<String>> {
    let failed = |errno| fault::file(format!("read '{}'", path.display()), errno);
    let refused = |why: &str| {
        Error::new(ErrorKind::Invalid, format!("read '{}', which {why}", path.display()))
    };
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused("is no file"));
    };
    if std::fs::metadata(dir).is_err_and(|error| error.kind() == IoKind::NotFound) {
        return Ok(None);
    }
    let dir = TrustedDir::open(dir, PathTrust::Protected)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(refused("is a symbolic link")),
        Err(errno) => return Err(failed(errno)),
    };
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused("is not a regular file"));
    }
    if !is_own(stat.st_uid) {
        return Err(refused("belongs to another user"));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(refused("is writable by others"));
    }
    let mut text = String::new();
    let read = File::from(file).take(limit as u64 + 1).read_to_string(&mut text);
    match read {
        Ok(read) if read > limit => Err(refused("is too long")),
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == IoKind::InvalidData => Err(refused("is no text")),
        Err(error) => {
            let what = format!("read '{}'", path.display());
            Err(Error::new(ErrorKind::Io, what).with_source(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read_settings;
    use gpu_core::ErrorKind;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_file_that_no_other_user_can_write_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("top.toml");
        assert_eq!(read_settings(&path, 10).unwrap(), None);
        assert_eq!(read_settings(&dir.path().join("no/top.toml"), 10).unwrap(), None);
        std::fs::write(&path, "a = 1").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_settings(&path, 10).unwrap().as_deref(), Some("a = 1"));
        let kind = |path: &std::path::Path, limit| read_settings(path, limit).unwrap_err().kind();
        assert_eq!(kind(&path, 4), ErrorKind::Invalid);
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(kind(&path, 10), ErrorKind::Invalid);
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(kind(&link, 10), ErrorKind::Invalid);
        assert_eq!(kind(dir.path(), 10), ErrorKind::Invalid);
        // Anybody could exchange this directory.
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        std::fs::write(open.join("top.toml"), "").unwrap();
        assert_eq!(kind(&open.join("top.toml"), 10), ErrorKind::Invalid);
    }
}
