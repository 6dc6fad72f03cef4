//! One file or directory per command.

pub(crate) mod claim;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
#[cfg(feature = "export")]
pub(crate) mod export;
pub(crate) mod holders;
mod hosts;
pub(crate) mod leases;
pub(crate) mod man;
pub(crate) mod mem;
pub(crate) mod monitor;
pub(crate) mod parse;
#[cfg(feature = "place")]
pub(crate) mod place;
pub(crate) mod query;
pub(crate) mod reap;
pub(crate) mod record;
mod repeat;
mod replay;
#[cfg(feature = "history")]
pub(crate) mod report;
pub(crate) mod reset;
pub(crate) mod run;
pub(crate) mod shim;
pub(crate) mod sim;
pub(crate) mod slurm;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod topo;
pub(crate) mod watch;
