//! Power and heat.

use super::readings::groups;
use crate::units::{Celsius, Milliwatts};

groups! {
    /// Power and its limits; draw and the limit in force are in the sample.
    Power {
        /// Limit that was asked for.
        limit as "limit_mw": Milliwatts,
        /// Limit after a reset.
        default_limit as "default_limit_mw": Milliwatts,
        /// Lowest limit that can be set.
        limit_min as "limit_min_mw": Milliwatts,
        /// Highest limit that can be set.
        limit_max as "limit_max_mw": Milliwatts,
        /// Energy used since the driver was loaded.
        energy as "energy_mj": u64,
    }

    /// What is read of power beside the draw in the sample, which is of the one kind or the other.
    PowerReadings {
        /// The device keeps to a limit.
        managed: bool,
        /// Drawn at this moment.
        instant as "instant_mw": Milliwatts,
        /// Drawn over the last second.
        average as "average_mw": Milliwatts,
    }

    /// Fans and temperatures; that of the chip is in the sample.
    Thermal {
        /// Speed that the first fan is meant to have, in percent of its highest. Can be above 100.
        fan_speed as "fan_speed_percent": u32,
        /// Temperature of the memory.
        memory as "memory_c": Celsius,
        /// Clocks fall from here on.
        slowdown as "slowdown_c": Celsius,
        /// The device switches itself off.
        shutdown as "shutdown_c": Celsius,
        /// How far the chip is from the temperature at which its clocks fall.
        margin as "margin_c": Celsius,
    }
}
