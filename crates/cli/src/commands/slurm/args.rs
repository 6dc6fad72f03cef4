//! Arguments of `gpuws slurm`.

use crate::args::{named, time, time_or_zero};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    /// The slurmd hook it runs as (slurm.conf: Prolog, Epilog, HealthCheckProgram).
    #[arg(value_name = "SCRIPT", value_parser = named(&SCRIPTS))]
    pub(crate) script: Script,
    /// Installation directory of Slurm, an absolute path with bin and sbin; default: the usual
    /// ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) slurm: Option<PathBuf>,
    /// The name of this node; default: SLURMD_NODENAME, or the short hostname.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Time from SIGTERM to SIGKILL; 0 sends SIGKILL at once.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_or_zero)]
    pub(crate) grace: Duration,
    /// Total time limit; keep it below Slurm's own (PrologEpilogTimeout, 60 s for health).
    #[arg(long, value_name = "TIME", default_value = "50s", value_parser = time)]
    pub(crate) limit: Duration,
    /// Run as the worker (started by the process that slurmd waits for).
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

/// A script of slurmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// Before the first step of a job.
    Prolog,
    /// After a job.
    Epilog,
    /// At an interval.
    Health,
}

const SCRIPTS: [(&str, Script); 3] =
    [("prolog", Script::Prolog), ("epilog", Script::Epilog), ("health", Script::Health)];
