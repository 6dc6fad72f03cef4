//! Entries for the current state of a device.

use super::{Entry, enabled, group, group_of, mib, unit, value, watts, yes};
use crate::smi::compute_mode;
use gpu_core::{
    Activity, ApplicationClocks, Clocks, DeviceSample, DeviceState, Engines, ErrorsByPlace,
    MemoryErrors, MemoryHealth, MemoryInfo, Modes, Pcie, Power, PowerReadings, ProtectedMemory,
    Reading, Thermal, ThrottleReasons,
};

/// Returns the entries from the fan speed to the clocks.
pub(super) fn entries(device: &DeviceState) -> Vec<Entry> {
    let sample =
        device.sample.clone().unwrap_or_else(|fault| DeviceSample::absent(fault.kind.absent()));
    let activity = group_of(device, |details| details.activity.as_ref(), Activity::absent);
    let engines = group_of(device, |details| details.engines.as_ref(), Engines::absent);
    let thermal = group_of(device, |details| details.thermal.as_ref(), Thermal::absent);
    let modes = group_of(device, |details| details.modes.as_ref(), Modes::absent);
    let pcie = group_of(device, |details| details.pcie.as_ref(), Pcie::absent);
    let protected =
        group_of(device, |details| details.protected_memory.as_ref(), ProtectedMemory::absent);
    let state = activity.performance_state;
    vec![
        value("Fan Speed", unit(thermal.fan_speed, "%")),
        value("Performance State", state.map(|state| format!("P{state}"))),
        reasons(activity.throttle),
        memory("FB Memory Usage", &sample.memory),
        group(
            "BAR1 Memory Usage",
            [value("Total", mib(pcie.bar1_total)), value("Used", mib(pcie.bar1_used))],
        ),
        group(
            "Conf Compute Protected Memory Usage",
            [
                value("Total", mib(protected.total)),
                value("Used", mib(protected.used)),
                value(
                    "Free",
                    mib(protected.total.and_then(|all| Ok(all.saturating_sub(protected.used?)))),
                ),
            ],
        ),
        value("Compute Mode", modes.compute_mode.map(compute_mode)),
        group(
            "Utilization",
            [
                value("Gpu", sample.utilization),
                value("Memory", activity.memory),
                value("Encoder", activity.encoder),
                value("Decoder", activity.decoder),
                value("JPEG", engines.jpeg),
                value("OFA", engines.ofa),
            ],
        ),
        group(
            "Encoder Stats",
            [
                value("Active Sessions", activity.encoder_sessions),
                value("Average FPS", activity.encoder_fps),
                value("Average Latency", unit(activity.encoder_latency, "us")),
            ],
        ),
        group(
            "ECC Mode",
            [value("Current", enabled(modes.ecc)), value("Pending", enabled(modes.ecc_pending))],
        ),
    ]
    .into_iter()
    .chain(health(device))
    .chain(heat_and_power(device, &sample, &thermal))
    .chain(clocks(device))
    .collect()
}

fn reasons(throttle: Reading<ThrottleReasons>) -> Entry {
    let active = |reason| {
        throttle.map(|reasons| if reasons.has_any(reason) { "Active" } else { "Not Active" })
    };
    let names = ThrottleReasons::NAMED.into_iter();
    let entries = names.map(|(reason, name)| value(titled(name), active(reason)));
    group("Clocks Event Reasons", entries.collect::<Vec<_>>())
}

