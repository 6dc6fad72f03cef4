//! How busy a device is, and what throttles it.

use super::readings::groups;
use crate::units::Percent;

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

/// Reasons for clocks below the requested ones: a set of bits with NVML's meaning
/// (`nvmlClocksThrottleReasons`, later `nvmlClocksEventReasons`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ThrottleReasons(pub u64);

impl ThrottleReasons {
    /// The named reasons, each with its bit and the name that nvidia-smi gives it.
    pub const NAMED: [(u64, &'static str); 9] = [
        (0x001, "idle"),
        (0x002, "applications clocks setting"),
        (0x004, "software power cap"),
        (0x008, "hardware slowdown"),
        (0x010, "sync boost"),
        (0x020, "software thermal slowdown"),
        (0x040, "hardware thermal slowdown"),
        (0x080, "hardware power brake slowdown"),
        (0x100, "display clock setting"),
    ];

    /// Returns every named reason.
    pub fn all_named() -> Self {
        ThrottleReasons(Self::NAMED.iter().fold(0, |set, (bit, _)| set | bit))
    }

    /// Returns the names of the reasons in force; a bit without a name is left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMED.into_iter();
        named.filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
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
