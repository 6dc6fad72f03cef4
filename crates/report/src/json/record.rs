//! `gpuws record --json`.

use super::Version;
use serde::Serialize;

/// A recording of the machine that was written.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordedFile {
    /// Version of this object's format.
    pub schema: Version,
    /// Path of the file.
    pub file: String,
    /// Number of samples in the file.
    pub look_count: usize,
    /// Whether the file contains the names and command lines of processes.
    pub names: bool,
}

impl RecordedFile {
    /// Returns what is told of a file with so many looks; `names`: names and command lines are in
    /// it.
    pub fn of(file: &str, look_count: usize, names: bool) -> Self {
        RecordedFile { schema: Version, file: file.to_owned(), look_count, names }
    }
}
