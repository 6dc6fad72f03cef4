//! Composes the policies: who gets which devices, and what becomes of a job on them.
//!
//! The main decision is that a lease is a matter of descent. Devices are leased to a process, and
//! whoever descends from it uses them by right; anybody else on them is an outsider, whatever
//! variables or open files he has. From this one rule follow whose memory is whose ([`offers`]),
//! what a claim inside of a job may take ([`take`]), and who is to be gone when a job is over
//! ([`run`]).
//!
//! Looking and choosing are functions over plain data, as in the policies below; everything that
//! touches the machine goes through [`Ports`] and a [`Launcher`](gpu_core::Launcher), and nothing
//! here knows which adapter stands behind them.
//!
//! ```
//! use gpu_core::{Origin, Pid, Process, ProcessInfo, ProcessKey, Snapshot, StartTime, Timestamp};
//! use gpu_steward::descends;
//!
//! // A shell (10) started a job (20), which started a worker (21); 30 is another user's process.
//! let process = |pid, parent| {
//!     let mut info = ProcessInfo::from_name(Pid(pid), "python");
//!     info.key.start = Some(StartTime(100 + u64::from(pid)));
//!     info.parent = Ok(Pid(parent));
//!     (info.key.pid, Process::from(Ok(info)))
//! };
//! let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(0));
//! snapshot.processes = [process(10, 1), process(20, 10), process(21, 20), process(30, 1)].into();
//!
//! // The devices are leased to the job.
//! let root = ProcessKey { pid: Pid(20), start: Some(StartTime(120)) };
//! assert!(descends(&snapshot, Pid(21), &root));
//! assert!(!descends(&snapshot, Pid(10), &root));
//! assert!(!descends(&snapshot, Pid(30), &root));
//! // A later process with the same PID is another one.
//! let reused = ProcessKey { start: Some(StartTime(500)), ..root };
//! assert!(!descends(&snapshot, Pid(21), &reused));
//! ```

mod ancestry;
mod claim_context;
mod device_leases;
mod environment;
mod grant;
mod handoff;
mod holder_cleanup;
mod inherited;
mod isolated;
mod job_monitor;
mod lease_holders;
mod lease_keeper;
mod leftover_scan;
mod leftovers;
mod listing;
mod memory;
mod memory_limit;
mod narrowed;
mod offers;
mod ports;
mod preference;
mod release;
mod renewal;
mod run;

pub use ancestry::{descends, own_lease};
pub use claim_context::{Scene, Wants};
pub use device_leases::DeviceLeases;
pub use environment::{LEASE, environment};
pub use gpu_claim::{Ahead, HeldUp, Standing, Wait, Waiting};
pub use grant::{Decision, Grant, NotGranted, Preview, Refused, preview, take};
pub use inherited::{Convention, Inherited, Note, inherited};
pub use isolated::{
    EntryPoint, Isolated, IsolatedError, IsolatedReport, IsolatedUse, Isolation, Outcome, RESULT,
    serve_entry, supervise,
};
pub use lease_holders::{LeaseKeepers, is_supervisor};
pub use leftovers::{TakenOver, take_over};
pub use listing::{LeaseUser, Listed, Listing, Queued, listing};
pub use memory_limit::{MemoryLimit, serves, variables};
pub use narrowed::{NamedDevices, NarrowError, narrowed};
pub use offers::{ClaimSurroundings, offers};
pub use ports::{Ports, Request};
pub use release::{ReleaseError, release};
pub use run::{DeviceUse, Event, HandOff, NotRun, OnDeath, RunOrder, RunReport, isolate, run};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
