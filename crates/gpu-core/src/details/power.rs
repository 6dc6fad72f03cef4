//! Power and temperature.

use super::readings::groups;
use crate::units::{Celsius, Milliwatts};

groups! {
    /// Power and its limits; draw and the limit in force are in the sample.
    Power {
        /// The requested limit.
        limit as "limit_mw": Milliwatts,
        /// The default limit, after a reset.
        default_limit as "default_limit_mw": Milliwatts,
        /// Lowest limit that can be set.
        limit_min as "limit_min_mw": Milliwatts,
        /// Highest limit that can be set.
        limit_max as "limit_max_mw": Milliwatts,
        /// Energy used since the driver was loaded.
        energy as "energy_mj": u64,
    }

    /// Power readings in addition to the draw in the sample, which is one of the two kinds.
    PowerReadings {
        /// The device supports power management.
        managed: bool,
        /// Instantaneous draw.
        instant as "instant_mw": Milliwatts,
        /// Average draw over the last second.
        average as "average_mw": Milliwatts,
    }

    /// Fans and temperatures; the GPU temperature is in the sample.
    Thermal {
        /// The intended speed of the first fan, in percent of its maximum. Can exceed 100.
        fan_speed as "fan_speed_percent": u32,
        /// Memory temperature.
        memory as "memory_c": Celsius,
        /// The slowdown threshold: clocks are reduced above it.
        slowdown as "slowdown_c": Celsius,
        /// The shutdown threshold.
        shutdown as "shutdown_c": Celsius,
        /// The margin to the temperature at which clocks are reduced.
        margin as "margin_c": Celsius,
    }
}
