//! Placing a graph by its costs: when and where each operation runs, by simulation.
//!
//! A [`Dag`] holds the costs and outputs of operations, a [`Cluster`] the processors and the routes
//! between them. [`list_schedule`] chooses a processor and a time for every item, [`optimal`] finds
//! the best schedule of a small graph, and [`verify`] checks any schedule independently of the code
//! that made it. The three share one model of time, transfers and memory, which [`Schedule`]
//! describes.

mod cluster;
mod dag;
mod estimate;
mod improve;
mod list;
mod machine;
mod memory;
mod optimal;
mod partial;
mod placer;
mod problem;
mod rank;
mod schedule;
mod timeline;
mod verify;

pub use cluster::{Cluster, Processor};
pub use dag::{Dag, Input, Item};
pub use estimate::{EstimateError, Estimates, estimate};
pub use list::list_schedule;
pub use machine::Gpu;
pub use optimal::{MAX_ITEMS, Optimum, optimal};
pub use schedule::{Choice, Lack, Schedule, ScheduleError, Slot, Transfer};
pub use verify::{Violation, verify};

#[cfg(test)]
mod random;
