//! AMD and Intel GPUs, from the files in which the Linux kernel describes them.
//!
//! The main decision is to read no vendor library: sysfs, hwmon, KFD and the `fdinfo` of DRM clients
//! have the devices, their memory and their processes, need no rights beyond those of `/proc`, and
//! can be copied from another machine. Everything is read through a [`Tree`], so a live machine, a
//! copied directory and a simulated machine take the same path.
//!
//! Some files must never be read, because the kernel then resets a device, evicts its memory, clears
//! a counter or blocks: everything in debugfs, `xgmi_error`, `pcie_bw` and `sdma_*` of KFD. A file
//! that would wake a sleeping card is not read either.

mod kfd;
mod tree;

pub use kfd::{
    KfdBank, KfdLink, KfdNode, KfdProcess, KfdQueue, KfdTopology, KfdUse, processes, topology,
};
pub use tree::{Root, Tree};
