//! Graphs of operations: the device of each operation, and the reason.
//!
//! The main decision is that a graph, the kernels that can run it, and the machine are three
//! separate pieces of plain data: a [`Graph`], a [`Registry`] of kernels by type of device, and a
//! list of [`Device`]s. Each placement is a pure function of the three, so it can be repeated,
//! compared and explained without the framework that wrote the graph.

mod build;
pub mod cost;
mod def;
mod device;
mod dtype;
mod graph;
mod node;
mod order;
pub mod placer;
pub mod read;
mod registry;
pub mod replicate;

pub use build::BuildError;
pub use def::{ArgDef, ArgKind, Attr, Content, FunctionDef, GraphDef, NodeDef, OpDef};
pub use device::{Device, DeviceSet, DeviceSpec};
pub use dtype::{Dtype, ValueType};
pub use graph::Graph;
pub use node::{Node, NodeId, Source};
pub use registry::{Kernel, Registry};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
