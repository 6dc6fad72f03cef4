//! Power and temperature.

use super::readings::groups;
use crate::units::{Celsius, Milliwatts};

groups! {
    /// Power limits and energy.
    Power {
        /// Requested power limit, in milliwatts.
        limit as "limit_mw": Milliwatts,
        /// Default power limit, in milliwatts.
        default_limit as "default_limit_mw": Milliwatts,
        /// Lowest power limit that can be set, in milliwatts.
        limit_min as "limit_min_mw": Milliwatts,
        /// Highest power limit that can be set, in milliwatts.
        limit_max as "limit_max_mw": Milliwatts,
        /// Energy used since the driver was loaded, in millijoules.
        energy as "energy_mj": u64,
    }

    /// Readings of the power draw.
    PowerReadings {
        /// Whether the GPU supports power management.
        managed: bool,
        /// Instantaneous power draw, in milliwatts.
        instant as "instant_mw": Milliwatts,
        /// Average power draw over the last second, in milliwatts.
        average as "average_mw": Milliwatts,
        /// Share of the peak power that the GPU may draw for a short time (EDPp), in percent.
        peak_share as "peak_share_percent": u32,
    }

    /// Power of the module, which contains the GPU and, on a superchip, the CPU.
    ModulePower {
        /// Average power draw, in milliwatts.
        average as "average_mw": Milliwatts,
        /// Instantaneous power draw, in milliwatts.
        instant as "instant_mw": Milliwatts,
        /// Requested power limit, in milliwatts.
        limit as "limit_mw": Milliwatts,
        /// Enforced power limit, in milliwatts.
        enforced_limit as "enforced_limit_mw": Milliwatts,
        /// Default power limit, in milliwatts.
        default_limit as "default_limit_mw": Milliwatts,
        /// Lowest power limit that can be set, in milliwatts.
        limit_min as "limit_min_mw": Milliwatts,
        /// Highest power limit that can be set, in milliwatts.
        limit_max as "limit_max_mw": Milliwatts,
    }

    /// Fan and temperatures.
    Thermal {
        /// Intended speed of the first fan, in percent of its maximum. It can exceed 100.
        fan_speed as "fan_speed_percent": u32,
        /// Temperature of the memory, in degrees Celsius.
        memory as "memory_c": Celsius,
        /// Temperature above which clocks are reduced, in degrees Celsius.
        slowdown as "slowdown_c": Celsius,
        /// Temperature at which the GPU shuts down, in degrees Celsius.
        shutdown as "shutdown_c": Celsius,
        /// Margin to the temperature at which clocks are reduced, in degrees Celsius.
        margin as "margin_c": Celsius,
    }
}
