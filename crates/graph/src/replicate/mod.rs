//! Data-parallel training: copies of a graph on several devices that exchange their gradients.
//!
//! [`data_parallel`] copies a graph and inserts the reduction of its gradients, [`choose`] selects
//! ring or tree from the topology, and [`executors`] splits a batch over a list of contexts without
//! changing the graph.

mod contexts;
mod gradient;
mod parallel;
mod reduction;
mod steps;

pub use contexts::{Context, ContextError, Executor, executors, split_batch};
pub use gradient::{Gradient, gradients};
pub use parallel::{Replicas, ReplicateError, data_parallel};
pub use reduction::{Reduction, Selection, choose, ring_nanos, tree_nanos};
pub use steps::{ADD, COPY, JOIN, SCALE, SPLIT, register};
