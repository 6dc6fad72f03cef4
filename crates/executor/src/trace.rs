//! When and where each node ran.

use crate::graph::NodeIx;

/// A sequence in which nodes run: a thread, or a stream of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    /// The process or device that it belongs to.
    pub process: String,
    /// Its name.
    pub name: String,
}

/// One run of a node, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The node.
    pub node: NodeIx,
    /// The index of its lane in the trace.
    pub lane: u32,
    /// When it started.
    pub start_nanos: u64,
    /// When it ended.
    pub end_nanos: u64,
}

/// A run: its lanes and the spans on them, in order of start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Threads or streams.
    pub lanes: Vec<Lane>,
    /// Runs of nodes.
    pub spans: Vec<Span>,
}

impl Trace {
    /// Returns when the last node ended, in nanoseconds.
    pub fn makespan_nanos(&self) -> u64 {
        self.spans.iter().map(|span| span.end_nanos).max().unwrap_or(0)
    }
}
