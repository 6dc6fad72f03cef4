//! Arguments that name other machines.

use clap::Args;
use std::path::PathBuf;

// The hosts to query instead of this machine.
#[derive(Debug, Default, Args)]
pub(crate) struct HostArgs {
    /// Query these hosts over ssh instead of this machine; repeatable.
    #[arg(long = "host", value_name = "HOST,…")]
    pub(crate) named: Vec<String>,
    /// Query the hosts listed in a file, or with `slurm` the nodes of the Slurm cluster.
    #[arg(long = "hosts-from", value_name = "FILE|slurm")]
    pub(crate) from: Option<PathBuf>,
}

impl HostArgs {
    /// Returns whether other machines are named.
    pub(crate) fn are_given(&self) -> bool {
        !self.named.is_empty() || self.from.is_some()
    }
}
