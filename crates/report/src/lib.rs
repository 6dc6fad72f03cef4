//! What gpuws prints: versioned JSON, the forms of other tools, and the words for enums.
//!
//! The main decision is that what is printed is a view with a type of its own, apart from the
//! types that it is made of: a name in JSON, once given, stays, whatever becomes of the libraries'
//! fields. Each object carries `"schema": 1`; numbers carry their unit in their name; a value that
//! is not there is null, and beside it stands why. What other tools print has their names and
//! units, so that scripts which read those read this.
//!
//! With the feature `schema`, the module `schema` makes a JSON Schema from each type. Its doc
//! comments are the descriptions, so they name the unit and say when a value is null.
//!
//! Everything here is a function from plain data to plain data or text. Time zone and the names of
//! users are arguments.
//!
//! ```
//! use gpu_core::{Error, MachineFault};
//! use gpu_report::{Exit, fault};
//!
//! let error = Error::new(MachineFault::DriverNotLoaded, "initialise NVML");
//! assert_eq!(fault::brief(&error.fault()), "the NVIDIA kernel module is not loaded");
//! assert_eq!(Exit::of(error.kind(), false).code(), 3);
//! ```

pub mod csv;
pub mod details;
mod exit;
pub mod fault;
pub mod gpustat;
pub mod json;
pub mod local_time;
#[cfg(feature = "schema")]
pub mod schema;
pub mod wording;
pub mod write;

pub use exit::Exit;
pub use jiff::tz::TimeZone;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
