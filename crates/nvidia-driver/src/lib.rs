//! The traces of NVIDIA's kernel driver: its device files, the evidence in them that a process uses
//! device memory, its list of devices, its error messages in the kernel log, and what their numbers
//! mean.
//!
//! Everything here is a table or a function of plain data, so every adapter may use it, whether it
//! reads a live machine, a simulated one or pasted text. It calls neither NVML nor the kernel.

mod files;
mod information;
mod log;
mod memory_kind;
mod node;
mod recovery;
mod xid;

pub use files::{NvidiaDriver, device_file, drivers, held_file, held_files};
pub use log::parse_message;
pub use memory_kind::memory_kind;
pub use node::{MAJOR, node, number_of};
pub use recovery::{recovery_action, recovery_action_named, recovery_number};
pub use xid::{SXID, XID};
