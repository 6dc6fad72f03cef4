//! A request, the chooser's answer, and the outcome.

use gpu_core::{
    Claim, DeviceUuid, Error, Fault, LeaseEntry, LeaseGuard, ProcessKey, Result, SafeGpuGuard,
};
use std::fmt;
use std::time::Duration;

/// How long to wait for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Do not wait.
    No,
    /// Wait at most this long.
    For(Duration),
    /// Wait without limit.
    Forever,
}

/// A claim and the process that makes it.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The request.
    pub claim: Claim,
    /// The process whose descendants will use the devices.
    pub root: ProcessKey,
    /// The lease to take devices out of, as it was found; the caller must be its owner or root.
    pub within: Option<LeaseEntry>,
    /// The whole devices that contain the MIG devices the claim names ([`LeaseEntry::parts_of`]).
    pub parts_of: Vec<DeviceUuid>,
    /// A description of the claim's purpose.
    pub command: String,
    /// How long to wait.
    pub wait: Wait,
    /// The interval at which the watcher is called during a wait. A signal ends it early.
    pub pace: Duration,
    /// Holds back every safe-gpu from before the snapshot until [`held_back`](Taken::held_back) is
    /// dropped.
    pub holds_back_safe_gpu: bool,
}

/// The chooser's answer to one claim, given the others' leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// These devices, now.
    Devices(Vec<DeviceUuid>),
    /// Not enough are free.
    NotNow {
        /// Every device that the claim could use, now or after the leases on it end. No later claim
        /// gets one of them.
        could: Vec<DeviceUuid>,
    },
    /// This machine can never satisfy the request.
    Never,
}

/// Granted devices.
pub struct Taken<S> {
    /// The lease.
    pub entry: LeaseEntry,
    /// Keeps the lease alive; drop it to release the lease.
    pub held: Box<dyn LeaseGuard>,
    /// The guard that holds back every safe-gpu, if requested, or why that failed.
    pub held_back: Option<Result<Box<dyn SafeGpuGuard>>>,
    /// The snapshot before the grant.
    pub context: S,
    /// The other leases at that moment.
    pub others: Vec<LeaseEntry>,
}

/// The earlier claims that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Their number, including claims that may have died unnoticed.
    pub count: usize,
    /// The last of them that was read.
    pub nearest: Option<LeaseEntry>,
    /// The stalled claims, which are passed.
    pub stalled: Vec<LeaseEntry>,
}

/// The position of a waiting claim.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// The earlier claims that also wait.
    pub ahead: &'a Ahead,
    /// The leases at the last read.
    pub leases: &'a [LeaseEntry],
    /// How long it has waited.
    pub waited: Duration,
    /// What blocks it, apart from the claims ahead.
    pub wait_reason: Option<&'a WaitReason>,
}

/// What makes a claim wait, apart from the claims ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// A safe-gpu holds its lock; the fault names its process if that is visible.
    SafeGpu(Fault),
    /// The driver fails to answer, for example while it is reloaded.
    Driver(Fault),
}

/// Why no devices were taken. In each case the claim is withdrawn completely.
#[derive(Debug)]
pub enum TakeError {
    /// Not possible at once, and the claim does not wait.
    NotNow(Box<Standing>),
    /// Not possible within the claim's timeout.
    TimedOut(Box<Standing>),
    /// This machine can never satisfy the request.
    Never,
    /// The watcher asked to stop.
    Stopped,
    /// A port failed.
    Failed(Error),
}

/// The position of a claim when it gave up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The earlier claims that wait.
    pub ahead: Ahead,
    /// The leases.
    pub leases: Vec<LeaseEntry>,
    /// What else made it wait at the end.
    pub wait_reason: Option<WaitReason>,
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TakeError::NotNow(_) => "no devices for this claim are free now",
            TakeError::TimedOut(_) => "no devices for this claim became free in time",
            TakeError::Never => "this machine can never satisfy this claim",
            TakeError::Stopped => "the wait for devices was stopped",
            TakeError::Failed(error) => return write!(f, "failed to {error}"),
        })
    }
}

impl std::error::Error for TakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TakeError::Failed(error) => error.source(),
            _ => None,
        }
    }
}

impl From<Error> for TakeError {
    fn from(error: Error) -> Self {
        TakeError::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::ErrorKind;
    use std::error::Error as _;

    #[test]
    fn failed_port_is_reported_with_its_source() {
        let io = std::io::Error::other("disk full");
        let error = TakeError::from(Error::new(ErrorKind::Io, "publish a lease").with_source(io));
        assert_eq!(error.to_string(), "failed to publish a lease");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("disk full"));
        assert!(TakeError::Never.source().is_none());
    }
}
