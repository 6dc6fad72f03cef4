//! How busy the parts of a device are, and how fast they run.

use crate::call::reading;
use crate::device::Device;
use crate::functions::{Function, Get};
use crate::value::{megahertz, number, percent};
use gpu_core::{
    Absent, Activity, ApplicationClocks, Clocks, Engines, Percent, Reading, Result, ThrottleReasons,
};
use nvml_wrapper_sys::bindings::nvmlUtilization_t;
use std::ffi::c_ulonglong;

/// Kinds of clocks (`nvmlClockType_t`).
const GRAPHICS: u32 = 0;
const SM: u32 = 1;
const MEMORY: u32 = 2;
const VIDEO: u32 = 3;

/// The slowest performance state; beyond it is `NVML_PSTATE_UNKNOWN`.
const SLOWEST: u8 = 15;

pub(super) fn activity(device: Device<'_>) -> Result<Activity> {
    let functions = &device.caller.functions;
    let rates = reading(device.get(&functions.nvmlDeviceGetUtilizationRates))?;
    let encoder = reading(device.get_two(&functions.nvmlDeviceGetEncoderUtilization))?;
    let decoder = reading(device.get_two(&functions.nvmlDeviceGetDecoderUtilization))?;
    let state = reading(device.get(&functions.nvmlDeviceGetPerformanceState))?;
    let throttle = reasons(
        device,
        &functions.nvmlDeviceGetCurrentClocksEventReasons,
        &functions.nvmlDeviceGetCurrentClocksThrottleReasons,
    )?;
    let throttle_supported = reasons(
        device,
        &functions.nvmlDeviceGetSupportedClocksEventReasons,
        &functions.nvmlDeviceGetSupportedClocksThrottleReasons,
    )?;
    let sessions = encoder_sessions(device)?;
    Ok(Activity {
        memory: rates.and_then(|rates: nvmlUtilization_t| percent(rates.memory)),
        encoder: encoder.and_then(share),
        decoder: decoder.and_then(share),
        performance_state: state.and_then(performance_state),
        throttle,
        throttle_supported,
        encoder_sessions: sessions.and_then(|(sessions, _, _)| number(sessions)),
        encoder_fps: sessions.and_then(|(_, fps, _)| number(fps)),
        encoder_latency: sessions.and_then(|(_, _, latency)| number(latency)),
    })
}

/// Returns reasons for low clocks, by the function's name or by its older one.
fn reasons(
    device: Device<'_>,
    now: &Function<Get<c_ulonglong>>,
    before: &Function<Get<c_ulonglong>>,
) -> Result<Reading<ThrottleReasons>> {
    let answer = match device.get(now) {
        Err(failure) if failure.is_too_old() => device.get(before),
        answer => answer,
    };
    Ok(reading(answer)?.map(ThrottleReasons))
}

/// Reads the share of time that an engine worked; beside it stands how long it was looked at.
fn share((share, _period): (u32, u32)) -> Reading<Percent> {
    percent(share)
}

pub(super) fn engines(device: Device<'_>) -> Result<Engines> {
    let functions = &device.caller.functions;
    let jpeg = reading(device.get_two(&functions.nvmlDeviceGetJpgUtilization))?;
    let ofa = reading(device.get_two(&functions.nvmlDeviceGetOfaUtilization))?;
    Ok(Engines { jpeg: jpeg.and_then(share), ofa: ofa.and_then(share) })
}

/// Returns the number of sessions, their frames per second and their latency.
fn encoder_sessions(device: Device<'_>) -> Result<Reading<(u32, u32, u32)>> {
    let function = &device.caller.functions.nvmlDeviceGetEncoderStats;
    let (mut sessions, mut fps, mut latency) = (0, 0, 0);
    // SAFETY: the three numbers are what the function fills in.
    let answer = device
        .call(function, |f, handle| unsafe { f(handle, &mut sessions, &mut fps, &mut latency) });
    Ok(reading(answer)?.map(|()| (sessions, fps, latency)))
}

fn performance_state(number: u32) -> Reading<u8> {
    match u8::try_from(number) {
        Ok(state) if state <= SLOWEST => Ok(state),
        _ => Err(Absent::NotSupported),
    }
}

pub(super) fn clocks(device: Device<'_>) -> Result<Clocks> {
    let functions = &device.caller.functions;
    let clock = |function, kind| -> Result<Reading<u32>> {
        Ok(reading(device.pick(function, kind))?.and_then(megahertz))
    };
    let now = |kind| clock(&functions.nvmlDeviceGetClockInfo, kind);
    let highest = |kind| clock(&functions.nvmlDeviceGetMaxClockInfo, kind);
    Ok(Clocks {
        graphics: now(GRAPHICS)?,
        sm: now(SM)?,
        memory: now(MEMORY)?,
        video: now(VIDEO)?,
        graphics_max: highest(GRAPHICS)?,
        sm_max: highest(SM)?,
        memory_max: highest(MEMORY)?,
        video_max: highest(VIDEO)?,
    })
}

pub(super) fn application_clocks(device: Device<'_>) -> Result<ApplicationClocks> {
    let functions = &device.caller.functions;
    let clock = |function, kind| -> Result<Reading<u32>> {
        Ok(reading(device.pick(function, kind))?.and_then(megahertz))
    };
    let chosen = |kind| clock(&functions.nvmlDeviceGetApplicationsClock, kind);
    let default = |kind| clock(&functions.nvmlDeviceGetDefaultApplicationsClock, kind);
    Ok(ApplicationClocks {
        graphics: chosen(GRAPHICS)?,
        memory: chosen(MEMORY)?,
        default_graphics: default(GRAPHICS)?,
        default_memory: default(MEMORY)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_performance_state_is_absent() {
        assert_eq!(performance_state(0), Ok(0));
        assert_eq!(performance_state(15), Ok(15));
        for unknown in [16, 32, 256, u32::MAX] {
            assert_eq!(performance_state(unknown), Err(Absent::NotSupported));
        }
    }
}
