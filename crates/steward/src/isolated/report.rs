//! The supervisor's report on a job.

use super::millis;
use crate::outcome::{DeviceUse, RunReport};
use gpu_core::{Bytes, Error, Fault, Pid, Reading};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The supervisor's view of an isolated job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolatedReport {
    /// The exit code; 128 plus the signal number if a signal ended it.
    pub code: i32,
    /// It was ended because it reached its time limit.
    pub limit_hit: bool,
    /// The time from its start to its end, in milliseconds.
    pub elapsed_ms: u64,
    /// Its devices by index, with the peak of its memory.
    pub devices: Vec<IsolatedUse>,
    /// The processes of its tree that were ended after it.
    pub ended_pids: Vec<Pid>,
    /// The processes of its tree that still exist.
    pub left_pids: Vec<Pid>,
    /// Its memory was verified as freed.
    #[serde(with = "gpu_core::reading")]
    pub memory_back: Reading<bool>,
    /// Why the clean-up is incomplete.
    pub stopped: Option<Fault>,
}

/// The use of a device by an isolated job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolatedUse {
    /// NVML's index.
    pub index: u32,
    /// The peak of its memory.
    #[serde(rename = "peak_bytes", with = "gpu_core::reading")]
    pub peak: Reading<Bytes>,
}

impl IsolatedReport {
    /// Returns whether no process of the tree is left and all its memory was verified as freed.
    pub fn is_clean(&self) -> bool {
        self.left_pids.is_empty() && self.stopped.is_none() && self.memory_back == Ok(true)
    }
}

impl From<&RunReport> for IsolatedReport {
    fn from(report: &RunReport) -> Self {
        let used = |used: &DeviceUse| IsolatedUse { index: used.device.index, peak: used.peak };
        let gone = report.left_behind.iter().filter(|action| action.outcome.is_gone());
        IsolatedReport {
            code: report.ending.code(),
            limit_hit: report.limit_hit,
            elapsed_ms: millis(report.elapsed),
            devices: report.devices.iter().map(used).collect(),
            ended_pids: gone.map(|action| action.pid).collect(),
            left_pids: report.still_there.iter().map(|info| info.key.pid).collect(),
            memory_back: report.memory_back,
            stopped: report.stopped.clone(),
        }
    }
}

/// Why there is no result.
#[derive(Debug)]
pub enum IsolatedError {
    /// It got no devices, for this reason.
    NotGranted(String),
    /// It can never get its devices here, for this reason.
    NeverGranted(String),
    /// The driver or another port failed, or the job could not be started, or could not be
    /// monitored and was ended at once.
    NotStarted(Fault),
    /// It reached its time limit.
    TimedOut(Box<IsolatedReport>),
    /// It failed, with its own message, if any.
    Failed(String, Box<IsolatedReport>),
    /// Its entry point panicked, with this message.
    Panicked(String, Box<IsolatedReport>),
    /// Its result exceeds the maximum length.
    TooLong(Box<IsolatedReport>),
    /// The supervisor was lost: the state of the job is unknown.
    Lost(Error),
}

impl fmt::Display for IsolatedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsolatedError::NotGranted(why) | IsolatedError::NeverGranted(why) => {
                write!(f, "claim devices for an isolated job: {why}")
            }
            IsolatedError::NotStarted(fault) => write!(f, "start an isolated job: {fault}"),
            IsolatedError::TimedOut(_) => f.write_str("run an isolated job within its time limit"),
            IsolatedError::Failed(why, report) => {
                write!(f, "run an isolated job, which ended with code {}: {why}", report.code)
            }
            IsolatedError::Panicked(why, _) => write!(f, "run an isolated job: panic: {why}"),
            IsolatedError::TooLong(_) => f.write_str(
                "receive the result of an isolated job: it \
                is too large",
            ),
            IsolatedError::Lost(_) => f.write_str("supervise an isolated job"),
        }
    }
}

impl std::error::Error for IsolatedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IsolatedError::Lost(error) => Some(error),
            _ => None,
        }
    }
}

/// The supervisor's message.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Said {
    Ran(IsolatedReport),
    NotGranted(String),
    NeverGranted(String),
    NotStarted(Fault),
}
