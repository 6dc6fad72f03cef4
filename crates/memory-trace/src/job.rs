//! Recorded jobs, ready to be replayed.

use crate::trace::{Action, DeviceTrace, Event, Format, Recording};
use crate::workload::{Workload, WorkloadError};
use gpu_allocator_policy::Choice;
use gpu_allocator_policy::caching::{SettingError, Settings};
use gpu_core::Bytes;

/// Why there is nothing to replay.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is the end of a job and nothing of what it did.
    #[error("it contains the final state but no allocation history")]
    NoHistory,
    /// There is a job, and not on this device.
    #[error("it has no job on device {device}")]
    NotOnDevice {
        /// The device that was asked for.
        device: u32,
        /// Those that have one.
        has: Vec<u32>,
    },
    /// What was recorded contradicts itself.
    #[error(transparent)]
    Contradiction(#[from] WorkloadError),
}

/// The recording of a job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The recording.
    pub recording: Recording,
    /// What PyTorch's allocator was set to; `None` where another one recorded.
    pub settings: Option<Settings>,
}

/// What a job did on one device.
#[derive(Clone, Debug)]
pub struct OnDevice<'a> {
    /// As it was recorded.
    pub trace: &'a DeviceTrace,
    /// The job as it was recorded.
    pub workload: Workload,
    /// The job with memory enough.
    pub granted: Workload,
    /// What the request asked for with which the recorded job ended.
    pub refused: Option<Bytes>,
}

impl Job {
    /// Returns the job of a recording.
    ///
    /// # Errors
    /// When its allocator's settings are not PyTorch's.
    pub fn of(recording: Recording) -> Result<Self, SettingError> {
        let is_torch = recording.format == Format::TorchSnapshot || !recording.settings.is_empty();
        let settings = match is_torch && recording.format != Format::BfcDump {
            true => Some(Settings::from_recording(&recording.settings)?),
            false => None,
        };
        Ok(Job { recording, settings })
    }

    /// Returns what the job did on each device, or on one, of which anything was recorded.
    ///
    /// # Errors
    /// When nothing was, or what was contradicts itself.
    pub fn devices(&self, only: Option<u32>) -> Result<Vec<OnDevice<'_>>, JobError> {
        let is_job = |trace: &&DeviceTrace| trace.events.iter().any(is_of_job);
        let jobs: Vec<_> = self.recording.devices.iter().filter(is_job).collect();
        let is_asked = |job: &&&DeviceTrace| only.is_none_or(|device| job.device == device);
        let traces: Vec<_> = jobs.iter().filter(is_asked).copied().collect();
        match only {
            _ if !traces.is_empty() => {}
            Some(device) if !jobs.is_empty() => {
                let has = jobs.iter().map(|job| job.device).collect();
                return Err(JobError::NotOnDevice { device, has });
            }
            _ => return Err(JobError::NoHistory),
        }
        let job = |trace| {
            let workload = Workload::of(trace, &self.recording.stacks)?;
            let (granted, refused) = workload.granted();
            Ok(OnDevice { trace, workload, granted, refused })
        };
        traces.into_iter().map(job).collect()
    }

    /// Returns the allocator that recorded the job, as it was set.
    pub fn recorded_choice(&self) -> Choice {
        Choice::Caching(self.settings.clone().unwrap_or_default())
    }
}

/// Returns whether an event is something that a job does, not its allocator.
fn is_of_job(event: &Event) -> bool {
    matches!(event.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted)
}
