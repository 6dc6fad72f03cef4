//! Device memory: the contract of every adapter of `DeviceMemory`, on a modelled device, on a
//! simulated machine, on parts of a device, on a substitute for NVIDIA's CUDA driver, and on this
//! machine's own GPU, if there is one.

mod contract;
mod driver;
#[path = "../../crates/gpu-cuda/tests/driver/stand_in/mod.rs"]
mod stand_in;
