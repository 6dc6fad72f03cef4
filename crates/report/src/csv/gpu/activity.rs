//! Columns for utilization, clocks event reasons and memory.

use crate::csv::field::{Field, Row, detail, plain};
use gpu_core::{Absent, ComputeMode, Group, Reading, ThrottleReasons};

/// Makes a column for one clocks event reason.
macro_rules! reason {
    ($name:literal, $bit:literal, $about:literal) => {
        Field::new(concat!("clocks_event_reasons.", $name), $about, |row| active(row, $bit))
            .or(&[concat!("clocks_throttle_reasons.", $name)])
            .from(Group::Activity)
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
    reason!("gpu_idle", 0x001, "clocks reduced: GPU idle"),
    reason!("applications_clocks_setting", 0x002, "clocks limited by applications clocks setting"),
    reason!("sw_power_cap", 0x004, "clocks reduced by software power cap"),
    reason!("hw_slowdown", 0x008, "clocks reduced by hardware slowdown"),
    reason!("hw_thermal_slowdown", 0x040, "hardware thermal slowdown"),
    reason!("hw_power_brake_slowdown", 0x080, "hardware power brake slowdown"),
    reason!("sw_thermal_slowdown", 0x020, "clocks reduced by software thermal slowdown"),
    reason!("sync_boost", 0x010, "clocks limited by sync boost group"),
    Field::new("memory.total", "device memory", |row| row.mib(row.sample()?.memory.total))
        .unit("MiB"),
    Field::new("memory.reserved", "memory reserved by driver and firmware", |row| {
        row.mib(row.sample()?.memory.reserved)
    })
    .unit("MiB"),
    Field::new("memory.used", "used memory", |row| row.mib(row.sample()?.memory.used)).unit("MiB"),
    Field::new("memory.free", "free memory", free).unit("MiB"),
    detail!("compute_mode", "compute mode", Modes: modes.compute_mode, compute_mode),
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

fn active(row: &Row<'_>, bit: u64) -> Reading<String> {
    let activity = row.details()?.activity.as_ref().ok_or(Absent::NotRecorded)?;
    let ThrottleReasons(reasons) = activity.throttle?;
    if activity.throttle_supported.is_ok_and(|supported| supported.0 & bit == 0) {
        return Err(Absent::NotSupported);
    }
    Ok(if reasons & bit != 0 { "Active" } else { "Not Active" }.to_owned())
}

fn compute_mode(mode: &ComputeMode) -> String {
    match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "Exclusive_Thread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "Exclusive_Process",
    }
    .to_owned()
}
