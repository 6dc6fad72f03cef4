//! What every detector asks of the looks.

use crate::role::Role;
use gpu_core::{
    Bytes, DeviceFileKind, DeviceProcess, DeviceState, Holder, Pid, ProcessInfo, ProcessKey,
    Snapshot,
};
use std::time::Duration;

/// The looks, with the last one at hand.
pub(crate) struct Case<'a> {
    /// All looks, oldest first.
    pub(crate) looks: &'a [Snapshot],
    /// The last one.
    pub(crate) now: &'a Snapshot,
}

impl<'a> Case<'a> {
    pub(crate) fn new(looks: &'a [Snapshot]) -> Option<Self> {
        looks.last().map(|now| Case { looks, now })
    }

    /// The processes that have the file of this very device.
    pub(crate) fn holders_of(
        &self,
        device: &DeviceState,
    ) -> impl Iterator<Item = &'a Holder> + use<'a> {
        let gpu = self.now.minor_of(device).map(DeviceFileKind::Gpu);
        self.now.holders().iter().filter(move |holder| gpu.is_some_and(|gpu| holder.has(gpu)))
    }

    pub(crate) fn holder(&self, pid: Pid) -> Option<&'a Holder> {
        self.now.holders().iter().find(|holder| holder.process.pid == pid)
    }

    pub(crate) fn info(&self, pid: Pid) -> Option<&'a ProcessInfo> {
        self.now.process(pid).ok()
    }

    pub(crate) fn key(&self, pid: Pid) -> ProcessKey {
        self.info(pid).map_or(ProcessKey { pid, start: None }, |info| info.key)
    }

    pub(crate) fn role(&self, pid: Pid, device: &DeviceState) -> Role {
        let listed = listed(device, pid);
        Role::of(self.info(pid), self.holder(pid), listed, self.now.minor_of(device))
    }

    /// The processes that NVML lists on a device, by numbers that mean the same here: in a PID
    /// namespace of our own none do.
    pub(crate) fn listed_on(
        &self,
        device: &'a DeviceState,
    ) -> impl Iterator<Item = &'a DeviceProcess> + use<'a> {
        let ours = self.now.sees_host_pids != Ok(false);
        device.processes.iter().flatten().filter(move |_| ours)
    }

    /// Tells whether a process surely has memory of a device: NVML lists it there, or it has the
    /// device mapped. An open file alone can be handed to anybody (SCM_RIGHTS).
    pub(crate) fn surely_uses(&self, pid: Pid, device: &DeviceState) -> bool {
        let ours = self.now.sees_host_pids != Ok(false);
        let mapped = self.now.minor_of(device).zip(self.holder(pid));
        (ours && listed(device, pid).is_some())
            || mapped.is_some_and(|(minor, holder)| holder.has_mapped(minor))
    }

    /// Processor time that a process used between the first look that saw it and now, and the
    /// time that passed; `None` with one look.
    pub(crate) fn cpu_time_advance(&self, process: ProcessKey) -> Option<(Duration, Duration)> {
        let seen = |look: &Snapshot| {
            let info = look.process(process.pid).ok()?;
            if !info.key.surely_same(&process) {
                return None;
            }
            Some((look.taken_at, info.cpu_time.ok()?))
        };
        let (first_at, first) = self.looks.iter().find_map(seen)?;
        let (last_at, last) = seen(self.now)?;
        (last_at > first_at).then(|| (last.saturating_sub(first), last_at.since(first_at)))
    }
}

/// The entry of a process in a device's list.
pub(crate) fn listed(device: &DeviceState, pid: Pid) -> Option<&DeviceProcess> {
    device.processes.as_ref().ok()?.iter().find(|process| process.pid == pid)
}

/// The files of a holder by their short names, `nvidia0 nvidiactl`.
pub(crate) fn paths(holder: &Holder) -> String {
    let names = holder.held.iter().map(|held| held.path.rsplit('/').next().unwrap_or(&held.path));
    names.collect::<Vec<_>>().join(" ")
}

/// Memory of a device that no listed process accounts for.
pub(crate) struct Unexplained {
    pub(crate) used: Bytes,
    pub(crate) total: Bytes,
    pub(crate) listed: Bytes,
    /// What the driver may use for itself.
    pub(crate) reserve: Bytes,
    /// `used − listed`.
    pub(crate) bytes: Bytes,
}

impl Unexplained {
    /// Returns the account of a device; `None` where a part of it is not known.
    pub(crate) fn of(device: &DeviceState) -> Option<Self> {
        let (used, total) = (device.memory_used().ok()?, device.memory_total().ok()?);
        let listed = device.memory_listed()?;
        let graphics = device.info.display_active == Ok(true)
            || device.processes.iter().flatten().any(|p| {
                matches!(
                    p.kind,
                    gpu_core::DeviceProcessKind::Graphics
                        | gpu_core::DeviceProcessKind::ComputeAndGraphics
                )
            });
        Some(Unexplained {
            used,
            total,
            listed,
            reserve: driver_reserve(total, graphics),
            bytes: used.saturating_sub(listed),
        })
    }

    /// Words the account.
    pub(crate) fn describe(&self, device: &DeviceState) -> String {
        let used = self.used.to_string();
        let list = match device.processes.as_ref().map_or(0, Vec::len) {
            0 => "NVML lists no process".to_owned(),
            1 => format!("the process that NVML lists accounts for {}", self.listed),
            n => format!("the {n} processes that NVML lists account for {}", self.listed),
        };
        format!(
            "{} of {} used; {list}; that leaves more than the {} that a driver may need for itself",
            used.trim_end_matches(" MiB"),
            self.total,
            self.reserve
        )
    }

    /// Tells whether it is more than the driver needs for itself.
    pub(crate) fn is_ghost(&self) -> bool {
        self.bytes > self.reserve
    }
}

/// What `used` may hold beyond the listed processes without anything being wrong.
///
/// An idle P100 of driver 418 shows 25 MiB, a K80 11 MiB above its processes, drivers from 510 on
/// nothing (they report their share apart). 64 MiB and 0.5 % of the memory covers these, and is
/// well below the smallest CUDA context (about 100 MiB). Where a display is drawn, frame buffers
/// that no list shows come on top: 512 MiB more.
pub(crate) fn driver_reserve(total: Bytes, graphics: bool) -> Bytes {
    let display = if graphics { Bytes::from_mib(512) } else { Bytes(0) };
    Bytes::from_mib(64) + Bytes(total.0 / 200) + display
}
