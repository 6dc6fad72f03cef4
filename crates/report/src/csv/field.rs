//! A column of a query: its names, its unit, the group of details that it needs, and its value.

use crate::release::Release;
use gpu_core::{
    Absent, AccountedProcess, Bytes, DeviceDetails, DeviceFault, DeviceProcess, DeviceSample,
    DeviceState, ErrorKind, Group, Inventory, Milliwatts, ProcessInfo, Reading, RetiredPage,
};

/// The data of one row.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) machine: &'a Inventory,
    pub(super) device: &'a DeviceState,
    /// The time of the query, as printed.
    pub(super) time: &'a str,
    pub(super) item: Item<'a>,
}

/// The subject of a row, besides its device.
#[derive(Clone, Copy)]
pub(super) enum Item<'a> {
    /// The row is about the device.
    Device,
    /// A process and its `ProcessInfo`.
    Process(&'a DeviceProcess, &'a Reading<ProcessInfo>),
    Accounted(&'a AccountedProcess),
    /// A retired page; if the device reports none, its cause alone.
    Page(Reading<RetiredPage>, &'static str),
    /// A memory clock and a graphics clock, in MHz.
    Clocks(Reading<(u32, u32)>),
}

impl<'a> Row<'a> {
    pub(super) fn sample(&self) -> Reading<&'a DeviceSample> {
        self.device.sample.as_ref().map_err(|fault| fault.kind.absent())
    }

    /// Returns the release of nvidia-smi whose format the row has.
    pub(super) fn release(&self) -> Release {
        Release::of(&self.machine.driver)
    }

    /// Formats whole mebibytes as this release rounds them.
    pub(super) fn mib(&self, bytes: Reading<Bytes>) -> Reading<String> {
        bytes.map(|bytes| self.release().mib(bytes).to_string())
    }

    pub(super) fn details(&self) -> Reading<&'a DeviceDetails> {
        self.device.details.as_ref().map_err(|fault| fault.kind.absent())
    }

    /// Returns nvidia-smi's placeholder for an absent value.
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
            Absent::NotSupported | Absent::NotRecorded | Absent::Implausible | Absent::Asleep => {
                "[N/A]"
            }
        }
    }
}

/// A column of a query.
#[derive(Debug)]
pub(super) struct Field {
    /// The name in the header line.
    pub(super) name: &'static str,
    others: &'static [&'static str],
    pub(super) unit: Option<&'static str>,
    /// The group of details that contains the value; `None` if every query reads the value.
    pub(super) group: Option<Group>,
    /// Whether a release prints `[N/A]` without brackets.
    pub(super) is_bare: fn(Release) -> bool,
    /// The description in the help.
    pub(super) about: &'static str,
    pub(super) get: for<'a> fn(&Row<'a>) -> Reading<String>,
}

impl Field {
    /// Returns a column without a unit, for a value that every query reads.
    pub(super) const fn new(
        name: &'static str,
        about: &'static str,
        get: for<'a> fn(&Row<'a>) -> Reading<String>,
    ) -> Self {
        Field { name, others: &[], unit: None, group: None, is_bare: |_| false, about, get }
    }

    /// Returns a column for a value that nvidia-smi prints but gpuws does not read, as docs/query.md
    /// explains.
    pub(super) const fn unreported(name: &'static str, about: &'static str) -> Self {
        Field::new(name, about, |_| Err(Absent::NotSupported))
    }

    /// Sets the unit.
    pub(super) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Sets the group of details that contains the value.
    pub(super) const fn from(mut self, group: Group) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets the releases that print `[N/A]` without brackets.
    pub(super) const fn bare(mut self, is_bare: fn(Release) -> bool) -> Self {
        self.is_bare = is_bare;
        self
    }

    /// Sets the alternative names.
    pub(super) const fn or(mut self, others: &'static [&'static str]) -> Self {
        self.others = others;
        self
    }

    /// Returns the name and the alternative names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.others.iter().copied())
    }
}

/// Makes a column for one value of a group of details.
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

pub(super) fn plain<T: ToString + ?Sized>(value: &T) -> String {
    value.to_string()
}

/// Formats `Enabled` or `Disabled`.
pub(super) fn enabled(value: &bool) -> String {
    if *value { "Enabled" } else { "Disabled" }.to_owned()
}

/// Formats `Yes` or `No`.
pub(super) fn yes(value: &bool) -> String {
    if *value { "Yes" } else { "No" }.to_owned()
}

/// Formats watts with two decimals, rounded in single precision as nvidia-smi does.
pub(super) fn watts(value: &Milliwatts) -> String {
    format!("{:.2}", value.0 as f32 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are the output of nvidia-smi 535.
    #[test]
    fn watts_are_rounded_like_nvidia_smi() {
        for (milliwatts, written) in
            [(312_345, "312.35"), (312_995, "312.99"), (5, "0.00"), (61_230, "61.23"), (0, "0.00")]
        {
            assert_eq!(watts(&Milliwatts(milliwatts)), written);
        }
    }
}
