//! Readers of the headers of models.
//!
//! [`model()`] reads a directory; each module reads one file format. All of them take bytes from
//! the caller, use memory of at most a small multiple of the input, and reject input that violates
//! its format.

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
