//! Methods of the plain data.

use crate::fixture::*;
use gpu_core::*;

#[test]
fn errors_map_to_reach_and_absence() {
    use Reach::*;
    for (kind, reach, absent) in [
        (MachineFault::DriverNotLoaded.into(), Machine, Absent::Failed),
        (MachineFault::NotPermitted.into(), Machine, Absent::NotPermitted),
        (MachineFault::Blocked.into(), Machine, Absent::NotPermitted),
        (DeviceFault::Lost.into(), Device, Absent::DeviceLost),
        (DeviceFault::ResetRequired.into(), Device, Absent::DeviceLost),
        (DeviceFault::InUse.into(), Device, Absent::Failed),
        (ErrorKind::TimedOut, Device, Absent::NoAnswer),
        (ErrorKind::Again, Again, Absent::Failed),
        (Absent::TooOld.into(), Field, Absent::TooOld),
        (ProcessFault::Gone.into(), Field, Absent::NotFound),
        (ProcessFault::NotPermitted.into(), Field, Absent::NotPermitted),
        (ErrorKind::Unsupported, Field, Absent::NotSupported),
        (ErrorKind::Interrupted, Field, Absent::Failed),
        (ErrorKind::Io, Field, Absent::Failed),
        (ErrorKind::Invalid, Field, Absent::Failed),
    ] {
        assert_eq!((kind.reach(), kind.absent()), (reach, absent), "{kind:?}");
    }
}

#[test]
fn access_is_a_set() {
    let mut access = Access::default();
    assert!(access.is_empty());
    access |= Access::MAPPED;
    assert!(!access.is_empty() && access.contains(Access::MAPPED));
    assert!(!access.contains(Access::MAPPED | Access::OPEN));
    assert!((access | Access::OPEN_FOR_WRITING).contains(Access::OPEN));
    assert_eq!(access | access, access);
}

#[test]
fn only_graphics_nodes_have_a_role_without_a_driver() {
    for (path, role) in [
        ("/dev/dri/card0", FileRole::Render),
        ("/dev/dri/renderD128", FileRole::Render),
        ("/dev/dri/by-path", FileRole::Other),
        ("/dev/dri/by-path/card0", FileRole::Other),
        ("/run/renderD128", FileRole::Other),
        ("/dev/nvidia0", FileRole::Other),
    ] {
        let file = DeviceFile::any(path.into(), Err(Absent::NotRecorded));
        assert_eq!((file.role, file.device), (role, None), "{path}");
    }
}

#[test]
fn device_owns_files_by_address_node_and_index() {
    let id = device_id(1);
    let keys: Vec<DeviceKey> = id.keys().collect();
    let bus = id.bus.unwrap();
    assert_eq!(keys, [DeviceKey::Pci(bus), DeviceKey::Node(node(1)), DeviceKey::Index(1)]);
    assert!(keys.into_iter().all(|key| id.owns(key)));
    let others: Vec<DeviceKey> = device_id(2).keys().collect();
    assert!(!others.into_iter().any(|key| id.owns(key)));
    let unknown = DeviceId::from_index(1);
    assert!(!unknown.owns(DeviceKey::Pci(bus)) && !unknown.owns(DeviceKey::Node(node(1))));
    assert_eq!((id.minor(), unknown.minor()), (Ok(1), Err(Absent::NotRecorded)));
}

#[test]
fn mig_device_has_processes_of_its_or_unknown_instances() {
    let part = mig(1, 0);
    for (gpu, compute, expected) in [
        (None, None, true),
        (Some(1), None, true),
        (Some(1), Some(0), true),
        (Some(1), Some(1), false),
        (Some(2), Some(0), false),
        (Some(2), None, false),
        (None, Some(1), false),
    ] {
        let process =
            DeviceProcess { gpu_instance: gpu, compute_instance: compute, ..listed(7, 1, None) };
        assert_eq!(part.may_have(&process), expected, "{gpu:?} {compute:?}");
        let unknown = Partition { gpu_instance: None, compute_instance: None, ..part.clone() };
        assert!(unknown.may_have(&process));
    }
}

