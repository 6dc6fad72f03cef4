//! The ports of an execution.

use gpu_core::{Clock, GpuBackend, Host, Journal};

/// The ports that an execution uses.
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
}
