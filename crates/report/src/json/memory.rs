//! `gpuws mem replay --json` and `gpuws mem fit --json`.

use super::Version;
use gpu_core::Bytes;
use gpu_memory_trace::trace::Format;
use gpu_memory_trace::{Agreement, Need, Needs, Outcome, Replays, Run, Stop};
use serde::Serialize;

/// A recorded job that was replayed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replayed<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Path of the recording.
    pub file: &'a str,
    /// Format of the recording.
    pub recorded_by: Format,
    /// Addresses of allocations, over all devices. Null if no device could be compared.
    pub addresses: Option<Tally>,
    /// Segments taken from the device, over all devices. Null if no device could be compared.
    pub segments: Option<Tally>,
    /// Segments freed, over all devices. Null if no device could be compared.
    pub segments_freed: Option<Tally>,
    /// Recorded peak of reserved memory on the device where it was highest, in bytes. Null if no
    /// device could be compared.
    pub peak_reserved_bytes: Option<u64>,
    /// Recorded peak of allocated memory on the device where it was highest, in bytes. Null if no
    /// device could be compared.
    pub peak_allocated_bytes: Option<u64>,
    /// The replays, by device.
    pub devices: Vec<Recorded<'a>>,
}

/// How many recorded decisions the model of the allocator predicted.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tally {
    /// Number of predicted decisions.
    pub predicted_count: usize,
    /// Number of recorded decisions.
    pub recorded_count: usize,
}

impl<'a> Replayed<'a> {
    /// Returns the object for a recording.
    pub fn of(file: &'a str, recorded_by: Format, devices: Vec<Recorded<'a>>) -> Self {
        let sum = |tally: fn(&Agreement) -> gpu_memory_trace::Tally| {
            let tallies = devices.iter().filter_map(|device| device.agreement).map(tally);
            tallies.map(Tally::from).reduce(|a, b| Tally {
                predicted_count: a.predicted_count + b.predicted_count,
                recorded_count: a.recorded_count + b.recorded_count,
            })
        };
        let most = |peak: fn(&Outcome) -> Bytes| {
            devices.iter().filter_map(|device| Some(peak(&device.agreement?.outcome).0)).max()
        };
        Replayed {
            schema: Version,
            file,
            recorded_by,
            addresses: sum(|agreement| agreement.addresses),
            segments: sum(|agreement| agreement.segments),
            segments_freed: sum(|agreement| agreement.segments_freed),
            peak_reserved_bytes: most(|outcome| outcome.peak.reserved),
            peak_allocated_bytes: most(|outcome| outcome.peak.in_use),
            devices,
        }
    }
}

impl From<gpu_memory_trace::Tally> for Tally {
    fn from(known: gpu_memory_trace::Tally) -> Self {
        Tally { predicted_count: known.predicted, recorded_count: known.of }
    }
}

/// The replays of a recorded job on one device.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recorded<'a> {
    /// Number of the device in the recording.
    pub device_index: u32,
    /// Number of recorded events.
    pub event_count: usize,
    /// Peak of the requested memory in use, in bytes.
    pub live_bytes: u64,
    /// Size of the failed request that ended the job, in bytes. The replays grant it. Null if there
    /// was none.
    pub refused_bytes: Option<u64>,
    /// Comparison with the recording. Null if the recording could not be compared.
    pub as_recorded: Option<AsRecorded<'a>>,
    /// The replays, one for each allocator.
    pub replays: Vec<Tried<'a>>,
    #[serde(skip)]
    agreement: Option<&'a Agreement>,
}

/// Comparison of the model of the allocator with the recording.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AsRecorded<'a> {
    /// Addresses of allocations.
    pub addresses: Tally,
    /// Segments taken from the device.
    pub segments: Tally,
    /// Segments freed.
    pub segments_freed: Tally,
    /// Number of segments that the model took or freed and the recording does not contain.
    pub unrecorded_count: usize,
    /// The first decision that differs. Null if none differs.
    pub first_divergence: Option<Divergence<'a>>,
    /// Peak of reserved memory, in bytes.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated memory, in bytes.
    pub peak_allocated_bytes: u64,
    /// How often the device refused memory and the allocator emptied its cache.
    pub retry_count: u64,
}

/// A decision that differs from the recording.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Divergence<'a> {
    /// Index of the event in the recording.
    pub event_index: usize,
    /// The decision and the recorded one, as a sentence fragment.
    pub what: &'a str,
}

