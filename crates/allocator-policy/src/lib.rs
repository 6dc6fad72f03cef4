//! GPU memory allocators as policies over a port.
//!
//! The main decision is that the allocators on which nearly all GPU jobs run are implemented
//! exactly, as sub-allocators over [`gpu_core::DeviceMemory`], and not approximated: the same code
//! serves a Rust program on a real GPU and replays a recorded job on a modelled one. What a job
//! would take under another policy or limit is therefore computed, not estimated.

mod agreement;
pub mod bfc;
mod blocks;
pub mod caching;
mod choice;
mod direct;
pub mod environment;
pub mod explain;
mod failure;
mod free_set;
mod logical;
mod model;
mod need;
mod owner;
mod policy;
mod recorded;
mod replay;
mod shared;
mod start;
pub mod stream_ordered;
mod sums;
mod timeline;
pub mod trace;
mod trial;
mod workload;

pub use agreement::{Agreement, CompareError, compare};
pub use bfc::Bfc;
pub use caching::Caching;
pub use choice::{Choice, ChoiceError};
pub use direct::Direct;
pub use failure::{Failure, Shortage};
pub use logical::Logical;
pub use model::ModelMemory;
pub use need::{Need, need, together};
pub use policy::{Allocation, BlockMap, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
pub use recorded::{Divergence, Tally};
pub use replay::{Level, Outcome, Replay, Stop, Witness};
pub use shared::{Buffer, Shared};
pub use start::{Contradiction, Start, start};
pub use stream_ordered::StreamOrdered;
pub use timeline::{Timeline, page};
pub use trial::{Trial, savers, trial};
pub use workload::{Held, Step, StepKind, Workload, WorkloadError};
