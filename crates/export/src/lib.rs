//! Metrics for Prometheus: the values exported from a snapshot of a machine, and the server that
//! Prometheus scrapes.
//!
//! The main decision is that each scrape takes a snapshot. No data is read between scrapes, and a
//! value that a snapshot could not read is missing from the page, never zero. [`Observation::metrics`] is
//! a function from plain data to [`Metrics`]; [`Server`] answers HTTP with the pages of a
//! [`Sampler`], which runs on its own thread. A driver that hangs therefore costs the scrape its
//! values and not its answer: `gpuws_up 0` comes within the time that Prometheus allows.
//!
//! The data that only gpuws has comes first: memory that no listed process explains, holders,
//! findings, leases, the queue, reaped processes. The ordinary figures of the GPUs, which other
//! exporters have too, can be left out ([`Shown`]). The families are in one
//! [table](Metric::family), and prometheus-client writes both text formats.

mod catalog;
mod context;
mod exporter;
mod findings;
mod gpus;
mod jobs;
mod labels;
mod leases;
mod metrics;
mod observation;
mod reaps;
mod server;
mod users;
mod waits;

pub use catalog::{Family, Kind, Metric};
pub use exporter::{Exported, Exporter, Ports};
pub use jobs::JobFiles;
pub use metrics::{Format, Metrics};
pub use observation::{Observation, Shown};
pub use reaps::Reaps;
pub use server::{Limits, Sampler, Server};
pub use waits::Waits;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
