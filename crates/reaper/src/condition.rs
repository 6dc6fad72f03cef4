//! The condition of a device in one snapshot, without its past.

use gpu_core::{Bytes, DeviceDetails, DeviceState, Pcie, ThrottleReasons};

/// From this share on, in percent, a device is busy for the whole sample window.
const BUSY: u8 = 95;

/// Reasons outside normal operation: hardware slowdown, software and hardware thermal slowdown, and
/// the power brake. The power cap is normal at full load, and the others are settings.
pub(crate) const THROTTLE_FAULTS: [u64; 4] = [0x008, 0x020, 0x040, 0x080];

/// Memory of a device that no listed process accounts for.
pub(crate) struct Unexplained {
    pub(crate) used: Bytes,
    pub(crate) total: Bytes,
    pub(crate) listed: Bytes,
    /// The maximum overhead of the driver itself.
    pub(crate) reserve: Bytes,
    /// `used − listed`.
    pub(crate) bytes: Bytes,
}

impl Unexplained {
    /// Returns the account of a device; `None` if a part of it is unknown.
    ///
    /// In a separate PID namespace, the amounts in NVML's list are valid although its PIDs are not.
    pub(crate) fn of(device: &DeviceState) -> Option<Self> {
        let (used, total) = (device.memory_used().ok()?, device.memory_total().ok()?);
        let listed = device.memory_listed()?;
        Some(Unexplained {
            used,
            total,
            listed,
            reserve: device.driver_reserve()?,
            bytes: used.saturating_sub(listed),
        })
    }

    /// Describes the account.
    pub(crate) fn describe(&self, device: &DeviceState) -> String {
        let used = self.used.to_string();
        let list = match device.processes.as_ref().map_or(0, Vec::len) {
            0 => "NVML lists no process".to_owned(),
            1 => format!("the process that NVML lists accounts for {}", self.listed),
            n => format!("the {n} processes that NVML lists account for {}", self.listed),
        };
        format!(
            "{} of {} used; {list}; driver overhead explains at most {} of the rest",
            used.trim_end_matches(" MiB"),
            self.total,
            self.reserve
        )
    }

    /// Returns whether it exceeds the driver's overhead.
    pub(crate) fn is_ghost(&self) -> bool {
        self.bytes > self.reserve
    }
}

/// Returns whether a device is busy although the driver lists no process on it; `None` if unknown.
pub(crate) fn is_busy_alone(device: &DeviceState) -> Option<bool> {
    let share = device.sample.as_ref().ok()?.utilization.ok()?;
    let alone = device.processes.as_ref().ok()?.is_empty();
    Some(alone && share.get() >= BUSY)
}

/// Returns whether the link of a device is slow under load; `None` if that is unknown.
pub(crate) fn is_link_slow(device: &DeviceState) -> Option<bool> {
    details(device)?.pcie.as_ref()?;
    device.sample.as_ref().ok()?.utilization.ok()?;
    Some(slow_link(device).is_some())
}

/// Describes the link of a device that works at full clocks with fewer lanes, or of a lower
/// generation, than device and slot allow.
pub(crate) fn slow_link(device: &DeviceState) -> Option<String> {
    // A device without memory of its own is part of the processor and has no physical link.
    device.memory_total().ok()?;
    let details = details(device)?;
    let is_busy = device.sample.as_ref().ok()?.utilization.ok()?.get() > 0;
    let state = details.activity.as_ref()?.performance_state.ok()?;
    let pcie = details.pcie.as_ref()?;
    if !is_busy || state > 2 {
        return None;
    }
    let Pcie { generation, generation_max, width, width_max, .. } = pcie;
    let narrow = match (*width, *width_max) {
        (Ok(now), Ok(max)) if now < max => Some(format!("x{now} of x{max} lanes")),
        _ => None,
    };
    let slow = match (*generation, *generation_max) {
        (Ok(now), Ok(max)) if now < max => Some(format!("generation {now} of {max}")),
        _ => None,
    };
    let link = [narrow, slow].into_iter().flatten().collect::<Vec<_>>();
    (!link.is_empty()).then(|| format!("PCIe link at work: {}", link.join(", ")))
}

/// Returns which of [`THROTTLE_FAULTS`] hold; `None` if they are unknown.
pub(crate) fn throttle_faults(device: &DeviceState) -> Option<ThrottleReasons> {
    let reasons = device.details.as_ref().ok()?.activity.as_ref()?.throttle.ok()?;
    Some(ThrottleReasons(THROTTLE_FAULTS.into_iter().filter(|fault| reasons.0 & fault != 0).sum()))
}

fn details(device: &DeviceState) -> Option<&DeviceDetails> {
    device.details.as_ref().ok()
}
