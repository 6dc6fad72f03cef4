//! Data-parallel training: copies of a graph on several devices that exchange their gradients.
//!
//! [`replicate`] copies a graph to devices, selects ring or tree from the topology ([`choose`]),
//! inserts the reduction of the gradients ([`data_parallel`]), and splits a batch over the copies
//! ([`split_batch`]).

mod contexts;
mod devices;
mod gradient;
mod parallel;
mod reduction;
mod steps;

pub use contexts::{Context, ContextError, split_batch};
pub use devices::{Batch, replica_devices, replicate};
pub use gradient::{Gradient, gradients};
pub use parallel::{Replicas, ReplicateError, data_parallel};
pub use reduction::{Reduction, Selection, choose, ring_nanos, tree_nanos};
pub use steps::{ADD, COPY, JOIN, SCALE, SPLIT, register};