impl<'a> Recorded<'a> {
    /// Returns the object for a job on one device.
    pub fn of(replays: &'a Replays<'a>) -> Self {
        let agreement = replays.agreement.as_ref();
        Recorded {
            device_index: replays.job.trace.device,
            event_count: replays.job.trace.events.len(),
            live_bytes: replays.job.granted.peak_requested(),
            refused_bytes: replays.job.refused.map(|bytes| bytes.0),
            as_recorded: agreement.map(|agreement| AsRecorded {
                addresses: agreement.addresses.into(),
                segments: agreement.segments.into(),
                segments_freed: agreement.segments_freed.into(),
                unrecorded_count: agreement.unrecorded,
                first_divergence: agreement
                    .first
                    .as_ref()
                    .map(|first| Divergence { event_index: first.event, what: &first.what }),
                peak_reserved_bytes: agreement.outcome.peak.reserved.0,
                peak_allocated_bytes: agreement.outcome.peak.in_use.0,
                retry_count: agreement.retries,
            }),
            replays: replays.runs.iter().map(|run| Tried::of(run, replays)).collect(),
            agreement,
        }
    }
}

/// A replay under one allocator.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tried<'a> {
    /// The allocator and its settings.
    pub policy: &'a str,
    /// Whether the job completed.
    pub survived: bool,
    /// Peak of reserved memory, in bytes.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated memory, in bytes.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved memory less peak of allocated memory, in bytes.
    pub wasted_bytes: u64,
    /// Percentage of the memory cached at the end that is outside the largest free block.
    pub fragmentation_at_end_percent: f64,
    /// How often the device refused memory and the allocator emptied its cache.
    pub retry_count: u64,
    /// Number of allocations from the device.
    pub device_allocation_count: u64,
    /// Number of allocations returned to the device.
    pub device_free_count: u64,
    /// The request for which memory did not suffice. Null if the job completed.
    pub out_of_memory: Option<Ended>,
}

/// A request for which memory did not suffice.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    /// Index of the event in the recording. Null if memory did not even suffice for the allocations
    /// at the start.
    pub event_index: Option<u32>,
    /// Size of the request, in bytes.
    pub asked_bytes: u64,
    /// Smallest size that the allocator requested from the device, in bytes.
    pub segment_bytes: u64,
    /// Limit of the allocator, in bytes. Null if it has none.
    pub limit_bytes: Option<u64>,
    /// Free memory of the device, in bytes. Null if unknown.
    pub device_free_bytes: Option<u64>,
    /// Memory that the allocator reserved from the device, in bytes.
    pub reserved_bytes: u64,
    /// Part of the reserved memory in use, in bytes.
    pub in_use_bytes: u64,
    /// Largest free block, in bytes.
    pub largest_free_bytes: u64,
    /// Whether enough memory was free, but not contiguous.
    pub fragmented: bool,
    /// Changes of a single setting with which the job completes.
    pub saved_by: Vec<SavedBy>,
}

/// A change of a setting with which the job completes.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SavedBy {
    /// The changed setting.
    pub setting: String,
    /// Peak of reserved memory with this setting, in bytes.
    pub peak_reserved_bytes: u64,
}

impl<'a> Tried<'a> {
    fn of(run: &'a Run, replays: &Replays<'_>) -> Self {
        let (outcome, end) = (&run.trial.outcome, &run.trial.end);
        let ended = |Stop { step, shortage, .. }: Stop| Ended {
            event_index: step.and_then(|step| replays.job.granted.events.get(step).copied()),
            asked_bytes: shortage.asked.0,
            segment_bytes: shortage.segment.0,
            limit_bytes: shortage.limit.map(|bytes| bytes.0),
            device_free_bytes: shortage.device_free.map(|bytes| bytes.0),
            reserved_bytes: shortage.reserved.0,
            in_use_bytes: shortage.in_use.0,
            largest_free_bytes: shortage.largest_free.0,
            fragmented: shortage.is_fragmented(),
            saved_by: run
                .helpful_settings
                .iter()
                .map(|(setting, trial)| SavedBy {
                    setting: setting.clone(),
                    peak_reserved_bytes: trial.outcome.peak.reserved.0,
                })
                .collect(),
        };
        Tried {
            policy: &run.title,
            survived: outcome.survived(),
            peak_reserved_bytes: outcome.peak.reserved.0,
            peak_allocated_bytes: outcome.peak.in_use.0,
            wasted_bytes: outcome.wasted().0,
            fragmentation_at_end_percent: end.fragmentation() * 100.0,
            retry_count: end.retries,
            device_allocation_count: end.device_allocations,
            device_free_count: end.device_frees,
            out_of_memory: outcome.stop.map(ended),
        }
    }
}

