//! Readers of the headers of models.
//!
//! [`model()`] reads what a directory has; the modules read one file each. All of them take bytes
//! from the caller, keep no more than a small multiple of what is there, and refuse what breaks a
//! rule of its format.

pub mod config;
mod detect;
pub mod gguf;
pub mod index;
mod listing;
mod name;
pub mod safetensors;
pub mod torch;

pub use detect::{Format, detect};
pub use listing::{File, Found, Open, ReadError, Source, model};
