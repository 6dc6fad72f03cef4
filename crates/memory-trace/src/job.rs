//! Recorded jobs, ready for replay.

use crate::trace::{Action, DeviceTrace, Event, Format, Recording};
use crate::workload::{Workload, WorkloadError};
use gpu_allocator_policy::PolicyConfig;
use gpu_allocator_policy::caching::{SettingError, Settings};
use gpu_core::Bytes;

/// Why there is no job to replay.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The recording contains the final state of a job, but no events.
    #[error("it contains the final state but no allocation history")]
    NoHistory,
    /// The recording contains no job on this device.
    #[error("it has no job on device {device}")]
    NotOnDevice {
        /// The requested device.
        device: u32,
        /// The devices with a job.
        has: Vec<u32>,
    },
    /// The recording contradicts itself.
    #[error(transparent)]
    Contradiction(#[from] WorkloadError),
}

/// The recording of a job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The recording.
    pub recording: Recording,
    /// The settings of PyTorch's allocator; `None` if the recording is of another allocator.
    pub settings: Option<Settings>,
}

/// A job on one device.
#[derive(Clone, Debug)]
pub struct OnDevice<'a> {
    /// Its recording.
    pub trace: &'a DeviceTrace,
    /// The job as recorded.
    pub workload: Workload,
    /// The job with sufficient memory.
    pub granted: Workload,
    /// The size of the failed request with which the recording ended.
    pub refused: Option<Bytes>,
}

impl Job {
    /// Returns the job of a recording.
    ///
    /// # Errors
    /// If the settings of the allocator are not valid for PyTorch.
    pub fn of(recording: Recording) -> Result<Self, SettingError> {
        let is_torch = recording.format == Format::TorchSnapshot || !recording.settings.is_empty();
        let settings = if is_torch && recording.format != Format::BfcDump {
            Some(Settings::from_recording(&recording.settings)?)
        } else {
            None
        };
        Ok(Job { recording, settings })
    }

    /// Returns the job on each device with a recording, or on one device.
    ///
    /// # Errors
    /// If there is none, or the recording contradicts itself.
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

    /// Returns the allocator that recorded the job, with its settings.
    pub fn recorded_policy(&self) -> PolicyConfig {
        PolicyConfig::Caching(self.settings.clone().unwrap_or_default())
    }
}

/// Returns whether the job caused an event, rather than its allocator.
fn is_of_job(event: &Event) -> bool {
    matches!(event.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn recording(format: Format, settings: &[(&str, &str)]) -> Recording {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Recording { format, settings: BTreeMap::from_iter(settings), ..Recording::default() }
    }

    #[test]
    fn reads_pytorch_settings() {
        let of = |format, settings: &[(&str, &str)]| Job::of(recording(format, settings)).unwrap();
        assert!(of(Format::TorchSnapshot, &[]).settings.is_some());
        assert!(of(Format::Own, &[]).settings.is_none());
        assert!(of(Format::Own, &[("expandable_segments", "True")]).settings.is_some());
        assert!(of(Format::BfcDump, &[("memory_limit", "5")]).settings.is_none());
        let expandable = of(Format::TorchSnapshot, &[("expandable_segments", "True")]);
        assert_ne!(expandable.recorded_policy(), of(Format::TorchSnapshot, &[]).recorded_policy());
    }

    #[test]
    fn devices_with_events_of_a_job_are_returned() {
        let trace = |device, action: Option<Action>| {
            let event = |action| Event { action, address: 9 << 20, size: 5, stream: 0, time_us: 0 };
            DeviceTrace {
                device,
                events: action.into_iter().map(event).collect(),
                ..DeviceTrace::default()
            }
        };
        let job = |actions: [Option<Action>; 4]| {
            let devices =
                (0..).zip(actions).map(|(device, action)| trace(device, action)).collect();
            Job::of(Recording { devices, ..Recording::default() }).unwrap()
        };
        let jobs = job([
            Some(Action::Alloc),
            None,
            Some(Action::SegmentAlloc),
            Some(Action::FreeCompleted),
        ]);
        let devices = |only| {
            let found = jobs.devices(only)?;
            Ok::<_, JobError>(found.iter().map(|job| job.trace.device).collect::<Vec<_>>())
        };
        assert_eq!(devices(None).unwrap(), [0, 3]);
        assert_eq!(devices(Some(3)).unwrap(), [3]);
        let error = devices(Some(2)).unwrap_err();
        assert!(
            matches!(&error, JobError::NotOnDevice { device: 2, has } if *has == [0, 3]),
            "{error}"
        );
        let idle = job([None, Some(Action::Snapshot), None, None]);
        for only in [None, Some(0)] {
            assert!(matches!(idle.devices(only), Err(JobError::NoHistory)));
        }
    }
}
