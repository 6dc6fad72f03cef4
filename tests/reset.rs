//! The processes that block a reset, on simulated machines.

use gpu_core::{Absent, DeviceState, FileRole, Link, Pid, ProcessInfo, Snapshot, Topology};
use gpu_reaper::reset::{Blockers, Linked, Unknown, Way};
use gpu_sim::Simulation;

fn devices_of(machine: &str) -> Vec<DeviceState> {
    let simulation = Simulation::named(std::path::Path::new(machine)).unwrap();
    gpu_core::observe(&simulation, &simulation, &simulation).devices
}

fn alone() -> Linked {
    Linked { peers: vec![], whole: true, xgmi: false }
}

#[test]
fn nvlink_peers_are_transitive() {
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
    let devices = devices_of("labbox");
    let of = |topology: &Topology, devices: &[DeviceState], index| {
        Linked::of(&Ok(topology.clone()), devices, index)
    };
    assert_eq!(of(&topology, &devices, 0), Linked { peers: vec![1, 2], whole: true, xgmi: false });
    assert_eq!(of(&topology, &devices, 3), alone());

    let mut silent = topology.clone();
    silent.links[2][3] = Link::Unknown;
    assert_eq!(of(&silent, &devices, 0), Linked { peers: vec![1, 2], whole: false, xgmi: false });
    assert_eq!(of(&silent, &devices, 3), alone(), "its own links are known");
    assert!(!of(&Topology::default(), &devices, 0).whole, "empty topology");
    assert!(!of(&topology, &devices[..2], 0).whole, "2 is reset too and was not looked at");
}

#[test]
fn only_not_supported_counts_as_no_link() {
    let devices = devices_of("labbox");
    for reason in Absent::ALL.into_iter().filter(|reason| *reason != Absent::NotSupported) {
        assert!(!Linked::of(&Err(reason), &devices, 0).whole, "{reason}");
        assert!(Linked::of(&Err(reason), &devices[..1], 0).whole, "a lone device: {reason}");
    }
    assert_eq!(Linked::of(&Err(Absent::NotSupported), &devices, 0), alone());
    let lost = devices_of("lost-gpu");
    assert!(!Linked::of(&Err(Absent::NotSupported), &lost, 0).whole, "one device is lost");
}

const OWN: Pid = Pid(4242);

fn snapshot(machine: &str) -> Snapshot {
    let simulation = Simulation::named(std::path::Path::new(machine)).unwrap();
    gpu_core::observe(&simulation, &simulation, &simulation)
}

fn blockers(now: &Snapshot, linked: &Linked) -> Blockers {
    Blockers::of(now, &now.devices[0], linked, Some(OWN))
}

fn pids(blockers: &Blockers) -> Vec<u32> {
    blockers.users.iter().map(|blocker| blocker.pid.0).collect()
}

#[test]
fn unknown_link_blocks_reset() {
    let now = snapshot("driver-leak");
    assert!(blockers(&now, &alone()).is_clear());
    let open = Linked { peers: vec![], whole: false, xgmi: false };
    assert_eq!(blockers(&now, &open).unknown, Some(Unknown::Links));
}

#[test]
fn missing_device_file_makes_blockers_unknown() {
    let mut now = snapshot("driver-leak");
    assert!(blockers(&now, &alone()).is_clear());
    now.files.retain(|file| file.role != FileRole::Compute);
    assert_eq!(now.devices[0].id().minor(), Ok(0), "the minor number is known");
    let blockers = blockers(&now, &alone());
    assert_eq!(blockers.unknown, Some(Unknown::NoFile));
    assert!(!blockers.is_clear());
}

#[test]
fn only_own_nvml_child_is_exempt_from_blockers() {
    let mut now = snapshot("p100-ghost");
    let job = Pid(100_562);
    assert_eq!(pids(&blockers(&now, &alone())), [67_193, 100_562]);
    let mut named = |name: &str| {
        let info = now.processes.get_mut(&job).unwrap().info_mut().unwrap();
        (info.parent, info.name) = (Ok(OWN), name.to_owned());
        let own = ProcessInfo::from_name(OWN, "gpuws");
        now.processes.insert(OWN, gpu_core::Process::from(Ok(own)));
        pids(&blockers(&now, &alone()))
    };
    assert_eq!(named("t2t-decoder"), [67_193, 100_562], "a job of the shell before exec");
    assert_eq!(named("gpuws"), [67_193]);
}

#[test]
fn process_name_alone_does_not_suggest_stopping_service() {
    let mut now = snapshot("p100-ghost");
    let mut way_of = |name: &str, uid| {
        let info = now.processes.get_mut(&Pid(67_193)).unwrap().info_mut().unwrap();
        (info.name, info.uid) = (name.to_owned(), Ok(uid));
        info.cgroup = Ok("/user.slice/user-1001.slice/session-3.scope".into());
        blockers(&now, &alone()).users.remove(0).way
    };
    let stops = Way::StopService("nvidia-persistenced.service".to_owned());
    assert_eq!(way_of("nvidia-persiste", 0), stops);
    assert_eq!(way_of("nvidia-persiste", 1001), Way::EndMonitor(Pid(67_193)));
    assert_eq!(way_of("nvidia-cuda-mps", 0), Way::QuitMps(None));
    assert_eq!(way_of("nvidia-cuda-mps", 1001), Way::QuitMps(Some(1001)));
}
