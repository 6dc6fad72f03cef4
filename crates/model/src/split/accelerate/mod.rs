//! accelerate's placement of modules: `infer_auto_device_map` and `get_balanced_memory`.
//!
//! The maps equal those of accelerate (`utils/modeling.py`), including its weaknesses: it reserves
//! the largest layer on the first GPU, and never returns to a device that it has left.

mod balance;
mod infer;
mod module;
mod placed;

pub use balance::balanced_memory;
pub use infer::{DeviceMap, infer};
pub use module::{BLOCK, Module};
pub use placed::device_map;

use gpu_core::Bytes;
use std::collections::BTreeMap;
use std::fmt;

/// A device of accelerate, in the order in which it fills them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// A GPU by index.
    Gpu(u32),
    /// CPU memory.
    Cpu,
    /// A disk.
    Disk,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Gpu(index) => write!(f, "{index}"),
            Device::Cpu => f.write_str("cpu"),
            Device::Disk => f.write_str("disk"),
        }
    }
}

/// The memory of each device (`max_memory`).
pub type Memory = BTreeMap<Device, Bytes>;
