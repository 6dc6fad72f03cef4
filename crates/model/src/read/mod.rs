//! Readers of the headers of models.

pub mod gguf;
pub mod index;
mod name;
pub mod safetensors;
