//! Arguments of `gpuws run`.

use crate::args::{HostArgs, KeepArgs, time};
use crate::commands::claim::RequestArgs;
use clap::{Args, ValueEnum};
use gpu_steward::OnDeath;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(mut_arg("named", |arg| {
    arg.help("Run on the first of these hosts, over ssh, that has the GPUs free; repeatable")
}))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Terminate the command after this time (90s, 10m, 2h) and exit with 124.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time_limit: Option<Duration>,
    /// What to do with the command if gpuws is killed.
    #[arg(long, value_name = "WHAT", default_value = "end", conflicts_with = "HostArgs")]
    on_death: Death,
    /// Time from SIGTERM to SIGKILL.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) grace: Duration,
    /// Do not put an nvidia-smi shim on the command's PATH. The shim shows safe-gpu only the leased
    /// GPUs as free.
    #[arg(long)]
    pub(crate) no_nvidia_smi: bool,
    /// How long safe-gpu users wait for the command to use its GPUs; then a placeholder keeps the
    /// GPUs busy.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) handoff_timeout: Duration,
    /// Write a JSON report to this file; --json prints it as the last line on standard error.
    #[arg(long, value_name = "FILE", conflicts_with = "HostArgs")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// With --mem, do not set environment variables that limit the command's memory.
    #[arg(long)]
    pub(crate) keep_env: bool,
    /// Terminate the command when standard input ends, as with a closed ssh connection. The
    /// command's own input is empty.
    #[arg(long)]
    pub(crate) end_with_input: bool,
    /// Print a line to standard error when the GPUs are claimed, for `--host` on another machine.
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    /// The command to run, after `--`.
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// Returns how to handle the command if gpuws is killed.
    pub(crate) fn on_death(&self) -> OnDeath {
        match self.on_death {
            Death::End => OnDeath::End,
            Death::Keep => OnDeath::Keep,
        }
    }
}

/// What happens to a command if gpuws is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Death {
    /// Terminate it and all its descendants.
    End,
    /// Let it continue and keep its lease.
    Keep,
}
