//! `gpuws mem convert --json`.

use super::Version;
use gpu_memory_trace::trace::{Format, Recording};
use serde::Serialize;

/// A memory recording that was converted.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Converted {
    /// Version of this object's format.
    pub schema: Version,
    /// Path of the file that was written.
    pub file: String,
    /// Format of the recording that was read.
    pub recorded_by: Format,
    /// The contents, by device.
    pub devices: Vec<Counts>,
}

/// What a recording contains of a device.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Number of the device in the recording.
    pub index: u32,
    /// Number of events.
    pub event_count: usize,
    /// Number of segments held at the end. Missing if the recording does not contain them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_count: Option<usize>,
}

impl Converted {
    /// Returns the object for a recording that was written into a file.
    pub fn of(file: &str, recording: &Recording) -> Self {
        let counts = recording.devices.iter().map(|trace| Counts {
            index: trace.device,
            event_count: trace.events.len(),
            segment_count: trace.segments.as_ref().map(Vec::len),
        });
        Converted {
            schema: Version,
            file: file.to_owned(),
            recorded_by: recording.format,
            devices: counts.collect(),
        }
    }
}
