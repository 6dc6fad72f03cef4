//! A schedule: the processor and the time of each item, and the reason.

use gpu_core::{Bytes, amount};
use std::fmt;
use std::sync::Arc;

/// The processor and the time of each item.
///
/// The model: a processor runs one item at a time, to its end. A value that another processor needs
/// is copied there once, after the item that made it has ended; the copy overlaps with work. With
/// [`Cluster::one_port`](super::Cluster::one_port), a processor sends one value at a time and
/// receives one at a time. An input without a value, from another processor, waits for the latency
/// of the route.
///
/// The memory of a processor holds the persistent bytes of its items all the time, the workspace of
/// an item while it runs, each output from the start of its item to the end of its last use there
/// (reading or sending), and each copy from the start of its transfer to the end of its last use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The processor and the time of each item.
    pub slots: Vec<Slot>,
    /// The copies between processors, by start.
    pub transfers: Vec<Transfer>,
    /// The end of the last item, in nanoseconds.
    pub makespan_nanos: u64,
    /// For each processor, the most memory in use at one time.
    pub peaks: Vec<Bytes>,
    /// For each item, the reason for its processor.
    pub reasons: Vec<Choice>,
}

/// The processor and the time of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The processor, by index.
    pub processor: u32,
    /// The start, in nanoseconds.
    pub start_nanos: u64,
    /// The end, in nanoseconds.
    pub end_nanos: u64,
}

/// The copy of a value to another processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transfer {
    /// The start, in nanoseconds.
    pub start_nanos: u64,
    /// The end, in nanoseconds.
    pub end_nanos: u64,
    /// The item that made the value.
    pub item: u32,
    /// The index of the output.
    pub output: u32,
    /// The source processor.
    pub from: u32,
    /// The destination processor.
    pub to: u32,
    /// The size.
    pub bytes: Bytes,
}

/// The reason why an item runs on its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// It is fixed there.
    Fixed,
    /// It can run on no other.
    Only,
    /// An item of its group runs there.
    Group,
    /// Among the processors with enough memory, it was best there at its turn.
    Earliest {
        /// The second-best processor, and the end of the item there.
        next: Option<(u32, u64)>,
    },
    /// A search over complete schedules found it best there.
    Searched,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Fixed => f.write_str("fixed there"),
            Choice::Only => f.write_str("cannot run on any other processor"),
            Choice::Group => f.write_str("an item of its group runs there"),
            Choice::Earliest { next: None } => f.write_str("no other processor has enough memory"),
            Choice::Earliest { next: Some((processor, nanos)) } => {
                write!(f, "next best is processor {processor}, ending at {nanos} ns")
            }
            Choice::Searched => f.write_str("found by the search over complete schedules"),
        }
    }
}

/// A processor with too little memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Its name.
    pub processor: Arc<str>,
    /// How much more memory it would need.
    pub bytes: Bytes,
}

/// A graph that cannot be scheduled. Each completes 'failed to schedule the graph: …'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// An input names an item or an output that does not exist, or a time is missing.
    #[error("'{item}' has an input, a device or a time that does not exist")]
    Malformed {
        /// The item.
        item: Arc<str>,
    },
    /// Items form a cycle.
    #[error("items in a cycle: {}", .items.join(", "))]
    Cycle {
        /// Some of them.
        items: Vec<String>,
    },
    /// No processor can run the item.
    #[error("no device can run '{item}' as it requests")]
    Infeasible {
        /// The item.
        item: Arc<str>,
    },
    /// No processor can run all items of a group.
    #[error("no device can run every item that must share a device with '{item}'")]
    Group {
        /// The first item of the group.
        item: Arc<str>,
    },
    /// No processor has enough memory.
    #[error("no memory for '{item}': {}", lacking(.lacks))]
    Memory {
        /// The item.
        item: Arc<str>,
        /// The missing memory of each processor that can run it.
        lacks: Vec<Lack>,
    },
    /// The graph is too large for an exact search.
    #[error("{items} items are too many for an exact search (at most {max})")]
    TooLarge {
        /// The number of items.
        items: usize,
        /// The limit.
        max: usize,
    },
}

fn lacking(lacks: &[Lack]) -> String {
    let each = |lack: &Lack| format!("{} lacks {}", lack.processor, amount(lack.bytes));
    lacks.iter().map(each).collect::<Vec<_>>().join(", ")
}
