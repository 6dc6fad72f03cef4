//! Who is in the way of a reset, and how each is got out of it.
//!
//! The driver resets only a device that nobody has open. So whoever has its file counts, monitors
//! and daemons too, and whom NVML lists on it, and displays, which reach it through files that
//! name no device. Where it cannot be seen who has it, or with which other devices it is reset, the
//! answer is that somebody may.

use crate::args::shell_word;
use gpu_core::{
    Absent, DeviceFileKind, DeviceState, HeldFile, Holder, Link, Pid, ProcessInfo, ProcessState,
    Reading, Servant, Snapshot, Topology, kernel_name,
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
    /// The device's file is not there, so that nobody was looked for who has it.
    NoFile,
    /// With which devices it is reset is not told.
    Links,
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
            Unknown::NoFile => "the file of the device is not there to be looked for".to_owned(),
            Unknown::Links => "with which GPUs it is reset, by NVLinks, is not told".to_owned(),
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
            Unknown::DeviceFile | Unknown::NoFile | Unknown::Holders => "sudo gpuws doctor",
            Unknown::Links => "nvidia-smi topo -m",
            Unknown::Unread(_) => "run the same command with sudo",
            Unknown::OtherNamespaces => "run the same command on the host",
        }
    }
}

/// The devices that are reset together with one: those that have NVLinks to it, directly or through
/// others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Linked {
    /// Those that are known, by index.
    pub(crate) peers: Vec<u32>,
    /// Surely there are no others.
    pub(crate) whole: bool,
}

impl Linked {
    /// Returns what is reset together with the device `index` of all `devices`.
    ///
    /// Only a machine that does not support the question has no links, where all of its devices
    /// answer. Whatever else keeps the answer away leaves it open.
    pub(crate) fn of(topology: &Reading<Topology>, devices: &[DeviceState], index: u32) -> Self {
        let seen: BTreeSet<u32> = devices.iter().map(|device| device.id().index).collect();
        let links = match topology {
            Ok(topology) => &topology.links,
            Err(reason) => {
                let alone = seen.iter().all(|other| *other == index);
                let answer = devices.iter().all(|device| device.sample.is_ok());
                let whole = alone || (*reason == Absent::NotSupported && answer);
                return Linked { peers: Vec::new(), whole };
            }
        };
        let all: BTreeSet<u32> =
            (0u32..).zip(links).map(|(row, _)| row).chain(seen.clone()).collect();
        let (mut reached, mut open, mut whole) = (BTreeSet::from([index]), vec![index], true);
        while let Some(from) = open.pop() {
            for to in all.iter().copied().filter(|to| *to != from) {
                let cell = links.get(from as usize).and_then(|row| row.get(to as usize));
                match cell {
                    Some(Link::NvLink(_)) if reached.insert(to) => open.push(to),
                    Some(Link::Unknown) | None => whole = false,
                    Some(_) => {}
                }
            }
        }
        whole &= reached.is_subset(&seen);
        reached.remove(&index);
        Linked { peers: reached.into_iter().collect(), whole }
    }
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
        Blockers { users: users.collect(), unknown: unknown(snapshot, &devices, linked) }
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
    let is_display = process.and_then(|info| Servant::named(&info.name)) == Some(Servant::Display);
    own_file || (draws && is_display)
}

fn unknown(snapshot: &Snapshot, devices: &[&DeviceState], linked: &Linked) -> Option<Unknown> {
    if snapshot.holders.is_err() {
        return Some(Unknown::Holders);
    }
    if devices.iter().any(|device| snapshot.minor_of(device).is_none()) {
        return Some(Unknown::DeviceFile);
    }
    let is_there = |minor| snapshot.files.iter().any(|f| f.kind == DeviceFileKind::Gpu(minor));
    if !devices.iter().filter_map(|device| snapshot.minor_of(device)).all(is_there) {
        return Some(Unknown::NoFile);
    }
    if !linked.whole {
        return Some(Unknown::Links);
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
        let parent = process.and_then(|info| snapshot.process(info.parent.ok()?).ok());
        let gpu = devices.first().copied().unwrap_or_default();
        let way = way(process, parent, role, gpu, sim);
        let files = holder.map(|holder| holder.held.clone()).unwrap_or_default();
        Blocker { pid, devices, files, role, way }
    }
}

