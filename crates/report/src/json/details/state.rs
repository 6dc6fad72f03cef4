//! How busy the device is, how fast it runs, what it draws and how warm it is.

use super::{Noted, view};
use gpu_core::{Percent, ThrottleReasons};
use serde::Serialize;

/// How busy the GPU is, and what reduces its clocks.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Activity {
    /// Percentage of the sample period in which memory was read or written. Null if unknown.
    pub memory_percent: Option<u8>,
    /// Utilisation of the video encoder, in percent. Null if unknown.
    pub encoder_percent: Option<u8>,
    /// Utilisation of the video decoder, in percent. Null if unknown.
    pub decoder_percent: Option<u8>,
    /// Performance state, from P0 (fastest) to P15. Null if unknown.
    pub performance_state: Option<String>,
    /// Reasons for reduced clocks. Empty if there is none. Null if unknown.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<crate::schema::ThrottleReason>>"))]
    pub throttle_reasons: Option<Vec<&'static str>>,
    /// Reasons for reduced clocks as NVML's bits, including bits without a name. Null if unknown.
    pub throttle_code: Option<u64>,
    /// Reasons that the GPU can report, as NVML's bits. Null if unknown.
    pub throttle_supported_code: Option<u64>,
    /// Number of encoder sessions. Null if unknown.
    pub encoder_session_count: Option<u32>,
    /// Frames per second over all encoder sessions. Null if unknown.
    pub encoder_frames_per_s: Option<u32>,
    /// Mean latency of the encoder, in microseconds. Null if unknown.
    pub encoder_latency_us: Option<u32>,
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

/// Utilisation of the image engines.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Engines {
    /// Utilisation of the JPEG decoder, in percent. Null if unknown.
    pub jpeg_percent: Option<u8>,
    /// Utilisation of the optical flow accelerator, in percent. Null if unknown.
    pub ofa_percent: Option<u8>,
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

/// Clocks.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clocks {
    /// Graphics (shader) clock, in MHz. Null if unknown.
    pub graphics_mhz: Option<u32>,
    /// Clock of the streaming multiprocessors, in MHz. Null if unknown.
    pub sm_mhz: Option<u32>,
    /// Memory clock, in MHz. Null if unknown.
    pub memory_mhz: Option<u32>,
    /// Clock of the video engines, in MHz. Null if unknown.
    pub video_mhz: Option<u32>,
    /// Highest graphics clock, in MHz. Null if unknown.
    pub graphics_max_mhz: Option<u32>,
    /// Highest clock of the streaming multiprocessors, in MHz. Null if unknown.
    pub sm_max_mhz: Option<u32>,
    /// Highest memory clock, in MHz. Null if unknown.
    pub memory_max_mhz: Option<u32>,
    /// Highest clock of the video engines, in MHz. Null if unknown.
    pub video_max_mhz: Option<u32>,
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

/// Application clocks.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApplicationClocks {
    /// Graphics application clock, in MHz. Null if unknown.
    pub graphics_mhz: Option<u32>,
    /// Memory application clock, in MHz. Null if unknown.
    pub memory_mhz: Option<u32>,
    /// Default graphics application clock, in MHz. Null if unknown.
    pub default_graphics_mhz: Option<u32>,
    /// Default memory application clock, in MHz. Null if unknown.
    pub default_memory_mhz: Option<u32>,
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

/// Power limits and energy.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Power {
    /// Requested power limit, in milliwatts. Null if unknown.
    pub limit_mw: Option<u64>,
    /// Default power limit, in milliwatts. Null if unknown.
    pub default_limit_mw: Option<u64>,
    /// Lowest power limit that can be set, in milliwatts. Null if unknown.
    pub limit_min_mw: Option<u64>,
    /// Highest power limit that can be set, in milliwatts. Null if unknown.
    pub limit_max_mw: Option<u64>,
    /// Energy used since the driver was loaded, in millijoules. Null if unknown.
    pub energy_mj: Option<u64>,
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

/// Readings of the power draw.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PowerReadings {
    /// Whether the GPU supports power management. Null if unknown.
    pub managed: Option<bool>,
    /// Instantaneous power draw, in milliwatts. Null if unknown.
    pub instant_mw: Option<u64>,
    /// Average power draw over the last second, in milliwatts. Null if unknown.
    pub average_mw: Option<u64>,
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

/// Fan and temperatures.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thermal {
    /// Intended speed of the first fan, in percent of its maximum. It can exceed 100. Null if
    /// unknown.
    pub fan_speed_percent: Option<u32>,
    /// Temperature of the memory, in degrees Celsius. Null if unknown.
    pub memory_c: Option<i32>,
    /// Temperature above which clocks are reduced, in degrees Celsius. Null if unknown.
    pub slowdown_c: Option<i32>,
    /// Temperature at which the GPU shuts down, in degrees Celsius. Null if unknown.
    pub shutdown_c: Option<i32>,
    /// Margin to the temperature at which clocks are reduced, in degrees Celsius. Null if unknown.
    pub margin_c: Option<i32>,
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
