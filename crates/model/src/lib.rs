//! What a model takes on devices, and which of its layers go where.
//!
//! The main decision is that only headers are read: a model of hundreds of gigabytes is known from
//! a few megabytes, nothing in it is executed, and the numbers in a header are claims that are
//! checked against the length of the file.

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
