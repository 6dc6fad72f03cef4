//! The processes that block a reset of a device.
//!
//! The driver resets a device only if no process has it open. The blockers are therefore all
//! holders of its device file, including monitors and daemons; the processes that NVML lists on it;
//! and display servers, which use it through files that name no device. If the holders, or the
//! devices that are reset with it, are not fully known, more blockers may exist.

mod act;
mod links;
mod unknown;
mod way;

pub use act::{Outcome, reset};
pub use links::Linked;
pub use unknown::Unknown;
pub use way::Way;

use crate::detect::diagnose;
use crate::finding::{Confidence, FindingKind};
use crate::role::Role;
use gpu_core::{
    Absent, DeviceState, FileRole, HeldFile, Holder, Percent, Pid, Reading, Snapshot, SystemService,
};
use std::collections::BTreeSet;
use way::way;

/// A device to reset, and what blocks the reset.
#[derive(Debug)]
pub struct Check<'a> {
    /// The snapshot of the machine.
    pub now: &'a Snapshot,
    /// The device.
    pub device: &'a DeviceState,
    /// The devices that are reset with it.
    pub linked: Linked,
    /// The processes that use it or a device that is reset with it.
    pub blockers: Blockers,
}

impl Check<'_> {
    /// Returns whether the driver may be called: certainly no process blocks the reset.
    ///
    /// `is_simulated` is true for a simulated machine without NVML. It may also be called if a
    /// process has this device's file open: it then certainly refuses, with the recorded error. The
    /// simulated NVML has no such error.
    pub fn may_ask(&self, is_simulated: bool) -> bool {
        let mut files = self.blockers.users.iter().flat_map(|blocker| &blocker.files);
        self.blockers.is_clear() || (is_simulated && files.any(|file| file.opens(self.device.id())))
    }
}

/// The processes that use some devices.
#[derive(Debug)]
pub struct Blockers {
    /// The known processes, by PID.
    pub users: Vec<Blocker>,
    /// Why there may be more.
    pub unknown: Option<Unknown>,
}

/// A process that blocks a reset.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// The PID.
    pub pid: Pid,
    /// The devices that it uses, by index.
    pub devices: Vec<u32>,
    /// The files that it has open; empty for a process that NVML lists and for which none is
    /// visible.
    pub files: Vec<HeldFile>,
    /// Its role on the devices.
    pub role: Role,
    /// The highest share of NVML's sample window in which it computed on one of the devices.
    pub utilization: Reading<Percent>,
    /// How to make it release the devices.
    pub way: Way,
}

impl Blockers {
    /// Returns the processes that use the device or a device that is reset with it. `own` is the
    /// PID of this program if it runs on that machine; its child for NVML may still have the files
    /// open. Both are left out.
    pub fn of(
        snapshot: &Snapshot,
        device: &DeviceState,
        linked: &Linked,
        own: Option<Pid>,
    ) -> Self {
        let together = |one: &&DeviceState| {
            one.id().same_device(device.id()) || linked.peers.contains(&one.id().index)
        };
        let devices: Vec<&DeviceState> = snapshot.devices.iter().filter(together).collect();
        let mut pids: BTreeSet<Pid> = BTreeSet::new();
        pids.extend(devices.iter().flat_map(|device| listed(device)));
        let holds =
            |holder: &&Holder| devices.iter().any(|device| reaches(snapshot, device, holder));
        pids.extend(snapshot.holders().iter().filter(holds).map(|holder| holder.process.pid));
        let is_ours = |pid, own| pid == own || is_own_child(snapshot, pid, own);
        pids.retain(|pid| !own.is_some_and(|own| is_ours(*pid, own)));
        // NVML may list a process that has certainly ended. A reset clears this.
        let seen = |pid: &Pid| snapshot.process(*pid) != Err(Absent::NotFound);
        pids.retain(|pid| seen(pid) || snapshot.sees_host_pids != Ok(true));
        let ghosts = ghosts(snapshot);
        let users = pids.into_iter();
        let users = users.map(|pid| Blocker::of(snapshot, &devices, pid, ghosts.contains(&pid)));
        Blockers { users: users.collect(), unknown: Unknown::first(snapshot, &devices, linked) }
    }

