//! Metrics for Prometheus: what of a look at a machine is exported, and the server that is scraped.
//!
//! The main decision is that a scrape is a look. Nothing is read between scrapes, and what a look
//! could not read is missing from the page, never zero. [`Look::metrics`] is a function from plain
//! data to [`Metrics`]; [`Server`] answers HTTP with the pages of a [`Looker`], a thread of its own,
//! so that a driver that hangs costs the scrape its values and not its answer: `gpuws_up 0` comes
//! within the time that Prometheus allows.
//!
//! What only gpuws knows comes first: memory that no listed process explains, holders, findings,
//! leases, the queue, what was reaped. The ordinary figures of the GPUs, which other exporters have
//! too, can be left out ([`Shown`]). The families are in one [table](Metric::family), and
//! prometheus-client writes both text formats.

mod catalog;
mod exporter;
mod findings;
mod gpus;
mod jobs;
mod labels;
mod leases;
mod look;
mod metrics;
mod reaps;
mod scene;
mod server;
mod users;
mod waits;

pub use catalog::{Family, Kind, Metric};
pub use exporter::{Exported, Exporter, Ports};
pub use jobs::JobFiles;
pub use look::{Look, Shown};
pub use metrics::{Format, Metrics};
pub use reaps::Reaps;
pub use server::{Limits, Looker, Server};
pub use waits::Waits;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
