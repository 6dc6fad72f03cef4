//! Bounds of plausible values.
//!
//! Drivers return garbage: −256 °C, a fan at 4,294,967,295 %, 4 GW, more memory used than the
//! device has. Unfiltered, it misleads readers and every rule that uses it. So each adapter turns
//! impossible values into [`Absent::Implausible`] where it reads them, with the functions here and
//! no bounds of its own. The bounds are wide: they exclude what is impossible, not what is unusual.

use crate::absent::{Absent, Reading};
use crate::device::MemoryInfo;
use crate::id::Pid;
use crate::units::{Bytes, Celsius, Milliwatts, Percent};

/// The range of temperatures and of shutdown thresholds: industrial boards are specified down to
/// −40 °C, and silicon junctions up to 125 °C, the most robust parts up to 150 °C.
const CELSIUS_RANGE: std::ops::RangeInclusive<i64> = -60..=150;

/// The largest distance of a chip from a temperature: the width of [`CELSIUS_RANGE`].
const CELSIUS_DIFFERENCE_RANGE: std::ops::RangeInclusive<i64> = -210..=210;

/// No device draws more: a module with the two largest current devices draws 2.7 kW, a whole rack
/// 130 kW.
const MAX_MILLIWATTS: u64 = 100_000_000;

/// Percent of the maximum speed, which may exceed 100 in certain cases according to NVML's
/// documentation of `nvmlDeviceGetFanSpeed`, without an upper bound.
const MAX_FAN_PERCENT: u64 = 200;

/// No clock is faster: cores run below 4 GHz, and memory at some 16 GHz.
const MAX_MEGAHERTZ: u64 = 50_000;

/// No device has more memory: 2^48 bytes are a thousand times the largest current device (288 GB).
const MAX_BYTES: u64 = 1 << 48;

fn within<T>(is_possible: bool, value: T) -> Reading<T> {
    if is_possible { Ok(value) } else { Err(Absent::Implausible) }
}

/// Returns a temperature, or that it is implausible.
pub fn celsius(degrees: i64) -> Reading<Celsius> {
    let value = i32::try_from(degrees).map_err(|_| Absent::Implausible)?;
    within(CELSIUS_RANGE.contains(&degrees), Celsius(value))
}

/// Returns a temperature difference, or that it is implausible.
pub fn celsius_apart(degrees: i64) -> Reading<Celsius> {
    let value = i32::try_from(degrees).map_err(|_| Absent::Implausible)?;
    within(CELSIUS_DIFFERENCE_RANGE.contains(&degrees), Celsius(value))
}

/// Returns power, or a power limit, or that it is implausible.
pub fn milliwatts(power: u64) -> Reading<Milliwatts> {
    within(power <= MAX_MILLIWATTS, Milliwatts(power))
}

/// Returns power that is printed in watts, or that it is implausible.
pub fn watts(power: f64) -> Reading<Milliwatts> {
    // No range contains NaN.
    let possible = (0.0..=MAX_MILLIWATTS as f64 / 1000.0).contains(&power);
    if possible {
        Ok(Milliwatts((power * 1000.0).round() as u64))
    } else {
        Err(Absent::Implausible)
    }
}

/// Returns a percentage, or that it is implausible.
pub fn percent(share: u64) -> Reading<Percent> {
    Percent::new(share).ok_or(Absent::Implausible)
}

/// Returns a fan speed in percent of its maximum, or that it is implausible.
pub fn fan_percent(speed: u32) -> Reading<u32> {
    within(u64::from(speed) <= MAX_FAN_PERCENT, speed)
}

/// Returns a clock in MHz, or that it is implausible.
pub fn megahertz(clock: u32) -> Reading<u32> {
    within(u64::from(clock) <= MAX_MEGAHERTZ, clock)
}

/// Returns an amount of device memory, or that it is implausible.
pub fn memory(amount: Bytes) -> Reading<Bytes> {
    within(amount.0 <= MAX_BYTES, amount)
}

/// Returns the memory of a device without impossible values: a total of zero, or more used or
/// reserved than the total. In the last case the used value is dropped, not the total, which does
/// not change. Reserved memory is not part of used memory, but drivers have counted it twice, so
/// each only has to fit by itself.
pub fn memory_of(reported: MemoryInfo) -> MemoryInfo {
    let total = reported.total.and_then(memory).and_then(|total| within(total.0 > 0, total));
    let part = |part: Reading<Bytes>| {
        let part = part.and_then(memory)?;
        within(!total.is_ok_and(|total| part > total), part)
    };
    MemoryInfo { total, used: part(reported.used), reserved: part(reported.reserved) }
}

/// Returns whether a process can have this PID: 0 is the kernel's idle task, and −1 is the answer
/// of an interface without a PID.
pub fn is_pid(pid: Pid) -> bool {
    (1..u32::MAX).contains(&pid.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Absent = Absent::Implausible;

    #[test]
    fn implausible_values_are_rejected() {
        for degrees in [-256, -61, 151, 255, i64::from(i32::MAX), i64::MIN] {
            assert_eq!(celsius(degrees), Err(NONE), "{degrees}");
        }
        assert_eq!(milliwatts(4_294_967_294), Err(NONE));
        for power in [-1.0, 4e9, f64::NAN, f64::INFINITY] {
            assert_eq!(watts(power), Err(NONE), "{power}");
        }
        assert_eq!(percent(255), Err(NONE));
        assert_eq!(fan_percent(4_294_967_294), Err(NONE));
        assert_eq!(megahertz(u32::MAX - 1), Err(NONE));
        assert_eq!(memory(Bytes(u64::MAX - 1)), Err(NONE));
        assert!(!is_pid(Pid(0)) && !is_pid(Pid(u32::MAX)));
    }

    #[test]
    fn extreme_but_real_values_are_kept() {
        assert_eq!(celsius(-40), Ok(Celsius(-40)));
        assert_eq!(celsius(120), Ok(Celsius(120)));
        assert_eq!(celsius_apart(-3), Ok(Celsius(-3)));
        assert_eq!(watts(2_700.5), Ok(Milliwatts(2_700_500)));
        assert_eq!(fan_percent(105), Ok(105));
        assert_eq!(megahertz(16_000), Ok(16_000));
        assert_eq!(memory(Bytes(288 << 30)), Ok(Bytes(288 << 30)));
        assert!(is_pid(Pid(4_194_304)));
    }

    #[test]
    fn used_memory_above_total_is_implausible() {
        let gib = |count: u64| Ok(Bytes(count << 30));
        let reported = MemoryInfo { total: gib(16), used: gib(17), reserved: gib(1) };
        let known = memory_of(reported);
        assert_eq!((known.total, known.used, known.reserved), (gib(16), Err(NONE), gib(1)));
        let reported = MemoryInfo { total: gib(0), used: gib(1), reserved: Err(Absent::TooOld) };
        let known = memory_of(reported);
        assert_eq!(known.total, Err(NONE));
        assert_eq!((known.used, known.reserved), (gib(1), Err(Absent::TooOld)));
    }
}
