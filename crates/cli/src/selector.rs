//! The error for a device name that matches no device, or several.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::wording;
use gpu_core::{SelectError, Selector, Snapshot};

/// Returns the indexes of the selected devices.
///
/// # Errors
/// The error of the driver if the driver has not answered, because then no device can be found;
/// otherwise an error if a selector matches no device.
pub(crate) fn chosen(snapshot: &Snapshot, selectors: &[Selector]) -> Result<Vec<u32>, Failure> {
    match &snapshot.driver {
        Err(fault) if snapshot.devices.is_empty() && !selectors.is_empty() => {
            Err(gpu_core::Error::new(fault.kind, fault.text.clone()).into())
        }
        _ => Ok(gpu_core::selector::indexes(&snapshot.devices, selectors)?),
    }
}

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
