//! How a model is run.

use crate::quantize::Scheme;
use crate::tensor::Encoding;
use gpu_core::Bytes;
use std::fmt;

/// The program that runs a model; each allocates by rules of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// llama.cpp, and what is built on it.
    LlamaCpp,
    /// vLLM, which takes a fixed share of the device and fills it with context.
    Vllm,
    /// PyTorch with transformers, and with accelerate to split a model.
    Transformers,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::LlamaCpp => "llama.cpp",
            Engine::Vllm => "vLLM",
            Engine::Transformers => "transformers",
        })
    }
}

/// How a model is run: what the user chooses, apart from the devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The program.
    pub engine: Engine,
    /// Tokens of context, of all sequences together for llama.cpp, and of each for the others.
    pub context: u64,
    /// Sequences at once.
    pub sequences: u64,
    /// Tokens that are computed at once: llama.cpp's `--ubatch-size`, vLLM's
    /// `max_num_batched_tokens`; `None` takes the engine's usual ([`Run::batch`]).
    pub ubatch: Option<u64>,
    /// The encoding of cached keys.
    pub keys: Encoding,
    /// The encoding of cached values.
    pub values: Encoding,
    /// Whether attention is computed without the matrix of all scores.
    pub flash_attention: bool,
    /// Whether all sequences share one cache (llama.cpp's `--kv-unified`).
    pub unified: bool,
    /// Whether layers with a window cache the whole context (llama.cpp's `--swa-full`).
    pub full_windows: bool,
    /// Whether a GPU computes batches for layers in the memory of the CPU, to which it copies their
    /// matrices and their cache: llama.cpp does on CUDA, unless `--no-op-offload` forbids it.
    pub op_offload: bool,
    /// The scheme to which the matrices are converted; `None` leaves them as they are stored.
    pub weights: Option<Scheme>,
    /// What each device holds beside tensors; `None` takes the engine's usual.
    pub overhead: Option<Bytes>,
    /// How the model is trained; `None` is inference.
    pub training: Option<Training>,
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
            training: None,
        }
    }

    /// Returns the tokens of a sequence that are computed at once: by default, 512 by llama.cpp,
    /// 8,192 by vLLM, and the whole context by transformers.
    pub fn batch(&self) -> u64 {
        let usual = match self.engine {
            Engine::LlamaCpp => 512,
            Engine::Vllm => 8192,
            Engine::Transformers => self.context,
        };
        self.ubatch.unwrap_or(usual)
    }
}

/// How a model is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The precision of the weights.
    pub precision: Precision,
    /// Sequences of a step.
    pub batch: u64,
    /// Tokens of a sequence.
    pub tokens: u64,
    /// What is computed again instead of kept.
    pub recompute: Recompute,
}

/// An optimizer, by what it keeps of each parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Adam and AdamW: two moments in 32 bits.
    Adam,
    /// Adam with moments in 8 bits.
    Adam8bit,
    /// Gradient descent with momentum.
    Momentum,
    /// Gradient descent without state.
    Plain,
}

/// The precision of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Everything in 32 bits.
    Full,
    /// 16 bits with a copy of the weights in 32 bits.
    Mixed,
}

/// What is computed again on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing: all activations are kept.
    Nothing,
    /// The scores of attention.
    Attention,
    /// Everything but the input of a layer (gradient checkpointing).
    Layers,
}
