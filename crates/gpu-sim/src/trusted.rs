//! Directories that only their owner and root can change.
//!
//! The content of a session determines which processes are read and signalled. The owner of any
//! directory on the path to it, or a user with write permission there, can substitute another
//! session; in a directory with the sticky bit, such as `/tmp`, others can change only their own
//! files.

use gpu_core::{Bytes, Error, ErrorKind, Result};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The mode bits that give write permission to the group or to all others.
const SHARED: u32 = 0o022;
/// The bit that prevents others from renaming and removing files that they do not own.
const STICKY: u32 = 0o1000;

/// Returns the link-free path of a directory in which the user of this program can create a private
/// directory. The directory and each of its parents must belong to the user or to root, and others
/// may have write permission only with the sticky bit.
///
/// # Errors
/// `Io` if the directory cannot be found; `Invalid`, with the owner, if it does not qualify.
pub fn trusted(dir: &Path) -> Result<PathBuf> {
    trusted_by(me(), dir)
}

/// Returns the link-free path of a directory that only root and the user of this program can write
/// to or replace.
///
/// # Errors
/// As [`trusted`].
pub(crate) fn private(dir: &Path) -> Result<PathBuf> {
    private_of(me(), dir)
}

/// Reads a file of at most `limit` bytes that only root and the user of this program can write to.
///
/// # Errors
/// The system's error; `InvalidData` if the file is a link, is shared, or is too large.
pub(crate) fn read_private(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let invalid = |why: Box<dyn std::error::Error + Send + Sync>| {
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let named = path.symlink_metadata()?;
    if !named.is_file() {
        return Err(invalid("it is a symbolic link or not a regular file".into()));
    }
    let file = File::open(path)?;
    let opened = file.metadata()?;
    if (named.dev(), named.ino()) != (opened.dev(), opened.ino()) {
        return Err(invalid("it was replaced while being opened".into()));
    }
    unshared(me(), path, &opened, 0).map_err(|error| invalid(error.into()))?;
    let mut bytes = Vec::with_capacity(opened.len().min(limit) as usize + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        Err(invalid(format!("it is larger than {}", Bytes(limit)).into()))
    } else {
        Ok(bytes)
    }
}

/// Writes a file that only its owner can access, under the name `new` until it is complete.
///
/// # Errors
/// The system's error.
pub(crate) fn write_private(path: &Path, new: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(content)?;
    std::fs::rename(new, path)
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the UID that a user namespace shows for unmapped users (`overflowuid`, see
/// user_namespaces(7)); files of the machine's root appear with it there. `None` if all users are
/// mapped.
fn outsider() -> Option<u32> {
    let read = |path| std::fs::read_to_string(path).ok();
    let map = read("/proc/self/uid_map")?;
    let is_whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    if is_whole { None } else { read("/proc/sys/kernel/overflowuid")?.trim().parse().ok() }
}

fn trusted_by(user: u32, dir: &Path) -> Result<PathBuf> {
    let path = dir.canonicalize().map_err(|error| unread(dir, error))?;
    for ancestor in path.ancestors() {
        let metadata = ancestor.symlink_metadata().map_err(|error| unread(ancestor, error))?;
        if !metadata.is_dir() {
            let error = Error::new(ErrorKind::Invalid, trust(ancestor));
            return Err(error.with_source("it is not a directory"));
        }
        unshared(user, ancestor, &metadata, STICKY)?;
    }
    Ok(path)
}

fn private_of(user: u32, dir: &Path) -> Result<PathBuf> {
    let path = trusted_by(user, dir)?;
    let metadata = path.symlink_metadata().map_err(|error| unread(&path, error))?;
    unshared(user, &path, &metadata, 0)?;
    Ok(path)
}

/// Verifies that only `user` and root can change a file; others may have write permission if one of
/// the bits in `excuse` is set.
fn unshared(user: u32, path: &Path, metadata: &Metadata, excuse: u32) -> Result<()> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    let why = if owner != user && owner != 0 && Some(owner) != outsider() {
        format!("it belongs to user {owner}, neither to you (user {user}) nor to root")
    } else if mode & SHARED != 0 && mode & excuse == 0 {
        format!("it belongs to user {owner} and is writable by others (mode {:o})", mode & 0o7777)
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, trust(path)).with_source(why))
}

fn trust(path: &Path) -> String {
    format!("trust '{}'", path.display())
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, trust(path)).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// A user other than root and the user that runs the tests.
    const STRANGER: u32 = 54_321;

    fn allow(dir: &Path, mode: u32) {
        set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }

    /// A world-writable directory, such as `/tmp`, and the path of a private directory in it.
    fn nested() -> (tempfile::TempDir, PathBuf) {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        create_dir(&inner).unwrap();
        allow(&inner, 0o700);
        allow(outer.path(), 0o1777);
        (outer, inner)
    }

    fn why<T: std::fmt::Debug>(refused: Result<T>) -> String {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        error.fault().text
    }

    #[test]
    fn private_dir_below_sticky_dir_is_trusted() {
        let (outer, inner) = nested();
        let without_links = inner.canonicalize().unwrap();
        assert_eq!(trusted(outer.path()).unwrap(), outer.path().canonicalize().unwrap());
        assert_eq!(trusted(&inner).unwrap(), without_links);
        assert_eq!(private(&inner).unwrap(), without_links);
        let link = outer.path().join("link");
        symlink(&inner, &link).unwrap();
        assert_eq!(private(&link).unwrap(), without_links);
    }

    #[test]
    fn dir_writable_by_others_is_not_trusted() {
        let (outer, inner) = nested();
        for mode in [0o777, 0o770, 0o702] {
            allow(outer.path(), mode);
            let shown = outer.path().canonicalize().unwrap();
            for refused in [trusted(outer.path()), trusted(&inner), private(&inner)] {
                let why = why(refused);
                assert!(why.contains(&format!("trust '{}'", shown.display())), "{why}");
                assert!(why.ends_with(&format!("is writable by others (mode {mode:o})")), "{why}");
            }
        }
        allow(outer.path(), 0o1777);
        allow(&inner, 0o1770);
        trusted(&inner).unwrap();
        assert!(why(private(&inner)).ends_with("is writable by others (mode 1770)"));
    }

    #[test]
    fn dir_of_another_user_and_its_contents_are_not_trusted() {
        let (outer, inner) = nested();
        // Root can change the owner of a directory; other users check as a different user instead.
        let asks = match me() {
            0 if chown(outer.path(), Some(STRANGER), None).is_ok() => 0,
            _ => STRANGER,
        };
        let owner = outer.path().metadata().unwrap().uid();
        if [0, asks].contains(&owner) {
            return; // Root without the right to change owners trusts itself.
        }
        for refused in [trusted_by(asks, outer.path()), private_of(asks, &inner)] {
            let why = why(refused);
            let reported = format!("belongs to user {owner}, neither to you (user {asks}) nor to");
            assert!(why.contains(&reported), "{why}");
        }
        let link = tempfile::tempdir().unwrap();
        symlink(&inner, link.path().join("link")).unwrap();
        assert!(private_of(asks, &link.path().join("link")).is_err(), "a link leads there");
    }

    #[test]
    fn missing_path_or_regular_file_is_not_trusted() {
        let (_outer, inner) = nested();
        assert_eq!(trusted(&inner.join("none")).unwrap_err().kind(), ErrorKind::Io);
        std::fs::write(inner.join("file"), "").unwrap();
        assert!(why(trusted(&inner.join("file"))).ends_with("it is not a directory"));
    }
}
