//! Files that are there whole or not at all.

use crate::exit::Exit;
use crate::failure::Failure;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

/// A file under a temporary name, that gets its own when it is whole and is removed if it never
/// is.
pub(crate) struct Part {
    pub(crate) file: File,
    path: PathBuf,
}

impl Part {
    /// Begins a file beside the one that it becomes.
    ///
    /// # Errors
    /// When that one exists, or the folder takes no file.
    pub(crate) fn beside(path: &Path) -> Result<Self, Failure> {
        if path.exists() {
            return Err(Failure::new(Exit::Usage, format!("write '{}'", path.display()))
                .with_source("it exists")
                .with_hint("name a file that does not exist yet; nothing was written"));
        }
        let mut name = path.file_name().map(ToOwned::to_owned).unwrap_or_default();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&part);
        let file =
            file.map_err(|error| Failure::io(format!("write '{}'", path.display()), error))?;
        Ok(Part { file, path: part })
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// When it cannot be written whole, or the name exists by now.
    pub(crate) fn finish(self, path: &Path) -> Result<(), Failure> {
        // A link fails where the name exists by now; a rename would replace it.
        let linked = self.file.sync_all().and_then(|()| std::fs::hard_link(&self.path, path));
        linked.map_err(|error| Failure::io(format!("write '{}'", path.display()), error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is of no use, whether the link to it was made or not.
        let _ = std::fs::remove_file(&self.path);
    }
}
