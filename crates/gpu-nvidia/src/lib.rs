//! NVML behind the ports of gpu-core.
//!
//! The main decision is that every call of the C interface goes through one place. A driver may
//! keep any call waiting for ever, be too old for any function, and answer any question with any
//! of thirty codes: so that place alone says what is being asked while the driver works
//! ([`Nvml::current_call`]), counts it, and keeps the code with the question; and each question
//! then says how far a code reaches: one value, one device, the machine. Within that place the
//! calls are nvml-wrapper's, whose error is read once. The calls for which it does not serve stand
//! together in the module `raw`, each with the reason; they are made by nvml-wrapper-sys.
//!
//! NVML is closed between looks and initialised anew. nvml-wrapper then looks up all of the
//! library's four hundred functions and asks for the driver's version: about six hundredths of the
//! time of the shortest look.
//!
//! ```
//! use gpu_core::{ErrorKind, GpuBackend, MachineFault};
//! use gpu_nvidia::Nvml;
//!
//! match Nvml::open(None) {
//!     Ok(nvml) => {
//!         for device in nvml.devices().unwrap_or_default() {
//!             let memory = nvml.sample(&device.id)?.memory;
//!             println!("{}: {:?} of {:?} in use", device.id, memory.used, memory.total);
//!         }
//!     }
//!     // A machine without NVIDIA's driver.
//!     Err(error) => assert_eq!(error.kind(), ErrorKind::Machine(MachineFault::NoLibrary)),
//! }
//! # Ok::<(), gpu_core::Error>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod backend;
mod call;
mod child;
mod code;
mod details;
mod device;
mod event;
mod info;
mod library;
mod mig;
mod process;
mod process_utilization;
mod raw;
mod reset;
mod sample;
mod session;
mod snapshot;
mod topology;
mod value;

pub use backend::Nvml;
pub use call::CurrentCall;
pub use child::{Helper, NvmlChild, Waiting, serve};
pub use library::SimulatedNvml;
