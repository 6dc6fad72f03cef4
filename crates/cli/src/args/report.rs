//! Arguments of `gpuws report`.

use super::time::time;
use clap::{Args, ValueEnum};
use gpu_report::usage;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of a history, or a file written by `record`.
    pub(crate) path: PathBuf,
    /// The rows of the table or the CSV.
    #[arg(long, value_name = "WHAT", default_value = "user")]
    pub(crate) by: By,
    /// Leave out what was before; local time, or RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Leave out what was after.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Longer intervals between two samples were not watched and are not counted.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(crate) gap: Duration,
    /// What to print.
    #[arg(long, value_name = "FORMAT", default_value = "table", conflicts_with = "json")]
    pub(crate) format: ReportFormat,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// The rows of a report.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum By {
    User,
    Job,
    Gpu,
    Day,
}

impl From<By> for usage::By {
    fn from(by: By) -> Self {
        match by {
            By::User => usage::By::User,
            By::Job => usage::By::Job,
            By::Gpu => usage::By::Gpu,
            By::Day => usage::By::Day,
        }
    }
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    Table,
    Csv,
    Json,
    Html,
}
