//! The NVLink fabric of a device.

use crate::call::reading;
use crate::device::Device;
use gpu_core::{Absent, Fabric, FabricState, Reading, Result};

pub(super) fn fabric(device: Device<'_>) -> Result<Fabric> {
    let reported = match device.fabric_v2() {
        Err(failure) if failure.is_too_old() => {
            reading(device.fabric().map(|fabric| (fabric.state, fabric.status, None)))?
        }
        answer => {
            reading(answer.map(|fabric| (fabric.state, fabric.status, Some(fabric.healthMask))))?
        }
    };
    let state = reported.and_then(|(number, ..)| state(number));
    // The other values are meaningless before the registration completes.
    let completed = state.and_then(|state| match state {
        FabricState::Completed => reported,
        _ => Err(Absent::NotSupported),
    });
    let health = match completed {
        Ok((.., Some(mask))) => health(mask),
        _ => Fabric::default(),
    };
    Ok(Fabric { state, status: completed.map(|(_, status, _)| status), ..health })
}

/// Decodes `nvmlGpuFabricInfo_v2_t::healthMask` (`NVML_GPU_FABRIC_HEALTH_MASK_*` in nvml.h): two
/// bits per condition, and four bits for the configuration error.
fn health(mask: u32) -> Fabric {
    let flag = |shift: u32| match mask >> shift & 3 {
        1 => Ok(true),
        2 => Ok(false),
        _ => Err(Absent::NotSupported),
    };
    let configuration = match mask >> 8 & 15 {
        0 => Err(Absent::NotSupported),
        1 => Ok(""),
        2 => Ok("Incorrect system GUID"),
        3 => Ok("Incorrect chassis serial number"),
        4 => Ok("No partition"),
        5 => Ok("Insufficient Nvlinks"),
        6 => Ok("Incompatible GPU firmware"),
        7 => Ok("Invalid location"),
        _ => Ok("Unknown"),
    };
    Fabric {
        bandwidth_degraded: flag(0),
        route_recovery: flag(2),
        route_unhealthy: flag(4),
        access_timeout_recovery: flag(6),
        incorrect_configuration: configuration.map(str::to_owned),
        ..Fabric::default()
    }
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

    #[test]
    fn health_mask_is_decoded() {
        let flags = |mask: u32| {
            let fabric = health(mask);
            [
                fabric.bandwidth_degraded,
                fabric.route_recovery,
                fabric.route_unhealthy,
                fabric.access_timeout_recovery,
            ]
        };
        let (none, yes, no) = (Err(Absent::NotSupported), Ok(true), Ok(false));
        for (mask, want) in [
            (0, [none; 4]),
            (0b10_10_10_10, [no; 4]),
            (0b10_01_10_10, [no, no, yes, no]),
            (0b00_11_01_01, [yes, yes, none, none]),
        ] {
            assert_eq!(flags(mask), want, "{mask:b}");
        }
        let wrong = |mask| health(mask).incorrect_configuration;
        assert_eq!(wrong(0x0aa), Err(Absent::NotSupported));
        assert_eq!(wrong(0x1aa), Ok(String::new()));
        assert_eq!(wrong(0x5aa).as_deref(), Ok("Insufficient Nvlinks"));
    }
}
