//! The values of `-q` and `-q -x` that show the health of a device.
//!
//! Names are in the form of XML, as in [`report`](crate::report). XML repeats the section name in
//! the name of the value (`clocks_event_reason_hw_slowdown`), so only the end of the name counts.

use crate::field;
use gpu_core::{
    Absent, Celsius, ComputeMode, DeviceDetails, Fabric, FabricState, MemoryHealth, Reading,
    RecoveryAction, ThrottleReasons,
};
use gpu_nvidia_driver::recovery_action_named;

/// NVML's number of an unknown error.
const UNKNOWN_ERROR: u32 = 999;

/// The maximum length of a configuration problem, in characters.
const MAX_WORDS: usize = 100;

/// Reasons for low clocks, by the end of their names.
const THROTTLE: [(&str, ThrottleReasons); 6] = [
    ("hw_thermal_slowdown", ThrottleReasons::HARDWARE_THERMAL),
    ("hw_power_brake_slowdown", ThrottleReasons::HARDWARE_POWER_BRAKE),
    ("hw_power_brake", ThrottleReasons::HARDWARE_POWER_BRAKE),
    ("sw_thermal_slowdown", ThrottleReasons::SOFTWARE_THERMAL),
    ("hw_slowdown", ThrottleReasons::HARDWARE_SLOWDOWN),
    ("sw_power_cap", ThrottleReasons::SOFTWARE_POWER_CAP),
];

/// Reads a leaf within the sections `path`, the innermost last.
pub(crate) fn leaf(details: &mut DeviceDetails, path: &[String], key: &str, value: &str) {
    let section = path.last().map_or("", String::as_str);
    let inside = |name: &str| path.iter().any(|section| section == name);
    if inside("clocks_event_reasons") || inside("clocks_throttle_reasons") {
        return throttle(details, key, value);
    }
    if inside("volatile") {
        return errors(details, section, key, value);
    }
    if inside("fabric") {
        return fabric(details.fabric.get_or_insert_default(), key, value);
    }
    match (section, key) {
        (_, "compute_mode") => {
            let mode = match value {
                "Default" => ComputeMode::Default,
                "Prohibited" => ComputeMode::Prohibited,
                "Exclusive_Process" | "Exclusive Process" => ComputeMode::ExclusiveProcess,
                "Exclusive_Thread" | "Exclusive Thread" => ComputeMode::ExclusiveThread,
                _ => return,
            };
            details.modes.get_or_insert_default().compute_mode = Ok(mode);
        }
        ("mig_mode", "pending" | "pending_mig") => {
            details.modes.get_or_insert_default().mig_pending = field::switch(value);
        }
        ("ecc_mode", "current" | "current_ecc") => {
            details.modes.get_or_insert_default().ecc = field::switch(value);
        }
        ("ecc_mode", "pending" | "pending_ecc") => {
            details.modes.get_or_insert_default().ecc_pending = field::switch(value);
        }
        ("remapped_rows", "correctable_error" | "remapped_row_corr") => {
            details.memory_health.get_or_insert_default().remapped_corrected = number(value);
        }
        ("remapped_rows", "uncorrectable_error" | "remapped_row_unc") => {
            details.memory_health.get_or_insert_default().remapped_uncorrected = number(value);
        }
        ("remapped_rows", "pending" | "remapped_row_pending") => {
            details.memory_health.get_or_insert_default().remapped_pending = field::switch(value);
        }
        ("remapped_rows", "remapping_failure_occurred" | "remapped_row_failure") => {
            details.memory_health.get_or_insert_default().remapped_failure = field::switch(value);
        }
        ("row_remapper_histogram" | "bank_remap_availability_histogram", _) => {
            banks(details.memory_health.get_or_insert_default(), key, value);
        }
        (_, "sram_threshold_exceeded") => {
            details.memory_health.get_or_insert_default().sram_threshold_exceeded =
                field::switch(value);
        }
        ("retired_pages", "pending_page_blacklist" | "pending_retirement") => {
            details.memory_health.get_or_insert_default().retired_pending = field::switch(value);
        }
        (_, "gpu_slowdown_temp" | "gpu_temp_slow_threshold") => {
            let limit = field::celsius(value);
            details.thermal.get_or_insert_default().slowdown =
                limit.map(|limit| Celsius(i32::try_from(limit).unwrap_or(i32::MAX)));
        }
        (_, "fan_speed") => {
            let fan = field::percent(value);
            details.thermal.get_or_insert_default().fan_speed =
                fan.map(|percent| u32::try_from(percent).unwrap_or(u32::MAX));
        }
        (_, "performance_state") => {
            if let Some(Ok(state)) = value.strip_prefix('P').map(str::parse) {
                details.activity.get_or_insert_default().performance_state = Ok(state);
            }
        }
        ("pcie_generation", "current") | (_, "current_link_gen") => {
            details.pcie.get_or_insert_default().generation = number(value);
        }
        ("pcie_generation", "max") | (_, "max_link_gen") => {
            details.pcie.get_or_insert_default().generation_max = number(value);
        }
        ("link_width", "current") | (_, "current_link_width") => {
            details.pcie.get_or_insert_default().width = number(value.trim_end_matches('x'));
        }
        ("link_width", "max") | (_, "max_link_width") => {
            details.pcie.get_or_insert_default().width_max = number(value.trim_end_matches('x'));
        }
        ("gpu_reset_status", "reset_required") => {
            details.reset_status.get_or_insert_default().required = field::switch(value);
        }
        ("gpu_reset_status", "drain_and_reset_recommended") => {
            details.reset_status.get_or_insert_default().drain_recommended = field::switch(value);
        }
        (_, "gpu_recovery_action") => {
            // `None` is an action here; elsewhere it marks a missing value.
            let known = recovery_action_named(value);
            let other = field::absent(value).map_or(Ok(RecoveryAction::Other), Err);
            details.reset_status.get_or_insert_default().recovery = known.map_or(other, Ok);
        }
        _ => {}
    }
}

