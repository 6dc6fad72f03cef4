//! The memory that a model needs on a single device.

use super::{Chain, Layer};
use gpu_core::Bytes;

/// The totals of a model on a single device, and the part that stays in CPU memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The weights.
    pub weights: Bytes,
    /// Keys and values, and state.
    pub context: Bytes,
    /// The compute buffer.
    pub buffer: Bytes,
    /// Further memory of the process.
    pub overhead: Bytes,
    /// The weights that the engine keeps in CPU memory.
    pub pinned: Bytes,
}

impl Estimate {
    /// Returns the total bytes on the device.
    pub fn total(&self) -> Bytes {
        self.weights + self.context + self.buffer + self.overhead
    }
}

/// Returns the memory that a model needs if one device holds all layers.
pub fn estimate(chain: &Chain) -> Estimate {
    let on_device = || chain.layers.iter().filter(|layer| !layer.pinned);
    let sum = |part: fn(&Layer) -> Bytes| on_device().map(part).sum::<Bytes>();
    let pinned: Bytes =
        chain.layers.iter().filter(|layer| layer.pinned).map(|layer| layer.weights).sum();
    let shared = if pinned == Bytes(0) { chain.tied } else { Bytes(0) };
    Estimate {
        weights: sum(|layer| layer.weights).saturating_sub(shared),
        context: sum(|layer| layer.context),
        buffer: on_device().map(|layer| layer.buffer).max().unwrap_or_default(),
        overhead: chain.overhead,
        pinned,
    }
}
