//! Files that exist completely or not at all.

use super::{Dir, OutputError, Why};
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
}

impl Part {
    /// Creates a temporary file in the directory of `path`.
    ///
    /// # Errors
    /// If `path` exists, or the directory takes no file.
    pub fn beside(path: &Path) -> Result<Self, OutputError> {
        let failed = |errno: rustix::io::Errno| failed(path, errno.into());
        let (dir, name) = Dir::of(path)?;
        if dir.stat(&name).map_err(failed)?.is_some() {
            return Err(OutputError::new(path, Why::Exists));
        }
        let (part, file) = dir.temporary().map_err(failed)?;
        Ok(Part { file: file.into(), dir, part, name })
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// If the file cannot be written to disk, or the name exists by now.
    pub fn finish(self, path: &Path) -> Result<(), OutputError> {
        // A link fails if the name exists; a rename would replace that file.
        let linked =
            self.file.sync_all().and_then(|()| Ok(self.dir.link(&self.part, &self.name)?));
        linked.map_err(|error| failed(path, error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The temporary name is not needed, whether the link was made or not.
        self.dir.remove(&self.part);
    }
}

fn failed(path: &Path, error: std::io::Error) -> OutputError {
    OutputError::new(path, Why::Io(error))
}
