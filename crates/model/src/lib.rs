//! Computes the memory that a model needs on devices, and the placement of its layers.
//!
//! The main decision is to read only headers. A few megabytes describe a model of hundreds of
//! gigabytes, no code in it is executed, and the numbers in a header are treated as claims and
//! checked against the length of the file.

mod engine;
mod model;
pub mod need;
pub mod quantize;
pub mod read;
pub mod split;
mod tensor;

pub use model::{Architecture, Doubt, Experts, Figure, Mixer, Model};
pub use tensor::{Encoding, Tensor};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
