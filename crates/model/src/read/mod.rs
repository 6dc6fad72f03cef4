//! Readers of the headers of models.

pub mod config;
pub mod gguf;
pub mod index;
mod name;
pub mod safetensors;
