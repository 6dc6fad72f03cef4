//! Files that are there whole or not at all.

use super::{Dir, OutputError, Why};
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

/// A file under a temporary name, that gets its own when it is whole and is removed if it never
/// is.
#[derive(Debug)]
pub struct Part {
    /// The file, to be written to.
    pub file: File,
    dir: Dir,
    /// The temporary one.
    part: OsString,
    name: OsString,
}

impl Part {
    /// Begins a file beside the one that it becomes.
    ///
    /// # Errors
    /// When that one exists, or the directory takes no file.
    pub fn beside(path: &Path) -> Result<Self, OutputError> {
        let failed = |errno: rustix::io::Errno| failed(path, errno.into());
        let (dir, name) = Dir::of(path)?;
        if dir.stat(&name).map_err(failed)?.is_some() {
            return Err(OutputError::new(path, Why::Exists));
        }
        let (part, file) = dir.temporary().map_err(failed)?;
        Ok(Part { file: file.into(), dir, part, name })
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// When it cannot be written whole, or the name exists by now.
    pub fn finish(self, path: &Path) -> Result<(), OutputError> {
        // A link fails where the name exists by now; a rename would replace it.
        let linked =
            self.file.sync_all().and_then(|()| Ok(self.dir.link(&self.part, &self.name)?));
        linked.map_err(|error| failed(path, error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is of no use, whether the link to it was made or not.
        self.dir.remove(&self.part);
    }
}

fn failed(path: &Path, error: std::io::Error) -> OutputError {
    OutputError::new(path, Why::Io(error))
}
