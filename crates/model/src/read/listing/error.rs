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
    /// No file is one of a model.
    #[error("no model found (expected .safetensors, .gguf, .bin or config.json)")]
    Nothing,
    /// There are several models.
    #[error("find the model: there are several: {}", list(.0))]
    Several(Vec<String>),
    /// Files of the model are missing.
    #[error("read the model: files are missing: {}", list(.0))]
    Missing(Vec<String>),
    /// A file has not the tensor that the index says it has.
    #[error("read '{file}': it has no tensor '{tensor}', and the index says that it has")]
    TensorMissing {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A tensor is in several files.
    #[error("read '{file}': tensor '{tensor}' is in another file too")]
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
    /// A file of safetensors is malformed.
    #[error("read '{file}'")]
    Safetensors {
        /// The file.
        file: String,
        /// The error.
        source: SafetensorsError,
    },
    /// A file of GGUF is malformed.
    #[error("read '{file}'")]
    Gguf {
        /// The file.
        file: String,
        /// The error.
        source: GgufError,
    },
    /// A file of PyTorch is malformed.
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
    /// The configuration is malformed, and there is nothing else.
    #[error("read '{file}'")]
    Config {
        /// The file.
        file: String,
        /// The error.
        source: ConfigError,
    },
}

/// Lists names in an error: at most eight.
pub(super) fn list(names: &[String]) -> String {
    let start: Vec<String> = names.iter().take(8).map(|name| shown(name)).collect();
    match names.len().saturating_sub(8) {
        0 => start.join(", "),
        more => format!("{} and {more} more", start.join(", ")),
    }
}