    /// Returns whether certainly no process blocks the reset.
    pub fn is_clear(&self) -> bool {
        self.users.is_empty() && self.unknown.is_none()
    }
}

/// Returns the processes that certainly hold the unexplained memory of a device: `doctor` advises to
/// reap them.
fn ghosts(snapshot: &Snapshot) -> BTreeSet<Pid> {
    let findings = diagnose(std::slice::from_ref(snapshot)).findings.into_iter();
    let certain = findings
        .filter(|found| found.kind == FindingKind::Ghost && found.confidence == Confidence::High);
    certain.flat_map(|found| found.suspects).map(|suspect| suspect.process.pid).collect()
}

/// Returns whether a process is the child through which this program calls NVML.
///
/// Parentage is not enough: a shell that runs `exec gpuws` leaves its jobs as children of gpuws.
/// The child for NVML runs this program, so it has the same name.
fn is_own_child(snapshot: &Snapshot, pid: Pid, own: Pid) -> bool {
    let (child, parent) = (snapshot.process(pid), snapshot.process(own));
    matches!((child, parent), (Ok(child), Ok(parent))
        if child.parent == Ok(own) && child.name == parent.name)
}

fn listed(device: &DeviceState) -> impl Iterator<Item = Pid> {
    device.processes.iter().flatten().map(|process| process.pid)
}

/// Returns whether a holder uses the device, through its file or, for a display server, through a
/// file that names no device.
fn reaches(snapshot: &Snapshot, device: &DeviceState, holder: &Holder) -> bool {
    let draws = holder.has(FileRole::Display) || holder.has(FileRole::Render);
    let process = snapshot.process(holder.process.pid).ok();
    let is_display =
        process.and_then(|info| SystemService::named(&info.name)) == Some(SystemService::Display);
    holder.has_device(device.id()) || (draws && is_display)
}

impl Blocker {
    fn of(snapshot: &Snapshot, devices: &[&DeviceState], pid: Pid, is_ghost: bool) -> Self {
        let holder = snapshot.holders().iter().find(|holder| holder.process.pid == pid);
        let process = snapshot.process(pid).ok();
        let used: Vec<&DeviceState> = devices
            .iter()
            .copied()
            .filter(|device| {
                listed(device).any(|one| one == pid)
                    || holder.is_some_and(|holder| reaches(snapshot, device, holder))
            })
            .collect();
        let role = |device: &DeviceState| {
            let listed = device.processes.iter().flatten().find(|process| process.pid == pid);
            {
                let memory = holder.map(|holder| holder.memory_use(device.id()));
                Role::of(process, holder, listed, memory.unwrap_or_default())
            }
        };
        // A process that uses the memory of one device is not a mere monitor of the others.
        let role = used.iter().map(|device| role(device)).find(|role| *role != Role::Monitor);
        let role = role.unwrap_or(Role::Monitor);
        let devices: Vec<u32> = used.iter().map(|device| device.id().index).collect();
        let utilization = utilization(&used, pid);
        // If NVML does not say which process computes, each of a busy device may.
        let is_busy = |device: &&DeviceState| {
            device.sample.as_ref().is_ok_and(|sample| sample.utilization.is_ok_and(|u| u.get() > 0))
        };
        let may_compute = match utilization {
            _ if is_ghost => false,
            Ok(utilization) => utilization.get() > 0,
            Err(_) => used.iter().any(is_busy),
        };
        let parent = process.and_then(|info| snapshot.process(info.parent.ok()?).ok());
        let gpu = devices.first().copied().unwrap_or_default();
        let way = way(process, parent, role, gpu, may_compute);
        let files = holder.map(|holder| holder.held.clone()).unwrap_or_default();
        Blocker { pid, devices, files, role, utilization, way }
    }
}

/// Returns the highest utilization of a process on these devices.
fn utilization(devices: &[&DeviceState], pid: Pid) -> Reading<Percent> {
    let listed = devices.iter().flat_map(|device| device.processes.iter().flatten());
    let readings = listed.filter(|process| process.pid == pid).map(|process| process.utilization);
    let known = readings.clone().filter_map(Reading::ok).max();
    known.ok_or_else(|| readings.filter_map(Reading::err).next().unwrap_or(Absent::NotRecorded))
}
