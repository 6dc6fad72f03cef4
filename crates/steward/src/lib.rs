//! Composes the policies: assigns devices to claims, and cleans up after jobs.
//!
//! Ownership follows descent. Devices are leased to a process, and every process that descends from
//! it may use them; any other process on them is an outsider, whatever variables or open files it
//! has. This one rule determines which memory belongs to which lease ([`offers`]), what a claim
//! inside a job may take ([`take`]), and which processes must be gone when a job is over ([`run`]).
//!
//! Observing and choosing are functions over plain data, as in the policies below. Everything that
//! touches the machine goes through [`Ports`] and a [`Launcher`](gpu_core::Launcher), and nothing
//! here knows which adapter implements them.

mod ancestry;
mod claim_context;
mod environment;
mod grant;
mod handoff;
mod holder_cleanup;
mod inherited;
mod isolated;
mod job_monitor;
mod lease_keeper;
mod leftover_scan;
mod leftovers;
mod listing;
mod memory;
mod memory_limit;
mod offers;
mod ports;
mod preference;
mod renewal;
mod run;

pub use ancestry::{descends, own_lease};
pub use claim_context::{Scene, Wants};
pub use environment::{LEASE, environment};
pub use gpu_claim::{Ahead, HeldUp, Standing, Wait, Waiting};
pub use grant::{Decision, Grant, NotGranted, Preview, Refused, preview, take};
pub use inherited::{Convention, Inherited, Note, inherited};
pub use isolated::{
    EntryPoint, Isolated, IsolatedError, IsolatedReport, IsolatedUse, Isolation, Outcome, RESULT,
    serve_entry, supervise,
};
pub use leftovers::{TakenOver, take_over};
pub use listing::{LeaseUser, Listed, Listing, Queued, listing};
pub use memory_limit::{MemoryLimit, serves, variables};
pub use offers::{ClaimSurroundings, offers};
pub use ports::{Ports, Request};
pub use run::{DeviceUse, Event, HandOff, NotRun, OnDeath, RunOrder, RunReport, isolate, run};
