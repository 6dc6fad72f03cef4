//! The error for a device name that matches no device, or several.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::wording;
use gpu_core::SelectError;

impl From<SelectError> for Failure {
    fn from(error: SelectError) -> Self {
        let failure = Failure::new(Exit::Usage, error.to_string());
        let matches = match error {
            SelectError::NotFound { known, .. } => {
                return failure.with_hint(wording::choose_from(&known));
            }
            SelectError::Ambiguous { matches, .. } => format!("GPUs {}", wording::ranges(&matches)),
            SelectError::AmbiguousPart { matches, .. } => {
                wording::count(matches, "MIG device", "MIG devices")
            }
        };
        failure
            .with_source(format!("the prefix matches {matches}"))
            .with_hint("use a longer prefix")
    }
}
