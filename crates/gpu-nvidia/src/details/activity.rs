//! Utilisation and clocks of a device.

use super::fields;
use crate::call::{Answer, reading};
use crate::device::Device;
use crate::value::{megahertz, number, part, percent};
use gpu_core::{
    Absent, Activity, ApplicationClocks, ClockChoice, Clocks, Engines, Percent, Reading, Result,
    SupportedClocks, ThrottleReasons, ThrottleTimes,
};
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::structs::device::UtilizationInfo;
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
    NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
    NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
    NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
};

/// The lowest performance state; higher numbers are `NVML_PSTATE_UNKNOWN`.
const SLOWEST: u8 = 15;

pub(super) fn activity(device: Device<'_>) -> Result<Activity> {
    let rates = device.value("nvmlDeviceGetUtilizationRates", "for its utilisation", |device| {
        device.utilization_rates()
    })?;
    let purpose = "for its encoder utilisation";
    let encoder = device
        .value("nvmlDeviceGetEncoderUtilization", purpose, |device| device.encoder_utilization())?;
    let purpose = "for its decoder utilisation";
    let decoder = device
        .value("nvmlDeviceGetDecoderUtilization", purpose, |device| device.decoder_utilization())?;
    let state =
        device.value("nvmlDeviceGetPerformanceState", "for its performance state", |device| {
            device.performance_state()
        })?;
    let throttle = reasons(device.clock_reasons(), || device.clock_reasons_v1())?;
    let throttle_supported =
        reasons(device.supported_clock_reasons(), || device.supported_clock_reasons_v1())?;
    let purpose = "for its encoder sessions";
    let sessions =
        device.value("nvmlDeviceGetEncoderStats", purpose, |device| device.encoder_stats())?;
    Ok(Activity {
        memory: rates.and_then(|rates| percent(rates.memory)),
        encoder: encoder.and_then(share),
        decoder: decoder.and_then(share),
        performance_state: state.and_then(|state| performance_state(state.as_c())),
        throttle,
        throttle_supported,
        encoder_sessions: part(&sessions, |sessions| number(sessions.session_count)),
        encoder_fps: part(&sessions, |sessions| number(sessions.average_fps)),
        encoder_latency: part(&sessions, |sessions| number(sessions.average_latency)),
    })
}

/// Returns clock event reasons, from the function with the new name or the old one. NVML's bits are
/// those of [`ThrottleReasons`].
fn reasons(
    newer: Answer<u64>,
    older: impl FnOnce() -> Answer<u64>,
) -> Result<Reading<ThrottleReasons>> {
    let answer = match newer {
        Err(failure) if failure.is_too_old() => older(),
        answer => answer,
    };
    Ok(reading(answer)?.map(ThrottleReasons))
}

/// Returns the times with reduced clocks, which are field values in nanoseconds.
pub(super) fn throttle_times(device: Device<'_>) -> Result<ThrottleTimes> {
    let numbers = [
        NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
        NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
        NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
    ];
    let [power, sync, software, hardware, brake] = fields::values(device, numbers)?;
    Ok(ThrottleTimes {
        software_power_cap: power,
        sync_boost: sync,
        software_thermal: software,
        hardware_thermal: hardware,
        hardware_power_brake: brake,
    })
}

/// Returns the utilisation of an engine, without its sampling period.
fn share(reported: UtilizationInfo) -> Reading<Percent> {
    percent(reported.utilization)
}

pub(super) fn engines(device: Device<'_>) -> Result<Engines> {
    let jpeg = reading(device.jpeg())?;
    let ofa = reading(device.optical_flow())?;
    Ok(Engines { jpeg: jpeg.and_then(percent), ofa: ofa.and_then(percent) })
}

fn performance_state(number: u32) -> Reading<u8> {
    match u8::try_from(number) {
        Ok(state) if state <= SLOWEST => Ok(state),
        _ => Err(Absent::NotSupported),
    }
}

pub(super) fn clocks(device: Device<'_>) -> Result<Clocks> {
    let now = |kind| {
        let clock = device.query("nvmlDeviceGetClockInfo", "for a clock", |d| d.clock_info(kind));
        megahertz_of(clock)
    };
    let highest = |kind| {
        let purpose = "for a maximum clock";
        megahertz_of(device.query("nvmlDeviceGetMaxClockInfo", purpose, |d| d.max_clock_info(kind)))
    };
    Ok(Clocks {
        graphics: now(Clock::Graphics)?,
        sm: now(Clock::SM)?,
        memory: now(Clock::Memory)?,
        video: now(Clock::Video)?,
        graphics_max: highest(Clock::Graphics)?,
        sm_max: highest(Clock::SM)?,
        memory_max: highest(Clock::Memory)?,
        video_max: highest(Clock::Video)?,
    })
}

pub(super) fn application_clocks(device: Device<'_>) -> Result<ApplicationClocks> {
    let chosen = |kind| {
        megahertz_of(device.query(
            "nvmlDeviceGetApplicationsClock",
            "for an application clock",
            |device| device.applications_clock(kind),
        ))
    };
    let default = |kind| {
        megahertz_of(device.query(
            "nvmlDeviceGetDefaultApplicationsClock",
            "for a default application clock",
            |device| device.default_applications_clock(kind),
        ))
    };
    Ok(ApplicationClocks {
        graphics: chosen(Clock::Graphics)?,
        memory: chosen(Clock::Memory)?,
        default_graphics: default(Clock::Graphics)?,
        default_memory: default(Clock::Memory)?,
    })
}

/// Returns the graphics clocks for each memory clock, with one call for each.
pub(super) fn supported_clocks(device: Device<'_>) -> Result<SupportedClocks> {
    let purpose = "for its supported clocks";
    let memory = device.value("nvmlDeviceGetSupportedMemoryClocks", purpose, |device| {
        device.supported_memory_clocks()
    })?;
    let graphics = |memory_mhz| -> Result<Reading<ClockChoice>> {
        let clocks = device.value("nvmlDeviceGetSupportedGraphicsClocks", purpose, |device| {
            device.supported_graphics_clocks(memory_mhz)
        })?;
        Ok(clocks.map(|graphics_mhz| ClockChoice { memory_mhz, graphics_mhz }))
    };
    let combinations = match memory {
        Ok(memory) => {
            let choices: Vec<_> = memory.into_iter().map(graphics).collect::<Result<_>>()?;
            choices.into_iter().collect()
        }
        Err(absent) => Err(absent),
    };
    Ok(SupportedClocks { combinations })
}

fn megahertz_of(clock: Answer<u32>) -> Result<Reading<u32>> {
    Ok(reading(clock)?.and_then(megahertz))
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
