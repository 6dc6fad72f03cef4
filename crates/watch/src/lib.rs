//! Watches a machine: raises findings that last, clears those that are over, and ends processes
//! where a policy says so.
//!
//! The main decision is that the watcher decides from plain data and receives the time as an
//! argument. [`Watch::update`] is a function of the state, one scan and the time, so a test covers a
//! day in a second. It acts only through gpu-reaper: [`Watch::round`] selects suspects by the
//! [policy](Policy), scans twice more, and passes them to the plan, the checks and the audit log of
//! `gpuws reap`. A policy can only narrow what these permit.

mod absence;
mod identity;
mod pending_kills;
mod policy;
mod round;
mod watch;

pub use identity::Identity;
pub use pending_kills::PendingKill;
pub use policy::{
    Allowed, Notify, Policy, PolicyError, REAPABLE, ReapPolicy, ReapRule, Threshold, Users,
};
pub use round::{Event, Machine, Purpose, Scan};
pub use watch::{Change, ChangeKind, Watch};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