#[test]
fn mig_devices_share_memory_of_their_gpu_instance() {
    let process = |pid, mib, gpu, compute| DeviceProcess {
        gpu_instance: gpu,
        compute_instance: compute,
        ..listed(pid, mib, None)
    };
    let mut whole = state(0);
    whole.info.partitioned = Ok(true);
    whole.partitions = Ok(vec![mig(1, 0), mig(1, 1), mig(2, 0)]);
    whole.processes = Ok(vec![
        process(10, 1_000, Some(1), Some(0)),
        process(11, 200, Some(1), Some(1)),
        process(12, 30, Some(2), Some(0)),
        process(13, 4, None, None),
    ]);
    let parts: Vec<DeviceState> = whole.partitions_as_devices().collect();
    let seen = |part: &DeviceState| {
        let pids: Vec<u32> = part.processes.iter().flatten().map(|p| p.pid.0).collect();
        let mib = |memory: Reading<Bytes>| memory.unwrap().mib();
        (pids, mib(part.memory_total()), mib(part.memory_used()))
    };
    assert_eq!(seen(&parts[0]), (vec![10, 13], 7_800, 4_800));
    assert_eq!(seen(&parts[1]), (vec![11, 13], 7_000, 4_000));
    assert_eq!(seen(&parts[2]), (vec![12, 13], 8_000, 5_000));
    assert_eq!(parts[2].id().uuid, Ok(uuid("MIG-2-0")));
    assert_eq!((parts[2].id().index, parts[2].info.partitioned), (0, Ok(false)));
    assert_eq!(parts[2].sample.as_ref().unwrap().temperature, Ok(Celsius(41)));
}

#[test]
fn listed_memory_is_known_only_as_a_whole() {
    let mut device = state(0);
    assert_eq!(device.memory_listed(), Some(Bytes(0)));
    device.processes = Ok(vec![listed(7, 30, None), listed(8, 12, None)]);
    assert_eq!(device.memory_listed(), Some(Bytes::from_mib(42)));
    device.processes.as_mut().unwrap()[0].memory = Err(Absent::NotPermitted);
    assert_eq!(device.memory_listed(), None);
    device.processes = Err(Error::new(DeviceFault::Lost, "list").fault());
    assert_eq!(device.memory_listed(), None);
    device.sample = Err(Error::new(DeviceFault::Lost, "sample").fault());
    assert_eq!(device.memory_used(), Err(Absent::DeviceLost));
    assert_eq!(device.memory_total(), Err(Absent::DeviceLost));
}

#[test]
fn snapshot_finds_devices_files_and_processes() {
    let mut now = Snapshot::empty(Origin::Live, Timestamp(0));
    assert_eq!(now.holders(), []);
    assert_eq!(now.process(Pid(7)), Err(Absent::NotRecorded));
    let mut divided = state(1);
    divided.partitions = Ok(vec![mig(1, 0), Partition { uuid: Err(Absent::TooOld), ..mig(2, 0) }]);
    now.devices = vec![state(0), divided];
    now.holders = Ok(vec![holder(process(7, 1).key, &[])]);
    now.processes.insert(Pid(7), Process::from(Ok(process(7, 1))));
    assert_eq!(now.holders().len(), 1);
    assert_eq!(now.process(Pid(7)).map(|info| info.key.pid), Ok(Pid(7)));

    let found = |id: &DeviceId| now.device(id).map(|device| device.id().index);
    assert_eq!(found(&device_id(0)), Some(0));
    assert_eq!(found(&device_id(2)), None);
    let part = |name: Reading<DeviceUuid>| DeviceId { uuid: name, ..device_id(5) };
    assert_eq!(found(&part(Ok(uuid("MIG-1-0")))), Some(1), "a part of it");
    let unnamed = DeviceId { bus: Err(Absent::TooOld), ..part(Err(Absent::TooOld)) };
    assert_eq!(found(&unnamed), None, "no name is no name");

    let mut unnumbered = state(3);
    unnumbered.info.id.node = Err(Absent::NotSupported);
    assert!(now.knows_files_of(&state(1)) && !now.knows_files_of(&unnumbered));
    now.origin = Origin::Pasted;
    assert!(now.knows_files_of(&unnumbered), "pasted text goes by the index");
}

