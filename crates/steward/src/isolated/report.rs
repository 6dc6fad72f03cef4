//! What a supervisor says of a job.

use super::millis;
use crate::run::{DeviceUse, RunReport};
use gpu_core::{Bytes, Error, Fault, Pid, Reading};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How an isolated job went, as its supervisor saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolatedReport {
    /// The code with which it ended, 128 and the signal's number where a signal ended it.
    pub code: i32,
    /// It was ended because its time was over.
    pub limit_hit: bool,
    /// From its start to its end, in milliseconds.
    pub elapsed_ms: u64,
    /// Its devices by index, with the most memory that was seen of it.
    pub devices: Vec<IsolatedUse>,
    /// Those of its tree that were ended after it.
    pub ended_pids: Vec<Pid>,
    /// Those of its tree that are still there.
    pub left_pids: Vec<Pid>,
    /// Its memory was seen to be free again.
    #[serde(with = "gpu_core::reading")]
    pub memory_back: Reading<bool>,
    /// Why the end of its tree was not carried through.
    pub stopped: Option<Fault>,
}

/// What an isolated job used of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolatedUse {
    /// NVML's index.
    pub index: u32,
    /// The most memory that was seen.
    #[serde(rename = "peak_bytes", with = "gpu_core::reading")]
    pub peak: Reading<Bytes>,
}

impl IsolatedReport {
    /// Returns whether nobody of the tree is left and all its memory was seen to be free again.
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
    /// It could not be started, or not be followed and was ended at once.
    NotStarted(Fault),
    /// Its time was over.
    TimedOut(Box<IsolatedReport>),
    /// It failed: its own words, where it had any.
    Failed(String, Box<IsolatedReport>),
    /// Its entry point panicked, with these words.
    Panicked(String, Box<IsolatedReport>),
    /// It sent more than is kept.
    TooLong(Box<IsolatedReport>),
    /// The supervisor was lost: what became of the job is not known.
    Lost(Error),
}

impl fmt::Display for IsolatedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsolatedError::NotGranted(why) => write!(f, "claim devices for an isolated job: {why}"),
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

/// What the supervisor reports.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Said {
    Ran(IsolatedReport),
    NotGranted(String),
    NotStarted(Fault),
}
