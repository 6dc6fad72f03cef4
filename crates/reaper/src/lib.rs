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
//!
//! ```
//! use gpu_core::{
//!     Absent, Access, Bytes, DeviceDetails, DeviceId, DeviceInfo, DeviceSample, DeviceState, Holder,
//!     Origin, Pid, Process, ProcessInfo, ProcessKey, Snapshot,
//!     StartTime, Timestamp,
//! };
//! use gpu_nvidia_driver::held_files;
//! use gpu_reaper::{FindingKind, diagnose};
//!
//! // GPU 0 has 9,000 MiB in use, and the driver lists no process on it.
//! let id = DeviceId { node: Ok(gpu_nvidia_driver::node(0)), ..DeviceId::from_index(0) };
//! let mut sample = DeviceSample::absent(Absent::NotSupported);
//! sample.memory.used = Ok(Bytes::from_mib(9_000));
//! sample.memory.total = Ok(Bytes::from_mib(16_280));
//! let device = DeviceState {
//!     info: DeviceInfo::unknown(id),
//!     sample: Ok(sample),
//!     processes: Ok(Vec::new()),
//!     partitions: Ok(Vec::new()),
//!     details: Ok(DeviceDetails::default()),
//! };
//! // Process 4711 has the device open and mapped.
//! let key = ProcessKey { pid: Pid(4711), start: Some(StartTime(100)) };
//! let mapped = Access::OPEN_FOR_WRITING | Access::MAPPED;
//! let held = held_files([("/dev/nvidia0", mapped), ("/dev/nvidia-uvm", mapped)]);
//! let holder = Holder { process: key, held, through_thread: None };
//! let process = ProcessInfo { key, uid: Ok(1000), ..ProcessInfo::from_name(key.pid, "python") };
//!
//! let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(0));
//! snapshot.devices = vec![device];
//! snapshot.holders = Ok(vec![holder]);
//! snapshot.processes = [(key.pid, Process::from(Ok(process)))].into();
//! let ghost = &diagnose(&[snapshot]).findings[0];
//! assert_eq!(ghost.kind, FindingKind::Ghost);
//! assert_eq!(ghost.suspects[0].process, key);
//! ```

mod act;
mod audit;
mod check;
mod condition;
mod defect;
mod detect;
mod evidence;
mod finding;
mod guard;
mod leftovers;
mod login;
mod non_targets;
mod past;
mod plan;
mod ports;
mod report;
pub mod reset;
mod role;
mod sweep;
mod tree;
mod usage;
mod verify;

pub use act::{Event, execute};
pub use defect::{Defect, Fitness, defect_groups, defects, full_observation, unfit};
pub use detect::{
    OldMessages, SETTLED_AFTER, busy_alone, diagnose, diagnose_after, diagnose_outlines,
    diagnose_outlines_after, logged_errors, old_messages, silence,
};
pub use evidence::{Evidence, Sign};
pub use finding::{Advice, Cleared, Confidence, Diagnosis, Finding, FindingKind, Ignored, Suspect};
pub use gpu_core::driver_reserve;
pub use guard::{Guard, Protect, Refusal};
pub use leftovers::{Leftover, plan_leftovers};
pub use past::Past;
pub use plan::{Expected, JobMark, Membership, Plan, Refused, Request, Scope, Target, plan};
pub use ports::Ports;
pub use report::{Action, Doubt, Freed, Newcomer, Outcome, Report, Why};
pub use role::Role;
pub use sweep::{ProcessTree, Swept, cannot_end, is_stuck, sweep};
pub use tree::plan_tree;
pub use usage::{Usage, User};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