/// Reads the registration of a device with its fabric, and the health of its routes. In CSV, some
/// drivers print the name of a value before it.
fn fabric(fabric: &mut Fabric, key: &str, value: &str) {
    match key {
        "state" => {
            let name = value.strip_prefix("state").unwrap_or(value).trim();
            fabric.state = match name.to_ascii_lowercase().as_str() {
                "not started" => Ok(FabricState::NotStarted),
                "in progress" => Ok(FabricState::InProgress),
                "completed" => Ok(FabricState::Completed),
                "not supported" => Ok(FabricState::None),
                _ => Err(field::absent(name).unwrap_or(Absent::Implausible)),
            };
        }
        "status" => {
            let name = value.strip_prefix("status").unwrap_or(value).trim();
            fabric.status = match field::absent(name) {
                Some(Absent::NotSupported | Absent::NotRecorded) => Err(Absent::NotSupported),
                _ if name.eq_ignore_ascii_case("success") => Ok(0),
                // The text of a known return code stands for that code; any other text stands for
                // an unknown error.
                _ => Ok(UNKNOWN_ERROR),
            };
        }
        "bandwidth" => {
            fabric.bandwidth_degraded = match value.to_ascii_lowercase().as_str() {
                "full" => Ok(false),
                "degraded" => Ok(true),
                _ => Err(field::absent(value).unwrap_or(Absent::Implausible)),
            };
        }
        "route_recovery_in_progress" | "route_recovery" => {
            fabric.route_recovery = field::switch(value);
        }
        "route_unhealthy" => fabric.route_unhealthy = field::switch(value),
        "access_timeout_recovery" | "access_timeout_recovery_in_progress" => {
            fabric.access_timeout_recovery = field::switch(value);
        }
        "incorrect_configuration" => {
            // `None` means that nothing is wrong here; elsewhere it marks a missing value.
            fabric.incorrect_configuration = match field::absent(value) {
                None => Ok(value.chars().take(MAX_WORDS).collect()),
                Some(_) if value.eq_ignore_ascii_case("none") => Ok(String::new()),
                Some(absent) => Err(absent),
            };
        }
        // The summary that driver 590 and later print in place of the flags.
        "summary" | "health_summary" => {
            let is_bad = match value.to_ascii_lowercase().as_str() {
                "healthy" => Ok(false),
                "unhealthy" => Ok(true),
                "limited capacity" => {
                    fabric.bandwidth_degraded = fabric.bandwidth_degraded.or(Ok(true));
                    Ok(false)
                }
                _ => Err(field::absent(value).unwrap_or(Absent::Implausible)),
            };
            fabric.route_unhealthy = fabric.route_unhealthy.or(is_bad);
        }
        _ => {}
    }
}

/// Reads the number of banks with a given amount of spare rows left, such as `3072 bank(s)`.
fn banks(health: &mut MemoryHealth, key: &str, value: &str) {
    let count = match key.strip_prefix("row_remapper_histogram_").unwrap_or(key) {
        "max" => &mut health.banks_max,
        "high" => &mut health.banks_high,
        "partial" => &mut health.banks_partial,
        "low" => &mut health.banks_low,
        "none" => &mut health.banks_none,
        _ => return,
    };
    *count = number(value.trim_end_matches(" bank(s)"));
}

fn throttle(details: &mut DeviceDetails, key: &str, value: &str) {
    let Some((_, reason)) = THROTTLE.iter().find(|(name, _)| key.ends_with(name)) else { return };
    let Ok(is_active) = field::switch(value) else { return };
    let reasons = &mut details.activity.get_or_insert_default().throttle;
    let known = reasons.unwrap_or_default();
    *reasons = Ok(if is_active { known | *reason } else { known });
}