/// Returns the command that gets a process out of the way, as its role allows: a name alone, which
/// anybody can take, has nobody stop a service.
fn way(
    process: Option<&ProcessInfo>,
    parent: Option<&ProcessInfo>,
    role: Role,
    gpu: u32,
    sim: &str,
) -> (String, &'static str) {
    let Some(process) = process else {
        return (
            format!("gpuws {sim}doctor --gpu {gpu}"),
            "NVML lists it and it is not seen: this tells more",
        );
    };
    let pid = process.key.pid;
    if process.state == Ok(ProcessState::Uninterruptible) {
        return (
            "sudo dmesg | tail -40".to_owned(),
            "tells what it waits for: it is in an uninterruptible wait (state D), and not even SIGKILL ends it before the wait ends",
        );
    }
    let unit = process.cgroup.as_deref().ok().and_then(system_unit);
    let usual = || usual_unit(&process.name).filter(|_| role == Role::Daemon).map(str::to_owned);
    match role {
        Role::MemoryUser => (
            format!("gpuws {sim}reap --gpu {gpu} --pid {pid} --yes"),
            "ends it, and shows that its memory came back",
        ),
        Role::Daemon if is_mps(process) => quit_mps(process, parent),
        Role::Display => (
            "sudo systemctl isolate multi-user.target".to_owned(),
            "ends the graphical session: let everybody log out first",
        ),
        _ => match unit.or_else(usual) {
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

/// MPS's control daemon or a server of it, by the name.
fn is_mps(process: &ProcessInfo) -> bool {
    kernel_name(&process.name) == kernel_name("nvidia-cuda-mps-server")
}

/// Returns the command that ends MPS. Root's daemon runs a server as the user whom it serves, so that
/// such a server is told from a program of that user's by its parent; whatever else calls itself so
/// is left to what that user may do.
fn quit_mps(process: &ProcessInfo, parent: Option<&ProcessInfo>) -> (String, &'static str) {
    let of_root = |parent: &ProcessInfo| is_mps(parent) && parent.uid == Ok(0);
    match process.uid {
        Ok(uid) if uid != 0 && !parent.is_some_and(of_root) => (
            format!("echo quit | sudo -u '#{uid}' nvidia-cuda-mps-control"),
            "ends the MPS server of that user, if it is one",
        ),
        _ => ("echo quit | sudo nvidia-cuda-mps-control".to_owned(), "ends the MPS server"),
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
    fn whoever_is_linked_to_the_linked_is_reset_too() {
        let (nv, sys, own) = (Link::NvLink(4), Link::Sys, Link::Itself);
        let topology = Topology {
            links: vec![
                vec![own, nv, sys, sys],
                vec![nv, own, nv, sys],
                vec![sys, nv, own, sys],
                vec![sys, sys, sys, own],
            ],
            ..Topology::default()
        };
        let devices = look("labbox").devices;
        let of = |topology: &Topology, devices: &[DeviceState], index| {
            Linked::of(&Ok(topology.clone()), devices, index)
        };
        assert_eq!(of(&topology, &devices, 0), Linked { peers: vec![1, 2], whole: true });
        assert_eq!(of(&topology, &devices, 3), alone());

        let mut silent = topology.clone();
        silent.links[2][3] = Link::Unknown;
        assert_eq!(of(&silent, &devices, 0), Linked { peers: vec![1, 2], whole: false });
        assert_eq!(of(&silent, &devices, 3), alone(), "nothing of its own is unknown");
        assert!(!of(&Topology::default(), &devices, 0).whole, "it speaks of no device");
        assert!(!of(&topology, &devices[..2], 0).whole, "2 is reset too and was not looked at");
    }

    #[test]
    fn only_what_a_machine_does_not_support_is_no_link() {
        let devices = look("labbox").devices;
        for reason in [
            Absent::NotPermitted,
            Absent::NotFound,
            Absent::TooOld,
            Absent::Failed,
            Absent::NoAnswer,
            Absent::DeviceLost,
            Absent::NotRecorded,
            Absent::Implausible,
        ] {
            assert!(!Linked::of(&Err(reason), &devices, 0).whole, "{reason}");
            assert!(Linked::of(&Err(reason), &devices[..1], 0).whole, "a lone device: {reason}");
        }
        assert_eq!(Linked::of(&Err(Absent::NotSupported), &devices, 0), alone());
        let lost = look("lost-gpu").devices;
        assert!(!Linked::of(&Err(Absent::NotSupported), &lost, 0).whole, "one is silent");
    }

    #[test]
    fn a_link_that_is_not_told_lets_nobody_reset() {
        let now = look("driver-leak");
        assert!(blockers(&now, &alone()).is_clear());
        let open = Linked { peers: vec![], whole: false };
        assert_eq!(blockers(&now, &open).unknown, Some(Unknown::Links));
    }

    #[test]
    fn a_file_that_is_not_there_was_not_looked_at() {
        let mut now = look("driver-leak");
        assert!(blockers(&now, &alone()).is_clear());
        now.files.retain(|file| !matches!(file.kind, DeviceFileKind::Gpu(_)));
        assert_eq!(now.devices[0].id().minor, Ok(0), "which file it would be is told");
        let blockers = blockers(&now, &alone());
        assert_eq!(blockers.unknown, Some(Unknown::NoFile));
        assert!(!blockers.is_clear());
    }

    #[test]
    fn of_the_own_children_only_the_one_that_asks_nvml_is_not_in_the_way() {
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
    fn each_role_has_its_way_out() {
        let mut process = ProcessInfo::from_name(Pid(7), "python");
        let command = |process: &ProcessInfo, role| way(Some(process), None, role, 2, "").0;
        assert_eq!(command(&process, Role::MemoryUser), "gpuws reap --gpu 2 --pid 7 --yes");
        assert_eq!(command(&process, Role::Monitor), "kill 7");
        assert_eq!(command(&process, Role::Daemon), "systemctl status 7");
        assert!(command(&process, Role::Display).contains("multi-user.target"));
        process.name = "nv-hostengine".into();
        assert_eq!(command(&process, Role::Daemon), "sudo systemctl stop nvidia-dcgm.service");
        process.cgroup = Ok("/system.slice/my dcgm.service".into());
        assert_eq!(command(&process, Role::Monitor), "sudo systemctl stop 'my dcgm.service'");
        process.cgroup = Ok("/user.slice/user-1000.slice/app.service".into());
        process.name = "nvtop".into();
        assert_eq!(command(&process, Role::Monitor), "kill 7");
        assert!(way(None, None, Role::MemoryUser, 2, "--sim a ").0.contains("doctor --gpu 2"));
    }

    #[test]
    fn a_name_that_anybody_can_take_stops_no_service() {
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

    #[test]
    fn the_server_that_mps_runs_as_a_user_is_that_of_mps() {
        let of =
            |name: &str, uid| ProcessInfo { uid: Ok(uid), ..ProcessInfo::from_name(Pid(8), name) };
        let server = of("nvidia-cuda-mps", 1001);
        let quit = |parent: &ProcessInfo| quit_mps(&server, Some(parent)).0;
        assert_eq!(quit(&of("nvidia-cuda-mps", 0)), "echo quit | sudo nvidia-cuda-mps-control");
        for parent in [of("nvidia-cuda-mps", 1001), of("systemd", 0)] {
            assert!(quit(&parent).contains("sudo -u '#1001' "), "{parent:?}");
        }
    }

    #[test]
    fn nothing_is_promised_to_end_an_uninterruptible_wait() {
        let mut process = ProcessInfo::from_name(Pid(7), "python");
        for state in [ProcessState::Uninterruptible, ProcessState::Sleeping] {
            process.state = Ok(state);
            let stuck = state == ProcessState::Uninterruptible;
            for role in [Role::MemoryUser, Role::Monitor, Role::Daemon, Role::Display] {
                let (command, about) = way(Some(&process), None, role, 2, "");
                assert_eq!(command.contains("dmesg"), stuck, "{role:?}");
                assert_eq!(about.contains("not even SIGKILL"), stuck, "{role:?}");
            }
        }
    }
}
