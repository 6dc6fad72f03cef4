//! The NVLink fabric of a device.

use crate::call::reading;
use crate::device::Device;
use gpu_core::{Absent, Fabric, FabricState, Reading, Result};

pub(super) fn fabric(device: Device<'_>) -> Result<Fabric> {
    let reported = reading(device.fabric())?;
    let state = reported.and_then(|fabric| state(fabric.state));
    Ok(Fabric {
        state,
        // It has no meaning before the registration is completed.
        status: state.and_then(|state| match state {
            FabricState::Completed => reported.map(|fabric| fabric.status),
            _ => Err(Absent::NotSupported),
        }),
        ..Fabric::default()
    })
}

/// Decodes `nvmlGpuFabricState_t`.
fn state(number: u8) -> Reading<FabricState> {
    Ok(match number {
        0 => FabricState::None,
        1 => FabricState::NotStarted,
        2 => FabricState::InProgress,
        3 => FabricState::Completed,
        _ => return Err(Absent::Implausible),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabric_states_are_decoded() {
        use FabricState::{Completed, InProgress, None, NotStarted};
        let states = [None, NotStarted, InProgress, Completed].map(Ok);
        assert_eq!([0, 1, 2, 3].map(state), states);
        assert_eq!(state(4), Err(Absent::Implausible));
    }
}