/// Sums the uncorrected errors since the driver was loaded: of device memory and of SRAM, or before
/// driver 450 the total of double-bit errors.
fn errors(details: &mut DeviceDetails, section: &str, key: &str, value: &str) {
    let is_total = section == "double_bit" && key == "total";
    let is_uncorrected =
        key.starts_with("dram_uncorrectable") || key.starts_with("sram_uncorrectable") || is_total;
    if !is_uncorrected {
        return;
    }
    if let Ok(count) = value.parse::<u64>() {
        let uncorrected = &mut details.memory_health.get_or_insert_default().uncorrected;
        *uncorrected = Ok(uncorrected.unwrap_or(0).saturating_add(count));
    }
}

fn number(value: &str) -> Reading<u32> {
    field::number(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Hint, parse};

    fn details(text: &str) -> DeviceDetails {
        parse(text.as_bytes(), &Hint::default()).unwrap().gpus[0].details.clone()
    }

    #[test]
    fn log_and_xml_give_same_health() {
        let log = "\
GPU 00000000:0A:00.0
    Product Name                 : Example 9000
    Compute Mode                 : Prohibited
    GPU Recovery Action          : Reset
    MIG Mode
        Current                  : Disabled
        Pending                  : Enabled
    PCI
        GPU Link Info
            PCIe Generation
                Max              : 4
                Current          : 1
            Link Width
                Max              : 16x
                Current          : 4x
    GPU Reset Status
        Reset Required           : No
        Drain and Reset Recommended : Yes
    Fabric
        State                    : Completed
        Status                   : Success
        CliqueId                 : 4
        Health
            Bandwidth            : Degraded
            Route Recovery in progress : False
            Route Unhealthy      : True
            Access Timeout Recovery : N/A
            Incorrect Configuration : Insufficient Nvlinks
    Fan Speed                    : 30 %
    Performance State            : P2
    Clocks Event Reasons
        Idle                     : Not Active
        HW Slowdown              : Active
            HW Thermal Slowdown  : Active
            HW Power Brake Slowdown : Not Active
        SW Thermal Slowdown      : Not Active
    ECC Mode
        Current                  : Enabled
        Pending                  : Disabled
    ECC Errors
        Volatile
            SRAM Correctable     : 9
            SRAM Uncorrectable   : 1
            DRAM Uncorrectable   : 6
        Aggregate
            DRAM Uncorrectable   : 70
            SRAM Threshold Exceeded : Yes
    Remapped Rows
        Pending                  : No
        Remapping Failure Occurred : Yes
        Bank Remap Availability Histogram
            Max                  : 3070 bank(s)
            None                 : 2 bank(s)
    Temperature
        GPU Slowdown Temp        : 92 C
";
        let xml = "\
<nvidia_smi_log><gpu id=\"00000000:0A:00.0\">
<compute_mode>Prohibited</compute_mode>
<gpu_recovery_action>Reset</gpu_recovery_action>
<mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
<pci><pci_gpu_link_info>
<pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>4x</current_link_width></link_widths>
</pci_gpu_link_info></pci>
<gpu_reset_status><reset_required>No</reset_required>
<drain_and_reset_recommended>Yes</drain_and_reset_recommended></gpu_reset_status>
<fabric><state>Completed</state><status>Success</status><cliqueId>4</cliqueId>
<health><bandwidth>Degraded</bandwidth>
<route_recovery_in_progress>False</route_recovery_in_progress>
<route_unhealthy>True</route_unhealthy>
<access_timeout_recovery>N/A</access_timeout_recovery>
<incorrect_configuration>Insufficient Nvlinks</incorrect_configuration></health></fabric>
<fan_speed>30 %</fan_speed>
<performance_state>P2</performance_state>
<clocks_event_reasons>
<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
</clocks_event_reasons>
<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Disabled</pending_ecc></ecc_mode>
<ecc_errors><volatile><sram_correctable>9</sram_correctable>
<sram_uncorrectable>1</sram_uncorrectable><dram_uncorrectable>6</dram_uncorrectable></volatile>
<aggregate><dram_uncorrectable>70</dram_uncorrectable>
<sram_threshold_exceeded>Yes</sram_threshold_exceeded></aggregate></ecc_errors>
<remapped_rows><remapped_row_pending>No</remapped_row_pending>
<remapped_row_failure>Yes</remapped_row_failure><row_remapper_histogram>
<row_remapper_histogram_max>3070 bank(s)</row_remapper_histogram_max>
<row_remapper_histogram_none>2 bank(s)</row_remapper_histogram_none>
</row_remapper_histogram></remapped_rows>
<temperature><gpu_temp_slow_threshold>92 C</gpu_temp_slow_threshold></temperature>
</gpu></nvidia_smi_log>
";
        let read = details(log);
        assert_eq!(read, details(xml));
        let modes = read.modes.unwrap();
        assert_eq!(modes.compute_mode, Ok(ComputeMode::Prohibited));
        assert_eq!(
            (modes.mig_pending, modes.ecc, modes.ecc_pending),
            (Ok(true), Ok(true), Ok(false))
        );
        let health = read.memory_health.unwrap();
        assert_eq!(health.uncorrected, Ok(7));
        assert_eq!((health.remapped_pending, health.remapped_failure), (Ok(false), Ok(true)));
        assert_eq!((health.banks_max, health.banks_none), (Ok(3070), Ok(2)));
        assert_eq!(health.sram_threshold_exceeded, Ok(true));
        let activity = read.activity.unwrap();
        assert_eq!(activity.throttle, Ok(ThrottleReasons(0x048)));
        assert_eq!(activity.performance_state, Ok(2));
        let thermal = read.thermal.unwrap();
        assert_eq!((thermal.slowdown, thermal.fan_speed), (Ok(Celsius(92)), Ok(30)));
        let pcie = read.pcie.unwrap();
        assert_eq!((pcie.generation, pcie.generation_max), (Ok(1), Ok(4)));
        assert_eq!((pcie.width, pcie.width_max), (Ok(4), Ok(16)));
        let fabric = read.fabric.unwrap();
        assert_eq!((fabric.state, fabric.status), (Ok(FabricState::Completed), Ok(0)));
        assert_eq!((fabric.bandwidth_degraded, fabric.route_unhealthy), (Ok(true), Ok(true)));
        assert_eq!(fabric.route_recovery, Ok(false));
        assert_eq!(fabric.access_timeout_recovery, Err(Absent::NotSupported));
        assert_eq!(fabric.incorrect_configuration.as_deref(), Ok("Insufficient Nvlinks"));
        let status = read.reset_status.unwrap();
        assert_eq!((status.required, status.drain_recommended), (Ok(false), Ok(true)));
        assert_eq!(status.recovery, Ok(RecoveryAction::Reset));
    }

    #[test]
    fn fabric_health_differs_from_missing_values() {
        let of = |key: &str, value: &str| {
            let mut details = DeviceDetails::default();
            leaf(&mut details, &["gpu".to_owned(), "fabric".to_owned()], key, value);
            details.fabric.unwrap()
        };
        let absent = Err(Absent::NotSupported);
        assert_eq!(of("state", "N/A").state, absent);
        assert_eq!(of("state", "state  In Progress").state, Ok(FabricState::InProgress));
        assert_eq!(of("status", "status Success").status, Ok(0));
        assert_eq!(of("status", "N/A").status, Err(Absent::NotSupported));
        assert_eq!(of("status", "Unknown Error").status, Ok(UNKNOWN_ERROR));
        assert_eq!(
            of("incorrect_configuration", "None").incorrect_configuration,
            Ok(String::new())
        );
        assert_eq!(of("bandwidth", "N/A").bandwidth_degraded, Err(Absent::NotSupported));
        assert_eq!(of("summary", "Unhealthy").route_unhealthy, Ok(true));
        assert_eq!(of("summary", "Limited Capacity").bandwidth_degraded, Ok(true));
        assert_eq!(of("summary", "Healthy").route_unhealthy, Ok(false));
    }

    #[test]
    fn recovery_action_none_differs_from_missing_value() {
        for (text, action) in [
            ("None", Ok(RecoveryAction::None)),
            ("Reboot", Ok(RecoveryAction::Reboot)),
            ("Node Reboot", Ok(RecoveryAction::Reboot)),
            ("GPU reset", Ok(RecoveryAction::Reset)),
            ("Recover IMEX Domain", Ok(RecoveryAction::RecoverImex)),
            ("Drain P2P", Ok(RecoveryAction::DrainPeers)),
            ("Bus Reset", Ok(RecoveryAction::Other)),
            ("N/A", Err(Absent::NotSupported)),
            ("[Unknown Error]", Err(Absent::Failed)),
            ("Requested functionality has been deprecated", Err(Absent::NotSupported)),
        ] {
            let log = format!(
                "GPU 0000:0A:00.0\n    Product Name : K80\n    GPU Recovery Action : {text}\n"
            );
            assert_eq!(details(&log).reset_status.unwrap().recovery, action, "{text}");
        }
    }

    #[test]
    fn old_logs_count_double_bit_errors() {
        let log = "GPU 0000:0A:00.0\n    Product Name : K80\n    ECC Errors\n        Volatile\n            Single Bit\n                \
            Total : 5\n            Double Bit\n                Device Memory : 2\n                \
            Total : 2\n        Aggregate\n            Double Bit\n                Total : 9\n";
        assert_eq!(details(log).memory_health.unwrap().uncorrected, Ok(2));
    }
}
