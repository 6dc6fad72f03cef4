//! How a model is run.

use super::Engine;
use crate::quantize::Scheme;
use crate::tensor::Encoding;
use gpu_core::Bytes;

/// How a model is run: the user's choices, apart from the devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The program.
    pub engine: Engine,
    /// The context in tokens: of all sequences together for llama.cpp, and of each sequence for
    /// other engines.
    pub context: u64,
    /// The number of concurrent sequences.
    pub sequences: u64,
    /// The number of tokens computed at once: llama.cpp's `--ubatch-size`, vLLM's
    /// `max_num_batched_tokens`; `None` means the engine's default ([`Run::batch`]).
    pub ubatch: Option<u64>,
    /// The encoding of cached keys.
    pub keys: Encoding,
    /// The encoding of cached values.
    pub values: Encoding,
    /// Whether attention is computed without the full matrix of scores.
    pub flash_attention: bool,
    /// Whether all sequences share one cache (llama.cpp's `--kv-unified`).
    pub unified: bool,
    /// Whether layers with a window cache the whole context (llama.cpp's `--swa-full`).
    pub full_windows: bool,
    /// Whether a GPU computes batches for layers in CPU memory, after copying their matrices and
    /// cache to the GPU. llama.cpp does this with CUDA, unless `--no-op-offload` is set.
    pub op_offload: bool,
    /// The scheme to which the matrices are converted; `None` leaves them as stored.
    pub weights: Option<Scheme>,
    /// The memory that each device holds in addition to tensors; `None` means the engine's default.
    pub overhead: Option<Bytes>,
}

impl Run {
    /// Returns a run with the engine's defaults, for one sequence of this many tokens.
    pub fn new(engine: Engine, context: u64) -> Run {
        Run {
            engine,
            context,
            sequences: 1,
            ubatch: None,
            keys: Encoding::F16,
            values: Encoding::F16,
            flash_attention: true,
            unified: false,
            full_windows: false,
            op_offload: engine == Engine::LlamaCpp,
            weights: None,
            overhead: None,
        }
    }

    /// Returns the number of tokens of a sequence that are computed at once. The default is 512 for
    /// llama.cpp, 8,192 for vLLM, and the whole context for transformers.
    pub fn batch(&self) -> u64 {
        let usual = match self.engine {
            Engine::LlamaCpp => 512,
            Engine::Vllm => 8192,
            Engine::Transformers => self.context,
        };
        self.ubatch.unwrap_or(usual)
    }
}
