//! The memory that training needs in addition to the weights.

use super::{Optimizer, Precision, Recompute, Training, product};
use gpu_core::Bytes;

impl Training {
    /// Returns the bytes per parameter for weights: 4, or 6 with a copy in 16 bits (transformers'
    /// documentation on training memory).
    pub fn weight_bytes(self) -> u64 {
        match self.precision {
            Precision::Full => 4,
            Precision::Mixed => 6,
        }
    }

    /// Returns the bytes per parameter for the gradient, which takes 4, and for the optimizer
    /// state.
    pub fn state_bytes(self) -> u64 {
        4 + match self.optimizer {
            Optimizer::Adam => 8,
            Optimizer::Adam8bit => 2,
            Optimizer::Momentum => 4,
            Optimizer::Plain => 0,
        }
    }

    /// Returns the bytes of the activations that a block with this width and number of heads keeps
    /// for the backward pass.
    ///
    /// `s·b·h·(34 + 5·a·s/h)` in 16 bits, `34·s·b·h` if the attention scores are recomputed, and
    /// `2·s·b·h` if only the input is kept (Korthikanti and others, 'Reducing Activation
    /// Recomputation in Large Transformer Models', 2022); twice that in 32 bits.
    pub fn activation_bytes(self, hidden: u64, heads: u64) -> Bytes {
        let tokens = product(&[self.batch, self.tokens]);
        let width = if self.precision == Precision::Full { 2 } else { 1 };
        let rows = product(&[tokens, hidden, width]);
        Bytes(match self.recompute {
            Recompute::Nothing => {
                let scores = product(&[5, heads, self.tokens, tokens, width]);
                product(&[rows, 34]).saturating_add(scores)
            }
            Recompute::Attention => product(&[rows, 34]),
            Recompute::Layers => product(&[rows, 2]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_precision_with_adam_takes_18_bytes() {
        let training = Training {
            optimizer: Optimizer::Adam,
            precision: Precision::Mixed,
            batch: 2,
            tokens: 1024,
            recompute: Recompute::Nothing,
        };
        assert_eq!(training.weight_bytes() + training.state_bytes(), 18);
        // 34·2048·4096 and 5·32·1024·2048.
        assert_eq!(training.activation_bytes(4096, 32), Bytes(285_212_672 + 335_544_320));
        let kept = Training { recompute: Recompute::Layers, ..training };
        assert_eq!(kept.activation_bytes(4096, 32), Bytes(2 * 2048 * 4096));
        let full = Training { precision: Precision::Full, ..kept };
        assert_eq!(full.activation_bytes(4096, 32), Bytes(4 * 2048 * 4096));
    }
}
