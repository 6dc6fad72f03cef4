//! Data-parallel training: copies of a graph on several devices that exchange their gradients.
//!
//! [`replicate`] copies a graph to devices, selects ring or tree from the topology,
//! inserts the reduction of the gradients ([`data_parallel`]), and splits a batch over the copies
//! ([`Batch`]).

mod contexts;
mod devices;
mod gradient;
mod parallel;
mod reduction;
mod steps;

pub use contexts::ContextError;
pub use devices::{Batch, replica_devices, replicate};
pub use gradient::{Gradient, gradients};
pub use parallel::{Replicas, ReplicateError, data_parallel};
pub use reduction::Reduction;
pub use steps::{ADD, COPY, JOIN, SCALE, SPLIT, register};