/// Returns nvidia-smi's heading for a reason: `software power cap` becomes `SW Power Cap`.
fn titled(name: &str) -> String {
    let word = |word: &str| match word {
        "software" => "SW".to_owned(),
        "hardware" => "HW".to_owned(),
        _ => {
            let mut letters = word.chars();
            let first = letters.next().map(|letter| letter.to_uppercase().to_string());
            first.unwrap_or_default() + letters.as_str()
        }
    };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

pub(super) fn memory(name: &str, memory: &MemoryInfo) -> Entry {
    let free = memory.total.and_then(|total| {
        let rest = total.saturating_sub(memory.used?);
        Ok(rest.saturating_sub(memory.reserved.unwrap_or_default()))
    });
    group(
        name,
        [
            value("Total", mib(memory.total)),
            value("Reserved", mib(memory.reserved)),
            value("Used", mib(memory.used)),
            value("Free", mib(free)),
        ],
    )
}

/// Returns the total of errors, with the counts by location if the device reports any.
fn errors(name: &str, total: Reading<u64>, counts: &ErrorsByPlace) -> Entry {
    let by_location = [
        ("Device Memory", counts.device_memory),
        ("Register File", counts.register_file),
        ("L1 Cache", counts.l1_cache),
        ("L2 Cache", counts.l2_cache),
        ("Texture Memory", counts.texture_memory),
        ("CBU", counts.cbu),
        ("SRAM", counts.sram),
    ];
    // Most devices report only the total.
    if by_location.iter().all(|(_, count)| count.is_err()) {
        return value(name, total);
    }
    let by_location = by_location.map(|(location, count)| value(location, count));
    group(name, by_location.into_iter().chain([value("Total", total)]).collect::<Vec<_>>())
}

fn health(device: &DeviceState) -> [Entry; 3] {
    let health = group_of(device, |details| details.memory_health.as_ref(), MemoryHealth::absent);
    let by_place =
        group_of(device, |details| details.memory_errors.as_deref(), MemoryErrors::absent);
    [
        group(
            "ECC Errors",
            [
                group(
                    "Volatile",
                    [
                        errors("Corrected", health.corrected, &by_place.corrected),
                        errors("Uncorrected", health.uncorrected, &by_place.uncorrected),
                    ],
                ),
                group(
                    "Aggregate",
                    [
                        errors(
                            "Corrected",
                            health.corrected_lifetime,
                            &by_place.corrected_lifetime,
                        ),
                        errors(
                            "Uncorrected",
                            health.uncorrected_lifetime,
                            &by_place.uncorrected_lifetime,
                        ),
                        value("SRAM Threshold Exceeded", yes(health.sram_threshold_exceeded)),
                    ],
                ),
            ],
        ),
        group(
            "Retired Pages",
            [
                value("Single Bit ECC", health.retired_single_bit),
                value("Double Bit ECC", health.retired_double_bit),
                value("Pending Page Blacklist", yes(health.retired_pending)),
            ],
        ),
        group(
            "Remapped Rows",
            [
                value("Correctable Error", health.remapped_corrected),
                value("Uncorrectable Error", health.remapped_uncorrected),
                value("Pending", yes(health.remapped_pending)),
                value("Remapping Failure Occurred", yes(health.remapped_failure)),
                group(
                    "Bank Remap Availability Histogram",
                    [
                        value("Max", super::unit(health.banks_max, "bank(s)")),
                        value("High", super::unit(health.banks_high, "bank(s)")),
                        value("Partial", super::unit(health.banks_partial, "bank(s)")),
                        value("Low", super::unit(health.banks_low, "bank(s)")),
                        value("None", super::unit(health.banks_none, "bank(s)")),
                    ],
                ),
            ],
        ),
    ]
}

fn heat_and_power(device: &DeviceState, sample: &DeviceSample, thermal: &Thermal) -> [Entry; 2] {
    let power = group_of(device, |details| details.power.as_ref(), Power::absent);
    let readings =
        group_of(device, |details| details.power_readings.as_ref(), PowerReadings::absent);
    let celsius = |reading: Reading<gpu_core::Celsius>| reading.map(|at| format!("{} C", at.0));
    let energy = power.energy.map(|millijoules| format!("{:.1} kJ", millijoules as f64 / 1e6));
    [
        group(
            "Temperature",
            [
                value("GPU Current Temp", celsius(sample.temperature)),
                value("GPU T.Limit Temp", celsius(thermal.margin)),
                value("GPU Shutdown Temp", celsius(thermal.shutdown)),
                value("GPU Slowdown Temp", celsius(thermal.slowdown)),
                value("Memory Current Temp", celsius(thermal.memory)),
            ],
        ),
        group(
            "GPU Power Readings",
            [
                value("Power Management", enabled(readings.managed)),
                value("Power Draw", watts(sample.power_draw)),
                value("Average Power Draw", watts(readings.average)),
                value("Instantaneous Power Draw", watts(readings.instant)),
                value("Current Power Limit", watts(sample.power_limit)),
                value("Requested Power Limit", watts(power.limit)),
                value("Default Power Limit", watts(power.default_limit)),
                value("Min Power Limit", watts(power.limit_min)),
                value("Max Power Limit", watts(power.limit_max)),
                value("Energy Since Driver Load", energy),
            ],
        ),
    ]
}

fn clocks(device: &DeviceState) -> [Entry; 4] {
    let clocks = group_of(device, |details| details.clocks.as_ref(), Clocks::absent);
    let programs =
        group_of(device, |details| details.application_clocks.as_ref(), ApplicationClocks::absent);
    let clock = |name: &str, reading| value(name, unit(reading, "MHz"));
    [
        group(
            "Clocks",
            [
                clock("Graphics", clocks.graphics),
                clock("SM", clocks.sm),
                clock("Memory", clocks.memory),
                clock("Video", clocks.video),
            ],
        ),
        group(
            "Applications Clocks",
            [clock("Graphics", programs.graphics), clock("Memory", programs.memory)],
        ),
        group(
            "Default Applications Clocks",
            [
                clock("Graphics", programs.default_graphics),
                clock("Memory", programs.default_memory),
            ],
        ),
        group(
            "Max Clocks",
            [
                clock("Graphics", clocks.graphics_max),
                clock("SM", clocks.sm_max),
                clock("Memory", clocks.memory_max),
                clock("Video", clocks.video_max),
            ],
        ),
    ]
}
