//! The ports and the request of a claim.

use gpu_claim::Wait;
use gpu_core::{Claim, Clock, GpuBackend, Host, Journal, LeaseStore, ProcessKey};
use std::time::Duration;

/// The ports of this crate.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    /// The devices.
    pub backend: &'a dyn GpuBackend,
    /// The processes.
    pub host: &'a dyn Host,
    /// Time.
    pub clock: &'a dyn Clock,
    /// The audit log.
    pub journal: &'a dyn Journal,
    /// The store of the leases.
    pub locks: &'a dyn LeaseStore,
}

/// A request, from the command line or a program.
#[derive(Clone, Debug)]
pub struct Request {
    /// The devices.
    pub claim: Claim,
    /// How long to wait.
    pub wait: Wait,
    /// The interval at which a wait calls the observer.
    pub pace: Duration,
    /// Whether the topology matters; otherwise it is not queried.
    pub needs_topology: bool,
    /// A description that `gpuws leases` shows to all users.
    pub command: String,
    /// The process that the devices are for, together with its descendants.
    pub root: ProcessKey,
}
