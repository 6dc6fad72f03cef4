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
    pub sample_count: usize,
    /// The old name of sample_count, until the next release.
    pub look_count: usize,
    /// Whether the file contains the names and command lines of processes.
    pub names: bool,
}

impl RecordedFile {
    /// Returns the object for a file with so many samples; `names`: names and command lines are in
    /// it.
    pub fn of(file: &str, sample_count: usize, names: bool) -> Self {
        let file = file.to_owned();
        RecordedFile { schema: Version, file, sample_count, look_count: sample_count, names }
    }
}
