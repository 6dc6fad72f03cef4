//! Files that exist completely or not at all.

use super::{Destination, Dir, OutputError, Why, kind};
use rustix::fs::FileType;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

/// A file under a temporary name. It gets its final name when it is complete; otherwise it is
/// removed.
#[derive(Debug)]
pub struct Part {
    /// The file to write to.
    pub file: File,
    dir: Dir,
    /// The temporary name.
    part: OsString,
    name: OsString,
    /// Whether an existing file is replaced.
    replaces: bool,
}

impl Part {
    /// Creates a temporary file in the directory of `path`.
    ///
    /// # Errors
    /// If `path` exists, or the directory takes no file.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let failed = |errno: rustix::io::Errno| failed(path, errno.into());
        let (dir, name) = Dir::of(path)?;
        if dir.stat(&name).map_err(failed)?.is_some() {
            return Err(OutputError::new(path, Why::Exists));
        }
        let (part, file) = dir.temporary().map_err(failed)?;
        Ok(Part { file: file.into(), dir, part, name, replaces: false })
    }

    /// Creates a temporary file that replaces a regular file at `path`, if there is one, under the
    /// rules of [`create`](super::create).
    ///
    /// # Errors
    /// If `path` is anything else, or the directory accepts no file.
    pub fn replacing(path: &Path) -> Result<Self, OutputError> {
        let destination = Destination::find(path)?;
        if destination.found.as_ref().is_some_and(|found| kind(found) != FileType::RegularFile) {
            return Err(destination.refused("it is not a regular file"));
        }
        let (part, file) = destination.temporary().map_err(|errno| destination.failed(errno))?;
        let Destination { dir, name, .. } = destination;
        Ok(Part { file: file.into(), dir, part, name, replaces: true })
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// If the file cannot be written to disk, or the name of a new file exists by now.
    pub fn finish(self, path: &Path) -> Result<(), OutputError> {
        let named = self.file.sync_all().and_then(|()| {
            if self.replaces {
                Ok(self.dir.rename(&self.part, &self.name)?)
            } else {
                // A link fails if the name exists; a rename would replace that file.
                Ok(self.dir.link(&self.part, &self.name)?)
            }
        });
        named.map_err(|error| failed(path, error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Remove the temporary name, whether or not the file got its final name.
        self.dir.remove(&self.part);
    }
}

fn failed(path: &Path, error: std::io::Error) -> OutputError {
    OutputError::new(path, Why::Io(error))
}
