//! Programs that are looked up in `PATH`.

use crate::MachineError;
use gpu_core::ErrorKind;
use gpu_host::supervise::find_trusted_program;
use std::path::PathBuf;

/// Returns what to start for the name of a program in `PATH`: for root, a file that no other user can
/// change or exchange; for others, the name.
///
/// # Errors
/// For root, when there is none.
pub fn program(name: &str) -> Result<PathBuf, MachineError> {
    find_trusted_program(name, std::env::var_os("PATH").as_deref()).map_err(|error| {
        let is_untrusted = error.kind() == ErrorKind::Invalid;
        let failed = MachineError::new(error);
        match is_untrusted {
            true => failed.with_hint(
                "root starts only what no other user can change: mend its owner and mode, or PATH",
            ),
            false => failed,
        }
    })
}
