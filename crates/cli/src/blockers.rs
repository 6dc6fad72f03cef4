//! Who is in the way of a reset, and how each is got out of it.
//!
//! The driver resets only a device that nobody has open. So whoever has its file counts, monitors
//! and daemons too, and whom NVML lists on it, and displays, which reach it through files that
//! name no device. Where it cannot be seen who has it, the answer is that somebody may.

use crate::args::shell_word;
use gpu_core::{
    Absent, DeviceFileKind, DeviceState, HeldFile, Holder, Link, Pid, ProcessInfo, Servant,
    Snapshot, Topology, kernel_name,
};
use gpu_reaper::Role;
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

/// Why it is not known who uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The minor number is not told, so that the device's file is not known.
    DeviceFile,
    /// The processes could not be walked over.
    Holders,
    /// Some processes could not be looked into.
    Unread(u32),
    /// Processes outside of this PID namespace are not seen.
    OtherNamespaces,
}

impl Unknown {
    /// Says it in a clause.
    pub(crate) fn why(self) -> String {
        match self {
            Unknown::DeviceFile => "which file is the device's is not told".to_owned(),
            Unknown::Holders => "who has the device files could not be read".to_owned(),
            Unknown::Unread(1) => "1 process could not be looked into".to_owned(),
            Unknown::Unread(count) => format!("{count} processes could not be looked into"),
            Unknown::OtherNamespaces => {
                "processes outside of this container are not seen from here".to_owned()
            }
        }
    }

    /// Says what to do about it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Unknown::DeviceFile | Unknown::Holders => "sudo gpuws doctor",
            Unknown::Unread(_) => "run the same command with sudo",
            Unknown::OtherNamespaces => "run the same command on the host",
        }
    }
}

/// Returns the devices that have NVLinks to this one, directly or through others, by index, itself
/// left out: they are reset together.
pub(crate) fn linked(topology: &Topology, index: u32) -> BTreeSet<u32> {
    let mut reached = BTreeSet::from([index]);
    let mut open = vec![index];
    while let Some(from) = open.pop() {
        let row = topology.links.get(from as usize).into_iter().flatten();
        let peers = (0u32..).zip(row).filter(|(_, link)| matches!(link, Link::NvLink(_)));
        for (peer, _) in peers {
            if reached.insert(peer) {
                open.push(peer);
            }
        }
    }
    reached.remove(&index);
    reached
}

impl Blockers {
    /// Returns who uses any of `devices`; `own` is this program's number, whose own child may still
    /// have them open; `sim` is the option that names a simulated machine.
    pub(crate) fn of(snapshot: &Snapshot, devices: &[&DeviceState], own: Pid, sim: &str) -> Self {
        let mut pids: BTreeSet<Pid> = BTreeSet::new();
        pids.extend(devices.iter().flat_map(|device| listed(device)));
        let holds =
            |holder: &&Holder| devices.iter().any(|device| reaches(snapshot, device, holder));
        pids.extend(snapshot.holders().iter().filter(holds).map(|holder| holder.process.pid));
        pids.retain(|pid| *pid != own);
        pids.retain(|pid| !snapshot.process(*pid).is_ok_and(|info| info.parent == Ok(own)));
        // NVML may list a process that surely has ended: a reset is what clears that.
        let seen = |pid: &Pid| snapshot.process(*pid) != Err(Absent::NotFound);
        pids.retain(|pid| seen(pid) || snapshot.sees_host_pids != Ok(true));
        let users = pids.into_iter().map(|pid| Blocker::of(snapshot, devices, pid, sim));
        Blockers { users: users.collect(), unknown: unknown(snapshot, devices) }
    }

    /// Tells whether surely nobody is in the way.
    pub(crate) fn is_clear(&self) -> bool {
        self.users.is_empty() && self.unknown.is_none()
    }
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
    let is_display = process.and_then(|info| Servant::named(&info.name)) == Some(Servant::Display);
    own_file || (draws && is_display)
}

fn unknown(snapshot: &Snapshot, devices: &[&DeviceState]) -> Option<Unknown> {
    if snapshot.holders.is_err() {
        return Some(Unknown::Holders);
    }
    if devices.iter().any(|device| snapshot.minor_of(device).is_none()) {
        return Some(Unknown::DeviceFile);
    }
    if snapshot.unreadable.total() > 0 {
        return Some(Unknown::Unread(snapshot.unreadable.total()));
    }
    (snapshot.sees_host_pids != Ok(true)).then_some(Unknown::OtherNamespaces)
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
        let way = way(process, role, pid, devices.first().copied().unwrap_or_default(), sim);
        let files = holder.map(|holder| holder.held.clone()).unwrap_or_default();
        Blocker { pid, devices, files, role, way }
    }
}

