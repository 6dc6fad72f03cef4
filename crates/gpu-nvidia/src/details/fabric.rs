//! The NVLink fabric of a device.

use crate::call::{Answer, reading};
use crate::device::Device;
use crate::raw::Data;
use crate::value::{part, switch};
use gpu_core::{Absent, Fabric, FabricState, Platform, Reading, Result};
use nvml_wrapper_sys::bindings::{nvmlGpuFabricInfo_v3_t, nvmlPlatformInfo_t};

pub(super) fn fabric(device: Device<'_>) -> Result<Fabric> {
    let reported = reading(newest(device))?;
    let state = reported.and_then(|fabric| state(fabric.state));
    // The other values are meaningless before the registration completes.
    let completed = state.and_then(|state| match state {
        FabricState::Completed => reported,
        _ => Err(Absent::NotSupported),
    });
    // An unsupported condition is 0, and so is the health in a version without it.
    Ok(Fabric {
        state,
        status: completed.map(|fabric| fabric.status),
        clique: completed.map(|fabric| fabric.cliqueId),
        cluster: completed.map(|fabric| uuid(fabric.clusterUuid)),
        health: completed.and_then(|fabric| summary(fabric.healthSummary)),
        ..completed.map(|fabric| health(fabric.healthMask)).unwrap_or_default()
    })
}

/// Returns the newest version that the driver supports; values that it lacks are 0.
fn newest(device: Device<'_>) -> Answer<nvmlGpuFabricInfo_v3_t> {
    match device.fabric_v3() {
        Err(failure) if failure.is_too_old() => {}
        answer => return answer,
    }
    match device.fabric_v2() {
        Err(failure) if failure.is_too_old() => {}
        answer => {
            return answer.map(|old| nvmlGpuFabricInfo_v3_t {
                clusterUuid: old.clusterUuid,
                status: old.status,
                cliqueId: old.cliqueId,
                state: old.state,
                healthMask: old.healthMask,
                ..Data::zeroed()
            });
        }
    }
    device.fabric().map(|old| nvmlGpuFabricInfo_v3_t {
        clusterUuid: old.clusterUuid,
        status: old.status,
        cliqueId: old.cliqueId,
        state: old.state,
        ..Data::zeroed()
    })
}

/// Formats the bytes of a UUID in the usual groups.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = format!("{:032x}", u128::from_be_bytes(bytes));
    [20, 16, 12, 8].into_iter().for_each(|at| text.insert(at, '-'));
    text
}

/// Returns the overall health, in nvidia-smi's words, of `nvmlGpuFabricInfo_v3_t::healthSummary` (`NVML_GPU_FABRIC_HEALTH_SUMMARY_*` in nvml.h).
fn summary(number: u8) -> Reading<String> {
    match number {
        1 => Ok("Healthy".to_owned()),
        2 => Ok("Unhealthy".to_owned()),
        3 => Ok("Limited Capacity".to_owned()),
        _ => Err(Absent::NotSupported),
    }
}

pub(super) fn platform(device: Device<'_>) -> Result<Platform> {
    let platform = reading(device.platform())?;
    let byte = |of: fn(&nvmlPlatformInfo_t) -> u8| part(&platform, |found| Ok(of(found).into()));
    Ok(Platform {
        chassis_serial: part(&platform, |found| Ok(text(found.chassisSerialNumber))),
        slot: byte(|platform| platform.slotNumber),
        tray: byte(|platform| platform.trayIndex),
        host: byte(|platform| platform.hostId),
        switched: platform.and_then(|platform| switch(platform.peerType.into())),
        module: byte(|platform| platform.moduleId),
        // Only the first half of the field is in use.
        fabric_guid: platform.map(|platform| (u128::from_be_bytes(platform.ibGuid) >> 64) as u64),
    })
}

/// Returns the text up to the first zero.
fn text(bytes: [u8; 16]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
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
    fn uuid_and_text_are_read_from_their_bytes() {
        let bytes = std::array::from_fn(|at| at as u8 * 0x11);
        assert_eq!(uuid(bytes), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(text(*b"1820\0rest of it."), "1820");
        assert_eq!(text(*b"a full field: 16"), "a full field: 16");
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
