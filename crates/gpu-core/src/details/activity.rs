//! How busy a device is, and what throttles it.

use super::readings::groups;
use crate::units::Percent;

groups! {
    /// How busy the parts of the device are.
    Activity {
        /// Share of the sample window in which memory was read or written.
        memory as "memory_percent": Percent,
        /// Share in which the video encoder worked.
        encoder as "encoder_percent": Percent,
        /// Share in which the video decoder worked.
        decoder as "decoder_percent": Percent,
        /// Performance state: 0 is the fastest, 15 the slowest.
        performance_state: u8,
        /// Reasons for clocks below the requested ones.
        throttle: ThrottleReasons,
        /// Those that the device can report.
        throttle_supported: ThrottleReasons,
        /// Encoder sessions.
        encoder_sessions: u32,
        /// Frames per second over all encoder sessions.
        encoder_fps: u32,
        /// Mean latency of the encoder.
        encoder_latency as "encoder_latency_us": u32,
    }

    /// Utilisation of the image engines, as a share of the sample window.
    Engines {
        /// The JPEG decoder.
        jpeg as "jpeg_percent": Percent,
        /// The optical flow accelerator.
        ofa as "ofa_percent": Percent,
    }

    /// Clocks, in MHz.
    Clocks {
        /// Graphics (shader) clock.
        graphics as "graphics_mhz": u32,
        /// Streaming multiprocessors.
        sm as "sm_mhz": u32,
        /// Memory.
        memory as "memory_mhz": u32,
        /// Video engines.
        video as "video_mhz": u32,
        /// Highest graphics clock.
        graphics_max as "graphics_max_mhz": u32,
        /// Highest clock of the multiprocessors.
        sm_max as "sm_max_mhz": u32,
        /// Highest memory clock.
        memory_max as "memory_max_mhz": u32,
        /// Highest clock of the video engines.
        video_max as "video_max_mhz": u32,
    }

    /// Application clocks, in MHz, on devices that support them.
    ApplicationClocks {
        /// Current graphics (shader) application clock.
        graphics as "graphics_mhz": u32,
        /// Current memory application clock.
        memory as "memory_mhz": u32,
        /// Default graphics application clock.
        default_graphics as "default_graphics_mhz": u32,
        /// Default memory application clock.
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
