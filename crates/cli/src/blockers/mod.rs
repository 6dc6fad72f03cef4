//! Who is in the way of a reset, and how each is got out of it.
//!
//! The driver resets only a device that nobody has open. So whoever has its file counts, monitors
//! and daemons too, and whom NVML lists on it, and displays, which reach it through files that
//! name no device. Where it cannot be seen who has it, or with which other devices it is reset, the
//! answer is that somebody may.

mod links;
mod remedy;
mod unknown;

pub(crate) use links::Linked;
pub(crate) use unknown::Unknown;

use gpu_core::{
    Absent, DeviceFileKind, DeviceState, HeldFile, Holder, Pid, Snapshot, SystemService,
};
use gpu_reaper::Role;
use remedy::way;
use std::collections::BTreeSet;

/// What is known about who uses some devices.
pub(crate) struct Blockers {
    /// Who has one of them, by process number.
    pub(crate) users: Vec<Blocker>,
    /// Why there may be more.
    pub(crate) unknown: Option<Unknown>,
}

/// A process that is in the way.
pub(crate) struct Blocker {
    pub(crate) pid: Pid,
    /// The devices that it uses, by index.
    pub(crate) devices: Vec<u32>,
    /// The files that it has; none for one that NVML lists and that is not seen to have any.
    pub(crate) files: Vec<HeldFile>,
    pub(crate) role: Role,
    /// The command that gets it out of the way, and what that does.
    pub(crate) way: (String, &'static str),
}

impl Blockers {
    /// Returns who uses the device or one that is reset with it; `own` is this program's number,
    /// whose own child may still have them open; `sim` is the option that names a simulated machine.
    pub(crate) fn of(
        snapshot: &Snapshot,
        device: &DeviceState,
        linked: &Linked,
        own: Pid,
        sim: &str,
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
        pids.retain(|pid| *pid != own && !is_own_child(snapshot, *pid, own));
        // NVML may list a process that surely has ended: a reset is what clears that.
        let seen = |pid: &Pid| snapshot.process(*pid) != Err(Absent::NotFound);
        pids.retain(|pid| seen(pid) || snapshot.sees_host_pids != Ok(true));
        let users = pids.into_iter().map(|pid| Blocker::of(snapshot, &devices, pid, sim));
        Blockers { users: users.collect(), unknown: Unknown::first(snapshot, &devices, linked) }
    }

    /// Tells whether surely nobody is in the way.
    pub(crate) fn is_clear(&self) -> bool {
        self.users.is_empty() && self.unknown.is_none()
    }
}

/// Tells whether a process is the child through which this program asks NVML.
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

/// Tells whether a holder has the device: its file, or as a display a file that names no device.
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
    fn of(snapshot: &Snapshot, devices: &[&DeviceState], pid: Pid, sim: &str) -> Self {
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
        let way = way(process, parent, role, gpu, sim);
        let files = holder.map(|holder| holder.held.clone()).unwrap_or_default();
        Blocker { pid, devices, files, role, way }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::ProcessInfo;
    use gpu_sim::Simulation;

    const OWN: Pid = Pid(4242);

    fn look(machine: &str) -> Snapshot {
        let simulation = Simulation::named(std::path::Path::new(machine)).unwrap();
        gpu_core::observe(&simulation, &simulation, &simulation)
    }

    fn alone() -> Linked {
        Linked { peers: vec![], whole: true }
    }

    fn blockers(now: &Snapshot, linked: &Linked) -> Blockers {
        Blockers::of(now, &now.devices[0], linked, OWN, "")
    }

    fn pids(blockers: &Blockers) -> Vec<u32> {
        blockers.users.iter().map(|blocker| blocker.pid.0).collect()
    }

    #[test]
    fn unknown_link_blocks_reset() {
        let now = look("driver-leak");
        assert!(blockers(&now, &alone()).is_clear());
        let open = Linked { peers: vec![], whole: false };
        assert_eq!(blockers(&now, &open).unknown, Some(Unknown::Links));
    }

    #[test]
    fn missing_device_file_makes_blockers_unknown() {
        let mut now = look("driver-leak");
        assert!(blockers(&now, &alone()).is_clear());
        now.files.retain(|file| !matches!(file.kind, DeviceFileKind::Gpu(_)));
        assert_eq!(now.devices[0].id().minor, Ok(0), "which file it would be is told");
        let blockers = blockers(&now, &alone());
        assert_eq!(blockers.unknown, Some(Unknown::NoFile));
        assert!(!blockers.is_clear());
    }

    #[test]
    fn only_own_nvml_child_is_exempt_from_blockers() {
        let mut now = look("p100-ghost");
        let job = Pid(100_562);
        assert_eq!(pids(&blockers(&now, &alone())), [67_193, 100_562]);
        let mut named = |name: &str| {
            now.processes.get_mut(&job).unwrap().0.as_mut().unwrap().parent = Ok(OWN);
            now.processes.get_mut(&job).unwrap().0.as_mut().unwrap().name = name.to_owned();
            let own = ProcessInfo::from_name(OWN, "gpuws");
            now.processes.insert(OWN, gpu_core::Process::from(Ok(own)));
            pids(&blockers(&now, &alone()))
        };
        assert_eq!(named("t2t-decoder"), [67_193, 100_562], "a job of the shell before exec");
        assert_eq!(named("gpuws"), [67_193]);
    }

    #[test]
    fn process_name_alone_does_not_suggest_stopping_service() {
        let mut now = look("p100-ghost");
        let mut way_of = |name: &str, uid| {
            let info = now.processes.get_mut(&Pid(67_193)).unwrap().0.as_mut().unwrap();
            (info.name, info.uid) = (name.to_owned(), Ok(uid));
            info.cgroup = Ok("/user.slice/user-1001.slice/session-3.scope".into());
            blockers(&now, &alone()).users.remove(0).way.0
        };
        let stops = "sudo systemctl stop nvidia-persistenced.service";
        assert_eq!(way_of("nvidia-persiste", 0), stops);
        assert_eq!(way_of("nvidia-persiste", 1001), "kill 67193");
        assert_eq!(way_of("nvidia-cuda-mps", 0), "echo quit | sudo nvidia-cuda-mps-control");
        let own = "echo quit | sudo -u '#1001' nvidia-cuda-mps-control";
        assert_eq!(way_of("nvidia-cuda-mps", 1001), own);
    }
}
