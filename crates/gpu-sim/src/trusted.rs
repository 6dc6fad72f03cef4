//! Folders whose contents nobody can exchange but their user, and root.
//!
//! What a session says decides which processes are looked at and ended. Whoever owns a folder on
//! the way to it, or may write into one, can put another session in its place; of a folder with
//! the sticky bit, such as `/tmp`, others may change only what is theirs.

use gpu_core::{Error, ErrorKind, Result};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The bits of a mode by which a group or all others may write.
const SHARED: u32 = 0o022;
/// The bit that keeps others from renaming and removing what is not theirs.
const STICKY: u32 = 0o1000;

/// Returns the path without links of a folder that a private folder can be made in by the user who
/// runs this program: the folder, and each one above it, belongs to the user or to root, and others
/// may write into it only where it has the sticky bit.
///
/// # Errors
/// `Io` when the folder cannot be found; `Invalid`, with the owner, when it is not of that kind.
pub fn trusted(folder: &Path) -> Result<PathBuf> {
    trusted_by(me(), folder)
}

/// Returns the path without links of a folder that only the user who runs this program, or root,
/// can write into or exchange.
///
/// # Errors
/// As [`trusted`].
pub(crate) fn private(folder: &Path) -> Result<PathBuf> {
    private_of(me(), folder)
}

/// Makes sure that only the user who runs this program, or root, can write a file.
///
/// # Errors
/// `Invalid`, with the owner.
pub(crate) fn private_file(path: &Path, metadata: &Metadata) -> Result<()> {
    unshared(me(), path, metadata, 0)
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the number by which a user namespace shows whoever is outside of it (`overflowuid`, see
/// user_namespaces(7)): what belongs to root of the machine there. `None` where all users are
/// themselves.
fn outsider() -> Option<u32> {
    let read = |path| std::fs::read_to_string(path).ok();
    let map = read("/proc/self/uid_map")?;
    let is_whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    if is_whole { None } else { read("/proc/sys/kernel/overflowuid")?.trim().parse().ok() }
}

fn trusted_by(user: u32, folder: &Path) -> Result<PathBuf> {
    let path = folder.canonicalize().map_err(|error| unread(folder, error))?;
    for place in path.ancestors() {
        let metadata = place.symlink_metadata().map_err(|error| unread(place, error))?;
        if !metadata.is_dir() {
            let error = Error::new(ErrorKind::Invalid, trust(place));
            return Err(error.with_source("it is not a directory"));
        }
        unshared(user, place, &metadata, STICKY)?;
    }
    Ok(path)
}

fn private_of(user: u32, folder: &Path) -> Result<PathBuf> {
    let path = trusted_by(user, folder)?;
    let metadata = path.symlink_metadata().map_err(|error| unread(&path, error))?;
    unshared(user, &path, &metadata, 0)?;
    Ok(path)
}

/// Makes sure that only `user` or root can change what lies there; others may write where one of
/// the bits in `excuse` is set.
fn unshared(user: u32, path: &Path, metadata: &Metadata, excuse: u32) -> Result<()> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    let why = if owner != user && owner != 0 && Some(owner) != outsider() {
        format!("it belongs to user {owner}, neither you (user {user}) nor root")
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

    /// Some user who is neither root nor whoever runs the tests.
    const STRANGER: u32 = 54_321;

    fn allow(folder: &Path, mode: u32) {
        set_permissions(folder, Permissions::from_mode(mode)).unwrap();
    }

    /// A folder of its own in one that all may write into, as `/tmp` is, and that one.
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
    fn private_folder_below_sticky_folder_is_trusted() {
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
    fn folder_writable_by_others_is_not_trusted() {
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
    fn folder_of_another_user_and_its_contents_are_not_trusted() {
        let (outer, inner) = nested();
        // Root may give a folder away; anybody else is told apart from somebody else instead.
        let asks = match me() {
            0 if chown(outer.path(), Some(STRANGER), None).is_ok() => 0,
            _ => STRANGER,
        };
        let owner = outer.path().metadata().unwrap().uid();
        if [0, asks].contains(&owner) {
            return; // Root that may give nothing away trusts itself.
        }
        for refused in [trusted_by(asks, outer.path()), private_of(asks, &inner)] {
            let why = why(refused);
            let told = format!("belongs to user {owner}, neither you (user {asks}) nor");
            assert!(why.contains(&told), "{why}");
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
