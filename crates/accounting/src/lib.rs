//! Accounts of GPU time, memory and energy, from a series of snapshots.
//!
//! The main decision is that every GPU-hour and every joule is booked exactly once. The interval
//! between two snapshots is divided, in whole nanoseconds, among the holders of a GPU, and
//! unattributed amounts have a row of their own. So the rows of users, jobs, GPUs and days each add
//! up to the same totals, and two processes or users that share a GPU are not both charged for all
//! of it. Time without observation is not booked but listed as a gap.
//!
//! | amount | definition | source |
//! |---|---|---|
//! | held | a GPU with memory of listed processes, or with unlisted memory, for the length of the interval; divided in proportion to the memory. Processes that only draw hold none. A GPU without such memory is held by its lease | NVML's process lists, `gpuws leases` |
//! | used | the share of the interval in which kernels of the process ran, scaled down if the shares of a GPU exceed 100 %; where only the GPU's utilization is known, the remainder is divided like the held time | `nvmlDeviceGetProcessUtilization`, else `nvmlDeviceGetUtilizationRates` |
//! | idle | the held time without compute by the process | the same |
//! | peak | the peak memory, over all GPUs together | NVML's process lists |
//! | energy | the energy of the GPU, divided like the used time; the rest is unattributed | `nvmlDeviceGetTotalEnergyConsumption` at both ends, else the mean of the two power draws |
//!
//! The later of two snapshots describes the interval between them, because NVML reports past
//! utilization. The accumulator keeps totals for each user, job, GPU and day, but no snapshots.
//!
//! ```
//! use gpu_accounting::{Accounts, Day};
//! use gpu_core::{Origin, Snapshot, Timestamp};
//! use std::time::Duration;
//!
//! let day = Day { year: 2026, month: 11, day: 24 };
//! let mut accounts = Accounts::new(Duration::from_secs(300));
//! for second in [0, 1, 2, 4_000] {
//!         let snapshot = Snapshot::empty(Origin::Live, Timestamp(second * 1_000));
//!         accounts.add(&snapshot, &[], day);
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
