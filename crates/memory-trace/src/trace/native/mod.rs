//! The project's own format: JSON lines, described in docs/memory-trace.md.

mod reader;
mod writer;

pub(super) use reader::read;
pub use writer::Writer;

use super::{Action, Event, Format, SegmentKind, StackId};
use gpu_allocator_policy::BlockState;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The version that is written, and the newest that can be read.
const SCHEMA: u64 = 1;

/// The kind of file in the first line.
const KIND: &str = "memory-trace";

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    schema: u64,
    kind: String,
    #[serde(default)]
    recorded_by: Format,
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

/// Every other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    #[serde(borrow)]
    Frame(FrameLine<'a>),
    /// The indexes of frames, innermost first.
    Stack(Vec<u32>),
    Device(DeviceLine),
    Segment(SegmentLine),
    #[serde(borrow)]
    Annotation(AnnotationLine<'a>),
    Event(EventLine),
}

#[derive(Debug, Serialize, Deserialize)]
struct FrameLine<'a> {
    #[serde(borrow)]
    function: Cow<'a, str>,
    #[serde(borrow)]
    file: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_zero")]
    line: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct DeviceLine {
    device: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
    /// The number of segments; absent if the segments are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    segments: Option<u64>,
    /// The number of events, if known when the line was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SegmentLine {
    #[serde(default)]
    device: u32,
    address: u64,
    size_bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    stream: u64,
    #[serde(default)]
    pool: SegmentKind,
    #[serde(default, skip_serializing_if = "is_common")]
    private_pool: (u64, u64),
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    expandable: bool,
    blocks: Vec<BlockLine>,
}

/// A block; it starts where the previous one ends.
#[derive(Debug, Serialize, Deserialize)]
struct BlockLine {
    size_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requested_bytes: Option<u64>,
    state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stack: Option<u32>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", remote = "BlockState")]
enum StateName {
    Active,
    AwaitingFree,
    Free,
}

/// The state of a block, with the same names as in other JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct State(#[serde(with = "StateName")] BlockState);

#[derive(Debug, Serialize, Deserialize)]
struct AnnotationLine<'a> {
    #[serde(default)]
    device: u32,
    #[serde(borrow)]
    name: Cow<'a, str>,
    begins: bool,
    time_us: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct EventLine {
    action: Action,
    #[serde(default)]
    device: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    size_bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    stream: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    time_us: u64,
    /// The device's free memory when memory ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_free_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stack: Option<u32>,
}

impl EventLine {
    fn of(device: u32, event: &Event, stack: Option<StackId>) -> Self {
        let failed = event.action == Action::OutOfMemory;
        EventLine {
            action: event.action,
            device,
            address: (!failed).then_some(event.address),
            size_bytes: event.size,
            stream: event.stream,
            time_us: event.time_us,
            device_free_bytes: event.device_free(),
            stack: stack.map(|stack| stack.index() as u32),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_common(pool: &(u64, u64)) -> bool {
    *pool == (0, 0)
}
