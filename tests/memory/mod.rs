//! Device memory: the contract of every adapter of `DeviceMemory`, on a modelled device, a
//! simulated machine, parts of a device, a substitute for NVIDIA's CUDA driver, and this machine's
//! own GPU, if any.

mod contract;
mod driver;
#[path = "../../crates/gpu-cuda/tests/driver/stand_in/mod.rs"]
mod stand_in;
