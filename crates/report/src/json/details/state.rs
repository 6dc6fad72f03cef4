//! How busy the device is, how fast it runs, what it draws and how warm it is.

use super::{Noted, view};
use gpu_core::{Percent, ThrottleReasons};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Activity {
    memory_percent: Option<u8>,
    encoder_percent: Option<u8>,
    decoder_percent: Option<u8>,
    performance_state: Option<String>,
    /// Reasons for clocks below what was asked for; empty where there is none.
    throttle_reasons: Option<Vec<&'static str>>,
    /// The same as NVML's bits, a reason without a name among them.
    throttle_code: Option<u64>,
    /// Those that the device can tell.
    throttle_supported_code: Option<u64>,
    encoder_session_count: Option<u32>,
    encoder_frames_per_s: Option<u32>,
    encoder_latency_us: Option<u32>,
}

impl Activity {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Activity) -> Self {
        let names = |reasons: ThrottleReasons| reasons.names().collect();
        let bits = |ThrottleReasons(bits)| bits;
        view!(
            noted,
            "activity",
            Activity {
                memory_percent: group.memory.map(Percent::get),
                encoder_percent: group.encoder.map(Percent::get),
                decoder_percent: group.decoder.map(Percent::get),
                performance_state: group.performance_state.map(|state| format!("P{state}")),
                throttle_reasons: group.throttle.map(names),
                throttle_code: group.throttle.map(bits),
                throttle_supported_code: group.throttle_supported.map(bits),
                encoder_session_count: group.encoder_sessions,
                encoder_frames_per_s: group.encoder_fps,
                encoder_latency_us: group.encoder_latency,
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct Engines {
    jpeg_percent: Option<u8>,
    ofa_percent: Option<u8>,
}

impl Engines {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Engines) -> Self {
        view!(
            noted,
            "engines",
            Engines {
                jpeg_percent: group.jpeg.map(Percent::get),
                ofa_percent: group.ofa.map(Percent::get),
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct Clocks {
    graphics_mhz: Option<u32>,
    sm_mhz: Option<u32>,
    memory_mhz: Option<u32>,
    video_mhz: Option<u32>,
    graphics_max_mhz: Option<u32>,
    sm_max_mhz: Option<u32>,
    memory_max_mhz: Option<u32>,
    video_max_mhz: Option<u32>,
}

impl Clocks {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Clocks) -> Self {
        view!(
            noted,
            "clocks",
            Clocks {
                graphics_mhz: group.graphics,
                sm_mhz: group.sm,
                memory_mhz: group.memory,
                video_mhz: group.video,
                graphics_max_mhz: group.graphics_max,
                sm_max_mhz: group.sm_max,
                memory_max_mhz: group.memory_max,
                video_max_mhz: group.video_max,
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct ApplicationClocks {
    graphics_mhz: Option<u32>,
    memory_mhz: Option<u32>,
    default_graphics_mhz: Option<u32>,
    default_memory_mhz: Option<u32>,
}

impl ApplicationClocks {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::ApplicationClocks) -> Self {
        view!(
            noted,
            "application_clocks",
            ApplicationClocks {
                graphics_mhz: group.graphics,
                memory_mhz: group.memory,
                default_graphics_mhz: group.default_graphics,
                default_memory_mhz: group.default_memory,
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct Power {
    limit_mw: Option<u64>,
    default_limit_mw: Option<u64>,
    limit_min_mw: Option<u64>,
    limit_max_mw: Option<u64>,
    energy_mj: Option<u64>,
}

impl Power {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Power) -> Self {
        view!(
            noted,
            "power",
            Power {
                limit_mw: group.limit.map(|power| power.0),
                default_limit_mw: group.default_limit.map(|power| power.0),
                limit_min_mw: group.limit_min.map(|power| power.0),
                limit_max_mw: group.limit_max.map(|power| power.0),
                energy_mj: group.energy,
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct PowerReadings {
    managed: Option<bool>,
    instant_mw: Option<u64>,
    average_mw: Option<u64>,
}

impl PowerReadings {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::PowerReadings) -> Self {
        view!(
            noted,
            "power_readings",
            PowerReadings {
                managed: group.managed,
                instant_mw: group.instant.map(|power| power.0),
                average_mw: group.average.map(|power| power.0),
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct Thermal {
    fan_speed_percent: Option<u32>,
    memory_c: Option<i32>,
    slowdown_c: Option<i32>,
    shutdown_c: Option<i32>,
    margin_c: Option<i32>,
}

impl Thermal {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Thermal) -> Self {
        view!(
            noted,
            "thermal",
            Thermal {
                fan_speed_percent: group.fan_speed,
                memory_c: group.memory.map(|at| at.0),
                slowdown_c: group.slowdown.map(|at| at.0),
                shutdown_c: group.shutdown.map(|at| at.0),
                margin_c: group.margin.map(|at| at.0),
            }
        )
    }
}
