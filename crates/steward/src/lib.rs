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
