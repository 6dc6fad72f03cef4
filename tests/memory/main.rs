//! Device memory: what every adapter of `DeviceMemory` keeps, on a modelled device, on a simulated
//! machine, on parts of a device, on a CUDA driver that stands in for NVIDIA's, and on this
//! machine's own GPU where there is one.

mod contract;
mod driver;
#[path = "../../crates/gpu-cuda/tests/driver/stand_in/mod.rs"]
mod stand_in;
