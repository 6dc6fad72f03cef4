//! Arguments of `gpuws report`.

use super::time::{time, time_or_zero};
use clap::Args;
use gpu_report::Moment;
use gpu_report::usage::{By, Form};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of a history, or a file written by `record`.
    pub(crate) path: PathBuf,
    /// The rows of the table or the CSV: user, job, gpu or day.
    #[arg(long, value_name = "WHAT", default_value = "user")]
    pub(crate) by: By,
    /// Leave out what was before: 2026-11-24T10:00, 10:00 of the last day, or -5m from the end.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) since: Option<Moment>,
    /// Leave out what was after.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) until: Option<Moment>,
    /// Use a sample at most this often; 0 uses each one.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_or_zero)]
    pub(crate) step: Duration,
    /// Longer intervals between two samples were not watched and are not counted; at least twice
    /// --step (default: 5m, or twice --step).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) gap: Option<Duration>,
    /// What to print: a table, csv, json, or html with pictures.
    #[arg(long, value_name = "FORMAT", default_value = "table", conflicts_with = "json")]
    pub(crate) format: Form,
    /// Write to this new file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if it exists, when the report is complete.
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}
