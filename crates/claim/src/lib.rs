//! Leases on devices, and the order of claims.
//!
//! The main decision is that the guarantee against double grants does not depend on the order, and
//! the order does not depend on stored state. A lease is published as an attempt, alive from its
//! first visible moment on, and then all others are read again. Attempts that conflict see each
//! other, and only one is confirmed. There is no lock to hold or to corrupt. The order is a
//! function of the live claims ([`turn`]): there is no counter, no daemon and nothing to repair
//! after a crash. A claim that cannot be next sleeps until the one before it leaves, so a grant
//! costs the same however many wait.
//!
//! This crate does not know what a device is or whether it is free: the caller passes [`take`]
//! functions that take a snapshot and choose devices.
//!
//! ```
//! use gpu_claim::{Chosen, Ledger, Turn, turn};
//! use gpu_core::{Claim, DeviceUuid, LeaseEntry, LeaseId, Pid, ProcessKey, Timestamp};
//!
//! let devices = ["GPU-a", "GPU-b"].map(|name| DeviceUuid(name.to_owned()));
//! let entry = |id: &str, minute: u64, count, devices: &[DeviceUuid]| LeaseEntry {
//!     id: LeaseId::parse(id).expect("a valid ID"),
//!     ticket: minute * 60_000_000_000,
//!     owner: 1000,
//!     root: ProcessKey { pid: Pid(4711), start: None },
//!     within: Vec::new(),
//!     claim: Claim::whole(count),
//!     devices: devices.to_vec(),
//!     parts_of: Vec::new(),
//!     merged: None,
//!     command: id.to_owned(),
//!     since: Timestamp(0),
//! };
//! let choose = |claim: &Claim, others: &[LeaseEntry]| {
//!     let is_leased = |uuid: &DeviceUuid| others.iter().any(|lease| lease.devices.contains(uuid));
//!     let free = devices.iter().filter(|uuid| !is_leased(uuid));
//!     let chosen: Vec<DeviceUuid> = free.take(claim.count as usize).cloned().collect();
//!     match chosen.len() == claim.count as usize {
//!         true => Chosen::Devices(chosen),
//!         false => Chosen::NotNow { could: devices.to_vec() },
//!     }
//! };
//!
//! // One of two devices is leased. A claim on both came first, a claim on one two minutes later.
//! let lease = entry("lease", 0, 1, &devices[..1]);
//! let (wide, narrow) = (entry("wide", 1, 2, &[]), entry("narrow", 3, 1, &[]));
//! let pool = Ledger::new(vec![lease.clone()], vec![wide, narrow.clone()]);
//! // The free device is set aside for the claim that came first.
//! assert_eq!(turn(&narrow, &pool, &choose), Turn::Wait);
//! let pool = Ledger::new(vec![lease], vec![narrow.clone()]);
//! assert_eq!(turn(&narrow, &pool, &choose), Turn::Take(devices[1..].to_vec()));
//! ```

mod admission;
mod ledger;
mod queue;
mod request;
mod take;

pub use admission::{Turn, turn};
pub use ledger::Ledger;
pub use request::{
    Ahead, Chosen, ClaimRequest, Standing, TakeError, Taken, Wait, WaitReason, Waiting,
};
pub use take::take;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
