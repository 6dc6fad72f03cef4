//! The memory that a model needs when it runs: weights, context and buffers.
//!
//! The unit is the layer: [`chain()`] lists them in order, each with all the memory that it needs
//! on its device. [`estimate`] adds them up for one device.

mod buffers;
mod chain;
mod context;
mod estimate;
mod naming;
mod overhead;
mod run;
mod weights;

pub use crate::engine::Engine;
pub use chain::{Chain, Layer, Position, Unknown, chain};
pub use context::{cells, context};
pub use estimate::{Estimate, estimate};
pub use naming::Kind;
pub(crate) use naming::{
    TensorLayer, is_encoder, is_input_matrix, is_output_matrix, kind, tensor_layer,
};
pub use overhead::{OVERHEADS, Overhead, overhead};
pub use run::Run;
pub use weights::Part;
pub(crate) use weights::assumed_tensors;

/// Multiplies, saturating, because the factors come from headers.
pub(crate) fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

/// Rounds up to a multiple, saturating.
pub(crate) fn padded(value: u64, multiple: u64) -> u64 {
    value.div_ceil(multiple.max(1)).saturating_mul(multiple.max(1))
}
