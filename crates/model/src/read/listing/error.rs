//! Why no model was read from a directory.

use crate::read::config::ConfigError;
use crate::read::gguf::GgufError;
use crate::read::index::IndexError;
use crate::read::name::shown;
use crate::read::safetensors::SafetensorsError;
use crate::read::torch::TorchError;
use std::io;

/// Why no model was read from a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// None of the files is a model file.
    #[error("no model found (expected .safetensors, .gguf, .bin or config.json)")]
    Nothing,
    /// There are several models.
    #[error("find the model: there are several: {}", list(.0))]
    Several(Vec<String>),
    /// Some files of the model are missing.
    #[error("read the model: files are missing: {}", list(.0))]
    Missing(Vec<String>),
    /// A file lacks a tensor that the index assigns to it.
    #[error("read '{file}': it lacks tensor '{tensor}', which the index assigns to it")]
    TensorMissing {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// Several files contain the same tensor.
    #[error("read '{file}': tensor '{tensor}' is also in another file")]
    Twice {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A file could not be opened or read.
    #[error("read '{file}'")]
    Open {
        /// The file.
        file: String,
        /// The error.
        source: io::Error,
    },
    /// A safetensors file is malformed.
    #[error("read '{file}'")]
    Safetensors {
        /// The file.
        file: String,
        /// The error.
        source: SafetensorsError,
    },
    /// A GGUF file is malformed.
    #[error("read '{file}'")]
    Gguf {
        /// The file.
        file: String,
        /// The error.
        source: GgufError,
    },
    /// A PyTorch file is malformed.
    #[error("read '{file}'")]
    Torch {
        /// The file.
        file: String,
        /// The error.
        source: TorchError,
    },
    /// The index is malformed.
    #[error("read '{file}'")]
    Index {
        /// The file.
        file: String,
        /// The error.
        source: IndexError,
    },
    /// The configuration is malformed, and there are no other files.
    #[error("read '{file}'")]
    Config {
        /// The file.
        file: String,
        /// The error.
        source: ConfigError,
    },
}

/// Lists at most eight names in an error.
pub(super) fn list(names: &[String]) -> String {
    let start: Vec<String> = names.iter().take(8).map(|name| shown(name)).collect();
    match names.len().saturating_sub(8) {
        0 => start.join(", "),
        more => format!("{} and {more} more", start.join(", ")),
    }
}
