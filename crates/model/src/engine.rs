//! The programs that run models.

use std::fmt;

/// The program that runs a model. Each program allocates memory by its own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// llama.cpp, and programs built on it.
    LlamaCpp,
    /// vLLM, which takes a fixed fraction of the device and fills it with context.
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
