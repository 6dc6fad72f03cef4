//! The families of models: the defaults of their configuration classes, and how their layers look.
//!
//! Source: the configuration classes of transformers 5.23.

/// The numbers of a class that a configuration may leave out; 0 stands for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defaults {
    pub(super) hidden: u64,
    pub(super) feed_forward: u64,
    pub(super) layers: u64,
    pub(super) heads: u64,
    /// 0: as many as heads.
    pub(super) kv_heads: u64,
    /// 0: the width over the heads.
    pub(super) head: u64,
    pub(super) vocabulary: u64,
    pub(super) tied: bool,
}

/// What tells the matrices of one family from those of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    /// Norms of a layer.
    pub(super) norms: u64,
    pub(super) norm_bias: bool,
    /// Biases of query, key and value, of the output of attention, and of the feed-forward part.
    pub(super) query_bias: bool,
    pub(super) output_bias: bool,
    pub(super) feed_bias: bool,
    /// A gate beside the first matrix of the feed-forward part.
    pub(super) gated: bool,
    /// Norms of queries and keys.
    pub(super) head_norm: bool,
    /// A learned sink per head.
    pub(super) sinks: bool,
    /// Learned positions beyond the context; `None` if there are none.
    pub(super) positions: Option<u64>,
    pub(super) embedding_norm: bool,
    /// A bias of the router of experts.
    pub(super) router_bias: bool,
    /// A matrix that weighs the shared experts.
    pub(super) shared_gate: bool,
}

/// A decoder as Llama has it.
const LLAMA: Style = Style {
    norms: 2,
    norm_bias: false,
    query_bias: false,
    output_bias: false,
    feed_bias: false,
    gated: true,
    head_norm: false,
    sinks: false,
    positions: None,
    embedding_norm: false,
    router_bias: false,
    shared_gate: false,
};

/// A decoder as GPT-2 has it, without positions.
const GPT: Style = Style {
    norm_bias: true,
    query_bias: true,
    output_bias: true,
    feed_bias: true,
    gated: false,
    ..LLAMA
};

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Qwen3Next,
    /// Qwen 3.5 and 3.6 without experts.
    Qwen35,
    Gemma,
    Gemma2,
    Gemma3,
    Gemma3n,
    Gemma4,
    Cohere2,
    GptOss,
    Llama4,
    Deepseek2,
    Deepseek3,
    Falcon,
    Gpt2,
    GptNeox,
    Bloom,
    Opt,
    Mpt,
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
    /// Any other whose keys are those of Llama.
    Generic,
}

use Family::*;

/// The model types that are known, by family.
const KNOWN: &[(&str, Family)] = &[
    ("bamba", Bamba),
    ("bloom", Bloom),
    ("cohere2", Cohere2),
    ("deepseek_v2", Deepseek2),
    ("deepseek_v3", Deepseek3),
    ("falcon", Falcon),
    ("falcon_h1", FalconH1),
    ("gemma", Gemma),
    ("gemma2", Gemma2),
    ("gemma3", Gemma3),
    ("gemma3n", Gemma3n),
    ("gemma4", Gemma4),
    ("gpt2", Gpt2),
    ("gpt_neox", GptNeox),
    ("gpt_oss", GptOss),
    ("granitemoehybrid", GraniteHybrid),
    ("jamba", Jamba),
    ("kimi_k2", Deepseek3),
    ("kimi_linear", KimiLinear),
    ("lfm2", Lfm2),
    ("llama", Llama),
    ("llama4", Llama4),
    ("mamba", Mamba),
    ("mamba2", Mamba2),
    ("minimax", MiniMax),
    ("mistral", Mistral),
    ("mixtral", Mixtral),
    ("mpt", Mpt),
    ("nemotron_h", NemotronH),
    ("opt", Opt),
    ("qwen2", Qwen2),
    ("qwen2_vl", Qwen2),
    ("qwen2_5_vl", Qwen2),
    ("qwen3", Qwen3),
    ("qwen3_5", Qwen35),
    ("qwen3_5_moe", Qwen3Next),
    ("qwen3_moe", Qwen3Moe),
    ("qwen3_next", Qwen3Next),
    ("qwen3_vl", Qwen3),
    ("qwen3_vl_moe", Qwen3Moe),
    ("recurrent_gemma", RecurrentGemma),
];

