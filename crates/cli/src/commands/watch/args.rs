//! Arguments of `gpuws watch`.

use crate::args::{HAS_NO_HISTORY, time};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The policy: findings to raise, users to notify, processes to reap (docs/watch.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Only check this policy.
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) check_policy: Option<PathBuf>,
    /// Time between samples.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) every: Duration,
    /// End after this time; a simulated machine then runs as fast as it can.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Record each sample in this directory, which is created if it does not exist.
    #[arg(long, value_name = "DIR", hide = HAS_NO_HISTORY)]
    pub(crate) history: Option<PathBuf>,
    /// Remove days of the history older than this.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time,
          requires = "history", hide = HAS_NO_HISTORY)]
    pub(crate) keep: Duration,
    /// Execute the plans of the policy, if it also sets `dry_run = false`; otherwise print them.
    #[arg(long, requires = "policy")]
    pub(crate) reap: bool,
    /// Start this program for each event, with the event as JSON on its standard input, instead of
    /// the policy's program. Takes all following arguments.
    #[arg(long, value_name = "PROGRAM", num_args = 1.., allow_hyphen_values = true)]
    pub(crate) on_finding: Vec<OsString>,
}