#[test]
fn numa_nodes_are_by_index() {
    let mut now = Snapshot::empty(Origin::Live, Timestamp(0));
    let with = |index, node| {
        let product = Product { numa_node: node, ..Product::default() };
        let details = DeviceDetails { product: Some(product), ..DeviceDetails::default() };
        DeviceState { details: Ok(details), ..state(index) }
    };
    now.devices = vec![with(2, Ok(1)), with(0, Ok(3)), with(1, Err(Absent::NotSupported))];
    assert_eq!(now.numa_nodes(4), [Some(3), None, Some(1), None]);
}

#[test]
fn entries_are_ordered_by_ticket_then_id_then_owner() {
    let (first, second) = (entry("b", 1), entry("a", 2));
    let same_ticket = entry("c", 1);
    let other_owner = LeaseEntry { owner: 1001, ..entry("b", 1) };
    for (before, after) in
        [(&first, &second), (&first, &same_ticket), (&first, &other_owner), (&same_ticket, &second)]
    {
        assert!(before.is_before(after) && !after.is_before(before));
        assert!(!before.is_before(before));
    }
}

#[test]
fn inner_lease_records_all_outer_ones() {
    let outer = OuterLease { id: LeaseId::parse("outer").unwrap(), owner: 7 };
    let inner = LeaseEntry { within: vec![outer.clone()], ..entry("inner", 1) };
    let own = OuterLease { id: inner.id.clone(), owner: 1000 };
    assert_eq!(inner.nested(), [own, outer]);
    assert_eq!(Claim::whole(2).memory(), None);
    let share = Claim { share: Share::Memory(Bytes(9)), ..Claim::whole(1) };
    assert_eq!(share.memory(), Some(Bytes(9)));
}

#[test]
fn queue_place_belongs_to_one_entry() {
    let own = entry("a", 3);
    let place = QueuePlace { ticket: 3, id: own.id.clone(), owner: 1000, class: 1 };
    assert!(place.is_of(&own));
    assert!(!QueuePlace { owner: 1001, ..place.clone() }.is_of(&own));
    assert!(!QueuePlace { id: LeaseId::parse("b").unwrap(), ..place }.is_of(&own));
}

#[test]
fn groups_are_a_set() {
    assert!(Groups::NONE.is_empty() && !Groups::all().is_empty());
    for group in Group::ALL {
        let only: Groups = [group, group].into_iter().collect();
        for other in Group::ALL {
            assert_eq!(only.has(other), other == group, "{group:?} {other:?}");
            assert!(Groups::all().has(other) && !Groups::NONE.has(other));
        }
    }
}

#[test]
fn details_keep_only_groups_of_a_set() {
    let both = DeviceDetails {
        product: Some(Product::default()),
        power: Some(Power::default()),
        ..DeviceDetails::default()
    };
    assert!(!both.is_empty() && DeviceDetails::default().is_empty());
    assert_eq!(both.clone().only(Groups::all()), both);
    assert!(both.clone().only(Groups::NONE).is_empty());
    let power = both.only([Group::Power].into_iter().collect());
    assert!(power.product.is_none() && power.power.is_some());
}

#[test]
fn throttle_reasons_have_names() {
    let names = |bits| ThrottleReasons(bits).names().collect::<Vec<_>>();
    assert_eq!(names(0), [""; 0]);
    assert_eq!(names(0x104), ["software power cap", "display clock setting"]);
    assert_eq!(names(1 << 40), [""; 0], "a bit without a name");
    assert_eq!(ThrottleReasons::all_named(), ThrottleReasons(0x1ff));
    assert_eq!(names(0x1ff).len(), 9);
}

