//! Findings about GPUs of AMD and Intel.

use crate::driver_log::{NOW, sound, with};
use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

/// Returns confidence, advice and evidence of what a log of amdgpu or xe shows.
fn logged(lines: &[&str]) -> Vec<(Confidence, Advice, String)> {
    let parse = |line: &&str| gpu_drm_driver::parse_message(line, Timestamp(NOW - 60_000)).unwrap();
    let found = with(vec![sound(0)], lines.iter().map(parse).collect());
    let of = |finding: Finding| {
        assert_eq!(finding.kind, FindingKind::DriverError);
        let text = Evidence::texts(&finding.evidence).join("; ");
        (finding.confidence, finding.advice[0].clone(), text)
    };
    found.into_iter().map(of).collect()
}

#[test]
fn ring_timeout_names_program_and_its_reset() {
    let timeout = "amdgpu 0000:3b:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=8";
    let process =
        |name: &str| format!("amdgpu 0000:3b:00.0: amdgpu: Process {name} pid 7 thread t pid 8");
    let (train, eval) = (process("train"), process("eval"));
    let begin = "amdgpu 0000:3b:00.0: amdgpu: GPU reset begin!";
    let done = "amdgpu 0000:3b:00.0: amdgpu: GPU reset(1) succeeded!";
    let [(confidence, advice, text)] = &logged(&[timeout, &train, begin, done])[..] else {
        panic!()
    };
    assert_eq!((*confidence, advice), (Confidence::Possible, &Advice::ReadDrmLog));
    assert_eq!(
        text,
        "ring timeout: a queue stopped, 60 s ago, by train; usually a bug in the program; GPU reset: \
         the driver resets the GPU: a consequence of ring timeout; GPU reset done: the GPU works \
         again: a consequence of ring timeout"
    );
    let several = logged(&[timeout, &train, timeout, &eval]);
    assert_eq!(several[0].0, Confidence::Likely, "{several:?}");
    let [(confidence, _, text)] = &logged(&[&train, begin, done])[..] else { panic!() };
    assert!(*confidence == Confidence::Possible && text.starts_with("GPU reset: "), "{text}");
    assert_eq!(logged(&[&train, done]), [], "no error");
}

#[test]
fn failed_reset_and_wedged_device_are_likely_faults() {
    let timeout = "amdgpu 0000:3b:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=8";
    let failed = "amdgpu 0000:3b:00.0: amdgpu: GPU reset end with ret = -22";
    let wedged = "xe 0000:3b:00.0: [drm] device wedged, needs recovery";
    let job = "xe 0000:3b:00.0: [drm] GT0: Timedout job: seqno=4, guc_id=2 in train [7]";
    for (lines, advice) in
        [(&[timeout, failed][..], Advice::ReadDrmLog), (&[job, wedged], Advice::ResetDevice(0))]
    {
        let found = logged(lines);
        assert!(found.len() == 1 && found[0].0 == Confidence::Likely, "{found:?}");
        assert_eq!(found[0].1, advice, "{found:?}");
    }
}

#[test]
fn memory_errors_weigh_by_correction() {
    let ras = |text: &str| logged(&[&format!("amdgpu 0000:3b:00.0: amdgpu: {text}")]);
    assert_eq!(ras("3 correctable hardware errors detected in total in umc block"), []);
    let [(confidence, advice, text)] =
        &ras("2 uncorrectable hardware errors detected in umc block")[..]
    else {
        panic!()
    };
    assert_eq!((*confidence, advice), (Confidence::Possible, &Advice::ResetDevice(0)));
    assert!(text.ends_with("the GPU reports no such error now"), "{text}");
}

/// A device whose processes are the clients that these have, in MiB; `used` of 16,280 MiB.
fn with_clients(used: u64, clients: &[(u32, u64)]) -> DeviceState {
    let mut device = device(0, used, 16_280);
    device.info.pid_namespace = PidNamespace::Caller;
    clients.iter().fold(device, |device, (pid, mib)| listing(device, *pid, *mib))
}

fn leak(device: DeviceState, holders: &[u32], unreadable: u32) -> Vec<Finding> {
    let processes: Vec<ProcessInfo> = holders.iter().map(|pid| process(*pid, "train")).collect();
    let open = |info: &ProcessInfo| {
        let mut holder = holder(info, &[("/dev/nvidia0", "F....")]);
        holder.held[0].memory = MemoryUse::Possible;
        holder
    };
    let mut now = snapshot_of(vec![device], processes.iter().map(open).collect(), processes);
    (0..unreadable).for_each(|_| now.unreadable.count(Absent::NotPermitted));
    let kinds = [FindingKind::DriverLeak, FindingKind::Ghost, FindingKind::NotPermitted];
    let found = diagnose(&[now]).findings.into_iter();
    assert!(found.clone().all(|finding| finding.kind != FindingKind::BlockedReset));
    found.filter(|finding| kinds.contains(&finding.kind)).collect()
}

