//! GPU memory allocators as policies over a port.
//!
//! The main decision is that the allocators on which nearly all GPU jobs run are implemented
//! exactly, as sub-allocators over [`gpu_core::DeviceMemory`], and not approximated by a formula.
//! What a job takes of a device follows from the order of its requests and from every rule of its
//! allocator: one block that is split otherwise moves all that come after it. A formula for that
//! cannot be checked, and exact rules can: a recorded job must get each block at the address that
//! it had. And since a policy sees nothing of a device but the port, the code that serves a Rust
//! program on a real GPU is the code under which gpu-memory-trace replays a job on a
//! [`ModelMemory`]: what the job would take is computed, not estimated. The price is that a
//! framework's next rule must be followed here; a comparison with a recording names the first
//! decision that differs.
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
//! `docs/memory.md` tells the rules of each policy with worked examples, and what each statistic
//! means.

pub mod bfc;
mod blocks;
pub mod caching;
mod choice;
mod direct;
mod failure;
mod free_set;
mod ledger;
mod logical;
mod model;
mod owner;
mod policy;
mod segment;
mod shared;
pub mod stream_ordered;
mod totals;

pub use bfc::Bfc;
pub use caching::Caching;
pub use choice::{Choice, ChoiceError};
pub use direct::Direct;
pub use failure::{Failure, Shortage};
pub use logical::Logical;
pub use model::ModelMemory;
pub use policy::{Allocation, BlockMap, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
pub use segment::{RecordedBlock, Segment, SegmentKind};
pub use shared::{Aside, Buffer, Shared};
pub use stream_ordered::StreamOrdered;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
