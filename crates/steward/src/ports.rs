//! What a claim goes through, and what it asks for.

use gpu_claim::Wait;
use gpu_core::{Claim, Clock, GpuBackend, Host, Journal, Locks, ProcessKey};
use std::time::Duration;

/// The ports that everything here goes through.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    /// The devices.
    pub backend: &'a dyn GpuBackend,
    /// The processes.
    pub host: &'a dyn Host,
    /// Time.
    pub clock: &'a dyn Clock,
    /// The audit log of what is ended.
    pub journal: &'a dyn Journal,
    /// Where the leases are kept.
    pub locks: &'a dyn Locks,
}

/// What is asked for, as the command line or a program says it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The devices.
    pub claim: Claim,
    /// How long to wait for them.
    pub wait: Wait,
    /// How long a wait may go on before whoever watches is asked again.
    pub pace: Duration,
    /// How the devices are connected matters; without it that is not asked for.
    pub needs_topology: bool,
    /// What it is for, in words that `gpuws leases` shows to everybody.
    pub command: String,
    /// The process whose descendants the devices are for, itself included.
    pub root: ProcessKey,
}
