//! Queries several machines about their GPUs over OpenSSH, and runs a job on one of them.
//!
//! The main decision is to need no daemon, port or protocol of our own: a machine is queried with
//! `ssh HOST gpuws … --json`. The user's configuration, keys, agent and shared connections apply,
//! and users see exactly what they would see after logging in. Each host has its own deadline. A
//! host without an answer is reported with the reason ([`NoAnswer`]) and never hides the answers of
//! the others.
//!
//! All output of a host is hostile: its size is limited ([`HOST_LIMIT`], [`FLEET_LIMIT`]), and its
//! text is escaped when shown. A name that could be an ssh option or part of a shell command is not
//! a [`HostName`].
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
mod watch;

pub use answer::{Answer, NoAnswer, Reply, SCHEMA};
pub use ask::{AT_ONCE, FLEET_LIMIT, HOST_LIMIT, Question, ask};
pub use child::HostMessage;
pub use host_name::HostName;
pub use job::STARTED;
pub use remote_run::{Outcome, Progress, RemoteRun, Wait};
pub use ssh::Ssh;
pub use watch::Watch;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
