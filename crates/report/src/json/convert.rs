//! `gpuws mem convert --json`.

use super::SCHEMA;
use gpu_memory_trace::trace::{Format, Recording};
use serde::Serialize;

/// A recording that was converted.
#[derive(Serialize)]
pub struct Converted {
    schema: u32,
    file: String,
    recorded_by: Format,
    /// What it has of each device.
    pub devices: Vec<Counts>,
}

/// What a recording has of a device.
#[derive(Serialize)]
pub struct Counts {
    /// The device, by its number in the recording.
    pub index: u32,
    /// How many events.
    pub event_count: usize,
    /// Absent where the recording does not tell what was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_count: Option<usize>,
}

impl Converted {
    /// Returns what is told of a recording that was written into a file.
    pub fn of(file: &str, recording: &Recording) -> Self {
        let counts = recording.devices.iter().map(|trace| Counts {
            index: trace.device,
            event_count: trace.events.len(),
            segment_count: trace.segments.as_ref().map(Vec::len),
        });
        Converted {
            schema: SCHEMA,
            file: file.to_owned(),
            recorded_by: recording.format,
            devices: counts.collect(),
        }
    }
}
