//! How a run ends.

use crate::grant::NotGranted;
use gpu_core::{Bytes, DeviceId, Error, Fault, JobExit, LeaseId, ProcessInfo, Reading};
use gpu_reaper::Action;
use std::time::Duration;

/// Why no program was run. No device stays leased, except for living processes of a
/// [`Lost`](Self::Lost) program.
#[derive(Debug)]
pub enum NotRun {
    /// No device was granted.
    NotGranted(NotGranted),
    /// The observer stopped the run before the program was started.
    Stopped,
    /// The program could not be started. The kind `Process(Gone)` means that it does not exist, and
    /// `Process(NotPermitted)` that it may not be executed; any other kind is an error of this
    /// program.
    NotStarted(Error),
    /// The program was started and could not be monitored; its tree was ended, as the actions show.
    Lost(Error, Vec<Action>),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Its lease.
    pub lease: LeaseId,
    /// How the program ended.
    pub ending: JobExit,
    /// Whether it was ended at its time limit.
    pub limit_hit: bool,
    /// Whether its caller was gone.
    pub abandoned: bool,
    /// Its devices, and their use.
    pub devices: Vec<DeviceUse>,
    /// The time from its start to its end.
    pub elapsed: Duration,
    /// The processes of its tree that were ended after it, or could not be.
    pub left_behind: Vec<Action>,
    /// The processes of its tree that still exist.
    pub still_there: Vec<ProcessInfo>,
    /// The processes of `still_there` that could not be ended, or that may hold a device. The list
    /// may be incomplete.
    pub remaining: Vec<ProcessInfo>,
    /// The processes that still exist, have unreadable descriptors, and are listed by the driver on
    /// none of the devices. The lease is not kept for them.
    pub unlisted: Vec<ProcessInfo>,
    /// Whether the lease is kept for remaining processes.
    pub lease_stays: bool,
    /// Whether its memory was verified as freed on all of its devices.
    pub memory_back: Reading<bool>,
    /// Why the clean-up is incomplete.
    pub stopped: Option<Fault>,
    /// Why the audit log is incomplete.
    pub unwritten: Option<Fault>,
}

/// The use of a device by a job.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceUse {
    /// The device.
    pub device: DeviceId,
    /// The peak of its memory, sampled each second; absent if it could not be read.
    pub peak: Reading<Bytes>,
    /// How long it was leased.
    pub held_for: Duration,
}

impl RunReport {
    /// Returns the total lease time of all devices.
    pub fn device_time(&self) -> Duration {
        self.devices.iter().map(|used| used.held_for).sum()
    }
}
