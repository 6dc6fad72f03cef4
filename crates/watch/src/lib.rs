//! Watches a machine: raises findings that last, clears those that are over, and ends processes
//! where a policy says so.
//!
//! The main decision is that the watcher decides from plain data and keeps time by argument.
//! [`Watch::look`] is a function of its state, of one look and of the time, so a day is tested in a
//! second. It acts only through gpu-reaper: [`Watch::round`] selects suspects by the
//! [policy](Policy), looks twice more, and hands them to the plan, the checks and the audit log of
//! `gpuws reap`. A policy can only narrow what these permit.

mod docket;
mod identity;
mod policy;
mod round;
mod sight;
mod watch;

pub use docket::Condemned;
pub use identity::Identity;
pub use policy::{
    Allowed, Policy, PolicyError, REAPABLE, ReapPolicy, ReapRule, Tell, Threshold, Users,
};
pub use round::{Look, Machine, Purpose, Told};
pub use watch::{Change, ChangeKind, Watch};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
