//! The view of `gpuws status`, as rows, as columns and as JSON.

use crate::wording::claims::User as UserName;
use crate::{Columns, ProcessFilter};
use gpu_core::visible::Seen;
use gpu_core::{DeviceState, Pid, Snapshot};
use gpu_reaper::{Diagnosis, Usage, User};
use gpu_steward::DeviceLeases;

/// The displayed part of a machine: some devices, and some of the processes on them.
pub struct View<'a> {
    /// The whole machine, for the headline.
    pub whole: &'a Snapshot,
    /// The machine with the selected devices only.
    pub snapshot: &'a Snapshot,
    /// The users of all devices of the machine.
    pub usage: Usage,
    /// The diagnosis of the whole machine.
    pub diagnosis: &'a Diagnosis,
    /// The leases on the devices.
    pub leased: DeviceLeases,
    /// The filter of the processes.
    pub filter: ProcessFilter,
    /// The requested columns, in place of the usual rows.
    pub columns: Option<&'a Columns>,
    /// Whether the tables of columns have titles.
    pub has_titles: bool,
    /// The previous snapshot of a repeated view.
    pub before: Option<&'a Snapshot>,
    /// The devices that programs started here see; `None` if unknown, as for a recorded machine.
    pub seen: Option<Seen>,
    /// Returns the name of a user by UID.
    pub name: UserName<'a>,
}

impl<'a> View<'a> {
    /// Returns the unfiltered view; `name` returns the name of a user by UID.
    pub fn of(
        whole: &'a Snapshot,
        snapshot: &'a Snapshot,
        diagnosis: &'a Diagnosis,
        leased: DeviceLeases,
        name: UserName<'a>,
    ) -> Self {
        View {
            whole,
            snapshot,
            usage: Usage::of(whole),
            diagnosis,
            leased,
            filter: ProcessFilter::default(),
            columns: None,
            has_titles: true,
            before: None,
            seen: None,
            name,
        }
    }

    pub(crate) fn shown_on(&self, device: &DeviceState) -> impl Iterator<Item = &User> {
        let users = self.usage.on(device.id()).iter();
        users.filter(|user| self.filter.shows(self.snapshot, user.pid))
    }

    /// Describes how many rows the filter left out; `None` without a filter.
    pub fn left_out(&self) -> Option<String> {
        let left_out = self.left_out_count()?;
        Some(self.filter.describe(left_out))
    }

    /// Returns how many rows of processes the filter left out, on all devices together or, if no
    /// device is known, of the holders of device files; `None` without a filter.
    pub(crate) fn left_out_count(&self) -> Option<usize> {
        let hidden = |pid: &Pid| !self.filter.shows(self.snapshot, *pid);
        let holders = || self.snapshot.holders().iter().map(|holder| holder.process.pid);
        let devices = &self.snapshot.devices;
        let users = || devices.iter().flat_map(|device| self.usage.on(device.id()));
        (!self.filter.is_empty()).then(|| {
            if devices.is_empty() {
                holders().filter(hidden).count()
            } else {
                users().map(|user| user.pid).filter(hidden).count()
            }
        })
    }
}
