//! Who is in the way of a reset, and how each is got out of it.
//!
//! The driver resets only a device that nobody has open. So whoever has its file counts, monitors
//! and daemons too, and whom NVML lists on it, and displays, which reach it through files that
//! name no device. Where it cannot be seen who has it, or with which other devices it is reset, the
//! answer is that somebody may.

mod act;
mod links;
mod unknown;
mod way;

pub use act::{Outcome, reset};
pub use links::Linked;
pub use unknown::Unknown;
pub use way::Way;

use crate::role::Role;
use gpu_core::{
    Absent, DeviceFileKind, DeviceState, HeldFile, Holder, Pid, Snapshot, SystemService,
};
use std::collections::BTreeSet;
use way::way;

/// A device that is to be reset, and what stands in the way of that.
#[derive(Debug)]
pub struct Check<'a> {
    /// The look that this was found in.
    pub now: &'a Snapshot,
    /// The device.
    pub device: &'a DeviceState,
    /// The devices that are reset with it.
    pub linked: Linked,
    /// Who uses it or one of those.
    pub blockers: Blockers,
}

impl Check<'_> {
    /// Returns whether the driver may be asked for the reset: surely nobody is in the way.
    ///
    /// A simulated machine that is asked directly may be when somebody has the very file of the
    /// device open, too: it then surely refuses, with the words that were recorded. Behind its NVML
    /// there is nothing that would say them.
    pub fn may_ask(&self, is_simulated: bool) -> bool {
        let gpu = self.now.minor_of(self.device).map(DeviceFileKind::Gpu);
        let mut files = self.blockers.users.iter().flat_map(|blocker| &blocker.files);
        self.blockers.is_clear() || (is_simulated && files.any(|file| Some(file.kind) == gpu))
    }
}

/// What is known about who uses some devices.
#[derive(Debug)]
pub struct Blockers {
    /// Who has one of them, by process number.
    pub users: Vec<Blocker>,
    /// Why there may be more.
    pub unknown: Option<Unknown>,
}

/// A process that is in the way.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// Its number.
    pub pid: Pid,
    /// The devices that it uses, by index.
    pub devices: Vec<u32>,
    /// The files that it has; none for one that NVML lists and that is not seen to have any.
    pub files: Vec<HeldFile>,
    /// What it is on them.
    pub role: Role,
    /// How it is got out of the way.
    pub way: Way,
}

impl Blockers {
    /// Returns who uses the device or one that is reset with it; `own` is this program's number,
    /// whose own child may still have them open.
    pub fn of(snapshot: &Snapshot, device: &DeviceState, linked: &Linked, own: Pid) -> Self {
        let together = |one: &&DeviceState| {
            one.id().same_device(device.id()) || linked.peers.contains(&one.id().index)
        };
        let devices: Vec<&DeviceState> = snapshot.devices.iter().filter(together).collect();
        let mut pids: BTreeSet<Pid> = BTreeSet::new();
        pids.extend(devices.iter().flat_map(|device| listed(device)));
        let holds =
            |holder: &&Holder| devices.iter().any(|device| reaches(snapshot, device, holder));
        pids.extend(snapshot.holders().iter().filter(holds).map(|holder| holder.process.pid));
        pids.retain(|pid| *pid != own && !is_own_child(snapshot, *pid, own));
        // NVML may list a process that surely has ended: a reset is what clears that.
        let seen = |pid: &Pid| snapshot.process(*pid) != Err(Absent::NotFound);
        pids.retain(|pid| seen(pid) || snapshot.sees_host_pids != Ok(true));
        let users = pids.into_iter().map(|pid| Blocker::of(snapshot, &devices, pid));
        Blockers { users: users.collect(), unknown: Unknown::first(snapshot, &devices, linked) }
    }

    /// Returns whether surely nobody is in the way.
    pub fn is_clear(&self) -> bool {
        self.users.is_empty() && self.unknown.is_none()
    }
}

/// Returns whether a process is the child through which this program asks NVML.
///
/// That it is a child is not enough: a shell that ran `exec gpuws` leaves its jobs to it as children.
/// The one that this program made is this program too, and so has its name.
fn is_own_child(snapshot: &Snapshot, pid: Pid, own: Pid) -> bool {
    let (child, parent) = (snapshot.process(pid), snapshot.process(own));
    matches!((child, parent), (Ok(child), Ok(parent))
        if child.parent == Ok(own) && child.name == parent.name)
}

fn listed(device: &DeviceState) -> impl Iterator<Item = Pid> {
    device.processes.iter().flatten().map(|process| process.pid)
}

/// Returns whether a holder has the device: its file, or as a display a file that names no device.
fn reaches(snapshot: &Snapshot, device: &DeviceState, holder: &Holder) -> bool {
    let own_file =
        snapshot.minor_of(device).is_some_and(|minor| holder.has(DeviceFileKind::Gpu(minor)));
    let draws = holder.has(DeviceFileKind::Modeset) || holder.has(DeviceFileKind::Render);
    let process = snapshot.process(holder.process.pid).ok();
    let is_display =
        process.and_then(|info| SystemService::named(&info.name)) == Some(SystemService::Display);
    own_file || (draws && is_display)
}

impl Blocker {
    fn of(snapshot: &Snapshot, devices: &[&DeviceState], pid: Pid) -> Self {
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
            Role::of(process, holder, listed, snapshot.minor_of(device))
        };
        // Who uses the memory of one of them is no mere monitor of the others.
        let role = used.iter().map(|device| role(device)).find(|role| *role != Role::Monitor);
        let role = role.unwrap_or(Role::Monitor);
        let devices: Vec<u32> = used.iter().map(|device| device.id().index).collect();
        let parent = process.and_then(|info| snapshot.process(info.parent.ok()?).ok());
        let gpu = devices.first().copied().unwrap_or_default();
        let way = way(process, parent, role, gpu);
        let files = holder.map(|holder| holder.held.clone()).unwrap_or_default();
        Blocker { pid, devices, files, role, way }
    }
}
