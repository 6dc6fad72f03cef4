//! Recordings of a job's device memory.

mod budget;
mod check;
mod dump;
mod error;
mod native;
mod pickle;
mod rmm;
mod stacks;
mod torch;

pub use dump::dumped;
pub use error::{Location, Problem, TraceError};
pub use gpu_allocator_policy::{RecordedBlock, Segment, SegmentKind};
pub use native::Writer;
pub use stacks::{Frame, StackId, Stacks};

use gpu_core::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The content of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The program that made the recording, even if the file has been converted since.
    pub format: Format,
    /// The settings of the allocator, under the names of its framework (`max_split_size` → `-1`,
    /// `roundup_power2_divisions` → `1:0,2:0,…`), if the file contains them.
    pub settings: BTreeMap<String, String>,
    /// A trace for each device in the file, by device.
    pub devices: Vec<DeviceTrace>,
    /// The stacks of requests, as far as the file contains them.
    pub stacks: Stacks,
}

/// The limits of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of the file; for a pickle at most 2 GiB.
    pub bytes: u64,
    /// Maximum bytes of memory in addition to the file itself. `None` means seven times the file
    /// plus 16 MiB, at most 4 GiB; real recordings take two to three times the file.
    pub memory: Option<u64>,
}

impl Default for Limits {
    /// Returns limits that no recording of a real job reaches: 2 GiB, and the default memory.
    fn default() -> Self {
        Limits { bytes: 1 << 31, memory: None }
    }
}

impl Recording {
    /// Reads a file of any supported format, detected by its content.
    ///
    /// # Errors
    /// [`TraceError`] with the place in the file, if the format is unknown, the file is truncated
    /// or inconsistent, or it exceeds the default [`Limits`].
    pub fn read(bytes: &[u8]) -> Result<Self, TraceError> {
        Recording::read_within(bytes, Limits::default())
    }

    /// Checks that the devices' segments are consistent: blocks without gaps, and segments that do
    /// not overlap. Results of [`Recording::read`] always are.
    ///
    /// # Errors
    /// [`TraceError`] that names the first inconsistent segment.
    pub fn check(&self) -> Result<(), TraceError> {
        self.devices.iter().try_for_each(check::device)
    }

    /// Reads a file of any supported format within these limits.
    ///
    /// # Errors
    /// Like [`Recording::read`].
    pub fn read_within(bytes: &[u8], limits: Limits) -> Result<Self, TraceError> {
        if bytes.len() as u64 > limits.bytes {
            let problem = Problem::TooMuch { what: "bytes", limit: limits.bytes };
            return Err(TraceError::new(Location::Whole, problem));
        }
        match bytes {
            [] => {
                let what = "it is empty".to_owned();
                Err(TraceError::new(Location::Whole, Problem::Truncated { what }))
            }
            // Protocol 2 and later start with this byte; PyTorch writes only these.
            [0x80, ..] => torch::read(bytes, limits),
            [b'{', ..] => native::read(bytes, limits),
            _ if rmm::is_log(bytes) => rmm::read(bytes, limits),
            // The first two protocols start with any opcode, and all end with STOP.
            [b'(' | b']' | b'}' | b'c', ..] | [.., b'.'] => torch::read(bytes, limits),
            _ => Err(TraceError::new(Location::Whole, Problem::UnknownFormat)),
        }
    }
}

/// Format of a memory recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "RecordingFormat"))]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// JSON Lines of this project.
    #[default]
    Own,
    /// PyTorch's torch.cuda.memory._dump_snapshot.
    TorchSnapshot,
    /// Log of the RAPIDS Memory Manager.
    RmmLog,
    /// Allocator dump in a log of TensorFlow or XLA.
    BfcDump,
}

/// The recording of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceTrace {
    /// The program's number for the device.
    pub device: u32,
    /// Total memory of the device, if the file contains it.
    pub total: Option<Bytes>,
    /// The segments held when the recording ended; `None` if the file does not contain them.
    pub segments: Option<Vec<Segment>>,
    /// The events, in order. They may start in the middle of a job.
    pub events: Vec<Event>,
    /// The stack of each event; empty if the file contains none.
    pub event_stacks: Vec<Option<StackId>>,
    /// The stacks that requested the blocks in use, by address, as far as the file contains them.
    pub block_stacks: BTreeMap<u64, StackId>,
    /// Spans that the program or its framework marked, in order.
    pub annotations: Vec<Annotation>,
}

/// The start or end of a span that a program marked, such as an optimizer step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The name of the span.
    pub name: Arc<str>,
    /// Whether the span starts here; otherwise it ends.
    pub begins: bool,
    /// The time, in microseconds since 1970.
    pub time_us: u64,
}

/// An event in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The action.
    pub action: Action,
    /// The start address; for [`Action::OutOfMemory`], the device's free memory, or
    /// [`Event::NOT_REPORTED`].
    pub address: u64,
    /// The size; for an allocation, the requested size.
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// The time in microseconds since 1970, or in RMM's log since the midnight before its start; 0
    /// if the recording has no times.
    pub time_us: u64,
}

impl Event {
    /// The value of [`address`](Event::address) when memory ran out and the recording lacks the
    /// device's free memory.
    pub const NOT_REPORTED: u64 = u64::MAX;

    /// Returns the device's free memory when memory ran out; `None` for other actions, or if the
    /// recording lacks it.
    pub fn device_free(&self) -> Option<u64> {
        let reported = self.action == Action::OutOfMemory && self.address != Event::NOT_REPORTED;
        reported.then_some(self.address)
    }
}

/// An action, named as in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// An allocation.
    Alloc,
    /// The program freed memory; work on the device may still use it.
    FreeRequested,
    /// Work no longer uses the freed memory.
    FreeCompleted,
    /// A region was taken from the device.
    SegmentAlloc,
    /// A region was returned to the device.
    SegmentFree,
    /// Pages of an expandable segment were mapped.
    SegmentMap,
    /// Pages of an expandable segment were unmapped.
    SegmentUnmap,
    /// Memory ran out.
    #[serde(rename = "oom")]
    OutOfMemory,
    /// The recording was written.
    Snapshot,
}

impl Action {
    /// Returns whether the allocator took memory from the device.
    pub(crate) fn takes(self) -> bool {
        matches!(self, Action::SegmentAlloc | Action::SegmentMap)
    }

    /// Returns whether the allocator returned memory to the device.
    pub(crate) fn gives_back(self) -> bool {
        matches!(self, Action::SegmentFree | Action::SegmentUnmap)
    }
}
