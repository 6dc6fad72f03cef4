//! How a layer mixes tokens, and the memory that it keeps for them.

use crate::model::Mixer;

/// How a layer mixes tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    Attention {
        kv_heads: u64,
        key: u64,
        value: u64,
        window: Option<u64>,
    },
    Latent {
        rank: u64,
        rope: u64,
    },
    Mamba {
        inner: u64,
        state: u64,
        kernel: u64,
    },
    Mamba2 {
        inner: u64,
        state: u64,
        kernel: u64,
        groups: u64,
    },
    /// A gated delta net (Qwen3-Next).
    Delta {
        key_heads: u64,
        value_heads: u64,
        key: u64,
        value: u64,
        kernel: u64,
    },
    /// Kimi delta attention.
    Kimi {
        heads: u64,
        head: u64,
        kernel: u64,
    },
    /// The short convolution of LFM2.
    Convolution {
        kernel: u64,
    },
    /// The gated linear recurrent unit of Griffin (RecurrentGemma).
    Gated {
        width: u64,
        kernel: u64,
    },
    /// Lightning attention (MiniMax).
    Lightning {
        heads: u64,
        head: u64,
    },
    Nothing,
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

impl Block {
    /// Returns the memory that the block keeps for a sequence.
    ///
    /// The states match those that llama.cpp allocates (`n_embd_r`, `n_embd_s` of `llama-hparams`).
    pub(super) fn mixer(&self, hidden: u64) -> Mixer {
        match *self {
            Block::Attention { kv_heads, key, value, window } => {
                Mixer::Attention { kv_heads, key, value, window }
            }
            Block::Latent { rank, rope } => Mixer::Latent { rank, rope },
            Block::Mamba { inner, state, kernel } => Mixer::Recurrent {
                convolution: product(&[kernel.saturating_sub(1), inner]),
                state: product(&[state, inner]),
            },
            Block::Mamba2 { inner, state, kernel, groups } => {
                let channels = inner.saturating_add(product(&[2, groups, state]));
                Mixer::Recurrent {
                    convolution: product(&[kernel.saturating_sub(1), channels]),
                    state: product(&[state, inner]),
                }
            }
            Block::Delta { key_heads, value_heads, key, value, kernel } => {
                let channels =
                    product(&[2, key_heads, key]).saturating_add(product(&[value_heads, value]));
                Mixer::Recurrent {
                    convolution: product(&[kernel.saturating_sub(1), channels]),
                    state: product(&[value_heads, key, value]),
                }
            }
            Block::Kimi { heads, head, kernel } => Mixer::Recurrent {
                convolution: product(&[3, kernel.saturating_sub(1), heads, head]),
                state: product(&[heads, head, head]),
            },
            Block::Convolution { kernel } => Mixer::Recurrent {
                convolution: product(&[hidden, kernel.saturating_sub(1)]),
                state: 0,
            },
            Block::Gated { width, kernel } => Mixer::Recurrent {
                convolution: product(&[width, kernel.saturating_sub(1)]),
                state: width,
            },
            Block::Lightning { heads, head } => {
                Mixer::Recurrent { convolution: 0, state: product(&[heads, head, head]) }
            }
            Block::Nothing => Mixer::Nothing,
        }
    }
}