/// Returns the model types that are known, as a list in a sentence.
pub(super) fn known() -> String {
    KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Returns defaults: width, feed-forward width, layers, heads, heads of keys, width of a head,
/// vocabulary, and whether the output is tied.
const fn defaults(numbers: [u64; 7], tied: bool) -> Defaults {
    let [hidden, feed_forward, layers, heads, kv_heads, head, vocabulary] = numbers;
    Defaults { hidden, feed_forward, layers, heads, kv_heads, head, vocabulary, tied }
}

impl Family {
    /// Returns the family of a model type.
    pub(super) fn named(model_type: &str) -> Option<Family> {
        KNOWN.iter().find(|(name, _)| *name == model_type).map(|(_, family)| *family)
    }

    /// Returns the defaults of the class.
    #[rustfmt::skip]
    pub(super) fn defaults(self) -> Defaults {
        match self {
            Llama => defaults([4096, 11_008, 32, 32, 0, 0, 32_000], false),
            Mistral | Mixtral => defaults([4096, 14_336, 32, 32, 8, 0, 32_000], false),
            Qwen2 => defaults([4096, 22_016, 32, 32, 32, 0, 151_936], false),
            Qwen3 => defaults([4096, 22_016, 32, 32, 32, 128, 151_936], false),
            Qwen3Moe => defaults([2048, 6144, 24, 32, 4, 0, 151_936], false),
            Qwen3Next | Qwen35 => defaults([2048, 5632, 48, 16, 2, 256, 151_936], false),
            Gemma => defaults([3072, 24_576, 28, 16, 16, 256, 256_000], true),
            Gemma2 => defaults([2304, 9216, 26, 8, 4, 256, 256_000], true),
            Gemma3 => defaults([2304, 9216, 26, 8, 4, 256, 262_208], true),
            Gemma3n => defaults([2048, 16_384, 35, 8, 2, 256, 262_400], true),
            Gemma4 => defaults([0, 0, 0, 0, 0, 256, 262_144], true),
            Cohere2 => defaults([8192, 22_528, 40, 64, 0, 0, 256_000], true),
            GptOss => defaults([2880, 2880, 36, 64, 8, 64, 201_088], false),
            Llama4 => defaults([5120, 8192, 48, 40, 8, 128, 202_048], false),
            Deepseek2 => defaults([0, 0, 0, 0, 0, 0, 0], false),
            Deepseek3 => defaults([7168, 18_432, 61, 128, 128, 0, 129_280], false),
            Falcon => defaults([4544, 0, 32, 71, 0, 0, 65_024], true),
            Gpt2 => defaults([768, 0, 12, 12, 0, 0, 50_257], true),
            GptNeox => defaults([6144, 24_576, 44, 64, 0, 0, 50_432], false),
            Bloom => defaults([64, 0, 2, 8, 0, 0, 250_880], true),
            Opt => defaults([768, 3072, 12, 12, 0, 0, 50_272], true),
            Mpt => defaults([2048, 0, 24, 16, 0, 0, 50_368], true),
            Jamba => defaults([4096, 14_336, 32, 32, 8, 0, 65_536], false),
            Mamba => defaults([768, 0, 32, 0, 0, 0, 50_280], true),
            Mamba2 => defaults([4096, 0, 64, 0, 0, 0, 32_768], false),
            Bamba => defaults([4096, 14_336, 32, 32, 8, 0, 128_000], false),
            FalconH1 => defaults([4096, 14_336, 32, 32, 8, 0, 128_000], false),
            Lfm2 => defaults([2560, 12_288, 32, 32, 8, 0, 65_536], true),
            RecurrentGemma => defaults([2560, 7680 * 3, 26, 10, 0, 0, 256_000], true),
            GraniteHybrid | NemotronH | MiniMax | KimiLinear | Generic => Defaults::default(),
        }
    }

    /// Returns how the layers look; `None` if their matrices do not follow from the configuration.
    pub(super) fn style(self) -> Option<Style> {
        Some(match self {
            Llama | Mistral | Mixtral | Gemma | Llama4 | Deepseek2 | Jamba | Bamba => LLAMA,
            Deepseek3 | KimiLinear => Style { router_bias: true, ..LLAMA },
            FalconH1 | GraniteHybrid | MiniMax => LLAMA,
            Qwen2 => Style { query_bias: true, ..LLAMA },
            Qwen3 | Qwen3Moe | Qwen35 | Lfm2 => Style { head_norm: true, ..LLAMA },
            Qwen3Next => Style { head_norm: true, shared_gate: true, ..LLAMA },
            Gemma2 => Style { norms: 4, ..LLAMA },
            Gemma3 => Style { norms: 4, head_norm: true, ..LLAMA },
            Cohere2 => Style { norms: 1, ..LLAMA },
            GptOss => Style {
                query_bias: true,
                output_bias: true,
                feed_bias: true,
                router_bias: true,
                sinks: true,
                ..LLAMA
            },
            Falcon => Style { norms: 1, norm_bias: true, gated: false, ..LLAMA },
            Gpt2 => Style { positions: Some(0), ..GPT },
            Opt => Style { positions: Some(2), ..GPT },
            GptNeox => GPT,
            Bloom => Style { embedding_norm: true, ..GPT },
            Mpt => Style { gated: false, ..LLAMA },
            Mamba | Mamba2 => Style { norms: 1, ..LLAMA },
            NemotronH => Style { norms: 1, gated: false, ..LLAMA },
            RecurrentGemma => Style { output_bias: true, feed_bias: true, ..LLAMA },
            Gemma3n | Gemma4 | Generic => return None,
        })
    }
}
