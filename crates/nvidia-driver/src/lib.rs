//! NVIDIA's kernel driver as seen from outside: its device files, and the evidence in them that a
//! process uses device memory.
//!
//! Everything here is a table or a function of plain data, so every adapter may use it, whether it
//! reads a live machine, a simulated one or pasted text. It calls neither NVML nor the kernel.

mod files;

pub use files::{
    MAJOR, NvidiaFiles, device_file, driver_files, held_file, held_files, node, number_of,
};
