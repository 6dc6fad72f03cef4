//! The condition of a device in one snapshot, without its past.

use crate::evidence::{Evidence, Sign};
use gpu_core::{Bytes, DeviceDetails, DeviceState, MemoryKind, Milliwatts, Pcie, ThrottleReasons};

/// From this share on, in percent, a device is busy for the whole sample window.
const BUSY: u8 = 95;

/// The utilization, in percent, from which a device counts as loaded.
const MUCH: u8 = 50;

/// A device that draws at most 1/8 of its power limit draws little more than when idle.
const LOW_POWER: u64 = 8;

/// Reasons outside normal operation. The power cap is normal at full load, and the others are
/// settings.
pub(crate) const THROTTLE_FAULTS: [ThrottleReasons; 4] = [
    ThrottleReasons::HARDWARE_SLOWDOWN,
    ThrottleReasons::SOFTWARE_THERMAL,
    ThrottleReasons::HARDWARE_THERMAL,
    ThrottleReasons::HARDWARE_POWER_BRAKE,
];

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
    /// Returns the account of a device; `None` if a part of it is unknown or not the machine's own
    /// ([`DeviceState::memory_unlisted`]).
    ///
    /// In a separate PID namespace, the amounts in NVML's list are valid although its PIDs are not.
    pub(crate) fn of(device: &DeviceState) -> Option<Self> {
        let (used, total) = (device.memory_used().ok()?, device.memory_total().ok()?);
        let listed = device.memory_listed()?;
        device.memory_unlisted()?;
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
        let of_host = match device.memory_source().kind {
            MemoryKind::NumaNode(Some(node)) => {
                format!(" without the page cache and programs of the host on NUMA node {node}")
            }
            _ => String::new(),
        };
        let list = match device.processes.as_ref().map_or(0, Vec::len) {
            0 if device.lists_clients() => "no process uses it".to_owned(),
            n if device.lists_clients() => {
                let processes = if n == 1 { "1 process" } else { &format!("{n} processes") };
                format!("the clients of {processes} account for {}", self.listed)
            }
            0 => "NVML lists no process".to_owned(),
            1 => format!("the process that NVML lists accounts for {}", self.listed),
            n => format!("the {n} processes that NVML lists account for {}", self.listed),
        };
        format!(
            "{} of {} used{of_host}; {list}; driver overhead explains at most {} of the rest",
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

/// Returns the evidence that a device draws hardly more power than without work while it reports
/// high utilization: a kernel runs, and most of the device waits.
pub(crate) fn low_power(device: &DeviceState) -> Option<Evidence> {
    let sample = device.sample.as_ref().ok()?;
    let (share, draw, limit) =
        (sample.utilization.ok()?, sample.power_draw.ok()?, sample.power_limit.ok()?);
    let is_low = share.get() >= MUCH && draw.0.saturating_mul(LOW_POWER) <= limit.0;
    let text = || format!("{share} utilization at {} of {limit}", watts(draw));
    is_low.then(|| Evidence::new(Sign::LowPower, text()))
}

fn watts(power: Milliwatts) -> String {
    power.to_string().trim_end_matches(" W").to_owned()
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
    if device.memory_source().kind.is_integrated() || device.memory_total().is_err() {
        return None;
    }
    let details = details(device)?;
    let share = device.sample.as_ref().ok()?.utilization.ok()?.get();
    let works = match details.activity.as_ref()?.performance_state {
        Ok(state) => share > 0 && state <= 2,
        // A driver without these states raises the link with the load.
        Err(_) => device.lists_clients() && share >= MUCH,
    };
    let pcie = details.pcie.as_ref()?;
    if !works {
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
    Some(
        THROTTLE_FAULTS
            .into_iter()
            .fold(ThrottleReasons::default(), |set, fault| set | fault & reasons),
    )
}

fn details(device: &DeviceState) -> Option<&DeviceDetails> {
    device.details.as_ref().ok()
}
