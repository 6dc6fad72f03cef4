//! The text of `gpuws status`: a headline, and a row for each device and each of its users.

mod layout;
mod notes;
mod users;

use crate::text::Line;
use crate::{View, wording};
use gpu_core::{Absent, DeviceId, DeviceState, Driver, Partition, Pid};
use gpu_reaper::{Finding, FindingKind, User};
use layout::Layout;

impl View<'_> {
    /// Formats `labbox · driver 535.261.03 · CUDA 12.2 · 4 GPUs, 1 free, 1+ findings`, in pieces.
    /// Findings that are only possible are not counted.
    pub fn headline(&self) -> Vec<Line> {
        let mut parts = Vec::new();
        if let Ok(hostname) = &self.whole.hostname {
            parts.push(hostname.clone());
        }
        if let Ok(Driver { version, cuda }) = &self.whole.driver {
            parts.extend(version.iter().map(|version| format!("driver {version}")));
            parts.extend(cuda.iter().map(|cuda| format!("CUDA {cuda}")));
            let free = self.whole.devices.iter().filter(|device| self.is_free(device)).count();
            let parts_free = self.leased.free_parts(self.whole, &self.usage);
            parts.push(wording::free(self.whole, self.whole.devices.len(), free, parts_free));
        }
        let mut pieces: Vec<Line> = parts.into_iter().map(|part| Line::new().plain(part)).collect();
        let confident = self.diagnosis.confident().count();
        // One line of a narrow terminal has no room for both.
        if confident > 0 && self.leased.free_parts(self.whole, &self.usage) > 0 {
            let findings = wording::findings_at_least(confident as u64);
            pieces.push(Line::new().accent(findings));
        } else if confident > 0 {
            let findings = wording::findings_at_least(confident as u64);
            let last = pieces.pop().map_or_else(Line::new, |last| last.plain(", "));
            pieces.push(last.accent(findings));
        }
        pieces
    }

    /// Returns the rows of the devices, each followed by those of its users, within `columns`; or
    /// the tables with the requested columns.
    pub fn rows(&self, columns: usize) -> Vec<Line> {
        if let Some(requested) = self.columns {
            return requested.lines(self, columns);
        }
        let any_free = self.snapshot.devices.iter().any(|device| self.is_free(device));
        let layout = Layout::of(columns, self.snapshot, any_free);
        let devices = self.snapshot.devices.iter();
        let lines = devices.flat_map(|device| self.rows_of(&layout, device));
        lines.map(|line| line.cut(columns)).collect()
    }

    fn rows_of(&self, layout: &Layout, device: &DeviceState) -> Vec<Line> {
        let mut lines = layout.device(device, self.is_free(device));
        lines.extend(layout::defects(device));
        let leases: Vec<_> = self.leased.on(device).collect();
        lines.extend(users::claims(&leases, self.snapshot.taken_at, self.name, layout.columns));
        // The memory of the one process that certainly has it is on its row.
        let mut unexplained = self.usage.unexplained(device.id());
        let ghost = self.diagnosis.only_ghost(device.id()).filter(|_| unexplained.is_some());
        for instance in instances(device) {
            lines.extend(instance.map(|part| {
                layout.instance(part, self.leased.is_part_free(device, part, &self.usage))
            }));
            let layout = if instance.is_some() { layout.nested() } else { *layout };
            for user in self.shown_on(device) {
                let finding = self.suspected(device.id(), user.pid);
                if !same(self.instance_of(device, user, finding), instance) {
                    continue;
                }
                let mut user = user.clone();
                if ghost == Some(user.pid) && user.memory.is_err() {
                    user.memory = unexplained.take().ok_or(Absent::NotFound);
                }
                lines.extend(layout.user(self.snapshot, &user, finding));
                lines.extend(layout.unlisted(self.snapshot, device, &user));
            }
            for process in self.usage.foreign(device.id()) {
                if same(device.partition(process.gpu_instance, process.compute_instance), instance)
                {
                    lines.extend(layout.foreign(process));
                }
            }
            if same(self.instance_of_unexplained(device), instance) {
                lines.extend(unexplained.into_iter().flat_map(|bytes| layout.unexplained(bytes)));
            }
        }
        lines
    }

    /// Returns the MIG device of a user, if the driver reports it. A suspect for unexplained memory
    /// is shown with that memory.
    fn instance_of<'d>(
        &self,
        device: &'d DeviceState,
        user: &User,
        finding: Option<FindingKind>,
    ) -> Option<&'d Partition> {
        if user.listed == Ok(false) && finding == Some(FindingKind::Ghost) {
            return self.instance_of_unexplained(device);
        }
        device.partition(user.gpu_instance, user.compute_instance)
    }

    /// Returns the MIG device that has the unexplained memory.
    fn instance_of_unexplained<'d>(&self, device: &'d DeviceState) -> Option<&'d Partition> {
        device.partition(self.usage.unexplained_in(device.id()), None)
    }

    fn is_free(&self, device: &DeviceState) -> bool {
        self.leased.is_free(device, &self.usage)
    }

    /// Returns the kind of the finding that suspects a process and is at least likely.
    fn suspected(&self, device: &DeviceId, pid: Pid) -> Option<FindingKind> {
        let is_it = |finding: &&Finding| {
            finding.devices.iter().any(|id| id.same_device(device))
                && finding.suspects.iter().any(|suspect| suspect.process.pid == pid)
        };
        self.diagnosis.confident().find(is_it).map(|finding| finding.kind)
    }
}

/// Returns the MIG devices of a device, and then `None` for the device itself.
fn instances(device: &DeviceState) -> impl Iterator<Item = Option<&Partition>> {
    device.partitions.iter().flatten().map(Some).chain([None])
}

fn same(one: Option<&Partition>, other: Option<&Partition>) -> bool {
    one.map(|mig| mig.index) == other.map(|mig| mig.index)
}
