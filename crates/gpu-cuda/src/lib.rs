//! CUDA contexts and device memory behind the ports of gpu-core, through cudarc.
//!
//! The main decision is to check for the driver and for each function before the first call. cudarc
//! loads the driver on first use and panics if the driver or a function is missing, but machines
//! without a driver, or with a driver that lacks virtual memory or pools, are common. The module
//! `driver` makes these checks and reports an old driver as [`gpu_core::Absent::TooOld`]. Devices
//! are named by UUID, because CUDA's ordinals depend on the environment of the process.
//!
//! - [`CudaContexts`] keeps an idle context on each of several devices.
//! - [`CudaMemory`] is [`gpu_core::DeviceMemory`] with `cuMemAlloc`, and with virtual memory where
//!   driver and device support it.
//! - [`CudaPool`] is [`gpu_core::DeviceMemory`] from the driver's pool.
//! - [`CudaKernels`] is matrix multiplication, vector addition and vector sum, compiled at run time
//!   by NVRTC.
//! - [`CudaStreams`] is a set of streams and the events between them, for an executor of graphs.
//! - [`open`] returns cudarc's context of a device, for streams, events, copies and kernels.
//!
//! This crate is separate so that programs that only read devices need not compile cudarc.
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
mod kernels;
mod memory;
mod pool;
mod streams;

pub use contexts::CudaContexts;
/// The crate that defines the types [`open`] returns.
pub use cudarc;
pub use driver::open;
pub use kernels::{CudaKernels, MatmulShape};
pub use memory::CudaMemory;
pub use pool::CudaPool;
pub use streams::CudaStreams;
