//! What a job did with device memory, as recorded.

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
pub use error::{Place, Problem, TraceError};
pub use gpu_allocator_policy::{RecordedBlock, Segment, SegmentKind};
pub use native::Writer;
pub use stacks::{Frame, StackId, Stacks};

use gpu_core::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that a file tells about the memory of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Which program recorded, also where the file was converted since.
    pub format: Format,
    /// The settings of the allocator, by the names of its framework
    /// (`max_split_size` → `-1`, `roundup_power2_divisions` → `1:0,2:0,…`), where the file has them.
    pub settings: BTreeMap<String, String>,
    /// A trace for each device of which the file tells anything, by device.
    pub devices: Vec<DeviceTrace>,
    /// Where in the program memory was asked for, as far as the file tells it.
    pub stacks: Stacks,
}

/// How much reading a file may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file; of a pickle never more than 2 GiB.
    pub bytes: u64,
    /// Bytes of memory beside those of the file. Where it is `None`, seven times the file and
    /// 16 MiB, and not more than 4 GiB; the recording of a real job takes two to three times the file.
    pub memory: Option<u64>,
}

impl Default for Limits {
    /// Returns limits that no recording of a real job reaches: 2 GiB, and memory as is usual.
    fn default() -> Self {
        Limits { bytes: 1 << 31, memory: None }
    }
}

impl Recording {
    /// Reads a file of any format; which one it is, is told from its content.
    ///
    /// # Errors
    /// [`TraceError`] with the place in the file, where it is of no known format, cut off or
    /// inconsistent, or beyond the default [`Limits`].
    pub fn read(bytes: &[u8]) -> Result<Self, TraceError> {
        Recording::read_within(bytes, Limits::default())
    }

    /// Makes sure that what the devices held fits together: blocks without gaps in their segments,
    /// segments that do not overlap. What [`Recording::read`] returns does.
    ///
    /// # Errors
    /// [`TraceError`] that names the first segment that does not.
    pub fn check(&self) -> Result<(), TraceError> {
        self.devices.iter().try_for_each(check::device)
    }

    /// Reads a file of any format that holds no more than it may.
    ///
    /// # Errors
    /// As [`Recording::read`].
    pub fn read_within(bytes: &[u8], limits: Limits) -> Result<Self, TraceError> {
        if bytes.len() as u64 > limits.bytes {
            let problem = Problem::TooMuch { what: "bytes", limit: limits.bytes };
            return Err(TraceError::new(Place::Whole, problem));
        }
        match bytes {
            [] => {
                let what = "it is empty".to_owned();
                Err(TraceError::new(Place::Whole, Problem::Truncated { what }))
            }
            // Protocol 2 and later say so; PyTorch writes no other.
            [0x80, ..] => torch::read(bytes, limits),
            [b'{', ..] => native::read(bytes, limits),
            _ if rmm::is_log(bytes) => rmm::read(bytes, limits),
            // The first two protocols begin with any opcode, and all end with STOP.
            [b'(' | b']' | b'}' | b'c', ..] | [.., b'.'] => torch::read(bytes, limits),
            _ => Err(TraceError::new(Place::Whole, Problem::UnknownFormat)),
        }
    }
}

/// Which program recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A program that writes the project's own lines of JSON.
    #[default]
    Own,
    /// PyTorch's `torch.cuda.memory._dump_snapshot`.
    TorchSnapshot,
    /// RMM's log of CSV lines.
    RmmLog,
    /// The dump of bins and chunks in a log of TensorFlow or XLA.
    BfcDump,
}

/// What was recorded of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceTrace {
    /// The number that the program gave the device.
    pub device: u32,
    /// All memory of the device, where the file tells it.
    pub total: Option<Bytes>,
    /// What the allocator held when the recording ended; `None` where the file does not tell.
    pub segments: Option<Vec<Segment>>,
    /// What happened, in order. It may begin in the middle of a job.
    pub events: Vec<Event>,
    /// Where in the program each of the events happened; empty where the file tells it of none.
    pub event_stacks: Vec<Option<StackId>>,
    /// Where in the program the blocks of the segments that are handed out were asked for, by
    /// address, as far as the file tells it.
    pub block_stacks: BTreeMap<u64, StackId>,
    /// Spans that the program or its framework marked, in order.
    pub annotations: Vec<Annotation>,
}

/// The begin or the end of a span that a program marked, such as a step of an optimizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// What the span is called.
    pub name: Arc<str>,
    /// Whether it begins; else it ends.
    pub begins: bool,
    /// When, in microseconds since 1970.
    pub time_us: u64,
}

/// Something that happened to the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Where the memory begins; for [`Action::OutOfMemory`], what the device had left, or
    /// [`Event::NOT_TOLD`].
    pub address: u64,
    /// How much memory; of an allocation, what was asked for.
    pub size: u64,
    /// On which stream.
    pub stream: u64,
    /// When, in microseconds since 1970, in RMM's log since the midnight before it began; 0 where
    /// the recording has no clock.
    pub time_us: u64,
}

impl Event {
    /// What is in [`address`](Event::address) where memory did not suffice and the recording does
    /// not tell what the device had left.
    pub const NOT_TOLD: u64 = u64::MAX;

    /// Returns what the device had left, of an event that memory did not suffice; `None` for
    /// others and where the recording does not tell it.
    pub fn device_free(&self) -> Option<u64> {
        let told = self.action == Action::OutOfMemory && self.address != Event::NOT_TOLD;
        told.then_some(self.address)
    }
}

/// What happened, by PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The program got memory.
    Alloc,
    /// The program gave memory back; work on the device may still use it.
    FreeRequested,
    /// Memory that was given back is free.
    FreeCompleted,
    /// The device gave a region.
    SegmentAlloc,
    /// A region went back to the device.
    SegmentFree,
    /// Pages were put behind addresses of an expandable segment.
    SegmentMap,
    /// Pages of an expandable segment went back.
    SegmentUnmap,
    /// Memory did not suffice.
    #[serde(rename = "oom")]
    OutOfMemory,
    /// The recording was written.
    Snapshot,
}
