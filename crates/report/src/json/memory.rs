//! `gpuws mem replay --json` and `gpuws mem fit --json`.

use super::SCHEMA;
use gpu_core::Bytes;
use gpu_memory_trace::trace::Format;
use gpu_memory_trace::{Agreement, Divergence, Need, Needs, Outcome, Replays, Run, Stop, Tally};
use serde::Serialize;

/// A recorded job that was run again.
#[derive(Serialize)]
pub struct Replayed<'a> {
    schema: u32,
    file: &'a str,
    recorded_by: Format,
    /// Sums over the devices; null where no device could be compared.
    addresses: Option<Tally>,
    segments: Option<Tally>,
    segments_freed: Option<Tally>,
    /// The peaks as recorded, of the device where they were highest.
    peak_reserved_bytes: Option<Bytes>,
    peak_allocated_bytes: Option<Bytes>,
    devices: Vec<Recorded<'a>>,
}

impl<'a> Replayed<'a> {
    /// Returns what is told of a recording.
    pub fn of(file: &'a str, recorded_by: Format, devices: Vec<Recorded<'a>>) -> Self {
        let sum = |tally: fn(&Agreement) -> Tally| {
            let tallies = devices.iter().filter_map(|device| device.agreement).map(tally);
            tallies.reduce(|a, b| Tally { predicted: a.predicted + b.predicted, of: a.of + b.of })
        };
        let most = |peak: fn(&Outcome) -> Bytes| {
            devices.iter().filter_map(|device| Some(peak(&device.agreement?.outcome))).max()
        };
        Replayed {
            schema: SCHEMA,
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

/// What became of a job on one device.
#[derive(Serialize)]
pub struct Recorded<'a> {
    device_index: u32,
    event_count: usize,
    live_bytes: Bytes,
    /// What the request asked for with which the recorded job ended; it is granted here.
    refused_bytes: Option<Bytes>,
    /// Null where the recording was not compared.
    as_recorded: Option<AsRecorded<'a>>,
    replays: Vec<Tried<'a>>,
    #[serde(skip)]
    agreement: Option<&'a Agreement>,
}

#[derive(Serialize)]
struct AsRecorded<'a> {
    addresses: Tally,
    segments: Tally,
    segments_freed: Tally,
    unrecorded_count: usize,
    first_divergence: Option<&'a Divergence>,
    peak_reserved_bytes: Bytes,
    peak_allocated_bytes: Bytes,
    retry_count: u64,
}

impl<'a> Recorded<'a> {
    /// Returns what is told of a job on one device.
    pub fn of(replays: &'a Replays<'a>) -> Self {
        let agreement = replays.agreement.as_ref();
        Recorded {
            device_index: replays.job.trace.device,
            event_count: replays.job.trace.events.len(),
            live_bytes: Bytes(replays.job.granted.peak_requested()),
            refused_bytes: replays.job.refused,
            as_recorded: agreement.map(|agreement| AsRecorded {
                addresses: agreement.addresses,
                segments: agreement.segments,
                segments_freed: agreement.segments_freed,
                unrecorded_count: agreement.unrecorded,
                first_divergence: agreement.first.as_ref(),
                peak_reserved_bytes: agreement.outcome.peak.reserved,
                peak_allocated_bytes: agreement.outcome.peak.in_use,
                retry_count: agreement.retries,
            }),
            replays: replays.runs.iter().map(|run| Tried::of(run, replays)).collect(),
            agreement,
        }
    }
}

/// What became of a job under one allocator.
#[derive(Serialize)]
struct Tried<'a> {
    policy: &'a str,
    survived: bool,
    peak_reserved_bytes: Bytes,
    peak_allocated_bytes: Bytes,
    wasted_bytes: Bytes,
    /// The share of what was cached at the end that was not in its largest piece.
    fragmentation_at_end_percent: f64,
    retry_count: u64,
    device_allocation_count: u64,
    device_free_count: u64,
    /// Where memory did not suffice.
    out_of_memory: Option<Ended>,
}

