//! Which layers go where.

pub mod vllm;
