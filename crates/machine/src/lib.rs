//! Opens the machine to look at: this one, a session's, or a simulated one.
//!
//! The main decision is that adapters are chosen in one place, so that the program, the Python
//! package and whatever else looks at devices see the same machine under the same conditions: a
//! simulated machine only when asked for by name, and within a session its devices and processes
//! and no others. What comes out is the ports of [`gpu_core`]; who uses them knows no adapter.
//!
//! NVML is asked, and leases are kept, by copies of the program itself: it calls
//! [`serve_where_asked`] before all else.
//!
//! ```
//! use gpu_machine::{Options, Source};
//!
//! let source = Source::open(&Options::simulated("labbox"))?;
//! let now = source.look();
//! assert_eq!(now.origin.to_string(), "simulated machine labbox");
//! assert!(now.driver.is_ok());
//! # Ok::<(), gpu_machine::MachineError>(())
//! ```

mod error;
mod lease_keeper;
mod no_devices;
mod session_devices;
mod source;

pub use error::{Cause, MachineError};
pub use lease_keeper::{
    Holder, Keeps, RENEWAL, Served, is_placeholder, opened, placeholder, until,
};
pub use source::{CLAIMS, Options, Source, is_in_session, roots};

/// Asks NVML, or keeps a lease, for the program that started this one, where it did; `None` where
/// it did not. One that asks NVML never returns.
pub fn serve_where_asked() -> Option<Served> {
    source::serve_where_asked();
    lease_keeper::serve_where_asked()
}

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
