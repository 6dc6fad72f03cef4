//! Finds unexplained device memory, and frees it with proof.
//!
//! The main decision is that nothing here both decides and acts. [`diagnose`] and [`plan`] are
//! functions from plain data to plain data: snapshots to a [`Diagnosis`], a diagnosis to a [`Plan`]
//! that is printed in full. Only [`execute`] sends signals, and [`sweep`] within a tree of the
//! caller's own. It takes a plan and an [`ActToken`](gpu_core::ActToken), checks again everything
//! that was true when the plan was made, and reports only memory as freed that a later sample
//! showed free.
//!
//! The steps are those of established killers (earlyoom, nohang: SIGTERM, wait, SIGKILL, wait) with
//! additions: an opened process instead of a PID, a check before each signal that it is the same
//! process and still holds the device, an audit line before each signal, and a verification
//! afterwards.

mod act;
mod audit;
mod check;
mod detect;
mod finding;
mod guard;
mod login;
mod non_targets;
mod plan;
mod report;
pub mod reset;
mod role;
mod sweep;
mod tree;
mod usage;
mod verify;

pub use act::{Event, Ports, execute};
pub use detect::{diagnose, driver_reserve, silence};
pub use finding::{Advice, Cleared, Confidence, Diagnosis, Finding, FindingKind, Suspect};
pub use guard::{Guard, Protect, Refusal};
pub use plan::{Expected, Membership, Plan, Refused, Request, Scope, Target, plan};
pub use report::{Action, Doubt, Freed, Newcomer, Outcome, Report, Why};
pub use role::Role;
pub use sweep::{ProcessTree, Swept, cannot_end, is_stuck, sweep};
pub use tree::plan_tree;
pub use usage::{Usage, User};
