//! `gpuws record --json`.

use super::SCHEMA;
use serde::Serialize;

/// A recording that was written.
#[derive(Serialize)]
pub struct RecordedFile {
    schema: u32,
    file: String,
    look_count: usize,
    /// Names and command lines are in it.
    names: bool,
}

impl RecordedFile {
    /// Returns what is told of a file with so many looks; `names`: names and command lines are in
    /// it.
    pub fn of(file: &str, look_count: usize, names: bool) -> Self {
        RecordedFile { schema: SCHEMA, file: file.to_owned(), look_count, names }
    }
}
