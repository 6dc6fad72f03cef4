//! Output of gpuws: versioned JSON, the rows of `status`, the formats of other tools, and the words
//! for enums.
//!
//! The main decision is that each printed object has its own type, separate from the domain types.
//! The JSON names therefore stay stable when the fields of the libraries change. Each object
//! carries `"schema": 1`; the name of a number contains its unit; an absent value is null, and a
//! field next to it has the reason. The formats of other tools keep their names and units, so
//! scripts that parse those tools can parse this output.
//!
//! With the feature `schema`, the module `schema` generates a JSON Schema from each type. Its doc
//! comments are the descriptions, so they name the unit and say when a value is null.
//!
//! All functions map plain data to plain data or text. The time zone and the names of users are
//! arguments.
//!
//! ```
//! use gpu_core::{Error, MachineFault};
//! use gpu_report::{Exit, fault};
//!
//! let error = Error::new(MachineFault::DriverNotLoaded, "initialise NVML");
//! assert_eq!(fault::brief(&error.fault()), "the NVIDIA kernel module is not loaded");
//! assert_eq!(Exit::of(error.kind(), false).code(), 3);
//! ```

pub mod ascii;
mod blind;
mod columns;
pub mod completion;
pub mod csv;
pub mod details;
mod exit;
pub mod fault;
mod filter;
pub mod findings;
pub mod gpustat;
pub mod hosts;
pub mod json;
pub mod local_time;
mod moment;
pub mod monitor;
#[cfg(feature = "place")]
pub mod placed;
mod readings;
mod release;
pub mod replay;
mod residents;
mod rows;
#[cfg(feature = "schema")]
pub mod schema;
pub mod smi;
pub mod text;
pub mod usage;
mod view;
pub mod watch;
pub mod wording;
pub mod write;

pub use blind::Blind;
pub use columns::{ALIASES as COLUMN_ALIASES, Columns};
pub use exit::Exit;
pub use filter::ProcessFilter;
pub use jiff::tz::TimeZone;
pub use moment::Moment;
pub use residents::memory_now;
pub use view::View;

/// The example of the README, as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
