//! Converts NVML's numbers to values with units, and rejects impossible ones
//! ([`gpu_core::plausible`]).
//!
//! All ones mean that a number is absent (`NVML_VALUE_NOT_AVAILABLE`) in a struct field, or
//! wherever no code gives a reason.

use gpu_core::{Absent, Bytes, Celsius, Milliwatts, Percent, Reading, plausible};

/// An integer type with its maximum reserved for an absent value.
pub(crate) trait Number: PartialEq + Sized {
    const UNREPORTED: Self;
}

impl Number for u32 {
    const UNREPORTED: u32 = u32::MAX;
}

impl Number for u64 {
    const UNREPORTED: u64 = u64::MAX;
}

/// Returns a number, which is absent if it is all ones.
pub(crate) fn number<T: Number>(value: T) -> Reading<T> {
    if value == T::UNREPORTED { Err(Absent::NotSupported) } else { Ok(value) }
}

/// Returns a part of a value, or the reason for its absence.
pub(crate) fn part<T, U>(reported: &Reading<T>, read: impl FnOnce(&T) -> Reading<U>) -> Reading<U> {
    reported.as_ref().map_err(|reason| *reason).and_then(read)
}

/// Decodes `nvmlEnableState_t`.
pub(crate) fn switch(value: u32) -> Reading<bool> {
    number(value).map(|state| state != 0)
}

pub(crate) fn bytes(value: u64) -> Reading<Bytes> {
    number(value).map(Bytes).and_then(plausible::memory)
}

pub(crate) fn milliwatts(value: u32) -> Reading<Milliwatts> {
    plausible::milliwatts(number(value)?.into())
}

/// Converts a percentage; above 100 % the value is implausible.
pub(crate) fn percent(value: u32) -> Reading<Percent> {
    plausible::percent(number(value)?.into())
}

/// Converts a temperature, which NVML returns as an unsigned integer with the bits of a signed one.
pub(crate) fn celsius(value: u32) -> Reading<Celsius> {
    plausible::celsius((number(value)? as i32).into())
}

/// Converts a temperature difference.
pub(crate) fn celsius_apart(value: i32) -> Reading<Celsius> {
    plausible::celsius_apart(value.into())
}

/// Converts a clock frequency in MHz.
pub(crate) fn megahertz(value: u32) -> Reading<u32> {
    plausible::megahertz(number(value)?)
}

/// Converts a fan speed in percent of its maximum.
pub(crate) fn fan_percent(value: u32) -> Reading<u32> {
    plausible::fan_percent(number(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ones_value_is_absent() {
        let unreported = Absent::NotSupported;
        assert_eq!(number(u32::MAX), Err(unreported));
        assert_eq!(number(u64::from(u32::MAX)), Ok(0xffff_ffff));
        assert_eq!(switch(u32::MAX), Err(unreported));
        assert_eq!(bytes(u64::MAX), Err(unreported));
        assert_eq!(milliwatts(u32::MAX), Err(unreported));
        assert_eq!(percent(u32::MAX), Err(unreported));
        assert_eq!(celsius(u32::MAX), Err(unreported));
    }

    #[test]
    fn implausible_values_are_rejected() {
        assert_eq!(percent(100), Ok(Percent::new(100).unwrap()));
        assert_eq!(percent(37_100), Err(Absent::Implausible));
        assert_eq!(celsius(71), Ok(Celsius(71)));
        assert_eq!(celsius(-4i32 as u32), Ok(Celsius(-4)));
        assert_eq!(celsius(u32::MAX >> 1), Err(Absent::Implausible));
        assert_eq!(celsius(-256i32 as u32), Err(Absent::Implausible));
        assert_eq!(milliwatts(4_000_000_000), Err(Absent::Implausible));
        assert_eq!(megahertz(u32::MAX - 1), Err(Absent::Implausible));
        assert_eq!(megahertz(u32::MAX), Err(Absent::NotSupported));
        assert_eq!(
            (fan_percent(103), fan_percent(u32::MAX - 1)),
            (Ok(103), Err(Absent::Implausible))
        );
        assert_eq!(bytes(u64::MAX - 1), Err(Absent::Implausible));
        assert_eq!(
            (bytes(1 << 30), milliwatts(70_000)),
            (Ok(Bytes(1 << 30)), Ok(Milliwatts(70_000)))
        );
        assert_eq!((megahertz(1410), celsius_apart(-5)), (Ok(1410), Ok(Celsius(-5))));
        assert_eq!(part(&Ok(7), |seven| number(seven + 1_u32)), Ok(8));
        assert_eq!(part(&Err(Absent::TooOld), |seven: &u32| number(*seven)), Err(Absent::TooOld));
        assert_eq!((switch(0), switch(1), switch(2)), (Ok(false), Ok(true), Ok(true)));
    }
}
