//! Asks several machines about their GPUs over OpenSSH, and runs a job on one of them.
//!
//! The main decision is that there is no daemon, no port and no protocol of our own: a machine is
//! asked by `ssh HOST gpuws … --json`. The user's configuration, keys, agent and shared connections
//! apply, and what a user may see of a machine is what that user may see after a login. Each host
//! has its own deadline, and a host without an answer is reported with the reason
//! ([`NoAnswer`]); it never hides the answers of the others.
//!
//! Everything that a host says is hostile. Its output is bounded ([`HOST_LIMIT`], [`FLEET_LIMIT`]),
//! its text is escaped where it is shown, and a name that could be an option of ssh or a part of a
//! shell command is not a [`HostName`].
//!
//! ```
//! use gpu_fleet::{HostName, hosts};
//!
//! let asked = hosts::listed(["gpu01,gpu02", "alice@gpu01.lab", "gpu01"])?;
//! assert_eq!(asked.len(), 3, "a host that is named twice is asked once");
//! assert!("-oProxyCommand=reboot".parse::<HostName>().is_err());
//! # Ok::<(), gpu_core::Error>(())
//! ```

mod answer;
mod ask;
mod child;
mod host_name;
pub mod hosts;
mod job;
mod remote_run;
mod ssh;

pub use answer::{Answer, NoAnswer, Reply, SCHEMA};
pub use ask::{AT_ONCE, FLEET_LIMIT, HOST_LIMIT, Question, ask};
pub use child::HostMessage;
pub use host_name::HostName;
pub use job::STARTED;
pub use remote_run::{Outcome, Progress, RemoteRun, Wait};
pub use ssh::Ssh;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
