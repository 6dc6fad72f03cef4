//! NVML behind the ports of gpu-core.
//!
//! The main decision is that one module makes every NVML call. A driver may never return from a
//! call, may lack any function, and may return any of thirty codes. The module names the running
//! call ([`Nvml::current_call`]), counts it, and records the code with the call. Each query then
//! decides what a code affects: one value, one device, or the machine. nvml-wrapper makes the call,
//! and one function converts its error. The module `raw` lists the calls that nvml-wrapper does not
//! cover, each with a reason; nvml-wrapper-sys makes them.
//!
//! NVML is closed between queries. Each initialisation looks up all 400 functions of the library
//! and queries the driver version again, which takes about 6 % of the shortest snapshot.
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
mod inventory;
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
