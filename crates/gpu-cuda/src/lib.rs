//! CUDA contexts and device memory behind the ports of gpu-core, through cudarc.
//!
//! The main decision is that nothing is called before it is known to be there. cudarc loads the
//! driver's library when it is first used and panics where the library or a function is missing,
//! while a machine without a driver, and a driver without virtual memory or pools, are ordinary
//! machines here. So the module `driver` asks for the library and for each function once, and an old
//! driver is an error with its reason ([`gpu_core::Absent::TooOld`]). Devices are named by UUID,
//! since CUDA's numbers depend on the environment of the process, and errors are those of gpu-core.
//!
//! - [`CudaContexts`] keeps a context on each of some devices, for processes that only want to be
//!   seen there.
//! - [`CudaMemory`] is [`gpu_core::DeviceMemory`] by `cuMemAlloc`, and by pages behind address
//!   ranges where driver and device have virtual memory.
//! - [`CudaPool`] is [`gpu_core::DeviceMemory`] by the driver's own pool, in stream order.
//! - [`open`] gives cudarc's context of a device, for streams, events, copies and kernels, which are
//!   cudarc's own types.
//!
//! It is a crate of its own so that programs that only look at devices do not compile cudarc.
//!
//! ```
//! use gpu_core::{Bytes, DeviceMemory, DeviceUuid, ErrorKind, MachineFault};
//! use gpu_cuda::CudaMemory;
//!
//! let device = DeviceUuid("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f".into());
//! match CudaMemory::open(&device) {
//!     Ok(memory) => {
//!         let region = memory.reserve(Bytes::from_mib(64))?;
//!         memory.release(region)?;
//!     }
//!     // A machine without a driver, without a GPU, or with other GPUs than this one.
//!     Err(error) => assert!(matches!(
//!         error.kind(),
//!         ErrorKind::Machine(MachineFault::NoLibrary | MachineFault::NoDevices | MachineFault::Unknown(_))
//!             | ErrorKind::Invalid
//!     )),
//! }
//! # Ok::<(), gpu_core::Error>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod code;
mod contexts;
mod driver;
mod memory;
mod pool;

pub use contexts::CudaContexts;
/// The crate whose types [`open`] gives.
pub use cudarc;
pub use driver::open;
pub use memory::CudaMemory;
pub use pool::CudaPool;
