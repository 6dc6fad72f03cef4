//! GPU memory allocators as policies over a port.
//!
//! The allocators of nearly all GPU jobs are implemented exactly, as sub-allocators over
//! [`gpu_core::DeviceMemory`], instead of being approximated by a formula. The memory that a job
//! takes from a device depends on the order of its requests and on every rule of its allocator: a
//! single different split moves all later blocks. A formula for this cannot be verified, but exact
//! rules can: every block of a recorded job must get its recorded address. A policy sees only the
//! port, never the device. The same code therefore serves a Rust program on a real GPU and replays
//! a job on a [`ModelMemory`] (gpu-memory-trace), so the memory that the job would take is
//! computed, not estimated. The price is that each new rule of a framework must be implemented
//! here; a comparison with a recording shows the first difference.
//!
//! ```
//! use gpu_allocator_policy::{Caching, ModelMemory, Policy, Stream};
//! use gpu_core::Bytes;
//!
//! let device = ModelMemory::new(Bytes::from_mib(64));
//! let mut policy = Caching::new(device, "max_split_size_mb:32".parse()?)?;
//! let tensor = policy.allocate(Bytes::from_mib(3), Stream(0))?;
//! assert_eq!((policy.in_use().mib(), policy.reserved().mib()), (3, 20));
//! policy.free(tensor)?;
//! assert_eq!(policy.empty_cache()?, Bytes::from_mib(20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/memory.md` describes the rules of each policy with worked examples, and the meaning of
//! each statistic.

pub mod bfc;
mod blocks;
pub mod caching;
mod config;
mod direct;
#[cfg(test)]
mod effort;
mod failure;
mod free_set;
mod ledger;
mod model;
mod owner;
mod policy;
mod segment;
pub mod stream_ordered;
mod totals;

pub use bfc::Bfc;
pub use caching::Caching;
pub use config::{PolicyConfig, PolicyConfigError};
pub use direct::Direct;
pub use failure::{Failure, Shortage};
pub use model::ModelMemory;
pub use policy::{Allocation, BlockMap, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
pub use segment::{RecordedBlock, Segment, SegmentKind};
pub use stream_ordered::StreamOrdered;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
