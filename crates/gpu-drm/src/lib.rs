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

mod backend;
mod card;
mod clients;
mod clocks;
mod copied;
mod deadline;
mod details;
mod differences;
mod driver;
mod fdinfo;
mod health;
mod hwmon;
mod kfd;
mod links;
mod metrics;
mod names;
mod tree;
mod values;

pub use backend::Drm;
pub use card::{Card, CardDriver, PciIds, cards, partition_nodes};
pub use clients::{ClientHolder, Clients, HeldClient, ProcessClients, clients};
pub use clocks::{DPM_CLOCKS, Gt, Level, current_clock, gts, levels};
pub use copied::CopiedMachine;
pub use driver::{DrmDriver, drivers};
pub use fdinfo::{Client, ClientMemory, Engine, Region, RegionKind, region_kind};
pub use hwmon::{EnergyCounter, PowerDraw, Quantity, Sensor, Sensors, sensors};
pub use kfd::{
    KfdBank, KfdLink, KfdNode, KfdProcess, KfdQueue, KfdTopology, KfdUse, processes, topology,
};
pub use metrics::Metrics;
pub use names::{listed_names, product_names};
pub use tree::{Root, Tree};
pub use values::{Link, Values, values};
