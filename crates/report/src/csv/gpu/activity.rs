//! Columns for utilization, clocks event reasons and memory.

use crate::csv::field::{Field, Row, detail, plain};
use crate::smi;
use gpu_core::{Absent, Group, Reading, ThrottleReasons};

/// Makes a column for one clocks event reason.
macro_rules! reason {
    ($name:literal, $reason:ident, $about:literal) => {
        Field::new(concat!("clocks_event_reasons.", $name), $about, |row| {
            active(row, ThrottleReasons::$reason)
        })
        .or(&[concat!("clocks_throttle_reasons.", $name)])
        .from(Group::Activity)
    };
}

/// Makes a column for the time with reduced clocks, in whole microseconds.
macro_rules! throttled {
    ($name:literal, $about:literal, $value:ident) => {
        detail!(
            concat!("clocks_event_reasons_counters.", $name), $about,
            ThrottleTimes: throttle_times.$value, |nanoseconds| plain(&(nanoseconds / 1000))
        )
        .unit("us")
    };
}

/// Makes a column for a percentage.
macro_rules! percent {
    ($name:literal, $about:literal, $group:ident: $field:ident . $value:ident) => {
        detail!($name, $about, $group: $field.$value, |share| plain(&share.get())).unit("%")
    };
}

/// The columns from `fan.speed` on.
pub(super) const FIELDS: &[Field] = &[
    detail!(
        "fan.speed", "intended fan speed",
        Thermal: thermal.fan_speed, plain
    )
    .unit("%"),
    detail!(
        "pstate", "performance state, P0 (maximum) to P12 (minimum)",
        Activity: activity.performance_state, |state| format!("P{state}")
    ),
    detail!(
        "clocks_event_reasons.supported", "supported clocks event reasons",
        Activity: activity.throttle_supported, bits
    )
    .or(&["clocks_throttle_reasons.supported"]),
    detail!(
        "clocks_event_reasons.active", "active clocks event reasons, as an NVML bit mask",
        Activity: activity.throttle, bits
    )
    .or(&["clocks_throttle_reasons.active"]),
    reason!("gpu_idle", IDLE, "clocks reduced: GPU idle"),
    reason!(
        "applications_clocks_setting",
        APPLICATION_CLOCKS,
        "clocks limited by applications clocks setting"
    ),
    reason!("sw_power_cap", SOFTWARE_POWER_CAP, "clocks reduced by software power cap"),
    reason!("hw_slowdown", HARDWARE_SLOWDOWN, "clocks reduced by hardware slowdown"),
    reason!("hw_thermal_slowdown", HARDWARE_THERMAL, "hardware thermal slowdown"),
    reason!("hw_power_brake_slowdown", HARDWARE_POWER_BRAKE, "hardware power brake slowdown"),
    reason!("sw_thermal_slowdown", SOFTWARE_THERMAL, "clocks reduced by software thermal slowdown"),
    reason!("sync_boost", SYNC_BOOST, "clocks limited by sync boost group"),
    throttled!("sw_power_cap", "time below the power limit", software_power_cap),
    throttled!("sync_boost", "time at the clocks of a sync boost group", sync_boost),
    throttled!("sw_thermal_slowdown", "time with software thermal slowdown", software_thermal),
    throttled!("hw_thermal_slowdown", "time with hardware thermal slowdown", hardware_thermal),
    throttled!("hw_power_brake_slowdown", "time with power brake slowdown", hardware_power_brake),
    Field::new("memory.total", "device memory", |row| row.mib(row.sample()?.memory.total))
        .unit("MiB"),
    Field::new("memory.reserved", "memory reserved by driver and firmware", |row| {
        row.mib(row.sample()?.memory.reserved)
    })
    .unit("MiB"),
    Field::new("memory.used", "used memory", |row| row.mib(row.sample()?.memory.used)).unit("MiB"),
    Field::new("memory.free", "free memory", free).unit("MiB"),
    detail!("compute_mode", "compute mode", Modes: modes.compute_mode, |mode| smi::compute_mode(*mode).to_owned()),
    detail!(
        "compute_cap", "CUDA compute capability",
        Product: product.compute_capability, |(major, minor)| format!("{major}.{minor}")
    ),
    Field::new("utilization.gpu", "percent of time a kernel was running", |row| {
        row.sample()?.utilization.map(|share| plain(&share.get()))
    })
    .unit("%"),
    percent!(
        "utilization.memory", "percent of time device memory was read or written",
        Activity: activity.memory
    ),
    percent!(
        "utilization.encoder", "encoder utilization",
        Activity: activity.encoder
    ),
    percent!(
        "utilization.decoder", "decoder utilization",
        Activity: activity.decoder
    ),
    percent!(
        "utilization.jpeg", "JPEG decoder utilization",
        Engines: engines.jpeg
    ),
    percent!(
        "utilization.ofa", "optical flow accelerator utilization",
        Engines: engines.ofa
    ),
    detail!(
        "encoder.stats.sessionCount", "encoder sessions",
        Activity: activity.encoder_sessions, plain
    ),
    detail!(
        "encoder.stats.averageFps", "average encoder frames per second",
        Activity: activity.encoder_fps, plain
    ),
    detail!(
        "encoder.stats.averageLatency", "average encoder latency in microseconds",
        Activity: activity.encoder_latency, plain
    ),
];

/// Formats the reasons as NVML's bit mask.
fn bits(reasons: &ThrottleReasons) -> String {
    format!("0x{:016X}", reasons.0)
}

/// Returns the memory that is neither used nor reserved, in MiB. If the driver does not report
/// reserved memory, it counts as zero.
fn free(row: &Row<'_>) -> Reading<String> {
    let memory = &row.sample()?.memory;
    let reserved = memory.reserved.unwrap_or_default();
    row.mib(Ok(memory.total?.saturating_sub(memory.used?).saturating_sub(reserved)))
}

fn active(row: &Row<'_>, reason: ThrottleReasons) -> Reading<String> {
    let activity = row.details()?.activity.as_ref().ok_or(Absent::NotRecorded)?;
    let reasons = activity.throttle?;
    if activity.throttle_supported.is_ok_and(|supported| !supported.has_any(reason)) {
        return Err(Absent::NotSupported);
    }
    Ok(if reasons.has_any(reason) { "Active" } else { "Not Active" }.to_owned())
}
