//! Families of models with layers that keep something other than keys and values of all heads, or
//! that use other configuration keys for them.
//!
//! Source: the configuration classes of transformers, and llama.cpp for the states.

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Falcon,
    Llama4,
    Gemma3n,
    Gemma4,
    /// Gated delta nets: Qwen3-Next, Qwen 3.5 and 3.6.
    Delta,
    Jamba,
    Mamba,
    Mamba2,
    Bamba,
    FalconH1,
    GraniteHybrid,
    NemotronH,
    Lfm2,
    RecurrentGemma,
    MiniMax,
    KimiLinear,
    /// Attention with the configuration keys that most classes share.
    Usual,
}

use Family::*;

/// The model types of each family.
const KNOWN: &[(&str, Family)] = &[
    ("bamba", Bamba),
    ("falcon", Falcon),
    ("falcon_h1", FalconH1),
    ("falcon_mamba", Mamba),
    ("gemma3n", Gemma3n),
    ("gemma4", Gemma4),
    ("gemma4_unified", Gemma4),
    ("granitemoehybrid", GraniteHybrid),
    ("jamba", Jamba),
    ("kimi_linear", KimiLinear),
    ("lfm2", Lfm2),
    ("lfm2_moe", Lfm2),
    ("llama4", Llama4),
    ("mamba", Mamba),
    ("mamba2", Mamba2),
    ("minimax", MiniMax),
    ("nemotron_h", NemotronH),
    ("olmo_hybrid", Delta),
    ("qwen3_5", Delta),
    ("qwen3_5_moe", Delta),
    ("qwen3_next", Delta),
    ("recurrent_gemma", RecurrentGemma),
];

impl Family {
    /// Returns the family of a model type.
    pub(super) fn named(model_type: &str) -> Family {
        let known = KNOWN.iter().find(|(name, _)| *name == model_type);
        known.map_or(Usual, |(_, family)| *family)
    }
}
