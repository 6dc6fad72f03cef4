//! Columns for temperatures and power.

use crate::csv::field::{Field, detail, enabled, plain, watts};

/// Makes a column for the power of the module, in watts.
macro_rules! module {
    ($name:literal, $about:literal, $value:ident $(, $other:literal)?) => {
        detail!($name, $about, ModulePower: module_power.$value, watts).unit("W").or(&[$($other)?])
    };
}

/// Makes columns for values of power smoothing, which few GPUs have.
macro_rules! smoothing {
    ($($name:literal $($unit:literal)?: $about:literal,)*) => {
        &[$(
            Field::unreported(concat!("power_smoothing.", $name), $about) $(.unit($unit))?,
        )*]
    };
}

/// The columns from `temperature.gpu` on.
pub(super) const FIELDS: &[Field] = &[
    Field::new("temperature.gpu", "core temperature in °C", |row| {
        row.sample()?.temperature.map(|at| plain(&at.0))
    }),
    detail!(
        "temperature.gpu.tlimit", "T.Limit margin to slowdown in °C",
        Thermal: thermal.margin, |at| plain(&at.0)
    ),
    detail!(
        "temperature.memory", "memory temperature in °C",
        Thermal: thermal.memory, |at| plain(&at.0)
    )
    .bare(|_| true),
    detail!(
        "power.management", "power management mode",
        PowerReadings: power_readings.managed, enabled
    ),
    Field::new("power.draw", "power draw", |row| {
        row.sample()?.power_draw.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W"),
    detail!(
        "power.draw.average", "average power draw",
        PowerReadings: power_readings.average, watts
    )
    .unit("W")
    .or(&["gpu.power.draw.average"]),
    detail!(
        "power.draw.instant", "instantaneous power draw",
        PowerReadings: power_readings.instant, watts
    )
    .unit("W")
    .or(&["gpu.power.draw.instant"]),
    detail!("power.limit", "requested power limit", Power: power.limit, watts)
        .unit("W")
        .or(&["gpu.power.requested_limit"]),
    Field::new("enforced.power.limit", "enforced power limit", |row| {
        row.sample()?.power_limit.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W")
    .or(&["gpu.power.current_limit"]),
    detail!(
        "power.default_limit", "default power limit",
        Power: power.default_limit, watts
    )
    .unit("W")
    .or(&["gpu.power.default_limit"]),
    detail!("power.min_limit", "minimum power limit", Power: power.limit_min, watts)
        .unit("W")
        .or(&["gpu.power.min_limit"]),
    detail!("power.max_limit", "maximum power limit", Power: power.limit_max, watts)
        .unit("W")
        .or(&["gpu.power.max_limit"]),
    module!("module.power.draw.average", "average power draw of the module", average),
    module!("module.power.draw.instant", "instantaneous power draw of the module", instant),
    module!(
        "module.power.limit",
        "requested power limit of the module",
        limit,
        "module.power.requested_limit"
    ),
    module!(
        "module.enforced.power.limit",
        "enforced power limit of the module",
        enforced_limit,
        "module.power.current_limit"
    ),
    module!("module.power.default_limit", "default power limit of the module", default_limit),
    module!("module.power.min_limit", "minimum power limit of the module", limit_min),
    module!("module.power.max_limit", "maximum power limit of the module", limit_max),
    Field::unreported("gpu.base.current", "base power in use").unit("W"),
    Field::unreported("gpu.base.requested", "requested base power").unit("W"),
    Field::unreported("gpu.base.default", "default base power").unit("W"),
    Field::unreported("gpu.base.min", "minimum base power").unit("W"),
    Field::unreported("gpu.base.max", "maximum base power").unit("W"),
];

/// The columns of power smoothing, which reduces changes of the power draw.
pub(super) const SMOOTHING: &[Field] = smoothing![
    "tmp_floor" "W": "lowest power in use, of the total module power (TMP)",
    "tmp_ceil" "W": "highest power in use, of the total module power",
    "hw_lifetime_remaining_percent" "%": "remaining lifetime of the power-smoothing circuit",
    "enabled": "power smoothing",
    "delayed_power_smoothing_supported": "whether delayed power smoothing is supported",
    "soc_power_smoothing_enabled": "power smoothing of the SoC",
    "priv_level": "privilege level",
    "imm_ramp_down": "immediate ramp down",
    "max_percent_tmp_floor" "%": "highest setting of the floor",
    "min_percent_tmp_floor" "%": "lowest setting of the floor",
    "primary_power_floor" "W": "primary floor",
    "secondary_power_floor" "W": "secondary floor",
    "min_primary_floor_activation_offset" "W": "lowest offset that activates the primary floor",
    "min_primary_floor_activation_point" "W": "lowest power that activates the primary floor",
    "window_multiplier" "ms": "unit of windows",
    "num_preset_profiles": "number of preset profiles",
    "curr_profile.percent_tmp_floor" "%": "floor of the current profile",
    "curr_profile.ramp_up_rate" "W/s": "… its ramp up rate",
    "curr_profile.ramp_down_rate" "W/s": "… its ramp down rate",
    "curr_profile.ramp_down_hysteresis" "ms": "… its delay before the ramp down",
    "curr_profile.secondary_power_floor" "W": "… its secondary floor",
    "curr_profile.primary_floor_act_window_multiplier": "… its activation window",
    "curr_profile.primary_floor_tar_window_multiplier": "… its target window",
    "curr_profile.primary_floor_act_offset" "W": "… its activation offset",
    "active_profile": "number of the active profile",
    "admin_override.percent_tmp_floor" "%": "floor that the administrator set",
    "admin_override.ramp_up_rate" "W/s": "… the ramp up rate",
    "admin_override.ramp_down_rate" "W/s": "… the ramp down rate",
    "admin_override.ramp_down_hysteresis" "ms": "… the delay before the ramp down",
    "admin_override.secondary_power_floor" "W": "… the secondary floor",
    "admin_override.primary_floor_act_window_multiplier": "… the activation window",
    "admin_override.primary_floor_tar_window_multiplier": "… the target window",
    "admin_override.primary_floor_act_offset" "W": "… the activation offset",
];
