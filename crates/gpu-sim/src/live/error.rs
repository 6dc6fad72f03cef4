//! Why a session cannot be made or opened.

use super::LIBRARY;
use gpu_core::{Error, ErrorKind};
use std::path::PathBuf;

/// Why a session cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Something failed.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The library that is named is no simulated NVML: programs would run on the real machine.
    #[error("simulate with '{}'", .0.display())]
    NotSimulated(PathBuf),
    /// The session's directory is not named from the root on.
    #[error("find session '{}' of the simulated NVML", .0.display())]
    Relative(PathBuf),
    /// Somebody else can write into each directory that the session's could be made in.
    #[error(transparent)]
    NoPlace(Error),
    /// What is built together with the program is not there.
    #[error("find {name} beside {}", program.display())]
    NotBeside {
        /// What it is called.
        name: String,
        /// The program.
        program: PathBuf,
    },
}

impl LiveError {
    /// Returns what to do about it; `None` where nothing is known that helps.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            LiveError::Failed(_) => return None,
            LiveError::NotSimulated(_) => format!("use the {LIBRARY} built with gpuws"),
            LiveError::Relative(_) => "start it with 'gpuws sim'".to_owned(),
            LiveError::NoPlace(_) => "set TMPDIR to a directory that you own".to_owned(),
            LiveError::NotBeside { .. } => format!(
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
            LiveError::Failed(error) | LiveError::NoPlace(error) => error,
            LiveError::NotSimulated(_) => {
                Error::new(ErrorKind::Invalid, what).with_source("it is not a simulated NVML")
            }
            LiveError::Relative(_) => Error::new(ErrorKind::Invalid, what)
                .with_source("the session path must be absolute"),
            LiveError::NotBeside { .. } => Error::new(ErrorKind::Unsupported, what),
        }
    }
}

/// Returns a failure to do `what` with a file, from what the system said.
pub(super) fn io(what: impl Into<String>, source: std::io::Error) -> LiveError {
    let kind = match source.kind() {
        // A name was given where a file's was wanted.
        std::io::ErrorKind::IsADirectory => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    };
    LiveError::Failed(Error::new(kind, what).with_source(source))
}
