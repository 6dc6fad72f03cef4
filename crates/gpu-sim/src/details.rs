//! Derived values of a device, and checks for contradictions.

use crate::machine::{Device, Machine};
use gpu_core::{Absent, DeviceDetails, Pid, Reading};

/// Fills in the details that no recording shows, derived from other values of the device.
pub(crate) fn complete(device: &mut Device) {
    let info = &device.info;
    let modes = device.details.modes.get_or_insert_default();
    modes.ecc_pending = modes.ecc_pending.or(modes.ecc);
    modes.mig_pending = modes.mig_pending.or(info.partitioned);
    modes.display_attached = modes.display_attached.or(info.display_active);
    let power = device.details.power.get_or_insert_default();
    power.limit = power.limit.or(device.power_limit);
    let averages = averages(&device.details);
    let readings = device.details.power_readings.get_or_insert_default();
    // A value with its own reason for absence is unchanged.
    if readings.managed == Err(Absent::NotSupported) {
        readings.managed = device.power_limit.map(|_| true);
    }
    readings.instant = readings.instant.or(device.power_draw);
    if averages {
        readings.average = readings.average.or(device.power_draw);
    }
}

/// Returns whether a device reports the average power draw over a second: from Ampere on, except
/// for the first Ampere chip, the GA100.
fn averages(details: &DeviceDetails) -> bool {
    let product = details.product.as_ref();
    product.is_some_and(|product| product.compute_capability.is_ok_and(|is| is > (8, 0)))
}

/// Returns the contradiction between a device's details and its other values, if any.
pub(crate) fn contradiction(device: &Device) -> Option<&'static str> {
    let mut busy = device.details.clone();
    busy.overlay(&device.busy);
    [&device.details, &busy].into_iter().find_map(|details| wrong(device, details))
}

fn wrong(device: &Device, details: &DeviceDetails) -> Option<&'static str> {
    let power = details.power.clone().unwrap_or_default();
    let clocks = details.clocks.clone().unwrap_or_default();
    let pcie = details.pcie.clone().unwrap_or_default();
    let modes = details.modes.clone().unwrap_or_default();
    let activity = details.activity.clone().unwrap_or_default();
    let product = details.product.clone().unwrap_or_default();
    let accounted = details.accounting.as_ref().and_then(|a| a.processes.as_ref().ok());
    let wrong = [
        (above(power.limit_min, device.power_limit), "its power limit is below the minimum"),
        (above(device.power_limit, power.limit_max), "its power limit is above the maximum"),
        (
            above(power.limit_min, power.default_limit),
            "its default power limit is below the minimum",
        ),
        (
            above(power.default_limit, power.limit_max),
            "its default power limit is above the maximum",
        ),
        (above(clocks.graphics, clocks.graphics_max), "its graphics clock is above the maximum"),
        (above(clocks.sm, clocks.sm_max), "its SM clock is above the maximum"),
        (above(clocks.memory, clocks.memory_max), "its memory clock is above the maximum"),
        (above(clocks.video, clocks.video_max), "its video clock is above the maximum"),
        (above(pcie.generation, pcie.generation_max), "its PCIe generation is above the maximum"),
        (above(pcie.width, pcie.width_max), "its PCIe width is above the maximum"),
        (above(pcie.bar1_used, pcie.bar1_total), "its used BAR1 memory exceeds the total"),
        (
            activity.performance_state.is_ok_and(|state| state > 15),
            "its performance state must be 0 to 15",
        ),
        (
            device.info.display_active == Ok(true) && modes.display_attached == Ok(false),
            "it has an active display but no display connector",
        ),
        (
            accounted.is_some_and(|list| !list.is_empty()) && modes.accounting != Ok(true),
            "it has accounted processes although accounting is off",
        ),
        (
            modes.ecc.is_err()
                && details.memory_health.as_ref().is_some_and(|health| health.corrected.is_ok()),
            "it has corrected ECC errors but no ECC",
        ),
        (
            product.compute_capability.is_ok_and(|(major, _)| major == 0),
            "its compute capability must be at least 1.0",
        ),
    ];
    wrong.into_iter().find_map(|(is_wrong, what)| is_wrong.then_some(what))
}

fn above<T: PartialOrd>(least: Reading<T>, most: Reading<T>) -> bool {
    matches!((least, most), (Ok(least), Ok(most)) if least > most)
}

impl Machine {
    /// Updates the PIDs of accounted processes to their current ones.
    pub(crate) fn renumber_accounts(&mut self, new: &impl Fn(Pid) -> Pid) {
        let accounting = self.devices.iter_mut().filter_map(|d| d.details.accounting.as_mut());
        let kept = accounting.flat_map(|accounting| accounting.processes.iter_mut().flatten());
        kept.for_each(|process| process.pid = process.pid.map(new));
    }
}
