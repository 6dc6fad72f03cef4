//! Numbers of NVML as values with units.
//!
//! All ones stand for a number that is not told (`NVML_VALUE_NOT_AVAILABLE`): so where a struct has
//! room for it, or no code says why.

use gpu_core::{Absent, Bytes, Celsius, Milliwatts, Percent, Reading};

/// A number that all ones stand for the absence of.
pub(crate) trait Number: PartialEq + Sized {
    const UNTOLD: Self;
}

impl Number for u32 {
    const UNTOLD: u32 = u32::MAX;
}

impl Number for u64 {
    const UNTOLD: u64 = u64::MAX;
}

/// Reads a number.
pub(crate) fn number<T: Number>(value: T) -> Reading<T> {
    if value == T::UNTOLD { Err(Absent::NotSupported) } else { Ok(value) }
}

/// Reads a switch (`nvmlEnableState_t`).
pub(crate) fn switch(value: u32) -> Reading<bool> {
    number(value).map(|state| state != 0)
}

pub(crate) fn bytes(value: u64) -> Reading<Bytes> {
    number(value).map(Bytes)
}

pub(crate) fn milliwatts(value: u32) -> Reading<Milliwatts> {
    number(value).map(|power| Milliwatts(power.into()))
}

/// Reads a share; one above 100 % is garbage.
pub(crate) fn percent(value: u32) -> Reading<Percent> {
    Percent::new(number(value)?.into()).ok_or(Absent::Implausible)
}

/// Reads a temperature: NVML's numbers have no sign, but nothing is colder than this.
pub(crate) fn celsius(value: u32) -> Reading<Celsius> {
    let degrees = number(value)? as i32;
    let possible = (-273..=1000).contains(&degrees);
    if possible { Ok(Celsius(degrees)) } else { Err(Absent::Implausible) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ones_are_no_number() {
        let untold = Absent::NotSupported;
        assert_eq!(number(u32::MAX), Err(untold));
        assert_eq!(number(u64::from(u32::MAX)), Ok(0xffff_ffff));
        assert_eq!(switch(u32::MAX), Err(untold));
        assert_eq!(bytes(u64::MAX), Err(untold));
        assert_eq!(milliwatts(u32::MAX), Err(untold));
        assert_eq!(percent(u32::MAX), Err(untold));
        assert_eq!(celsius(u32::MAX), Err(untold));
    }

    #[test]
    fn garbage_is_no_value() {
        assert_eq!(percent(100), Ok(Percent::new(100).unwrap()));
        assert_eq!(percent(37_100), Err(Absent::Implausible));
        assert_eq!(celsius(71), Ok(Celsius(71)));
        assert_eq!(celsius(-4i32 as u32), Ok(Celsius(-4)));
        assert_eq!(celsius(u32::MAX >> 1), Err(Absent::Implausible));
        assert_eq!((switch(0), switch(1), switch(2)), (Ok(false), Ok(true), Ok(true)));
    }
}