#[test]
fn bounds_of_plausible_values_are_inclusive() {
    use gpu_core::plausible::*;
    let no = Err(Absent::Implausible);
    assert_eq!((celsius(-60), celsius(150)), (Ok(Celsius(-60)), Ok(Celsius(150))));
    assert_eq!((celsius_apart(-210), celsius_apart(211)), (Ok(Celsius(-210)), no));
    assert_eq!(celsius_apart(-211), no);
    assert_eq!(milliwatts(100_000_000), Ok(Milliwatts(100_000_000)));
    assert_eq!(milliwatts(100_000_001), Err(Absent::Implausible));
    assert_eq!(watts(100_000.0), Ok(Milliwatts(100_000_000)));
    assert_eq!((fan_percent(200), fan_percent(201)), (Ok(200), Err(Absent::Implausible)));
    assert_eq!((megahertz(50_000), megahertz(50_001)), (Ok(50_000), Err(Absent::Implausible)));
    assert_eq!(memory(Bytes(1 << 48)), Ok(Bytes(1 << 48)));
    assert_eq!(memory(Bytes((1 << 48) + 1)), Err(Absent::Implausible));
    assert_eq!(percent(7), Ok(Percent::new(7).unwrap()));
    assert!(is_pid(Pid(1)) && is_pid(Pid(u32::MAX - 1)));
    let full = MemoryInfo { total: Ok(Bytes(9)), used: Ok(Bytes(9)), reserved: Ok(Bytes(10)) };
    let known = memory_of(full);
    assert_eq!((known.used, known.reserved), (Ok(Bytes(9)), Err(Absent::Implausible)));
}

#[test]
fn device_with_any_known_value_is_not_unknown() {
    assert!(DeviceInfo::unknown(DeviceId::from_index(3)).is_unknown());
    assert!(!DeviceInfo::unknown(device_id(3)).is_unknown());
    let unnamed = DeviceInfo::unknown(DeviceId::from_index(3));
    assert!(!DeviceInfo { persistence: Ok(true), ..unnamed }.is_unknown());
}

#[test]
fn login_programs_are_known_by_kernel_name() {
    for name in ["sshd", "sshd-session", "login", "gdm-session-worker", "gdm-session-wor"] {
        assert!(is_login_program(name), "{name}");
    }
    assert!(!is_login_program("bash") && !is_login_program("sshd2"));
    assert_eq!(kernel_name("abcdefghijklmno"), "abcdefghijklmno");
    assert_eq!(kernel_name("abcdefghijklmnop"), "abcdefghijklmno");
}

#[test]
fn slurm_job_is_no_pod_and_not_named_by_user() {
    let job = |kind, cgroup: &str| {
        let (id, cgroup) = ("7".to_owned(), cgroup.to_owned());
        let workload = Some(Box::new(Workload { kind, id, cgroup }));
        let process = ProcessInfo { workload, ..process(4711, 1) };
        process.slurm_job().map(|job| job.id.clone())
    };
    let (slurm, pod) = (WorkloadKind::SlurmJob, WorkloadKind::Pod);
    let own = "/user.slice/user-1000.slice/user@1000.service";
    for (kind, cgroup, expected) in [
        (slurm, "/system.slice/slurmstepd.scope/job_7".to_owned(), Some("7")),
        (slurm, "/slurm/uid_1000/job_7".to_owned(), Some("7")),
        (slurm, "/slurm_user@host/uid_1000/job_7".to_owned(), Some("7")),
        (slurm, format!("{own}/x_slurmstepd.scope/job_7"), None),
        (slurm, format!("/../..{own}/app.slice/slurm/uid_2/job_7"), None),
        (pod, "/kubepods/pod7".to_owned(), None),
    ] {
        assert_eq!(job(kind, &cgroup).as_deref(), expected, "{cgroup}");
    }
}
