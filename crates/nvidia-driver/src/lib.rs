//! The traces of NVIDIA's kernel driver: its device files, the evidence in them that a process uses
//! device memory, and its error messages in the kernel log.
//!
//! Everything here is a table or a function of plain data, so every adapter may use it, whether it
//! reads a live machine, a simulated one or pasted text. It calls neither NVML nor the kernel.

mod files;
mod log;

pub use files::{
    MAJOR, NvidiaDriver, device_file, drivers, held_file, held_files, node, number_of,
};
pub use log::parse_message;
