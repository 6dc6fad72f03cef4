//! Accounts of GPU time, memory and energy, from a series of snapshots.
//!
//! The main decision is that every GPU-hour and every joule is booked once. The interval between
//! two snapshots is divided, in whole nanoseconds, among those who hold a GPU in it, and what
//! belongs to nobody has a row of its own. So the rows of the users, of the jobs, of the GPUs and of
//! the days each add up to the same totals, and nobody is charged twice because two processes, or
//! two users, share a GPU. What was not watched is not booked: it is listed as a gap.
//!
//! | amount | definition | source |
//! |---|---|---|
//! | held | a GPU with memory of listed processes, or with memory that nobody lists, for the time of the interval; divided in proportion to the memory. Processes that only draw hold none. A GPU that nobody has memory of is held by its lease | NVML's process lists, `gpuws leases` |
//! | used | the share of the interval in which kernels of the process ran, scaled down if the shares of a GPU exceed 100 %; where only the GPU's utilization is known, what of it is left is divided as the held time | `nvmlDeviceGetProcessUtilization`, else `nvmlDeviceGetUtilizationRates` |
//! | idle | the part of the held time in which the process did not compute | the same |
//! | peak | the most memory at once, on all GPUs together | NVML's process lists |
//! | energy | that of the GPU, divided as the used time; the rest is not attributed | `nvmlDeviceGetTotalEnergyConsumption` at both ends, else the mean of the two power draws |
//!
//! The later of two snapshots describes the interval between them, because NVML's utilization looks
//! back. The accumulator keeps numbers for each user, job, GPU and day, and no snapshots.
//!
//! ```
//! use gpu_accounting::{Accounts, Day};
//! use gpu_core::{Origin, Snapshot, Timestamp};
//! use std::time::Duration;
//!
//! let day = Day { year: 2026, month: 11, day: 24 };
//! let mut accounts = Accounts::new(Duration::from_secs(300));
//! for second in [0, 1, 2, 4_000] {
//!     let look = Snapshot::empty(Origin::Live, Timestamp(second * 1_000));
//!     accounts.add(&look, &[], day);
//! }
//! assert_eq!(accounts.watched(), Duration::from_secs(2));
//! assert_eq!(accounts.gaps().time, Duration::from_secs(3_998));
//! ```

mod accounts;
mod amounts;
mod division;
mod owner;
mod series;

pub use accounts::{Accounts, GpuAccount};
pub use amounts::{Amounts, Day, Energy, Gap, Gaps};
pub use owner::{Owner, Work};
pub use series::{Bucket, Part, Series};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
