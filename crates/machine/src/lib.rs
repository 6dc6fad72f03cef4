//! Opens a machine: this one, that of a session, or a simulated one.
//!
//! The main decision is that adapters are chosen in one place, so that the program, the Python
//! package and other callers see the same machine under the same conditions: a simulated machine
//! only if it is requested by name, and inside a session only its devices and processes. The result
//! is the ports of [`gpu_core`]; callers know no adapter.
//!
//! Copies of the calling program query NVML and keep leases. So it must call
//! [`serve_if_requested`] first in `main`, or name a program that does in [`Options::program`].
//!
//! ```
//! use gpu_machine::{Options, Source};
//!
//! let source = Source::open(&Options::simulated("labbox"))?;
//! let now = source.snapshot();
//! assert_eq!(now.origin.to_string(), "simulated machine labbox");
//! assert!(now.driver.is_ok());
//! # Ok::<(), gpu_machine::MachineError>(())
//! ```

mod backends;
mod error;
#[cfg(feature = "export")]
mod export;
pub mod history;
mod isolated;
mod lease_keeper;
mod messengers;
mod no_devices;
#[cfg(feature = "kubernetes")]
mod pods;
mod program;
mod race;
mod recorded;
mod recorder;
mod requests;
mod session_devices;
mod several;
mod slurm;
mod source;

pub use backends::roots;
pub use error::{Cause, MachineError};
#[cfg(feature = "export")]
pub use export::{ExportOptions, ExportedMachine, driver_deadline};
pub use isolated::supervise_if_requested;
pub use lease_keeper::{
    Holder, Keeps, RENEWAL, Served, is_placeholder, open_process, placeholder, time_until,
};
pub use messengers::{EXIT_GRACE, Messengers, with_absolute_program};
pub use program::program;
pub use race::{Raced, race};
pub use recorded::Recorded;
pub use recorder::Recorder;
pub use requests::{Next, Requests};
pub use slurm::{SlurmTools, node_name, slurm_devices};
pub use source::{CLAIMS, LeaseReader, Options, Source, is_in_session, own_variable, seen};

/// Queries NVML or keeps a lease if this process was started for that; otherwise returns `None`.
/// A process that queries NVML never returns.
pub fn serve_if_requested() -> Option<Served> {
    backends::serve_if_requested();
    lease_keeper::serve_if_requested()
}

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
