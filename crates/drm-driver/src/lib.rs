//! The error messages of the kernel drivers of AMD (amdgpu) and Intel (i915, xe), and what they mean.
//!
//! Everything here is a table or a function of plain data, so every adapter may use it, whether it
//! reads a live machine or pasted text. It does not call the kernel.

mod error;
mod log;

pub use error::error;
pub use log::{PREFIXES, parse_message, start_in};
