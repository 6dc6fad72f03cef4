//! Programs that are looked up in `PATH`.

use crate::MachineError;
use gpu_core::ErrorKind;
use gpu_host::supervise::{ProgramFault, find_trusted_program};
use std::path::PathBuf;

/// Returns what to start for the name of a program in `PATH`: for root, a file that no other user can
/// change or exchange; for others, the name.
///
/// # Errors
/// For root, when there is none, or another user can change it.
pub fn program(name: &str) -> Result<PathBuf, MachineError> {
    find_trusted_program(name, std::env::var_os("PATH").as_deref()).map_err(|error| {
        let hint = match (error.kind(), ProgramFault::behind(&error)) {
            (ErrorKind::Invalid, _) => Some(format!(
                "root starts only programs that no other user can change: fix the owner and mode \
                 of {name}, or PATH"
            )),
            (_, Some(ProgramFault::NotFound(None))) => {
                Some("install it, or add its directory to PATH".to_owned())
            }
            (_, fault) => fault.and_then(ProgramFault::hint),
        };
        hint.into_iter().fold(MachineError::new(error), MachineError::with_hint)
    })
}
