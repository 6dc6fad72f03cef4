//! Runs graphs of operations: on threads, on streams of devices, or in virtual time.
//!
//! The main decision is to convert a graph once into a compact list of successors and counts. Every
//! executor traverses this list by the same rule: a node runs once, after all its predecessors.

mod cancel;
mod context;
mod costs;
mod error;
mod graph;
mod lock;
mod meter;
mod operation;
mod pool;
mod program;
mod ran;
mod run;
mod shared;
mod simulated;
mod split;
mod streams;
mod tensor;
mod threads;
mod timeline;
mod trace;
mod values;

pub use cancel::Cancel;
pub use context::Context;
pub use costs::{VirtualError, schedule_trace, task_graph};
pub use error::RunError;
pub use graph::{GraphError, MAX_NODES, NodeIx, TaskGraph};
pub use meter::{OverLimit, RunLimits};
pub use operation::OpError;
pub use pool::Pool;
pub use program::{Fetched, Outcome, Program, ProgramError, ProgramOptions};
pub use ran::{PlacedGraph, Ran, RanError, run_placed};
pub use run::{Options, Report};
pub use simulated::{Placed, PlacedError, Virtual, VirtualDevice};
pub use streams::{Step, StreamError, StreamPlan, Streams};
pub use tensor::{Data, Tensor};
pub use timeline::{chrome, svg};
pub use trace::{Lane, Span, Trace};
pub use values::{Io, Port, ValueError, Values};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