/// The least memory that recorded jobs need.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fitted<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Memory added to each job for the CUDA context and libraries, in bytes.
    pub context_bytes: u64,
    /// Memory of the GPU that the jobs should fit on, in bytes. Null if none was given.
    pub device_memory_bytes: Option<u64>,
    /// The jobs.
    pub jobs: Vec<Fit<'a>>,
    /// Largest sets of jobs that fit on the GPU together. Null if no memory of a GPU was given.
    pub together: Option<Vec<Together<'a>>>,
}

/// Jobs that fit on a GPU together.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Together<'a> {
    /// Paths of the recordings.
    pub files: Vec<&'a str>,
    /// Memory that they need together, with CUDA contexts, in MiB.
    pub mem_mib: u64,
}

impl<'a> Fitted<'a> {
    /// Returns the object for jobs with such a CUDA context, on such a device where one is named,
    /// and of the sets of them that fit on it.
    pub fn of(
        context: Bytes,
        device_memory: Option<Bytes>,
        jobs: Vec<Fit<'a>>,
        sets: Option<Vec<Vec<usize>>>,
    ) -> Self {
        let together = |set: &Vec<usize>| Together {
            files: set.iter().map(|job| jobs[*job].file).collect(),
            mem_mib: set.iter().map(|job| jobs[*job].mem_mib).sum(),
        };
        let together = sets.map(|sets| sets.iter().map(together).collect());
        Fitted {
            schema: Version,
            context_bytes: context.0,
            device_memory_bytes: device_memory.map(|bytes| bytes.0),
            jobs,
            together,
        }
    }
}

/// The least memory that a recorded job needs.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fit<'a> {
    /// Path of the recording.
    pub file: &'a str,
    /// Number of the device in the recording.
    pub device_index: u32,
    /// Number of recorded events.
    pub event_count: usize,
    /// Peak of the requested memory in use, in bytes.
    pub live_bytes: u64,
    /// Size of the failed request that ended the job, in bytes. It is counted as granted. Null if
    /// there was none.
    pub refused_bytes: Option<u64>,
    /// Memory that the job needs under the first allocator, or with the setting if there is one,
    /// with the CUDA context, in MiB: the value for gpuws run --mem.
    pub mem_mib: u64,
    /// Whether the job fits on the GPU. Null if no memory of a GPU was given.
    pub fits: Option<bool>,
    /// Environment variable without which the job does not fit. Null if there is none.
    pub setting: Option<&'static str>,
    /// The least memory, one for each allocator.
    pub policies: Vec<Least<'a>>,
}

/// The least memory that a job needs under one allocator.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Least<'a> {
    /// The allocator and its settings.
    pub policy: &'a str,
    /// Least memory with which the job completes, without the CUDA context, in bytes.
    pub least_bytes: u64,
    /// Whether no smaller amount suffices. Otherwise only some smaller amounts were tried.
    pub exact: bool,
    /// Peak of reserved memory less peak of allocated memory, with the least memory, in bytes.
    pub wasted_bytes: u64,
    /// Peak of reserved memory with unlimited memory, in bytes.
    pub unlimited_reserved_bytes: u64,
    /// Number of replays that were needed.
    pub replay_count: usize,
    /// Percentage of the memory of the GPU. Missing if no memory of a GPU was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
}

impl<'a> Fit<'a> {
    /// Returns the object for a job with such a CUDA context, on such a device where one is named.
    pub fn of(needs: &'a Needs, context: Bytes, device_memory: Option<Bytes>) -> Self {
        let least = |(title, need, _): &'a (String, Need, _)| Least {
            policy: title,
            least_bytes: need.least.0,
            exact: need.exact,
            wasted_bytes: need.tight.wasted().0,
            unlimited_reserved_bytes: need.unlimited.peak.reserved.0,
            replay_count: need.replays,
            share_percent: device_memory.map(|total| 100.0 * need.least.0 as f64 / total.0 as f64),
        };
        let fitting = needs.fitting(context, device_memory);
        Fit {
            file: &needs.file,
            device_index: needs.device,
            event_count: needs.events,
            live_bytes: needs.live.0,
            refused_bytes: needs.refused.map(|bytes| bytes.0),
            mem_mib: fitting.mem.mib(),
            fits: device_memory.map(|_| fitting.fits),
            setting: fitting.setting,
            policies: needs.by_policy.iter().map(least).collect(),
        }
    }
}