#[derive(Serialize)]
struct Ended {
    /// Null where not even what the job had at its start found room.
    event_index: Option<u32>,
    #[serde(flatten)]
    shortage: gpu_allocator_policy::Shortage,
    fragmented: bool,
    saved_by: Vec<SavedBy>,
}

#[derive(Serialize)]
struct SavedBy {
    setting: String,
    peak_reserved_bytes: Bytes,
}

impl<'a> Tried<'a> {
    fn of(run: &'a Run, replays: &Replays<'_>) -> Self {
        let (outcome, end) = (&run.trial.outcome, &run.trial.end);
        let ended = |stop: Stop| Ended {
            event_index: stop.step.and_then(|step| replays.job.granted.events.get(step).copied()),
            shortage: stop.shortage,
            fragmented: stop.shortage.is_fragmented(),
            saved_by: run
                .helpful_settings
                .iter()
                .map(|(setting, trial)| SavedBy {
                    setting: setting.clone(),
                    peak_reserved_bytes: trial.outcome.peak.reserved,
                })
                .collect(),
        };
        Tried {
            policy: &run.title,
            survived: outcome.survived(),
            peak_reserved_bytes: outcome.peak.reserved,
            peak_allocated_bytes: outcome.peak.in_use,
            wasted_bytes: outcome.wasted(),
            fragmentation_at_end_percent: end.fragmentation() * 100.0,
            retry_count: end.retries,
            device_allocation_count: end.device_allocations,
            device_free_count: end.device_frees,
            out_of_memory: outcome.stop.map(ended),
        }
    }
}

/// What recorded jobs need.
#[derive(Serialize)]
pub struct Fitted<'a> {
    schema: u32,
    context_bytes: Bytes,
    device_memory_bytes: Option<Bytes>,
    jobs: Vec<Fit<'a>>,
    /// Sets of jobs that fit on the device together and to which no other can be added; null where
    /// no device was named.
    together: Option<Vec<Together<'a>>>,
}

/// Jobs that fit on a device together.
#[derive(Serialize)]
struct Together<'a> {
    files: Vec<&'a str>,
    /// What they need, with their CUDA contexts.
    mem_mib: u64,
}

impl<'a> Fitted<'a> {
    /// Returns what is told of jobs with such a CUDA context, on such a device where one is named,
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
            schema: SCHEMA,
            context_bytes: context,
            device_memory_bytes: device_memory,
            jobs,
            together,
        }
    }
}

/// What a job needs.
#[derive(Serialize)]
pub struct Fit<'a> {
    file: &'a str,
    device_index: u32,
    event_count: usize,
    live_bytes: Bytes,
    /// What the request asked for with which the recorded job ended; it is counted.
    refused_bytes: Option<Bytes>,
    /// What the first allocator needs, with the CUDA context, in whole MiB: for `run --mem`.
    mem_mib: u64,
    policies: Vec<Least<'a>>,
}

#[derive(Serialize)]
struct Least<'a> {
    policy: &'a str,
    least_bytes: Bytes,
    /// Whether no smaller device does.
    exact: bool,
    wasted_bytes: Bytes,
    unlimited_reserved_bytes: Bytes,
    replay_count: usize,
    /// The least as a share of the device, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    share_percent: Option<f64>,
}

impl<'a> Fit<'a> {
    /// Returns what is told of a job with such a CUDA context, on such a device where one is named.
    pub fn of(needs: &'a Needs, context: Bytes, device_memory: Option<Bytes>) -> Self {
        let least = |(title, need, _): &'a (String, Need, _)| Least {
            policy: title,
            least_bytes: need.least,
            exact: need.exact,
            wasted_bytes: need.tight.wasted(),
            unlimited_reserved_bytes: need.unlimited.peak.reserved,
            replay_count: need.replays,
            share_percent: device_memory.map(|total| 100.0 * need.least.0 as f64 / total.0 as f64),
        };
        Fit {
            file: &needs.file,
            device_index: needs.device,
            event_count: needs.events,
            live_bytes: needs.live,
            refused_bytes: needs.refused,
            mem_mib: needs.with_context(context, device_memory).mib(),
            policies: needs.by_policy.iter().map(least).collect(),
        }
    }
}
