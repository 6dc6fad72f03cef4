//! The exit code of a run, and its report as a file.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::one_line;
use gpu_report::json;
use gpu_steward::RunReport;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file for the report of a run. It is opened before the run starts, so that an error is
/// reported before devices are claimed, and no old report remains.
pub(super) struct ReportFile {
    path: PathBuf,
    file: File,
}

impl ReportFile {
    /// Creates the file, or truncates an existing one.
    ///
    /// # Errors
    /// When it cannot be opened for writing.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(ReportFile { path: path.to_owned(), file: gpu_host::output::create(path)? })
    }

    /// Writes the report, and returns the error message of a failure.
    pub(super) fn write(mut self, report: &json::Run) -> Option<String> {
        let written =
            one_line(report).map_err(Into::into).and_then(|text| writeln!(self.file, "{text}"));
        let error: std::io::Error = written.err()?;
        Some(format!("failed to write '{}': {error}", self.path.display()))
    }
}

/// Returns the exit code of gpuws after this run.
pub(super) fn exit(report: &RunReport) -> Exit {
    if report.limit_hit {
        Exit::LimitHit
    } else {
        Exit::Passed(u8::try_from(report.ending.code()).unwrap_or(u8::MAX))
    }
}
