//! The directory from which dcgm-exporter reads the jobs of each GPU.

use crate::MachineError;
use gpu_core::{Error, ErrorKind, Result};
use gpu_host::{PathTrust, TrustedDir, output};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// No file written here is larger.
const MOST: u64 = 4096;

/// A directory of files that are named by GPU. It has no other writer: a user who could write there
/// would control the labels of others.
#[derive(Debug)]
pub(super) struct JobDir(TrustedDir);

impl JobDir {
    /// Opens the directory.
    ///
    /// # Errors
    /// When it does not exist, is a symbolic link, or others than root and the caller can change it
    /// or a directory on its path.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, MachineError> {
        let what = || format!("use the directory '{}'", path.display());
        let path = std::path::absolute(path).map_err(|error| MachineError::io(what(), error))?;
        let stat = std::fs::symlink_metadata(&path);
        if stat.is_ok_and(|stat| stat.is_symlink()) {
            let error = Error::new(ErrorKind::Invalid, what()).with_source("it is a symbolic link");
            return Err(MachineError::new(error).with_hint("pass the directory itself"));
        }
        TrustedDir::open(&path, PathTrust::Private).map(JobDir).map_err(|error| {
            let hint = "create it with: sudo install -d -m 755 DIRECTORY";
            MachineError::new(error).with_hint(hint)
        })
    }

    /// Writes the files that differ, each completely or not at all, and empties the files of all
    /// other GPUs.
    ///
    /// # Errors
    /// When one cannot be written; those before it were.
    pub(super) fn write(&self, files: &BTreeMap<String, String>) -> Result<()> {
        for (name, jobs) in files {
            self.put(&self.0.path().join(name), jobs)?;
        }
        let listed = std::fs::read_dir(self.0.path()).map_err(|error| {
            let what = format!("read the directory '{}'", self.0.path().display());
            Error::new(ErrorKind::Io, what).with_source(error)
        })?;
        let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        for name in names.filter(|name| names_gpu(name) && !files.contains_key(name)) {
            self.put(&self.0.path().join(name), "")?;
        }
        Ok(())
    }

    fn put(&self, path: &PathBuf, jobs: &str) -> Result<()> {
        let what = || format!("write '{}'", path.display());
        match std::fs::symlink_metadata(path) {
            Ok(stat) if !stat.is_file() => {
                let error = Error::new(ErrorKind::Invalid, what());
                return Err(error.with_source("it is not a regular file"));
            }
            Ok(_) if has(path, jobs) => return Ok(()),
            _ => {}
        }
        output::replace(path, jobs.as_bytes())
            .map_err(|error| Error::new(ErrorKind::Io, what()).with_source(error.into_why()))
    }
}

/// Returns whether a file has this content.
fn has(path: &Path, jobs: &str) -> bool {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    read.is_ok() && bytes == jobs.as_bytes()
}

/// Returns whether a file is named by a GPU, or by a GPU and a GPU instance.
fn names_gpu(name: &str) -> bool {
    let (gpu, instance) = name.split_once('.').unwrap_or((name, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    is_number(gpu) && is_number(instance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Returns a directory on a path that only this user can change, or `None` if there is no such
    /// path.
    fn private(test: &str) -> Option<tempfile::TempDir> {
        let made = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        match TrustedDir::open(made.path(), PathTrust::Private) {
            Ok(_) => Some(made),
            Err(error) => {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "skipped: {test}: {error}");
                None
            }
        }
    }

    #[test]
    fn files_are_replaced_emptied_and_otherwise_left_alone() {
        let Some(dir) = private("files of jobs") else { return };
        let at = |name: &str| dir.path().join(name);
        fs::write(at("7"), "old\n").unwrap();
        fs::write(at("notes"), "mine\n").unwrap();
        let jobs = JobDir::open(dir.path()).unwrap();
        let files = |jobs: &str| {
            BTreeMap::from([("0".to_owned(), jobs.to_owned()), ("1.2".to_owned(), String::new())])
        };
        jobs.write(&files("12\n13\n")).unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("0"), read("1.2"), read("7")), ("12\n13\n".into(), "".into(), "".into()));
        assert_eq!(read("notes"), "mine\n");
        let inode =
            |name: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(at(name)).unwrap());
        let before = inode("0");
        jobs.write(&files("12\n13\n")).unwrap();
        assert_eq!(inode("0"), before, "unchanged");
        jobs.write(&files("14\n")).unwrap();
        assert_ne!(inode("0"), before, "replaced, not written in place");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 4, "no temporary file: {left:?}");
    }

    #[test]
    fn links_and_directories_of_others_are_refused() {
        let Some(dir) = private("untrusted directories of jobs") else { return };
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("own")).unwrap();
        symlink(at("own"), at("link")).unwrap();
        let refused = |path: &Path| JobDir::open(path).unwrap_err().into_error();
        let link = refused(&at("link"));
        assert_eq!(link.kind(), ErrorKind::Invalid);
        assert!(link.fault().to_string().contains("it is a symbolic link"), "{link:?}");
        fs::set_permissions(at("own"), fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(refused(&at("own")).kind(), ErrorKind::Invalid);
        assert_eq!(refused(&at("missing")).kind(), ErrorKind::Io);
        fs::set_permissions(at("own"), fs::Permissions::from_mode(0o755)).unwrap();
        let jobs = JobDir::open(&at("own")).unwrap();
        fs::write(at("target"), "kept").unwrap();
        symlink(at("target"), at("own/0")).unwrap();
        let files = BTreeMap::from([("0".to_owned(), "5\n".to_owned())]);
        assert_eq!(jobs.write(&files).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(fs::read_to_string(at("target")).unwrap(), "kept");
    }
}