/// Returns the command that gets a process out of the way.
fn way(
    process: Option<&ProcessInfo>,
    role: Role,
    pid: Pid,
    gpu: u32,
    sim: &str,
) -> (String, &'static str) {
    let Some(process) = process else {
        return (
            format!("gpuws {sim}doctor --gpu {gpu}"),
            "NVML lists it and it is not seen: this tells more",
        );
    };
    let unit = process.cgroup.as_deref().ok().and_then(system_unit);
    let mps = kernel_name("nvidia-cuda-mps-server");
    match role {
        Role::MemoryUser => (
            format!("gpuws {sim}reap --gpu {gpu} --pid {pid} --yes"),
            "ends it, and shows that its memory came back",
        ),
        _ if kernel_name(&process.name) == mps => {
            ("echo quit | sudo nvidia-cuda-mps-control".to_owned(), "ends the MPS server")
        }
        Role::Display => (
            "sudo systemctl isolate multi-user.target".to_owned(),
            "ends the graphical session: let everybody log out first",
        ),
        _ => match unit.or_else(|| usual_unit(&process.name).map(str::to_owned)) {
            Some(unit) => (
                format!("sudo systemctl stop {}", shell_word(&unit)),
                "stops its service; start it again after the reset",
            ),
            None if role == Role::Monitor => {
                (format!("kill {pid}"), "a monitor: it computes nothing, nothing is lost")
            }
            None => (format!("systemctl status {pid}"), "tells its service; stop that"),
        },
    }
}

/// Returns the service of the system that a cgroup path belongs to.
fn system_unit(cgroup: &str) -> Option<String> {
    let mut parts = cgroup.trim_start_matches('/').split('/');
    let unit = (parts.next() == Some("system.slice")).then(|| parts.next())??;
    unit.ends_with(".service").then(|| unit.to_owned())
}

/// The services under which NVIDIA's packages install their daemons.
fn usual_unit(name: &str) -> Option<&'static str> {
    [
        ("nvidia-persistenced", "nvidia-persistenced.service"),
        ("nv-hostengine", "nvidia-dcgm.service"),
        ("nv-fabricmanager", "nvidia-fabricmanager.service"),
        ("nvidia-powerd", "nvidia-powerd.service"),
        ("nvidia-imex", "nvidia-imex.service"),
    ]
    .into_iter()
    .find(|(daemon, _)| kernel_name(daemon) == kernel_name(name))
    .map(|(_, unit)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_linked_to_the_linked_is_reset_too() {
        let (nv, sys, own) = (Link::NvLink(4), Link::Sys, Link::Itself);
        let topology = Topology {
            links: vec![
                vec![own, nv, sys, sys],
                vec![nv, own, nv, sys],
                vec![sys, nv, own, sys],
                vec![sys, sys, sys, own],
            ],
            peers: vec![],
        };
        assert_eq!(linked(&topology, 0), BTreeSet::from([1, 2]));
        assert_eq!(linked(&topology, 3), BTreeSet::new());
        assert_eq!(linked(&Topology::default(), 0), BTreeSet::new());
    }

    #[test]
    fn each_role_has_its_way_out() {
        let mut process = ProcessInfo::from_name(Pid(7), "python");
        let command = |process: &ProcessInfo, role| way(Some(process), role, Pid(7), 2, "").0;
        assert_eq!(command(&process, Role::MemoryUser), "gpuws reap --gpu 2 --pid 7 --yes");
        assert_eq!(command(&process, Role::Monitor), "kill 7");
        assert_eq!(command(&process, Role::Daemon), "systemctl status 7");
        assert!(command(&process, Role::Display).contains("multi-user.target"));
        process.name = "nv-hostengine".into();
        assert_eq!(command(&process, Role::Monitor), "sudo systemctl stop nvidia-dcgm.service");
        process.cgroup = Ok("/system.slice/my dcgm.service".into());
        assert_eq!(command(&process, Role::Daemon), "sudo systemctl stop 'my dcgm.service'");
        process.cgroup = Ok("/user.slice/user-1000.slice/app.service".into());
        process.name = "nvtop".into();
        assert_eq!(command(&process, Role::Monitor), "kill 7");
        process.name = "nvidia-cuda-mps-server".into();
        assert!(command(&process, Role::Daemon).starts_with("echo quit"));
        assert!(way(None, Role::MemoryUser, Pid(7), 2, "--sim a ").0.contains("doctor --gpu 2"));
    }
}