#[test]
fn memory_of_no_client_is_never_certain() {
    use Confidence::{Likely, Possible};
    let of = |device, holders: &[u32], unreadable| {
        let [finding] = &leak(device, holders, unreadable)[..] else { panic!() };
        (finding.kind, finding.confidence, finding.advice.first().cloned(), finding.suspects.len())
    };
    let unused = of(with_clients(4_000, &[]), &[], 0);
    assert_eq!(unused, (FindingKind::DriverLeak, Likely, Some(Advice::ResetDevice(0)), 0));
    // The client may have exported buffers.
    let client = of(with_clients(4_000, &[(7, 1_000)]), &[7], 0);
    assert_eq!(client, (FindingKind::DriverLeak, Possible, Some(Advice::LookLonger), 0));
    // The clients of others are unknown.
    let (kind, confidence, advice, suspects) = of(with_clients(4_000, &[(7, 1_000)]), &[7], 2);
    assert_eq!((kind, confidence, suspects), (FindingKind::NotPermitted, Likely, 0));
    assert_eq!(advice, Some(Advice::LookAsRoot));
    // A holder without a known client may have it.
    let (kind, confidence, _, suspects) = of(with_clients(4_000, &[]), &[7], 0);
    assert!((kind, suspects) == (FindingKind::Ghost, 1) && confidence <= Likely, "{confidence:?}");
}

#[test]
fn firmware_and_shared_buffers_are_no_leak() {
    // An idle card; buffers that count in two clients.
    for (used, clients) in [(130, &[][..]), (3_642, &[(7, 3_600), (8, 4_092)])] {
        assert_eq!(leak(with_clients(used, clients), &[], 0), [], "{used}");
    }
    let [finding] = &leak(with_clients(4_000, &[(7, 1_000)]), &[7], 0)[..] else { panic!() };
    let text = &finding.evidence[0].text;
    assert!(text.contains("the clients of 1 process account for 1,000 MiB"), "{text}");
}

#[test]
fn uncertain_memory_ends_no_process_without_its_pid() {
    let found = leak(with_clients(4_000, &[]), &[7], 0);
    let high = |suspect: &Suspect| suspect.confidence == Confidence::High;
    assert!(!found.iter().flat_map(|finding| &finding.suspects).any(high), "{found:?}");
}

#[test]
fn busy_device_of_unseen_clients_is_not_busy_alone() {
    let of = |unreadable: u32| {
        let mut now = snapshot_of(vec![busy(with_clients(30, &[]), 100)], vec![], vec![]);
        (0..unreadable).for_each(|_| now.unreadable.count(Absent::NotPermitted));
        found(&[now]).iter().any(|(kind, _)| *kind == FindingKind::BusyWithoutProcess)
    };
    assert!(of(0) && !of(1));
}

#[test]
fn slow_link_needs_load_where_the_driver_has_no_states() {
    let bus: PciBusId = "0000:03:00.0".parse().unwrap();
    let of = |share: u64, namespace| {
        let mut device = busy(device(0, 30, 16_280), share);
        device.info.id.bus = Ok(bus);
        device.info.pid_namespace = namespace;
        let pcie = Pcie { width: Ok(4), width_max: Ok(16), ..Pcie::default() };
        device.details = Ok(DeviceDetails {
            activity: Some(Activity::default()),
            pcie: Some(pcie),
            ..DeviceDetails::default()
        });
        let found = diagnose(&[snapshot_of(vec![device], vec![], vec![])]).findings;
        found.into_iter().find(|found| found.kind == FindingKind::SlowPcie)
    };
    let slow = of(60, PidNamespace::Caller).unwrap();
    assert_eq!(slow.advice, [Advice::LookLonger, Advice::CheckPciLink(bus)], "no tool of NVIDIA");
    assert_eq!(of(40, PidNamespace::Caller), None);
    assert_eq!(of(60, PidNamespace::Initial), None, "its list is the driver's, which has states");
}

#[test]
fn hive_is_reset_together() {
    let links = vec![vec![Link::Itself, Link::Xgmi], vec![Link::Xgmi, Link::Itself]];
    let devices: Vec<DeviceState> = (0..2).map(|index| device(index, 0, 16_280)).collect();
    let topology = Ok(Topology { links, ..Topology::default() });
    let linked = gpu_reaper::reset::Linked::of(&topology, &devices, 0);
    assert_eq!((linked.peers, linked.whole, linked.xgmi), (vec![1], true, true));
}

#[test]
fn heat_of_cool_chip_is_only_possible() {
    let of = |celsius: i32, namespace| {
        let mut device = busy(device(0, 30, 16_280), 90);
        device.info.pid_namespace = namespace;
        device.sample.as_mut().unwrap().temperature = Ok(Celsius(celsius));
        let throttle = Ok(ThrottleReasons::HARDWARE_THERMAL);
        device.details = Ok(DeviceDetails {
            activity: Some(Activity { throttle, ..Activity::default() }),
            thermal: Some(Thermal { slowdown: Ok(Celsius(100)), ..Thermal::default() }),
            ..DeviceDetails::default()
        });
        let at = |seconds: u64| Snapshot {
            taken_at: Timestamp(NOW + seconds * 1_000),
            ..snapshot_of(vec![device.clone()], vec![], vec![])
        };
        let found = found(&[at(0), at(10), at(20)]);
        found.into_iter().find(|(kind, _)| *kind == FindingKind::Throttled).unwrap().1
    };
    assert_eq!(of(54, PidNamespace::Caller), Confidence::Possible);
    assert_eq!(of(100, PidNamespace::Caller), Confidence::High);
    assert_eq!(of(54, PidNamespace::Initial), Confidence::Likely);
}
