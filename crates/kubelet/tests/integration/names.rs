//! Pod names of processes, by UID and by devices.

use gpu_core::{
    Absent, DeviceFault, DeviceId, DeviceInfo, DeviceProcess, DeviceProcessKind, DeviceState,
    DeviceUuid, Error, Groups, Origin, Pid, PodEvidence, Process, ProcessInfo, Snapshot, Timestamp,
    Workload, WorkloadKind,
};
use gpu_kubelet::{Assignment, DeviceName, KnownPod, Pods, name_pods};

const A: &str = "aaaaaaaa-8a5b-4c0e-9d0e-5f3b6a7c8d9e";
const B: &str = "bbbbbbbb-8a5b-4c0e-9d0e-5f3b6a7c8d9e";

fn runtime_id() -> String {
    "4c01db0b339c".repeat(6)[..64].to_owned()
}

/// A machine: the processes on each device, and the pod UID of each process.
fn machine(devices: &[&[u32]], processes: &[(u32, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(0));
    for (index, pids) in (0_u32..).zip(devices) {
        let mut id = DeviceId::from_index(index);
        id.uuid = Ok(DeviceUuid(format!("GPU-{index}")));
        let fault = Error::new(DeviceFault::Lost, "sample it").fault();
        let mut state = DeviceState::unanswered(DeviceInfo::unknown(id), Groups::NONE, &fault);
        state.partitions = Ok(Vec::new());
        state.processes = Ok(pids.iter().map(|pid| on_device(*pid)).collect());
        snapshot.devices.push(state);
    }
    for (pid, uid) in processes {
        let mut info = ProcessInfo::from_name(Pid(*pid), "python");
        let cgroup = format!("/kubepods/burstable/pod{uid}");
        info.cgroup = Ok(format!("{cgroup}/{}", runtime_id()));
        let kind = WorkloadKind::Pod;
        info.workload = Some(Box::new(Workload { kind, id: (*uid).to_owned(), cgroup }));
        snapshot.processes.insert(Pid(*pid), Process::from(Ok(info)));
    }
    snapshot
}

fn assigned(pod: &str, container: &str, devices: &[DeviceName]) -> Assignment {
    let (namespace, pod, container) = ("lab".to_owned(), pod.to_owned(), container.to_owned());
    Assignment { namespace, pod, container, devices: devices.to_vec() }
}

fn gpu(index: u32) -> DeviceName {
    DeviceName::Uuid(format!("GPU-{index}"))
}

fn name_of(snapshot: &Snapshot, pid: u32) -> Option<String> {
    snapshot.process(Pid(pid)).unwrap().pod.as_ref().map(ToString::to_string)
}

#[test]
fn names_pod_by_devices_only_if_unambiguous() {
    let pods = Pods {
        known: Vec::new(),
        assigned: vec![
            assigned("one", "train", &[gpu(0), gpu(1)]),
            assigned("two", "serve", &[DeviceName::Index(2)]),
            assigned("three", "a", &[gpu(3)]),
            assigned("four", "b", &[gpu(3)]),
        ],
    };
    let named = |devices: &[&[u32]], processes: &[(u32, &str)], pid| {
        let mut snapshot = machine(devices, processes);
        name_pods(&mut snapshot, &pods);
        name_of(&snapshot, pid)
    };
    let train = Some("lab/one (train)".to_owned());
    assert_eq!(named(&[&[1], &[1], &[], &[]], &[(1, A)], 1), train);
    // Several processes of one pod; one of them uses no device.
    assert_eq!(named(&[&[1], &[2], &[], &[]], &[(1, A), (2, A), (3, A)], 3), train);
    let serve = Some("lab/two (serve)".to_owned());
    assert_eq!(named(&[&[1], &[], &[2], &[]], &[(1, A), (2, B)], 2), serve);
    for (why, devices, processes) in [
        ("a replica that two pods share", [&[][..], &[], &[], &[1]], &[(1, A)][..]),
        ("a monitor on the devices of two pods", [&[1], &[], &[1], &[]], &[(1, A)]),
        ("another pod on the same device", [&[1, 2], &[], &[], &[]], &[(1, A), (2, B)]),
        ("no device", [&[], &[], &[], &[]], &[(1, A)]),
    ] {
        assert_eq!(named(&devices, processes, 1), None, "{why}");
    }
    // One assigned device and one unassigned device.
    let mut snapshot = machine(&[&[1], &[], &[], &[], &[1]], &[(1, A)]);
    name_pods(&mut snapshot, &pods);
    assert_eq!(name_of(&snapshot, 1), None);
}

#[test]
fn uid_is_better_evidence_than_devices() {
    let known = KnownPod {
        uid: A.to_owned(),
        namespace: "lab".to_owned(),
        name: "right".to_owned(),
        containers: vec![(runtime_id(), "main".to_owned()), ("x".to_owned(), "y".to_owned())],
    };
    let wrong = vec![assigned("wrong", "c", &[gpu(0)])];
    let pods = Pods { known: vec![known], assigned: wrong };
    let mut snapshot = machine(&[&[1], &[2]], &[(1, A), (2, B)]);
    name_pods(&mut snapshot, &pods);
    assert_eq!(name_of(&snapshot, 1).as_deref(), Some("lab/right (main)"));
    assert_eq!(snapshot.process(Pid(1)).unwrap().pod.as_ref().unwrap().evidence, PodEvidence::Uid);
    assert_eq!(name_of(&snapshot, 2), None, "its UID is unknown, and its device assigned to none");
}

#[test]
fn finds_container_in_each_form_of_cgroup_path() {
    let id = runtime_id();
    let containers = vec![("4c01".to_owned(), "wrong".to_owned()), (id.clone(), "main".to_owned())];
    let (namespace, name) = ("lab".to_owned(), "job".to_owned());
    let known = KnownPod { uid: A.to_owned(), namespace, name, containers };
    let pods = Pods { known: vec![known], assigned: Vec::new() };
    for (end, expected) in [
        (id.clone(), "lab/job (main)"),
        (format!("cri-containerd-{id}.scope"), "lab/job (main)"),
        (format!("kubepods-pod:cri-containerd:{id}"), "lab/job (main)"),
        // A cgroup that the container created itself.
        (format!("crio-{id}.scope/4c01"), "lab/job (main)"),
        (format!("{id}/{}", "x".repeat(64)), "lab/job (main)"),
        ("4c01".to_owned(), "lab/job"),
    ] {
        let mut snapshot = machine(&[], &[(1, A)]);
        let info = snapshot.processes.get_mut(&Pid(1)).unwrap().info_mut().unwrap();
        info.cgroup = Ok(format!("/kubepods/pod{A}/{end}"));
        name_pods(&mut snapshot, &pods);
        assert_eq!(name_of(&snapshot, 1).as_deref(), Some(expected), "{end}");
    }
}

#[test]
fn user_created_cgroup_does_not_name_a_pod() {
    let known = KnownPod {
        uid: A.to_owned(),
        namespace: "lab".to_owned(),
        name: "victim".to_owned(),
        containers: Vec::new(),
    };
    let pods = Pods { known: vec![known], assigned: vec![assigned("victim", "c", &[gpu(0)])] };
    let mut snapshot = machine(&[&[1]], &[(1, A)]);
    let own = "/user.slice/user-1000.slice/user@1000.service/kubepods/pod".to_owned() + A;
    let info = snapshot.processes.get_mut(&Pid(1)).unwrap().info_mut().unwrap();
    info.workload.as_mut().unwrap().cgroup = own;
    name_pods(&mut snapshot, &pods);
    assert_eq!(name_of(&snapshot, 1), None);
}

fn on_device(pid: u32) -> DeviceProcess {
    DeviceProcess {
        pid: Pid(pid),
        kind: DeviceProcessKind::Compute,
        memory: Err(Absent::NotSupported),
        utilization: Err(Absent::NotSupported),
        name: Err(Absent::NotSupported),
        gpu_instance: None,
        compute_instance: None,
    }
}
