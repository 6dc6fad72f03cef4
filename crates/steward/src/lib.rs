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
mod device_leases;
mod environment;
mod event;
mod grant;
mod handoff;
mod held_devices;
mod holder_cleanup;
mod inherited;
mod isolated;
mod job_monitor;
mod lease_holders;
mod lease_keeper;
mod lease_view;
mod leftover_scan;
mod leftovers;
mod listing;
mod memory;
mod memory_limit;
mod narrowed;
mod offers;
mod order;
mod outcome;
mod ports;
mod preference;
mod release;
mod renewal;
mod run;

pub use ancestry::{descends, own_lease};
pub use claim_context::{ClaimContext, Wants};
pub use device_leases::DeviceLeases;
pub use environment::{LEASE, cdi_names, environment};
pub use event::{Event, HandOff};
pub use gpu_claim::{Ahead, Standing, Wait, WaitReason, Waiting};
pub use grant::{
    Decision, Grant, NotGranted, Preview, Refused, offered, preview, take, waits_for_own_lease,
};
pub use held_devices::HeldDevices;
pub use inherited::{Convention, Inherited, Note, inherited};
pub use isolated::{
    EntryPoint, Isolated, IsolatedError, IsolatedReport, IsolatedUse, Isolation, Outcome, RESULT,
    not_started, serve_entry, supervise,
};
pub use lease_holders::{LeaseKeepers, is_supervisor};
pub use lease_view::users_within_lease;
pub use leftovers::{TakenOver, take_over};
pub use listing::{LeaseUser, Listed, Listing, Queued, lease_users, listing};
pub use memory_limit::{MemoryLimit, serves, variables};
pub use narrowed::{NamedDevices, NarrowError, narrowed};
pub use offers::{ClaimSurroundings, offers};
pub use order::{OnDeath, RunOrder};
pub use outcome::{DeviceUse, NotRun, RunReport};
pub use ports::{Ports, Request};
pub use release::{ReleaseError, release};
pub use run::{isolate, run};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
