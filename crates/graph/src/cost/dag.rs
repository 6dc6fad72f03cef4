//! The work of a graph as plain numbers.

use gpu_core::Bytes;
use std::sync::Arc;

/// Items of work and the values that flow between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dag {
    /// The items. An index into them identifies an item.
    pub items: Vec<Item>,
}

/// One item of work, such as an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// Its name, for messages.
    pub name: Arc<str>,
    /// The inputs that it waits for.
    pub inputs: Vec<Input>,
    /// The size of each output.
    pub outputs: Vec<Bytes>,
    /// The time that it takes on each processor, in nanoseconds; `None` where it cannot run.
    pub nanos: Vec<Option<u64>>,
    /// Memory that it needs only while it runs.
    pub workspace: Bytes,
    /// Memory that it occupies on its processor all the time, such as a variable.
    pub persistent: Bytes,
    /// Whether its outputs are in its persistent memory, as the weights of a model are: they occupy
    /// no other memory on its processor, but their copies do on others.
    pub keeps_outputs: bool,
    /// Items with the same group run on one processor.
    pub group: Option<u32>,
    /// The processor that it must run on.
    pub fixed: Option<u32>,
}

/// An input that an item waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Input {
    /// The item that must have run before.
    pub item: u32,
    /// The index of the required output; `None` for order only.
    pub output: Option<u32>,
}

impl Input {
    /// Returns an input that needs an output of an item.
    pub const fn value(item: u32, output: u32) -> Self {
        Input { item, output: Some(output) }
    }

    /// Returns an input that only determines the order.
    pub const fn order(item: u32) -> Self {
        Input { item, output: None }
    }
}
