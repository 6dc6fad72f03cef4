//! Recordings of jobs' GPU memory, replayed under any allocator.
//!
//! Recordings are replayed instead of added up. Sums of a job's requests do not show how it would
//! run under another allocator, setting or limit, because a single different split moves all later
//! blocks. A [`Recording`](trace::Recording) of any format is therefore converted to a
//! [`Workload`], which has the requests of the job without the decisions of its allocator. A
//! [`Replay`] passes them to a [`Policy`](gpu_allocator_policy::Policy) one by one. This computes,
//! rather than estimates, the peak of a job ([`trial`]), the minimum memory that it needs
//! ([`need`]) and the settings that would have prevented its failure ([`helpful_settings`]). Under
//! the policy that recorded it, every block must get its recorded address ([`compare`]), which
//! verifies the rules themselves. [`Timeline`] draws a replay.
//!
//! ```
//! use gpu_allocator_policy::PolicyConfig;
//! use gpu_memory_trace::trace::Recording;
//! use gpu_memory_trace::{Workload, need, trial};
//!
//! // 12 MiB are allocated and freed, then 14 MiB are allocated.
//! let recording = Recording::read(
//!     br#"{"schema":1,"kind":"memory-trace"}
//! {"event":{"action":"alloc","address":4096,"size_bytes":12582912}}
//! {"event":{"action":"free_requested","address":4096,"size_bytes":12582912}}
//! {"event":{"action":"free_completed","address":4096,"size_bytes":12582912}}
//! {"event":{"action":"alloc","address":4096,"size_bytes":14680064}}
//! "#,
//! )?;
//! let workload = Workload::of(&recording.devices[0], &recording.stacks)?;
//!
//! // With enough memory, PyTorch's allocator keeps the first block in addition to the second.
//! let caching = PolicyConfig::named("caching")?;
//! let roomy = trial(&workload, &caching, None, &mut ())?;
//! assert_eq!(roomy.outcome.peak.reserved.mib(), 26);
//! assert_eq!(need(&workload, &caching)?.least.mib(), 14);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files are untrusted: reading takes time and memory in proportion to their size, and a pickle is
//! parsed as data. `docs/memory-trace.md` describes the formats, and `docs/memory.md` the meaning
//! of the results. `examples/embed.rs` is a program that records its allocations and computes the
//! memory that it needs.

mod agreement;
mod comparison;
mod initial_state;
mod job;
mod need;
mod pages;
mod private_pools;
mod recorded;
mod replay;
mod results;
mod sparkline;
mod timeline;
pub mod trace;
mod unmatched;
mod workload;

pub use agreement::{Agreement, CompareError, compare};
pub use comparison::{Trial, helpful_settings, trial};
pub use initial_state::{Contradiction, Start, start};
pub use job::{Job, JobError, OnDevice};
pub use need::{Need, need, together};
pub use recorded::{Divergence, Tally};
pub use replay::{Level, Observer, Outcome, Replay, Stop};
pub use results::{Fitting, Needs, Replays, Run};
pub use sparkline::Sparkline;
pub use timeline::{Timeline, page};
pub use workload::{InitialAllocation, Step, StepKind, Workload, WorkloadError};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
