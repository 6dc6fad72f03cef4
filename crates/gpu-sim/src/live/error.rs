//! Errors in creating or opening a session.

use super::LIBRARY;
use gpu_core::{Error, ErrorKind};
use std::path::PathBuf;

/// Why a session cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// An operation failed.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The library at this path is not a simulated NVML. Programs would run on the real machine.
    #[error("use '{}' as the simulated NVML", .0.display())]
    NotSimulated(PathBuf),
    /// The path of the session's directory is not absolute.
    #[error("find simulation session '{}'", .0.display())]
    Relative(PathBuf),
    /// Other users can write to each candidate directory.
    #[error(transparent)]
    NoPrivateDir(Error),
    /// A file that is built together with the program is missing.
    #[error("find {name} next to {}", program.display())]
    NotInstalled {
        /// The name of the file.
        name: String,
        /// The path of the program.
        program: PathBuf,
    },
}

impl LiveError {
    /// Returns a hint for the user; `None` if there is none.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            LiveError::Failed(_) => return None,
            LiveError::NotSimulated(_) => format!("use the {LIBRARY} built with gpuws"),
            LiveError::Relative(_) => "start it with 'gpuws sim'".to_owned(),
            LiveError::NoPrivateDir(_) => "set TMPDIR to a directory that you own".to_owned(),
            LiveError::NotInstalled { .. } => format!(
                "build it with the same profile (cargo build -p gpu-nvml-sim), or name the \
                 library: --library {LIBRARY}"
            ),
        })
    }
}

impl From<LiveError> for Error {
    fn from(error: LiveError) -> Self {
        let what = error.to_string();
        match error {
            LiveError::Failed(error) | LiveError::NoPrivateDir(error) => error,
            LiveError::NotSimulated(_) => {
                Error::new(ErrorKind::Invalid, what).with_source("it is not a simulated NVML")
            }
            LiveError::Relative(_) => Error::new(ErrorKind::Invalid, what)
                .with_source("the session path must be absolute"),
            LiveError::NotInstalled { .. } => Error::new(ErrorKind::Unsupported, what),
        }
    }
}

/// Returns the error for an I/O error in doing `what`.
pub(super) fn io(what: impl Into<String>, source: std::io::Error) -> LiveError {
    let kind = match source.kind() {
        // The caller named a directory instead of a file.
        std::io::ErrorKind::IsADirectory => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    };
    LiveError::Failed(Error::new(kind, what).with_source(source))
}
