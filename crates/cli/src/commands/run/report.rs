//! What a run came to: how gpuws ends for it, and a file for programs.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::one_line;
use gpu_report::json;
use gpu_steward::RunReport;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file for the report of a run, open since before it began: that it cannot be written is known
/// before a device is claimed, and a report of another run is gone.
pub(super) struct ReportFile {
    path: PathBuf,
    file: File,
}

impl ReportFile {
    /// Makes it, in the place of one that is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(ReportFile { path: path.to_owned(), file: gpu_host::output::create(path)? })
    }

    /// Writes the report, and returns what went wrong.
    pub(super) fn write(mut self, report: &json::Run) -> Option<String> {
        let written =
            one_line(report).map_err(Into::into).and_then(|text| writeln!(self.file, "{text}"));
        let error: std::io::Error = written.err()?;
        Some(format!("failed to write '{}': {error}", self.path.display()))
    }
}

/// Returns how gpuws ends for a run that came to this.
pub(super) fn exit(report: &RunReport) -> Exit {
    match report.limit_hit {
        true => Exit::LimitHit,
        false => Exit::Passed(u8::try_from(report.ending.code()).unwrap_or(u8::MAX)),
    }
}
