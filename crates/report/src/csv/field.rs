//! One column: its names, its unit, what it needs to be asked for, and how it is read.

use gpu_core::{
    Absent, Bytes, DeviceDetails, DeviceFault, DeviceProcess, DeviceSample, DeviceState, ErrorKind,
    Group, Inventory, Milliwatts, ProcessInfo, Reading,
};

/// What a row is made from.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) machine: &'a Inventory,
    pub(super) device: &'a DeviceState,
    /// The time of the look, as it is printed.
    pub(super) time: &'a str,
    /// The process, where the row is about one, and what is known of it.
    pub(super) process: Option<(&'a DeviceProcess, &'a Reading<ProcessInfo>)>,
}

impl<'a> Row<'a> {
    pub(super) fn sample(&self) -> Reading<&'a DeviceSample> {
        self.device.sample.as_ref().map_err(|fault| fault.kind.absent())
    }

    pub(super) fn details(&self) -> Reading<&'a DeviceDetails> {
        self.device.details.as_ref().map_err(|fault| fault.kind.absent())
    }

    /// Returns the words that nvidia-smi has for a value that is not there.
    pub(super) fn brackets(&self, absent: Absent) -> &'static str {
        let waits = ErrorKind::Device(DeviceFault::ResetRequired);
        match absent {
            Absent::DeviceLost if self.device.sample.as_ref().is_err_and(|f| f.kind == waits) => {
                "[GPU requires reset]"
            }
            Absent::DeviceLost => "[GPU is lost]",
            Absent::NotPermitted => "[Insufficient Permissions]",
            Absent::NotFound => "[Not Found]",
            Absent::TooOld => "[Function Not Found]",
            Absent::Deprecated => "[Requested functionality has been deprecated]",
            Absent::Failed | Absent::NoAnswer => "[Unknown Error]",
            Absent::NotSupported | Absent::NotRecorded | Absent::Implausible => "[N/A]",
        }
    }
}

/// A column.
#[derive(Debug)]
pub(super) struct Field {
    /// The name in the head.
    pub(super) name: &'static str,
    others: &'static [&'static str],
    pub(super) unit: Option<&'static str>,
    /// The group of details that it is read from.
    pub(super) group: Option<Group>,
    /// What is not supported is `N/A` without brackets.
    pub(super) is_bare: bool,
    /// What it is, for the help.
    pub(super) about: &'static str,
    pub(super) get: for<'a> fn(&Row<'a>) -> Reading<String>,
}

impl Field {
    /// Returns a column without a unit, read from what every look asks for.
    pub(super) const fn new(
        name: &'static str,
        about: &'static str,
        get: for<'a> fn(&Row<'a>) -> Reading<String>,
    ) -> Self {
        Field { name, others: &[], unit: None, group: None, is_bare: false, about, get }
    }

    /// Returns a column of what no function of NVML tells, but to nvidia-smi.
    pub(super) const fn unreported(name: &'static str, about: &'static str) -> Self {
        Field::new(name, about, |_| Err(Absent::NotSupported))
    }

    /// Adds the unit.
    pub(super) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Adds the group of details that it is read from.
    pub(super) const fn from(mut self, group: Group) -> Self {
        self.group = Some(group);
        self
    }

    /// Leaves the brackets of `[N/A]` out.
    pub(super) const fn bare(mut self) -> Self {
        self.is_bare = true;
        self
    }

    /// Adds other names by which it may be asked for.
    pub(super) const fn or(mut self, others: &'static [&'static str]) -> Self {
        self.others = others;
        self
    }

    /// Returns all its names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.others.iter().copied())
    }
}

/// Makes a column of one value of a group of details.
macro_rules! detail {
    ($name:expr, $about:expr, $group:ident: $field:ident . $value:ident, $write:expr) => {
        Field::new($name, $about, |row| {
            let group = row.details()?.$field.as_ref().ok_or(gpu_core::Absent::NotRecorded)?;
            group.$value.as_ref().map($write).map_err(|absent| *absent)
        })
        .from(gpu_core::Group::$group)
    };
}
pub(super) use detail;

/// Writes a number or a word as it is.
pub(super) fn plain<T: ToString + ?Sized>(value: &T) -> String {
    value.to_string()
}

/// Writes `Enabled` or `Disabled`.
pub(super) fn enabled(value: &bool) -> String {
    if *value { "Enabled" } else { "Disabled" }.to_owned()
}

/// Writes `Yes` or `No`.
pub(super) fn yes(value: &bool) -> String {
    if *value { "Yes" } else { "No" }.to_owned()
}

/// Writes whole mebibytes.
pub(super) fn mib(value: &Bytes) -> String {
    value.mib().to_string()
}

/// Writes watts with two digits behind the point, rounded in single precision as nvidia-smi does.
pub(super) fn watts(value: &Milliwatts) -> String {
    format!("{:.2}", value.0 as f32 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nvidia-smi 535 printed for the same figures.
    #[test]
    fn values_are_rounded_like_nvidia_smi() {
        for (milliwatts, written) in
            [(312_345, "312.35"), (312_995, "312.99"), (5, "0.00"), (61_230, "61.23"), (0, "0.00")]
        {
            assert_eq!(watts(&Milliwatts(milliwatts)), written);
        }
        assert_eq!(mib(&Bytes((101 << 20) - 1)), "100");
    }
}
