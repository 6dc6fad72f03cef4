//! How busy a device is, and what throttles it.

use super::readings::groups;
use crate::units::Percent;
use std::ops::{BitAnd, BitOr};

groups! {
    /// How busy the GPU is, and what reduces its clocks.
    Activity {
        /// Percentage of the sample period in which memory was read or written.
        memory as "memory_percent": Percent,
        /// Utilisation of the video encoder, in percent.
        encoder as "encoder_percent": Percent,
        /// Utilisation of the video decoder, in percent.
        decoder as "decoder_percent": Percent,
        /// Performance state, from P0 (fastest) to P15.
        performance_state: u8 => String = |state| format!("P{state}"),
        /// Reasons for reduced clocks as NVML's bits, including bits without a name.
        throttle json "throttle_code": ThrottleReasons {
            /// Reasons for reduced clocks. Empty if there is none.
            throttle_reasons: Vec<ThrottleReason> = ThrottleReason::all_of
        },
        /// Reasons that the GPU can report, as NVML's bits.
        throttle_supported json "throttle_supported_code": ThrottleReasons,
        /// Number of encoder sessions.
        encoder_sessions json "encoder_session_count": u32,
        /// Frames per second over all encoder sessions.
        encoder_fps json "encoder_frames_per_s": u32,
        /// Mean latency of the encoder, in microseconds.
        encoder_latency as "encoder_latency_us": u32,
    }

    /// Time with reduced clocks since the driver was loaded, by reason.
    ThrottleTimes {
        /// Below the power limit, in nanoseconds.
        software_power_cap as "software_power_cap_ns": u64,
        /// At the clocks of a group of GPUs, in nanoseconds.
        sync_boost as "sync_boost_ns": u64,
        /// Below the temperature limit, by the driver, in nanoseconds.
        software_thermal as "software_thermal_ns": u64,
        /// Below the temperature limit, by the hardware, in nanoseconds.
        hardware_thermal as "hardware_thermal_ns": u64,
        /// By a request of the power supply, in nanoseconds.
        hardware_power_brake as "hardware_power_brake_ns": u64,
    }

    /// Clocks that can be set.
    SupportedClocks {
        /// The graphics clocks for each memory clock, highest first.
        combinations: Vec<ClockChoice>,
    }

    /// Utilisation of the image engines.
    Engines {
        /// Utilisation of the JPEG decoder, in percent.
        jpeg as "jpeg_percent": Percent,
        /// Utilisation of the optical flow accelerator, in percent.
        ofa as "ofa_percent": Percent,
    }

    /// Clocks.
    Clocks {
        /// Graphics (shader) clock, in MHz.
        graphics as "graphics_mhz": u32,
        /// Clock of the streaming multiprocessors, in MHz.
        sm as "sm_mhz": u32,
        /// Memory clock, in MHz.
        memory as "memory_mhz": u32,
        /// Clock of the video engines, in MHz.
        video as "video_mhz": u32,
        /// Highest graphics clock, in MHz.
        graphics_max as "graphics_max_mhz": u32,
        /// Highest clock of the streaming multiprocessors, in MHz.
        sm_max as "sm_max_mhz": u32,
        /// Highest memory clock, in MHz.
        memory_max as "memory_max_mhz": u32,
        /// Highest clock of the video engines, in MHz.
        video_max as "video_max_mhz": u32,
    }

    /// Application clocks.
    ApplicationClocks {
        /// Graphics application clock, in MHz.
        graphics as "graphics_mhz": u32,
        /// Memory application clock, in MHz.
        memory as "memory_mhz": u32,
        /// Default graphics application clock, in MHz.
        default_graphics as "default_graphics_mhz": u32,
        /// Default memory application clock, in MHz.
        default_memory as "default_memory_mhz": u32,
    }
}

/// The graphics clocks that can be set with a memory clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockChoice {
    /// Memory clock, in MHz.
    pub memory_mhz: u32,
    /// Graphics clocks, in MHz.
    pub graphics_mhz: Vec<u32>,
}

/// A set of reasons for clocks below the requested ones.
///
/// The bits of named reasons are this project's. They equal NVML's (`nvmlClocksEventReasons`), so
/// NVML's further bits fit in; other adapters combine the named reasons with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ThrottleReasons(pub u64);

impl ThrottleReasons {
    /// No work.
    pub const IDLE: Self = Self(0x001);
    /// The setting of application clocks.
    pub const APPLICATION_CLOCKS: Self = Self(0x002);
    /// The driver keeps the power below the limit.
    pub const SOFTWARE_POWER_CAP: Self = Self(0x004);
    /// The hardware reduces the clocks, for any of its reasons.
    pub const HARDWARE_SLOWDOWN: Self = Self(0x008);
    /// The clocks of a group of devices are equal.
    pub const SYNC_BOOST: Self = Self(0x010);
    /// The driver keeps the temperature below the limit.
    pub const SOFTWARE_THERMAL: Self = Self(0x020);
    /// The hardware keeps the temperature below the limit.
    pub const HARDWARE_THERMAL: Self = Self(0x040);
    /// The power supply asks for less power.
    pub const HARDWARE_POWER_BRAKE: Self = Self(0x080);
    /// The setting of display clocks.
    pub const DISPLAY_CLOCKS: Self = Self(0x100);

    /// The named reasons, with the names that nvidia-smi gives them.
    pub const NAMED: [(Self, &'static str); 9] = [
        (Self::IDLE, "idle"),
        (Self::APPLICATION_CLOCKS, "applications clocks setting"),
        (Self::SOFTWARE_POWER_CAP, "software power cap"),
        (Self::HARDWARE_SLOWDOWN, "hardware slowdown"),
        (Self::SYNC_BOOST, "sync boost"),
        (Self::SOFTWARE_THERMAL, "software thermal slowdown"),
        (Self::HARDWARE_THERMAL, "hardware thermal slowdown"),
        (Self::HARDWARE_POWER_BRAKE, "hardware power brake slowdown"),
        (Self::DISPLAY_CLOCKS, "display clock setting"),
    ];

    /// Returns every named reason.
    pub fn all_named() -> Self {
        Self::NAMED.into_iter().fold(Self::default(), |set, (reason, _)| set | reason)
    }

    /// Returns whether any reason of `others` is in force.
    pub const fn has_any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the names of the reasons in force; a bit without a name is left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMED.into_iter();
        named.filter(move |(reason, _)| self.has_any(*reason)).map(|(_, name)| name)
    }
}

impl BitAnd for ThrottleReasons {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for ThrottleReasons {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The name of a reason for reduced clocks.
#[cfg(feature = "serde")]
#[derive(serde::Serialize)]
pub(crate) struct ThrottleReason(&'static str);

#[cfg(feature = "serde")]
impl ThrottleReason {
    fn all_of(reasons: ThrottleReasons) -> Vec<Self> {
        reasons.names().map(ThrottleReason).collect()
    }
}
