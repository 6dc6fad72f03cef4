//! Devices that share memory with the host or with another driver: the diagnosis neither accuses
//! falsely nor gives a false all-clear.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

const NODE: MemoryKind = MemoryKind::NumaNode(Some(1));
const TOTAL: u64 = 97_871;

/// Returns a device with memory of this kind, as its driver reports it.
fn of(kind: MemoryKind, used: u64, host_use: Option<u64>) -> DeviceState {
    let mut device = device(0, used, TOTAL);
    let sample = device.sample.as_mut().unwrap();
    if kind == MemoryKind::Host {
        (sample.memory.used, sample.memory.total) =
            (Err(Absent::NotSupported), Err(Absent::NotSupported));
    }
    let mib = Bytes::from_mib;
    let host = host_use.map(|host_use| HostMemory {
        total: mib(TOTAL),
        free: mib(TOTAL - used),
        available: mib(TOTAL - used),
        host_use: Ok(mib(host_use)),
    });
    sample.source = MemorySource { kind, host: host.ok_or(Absent::NotSupported) };
    device
}

fn shared() -> [MemoryKind; 5] {
    use MemoryKind::{CarveOut, Host, VirtualGpu, Wddm};
    [Host, CarveOut, VirtualGpu, Wddm, NODE]
}

#[test]
fn used_memory_of_shared_device_accuses_nobody() {
    for kind in shared() {
        let device = of(kind, 40_000, None);
        assert_eq!(found(&[snapshot_of(vec![device.clone()], vec![], vec![])]), [], "{kind:?}");
        let device = listing(device, 100, 1_000);
        let info = process(100, "python");
        let holders = vec![context(&info, &[0])];
        assert_eq!(found(&[snapshot_of(vec![device], holders, vec![info])]), [], "{kind:?}");
    }
    let cached = of(NODE, 40_024, Some(40_000));
    assert_eq!(found(&[snapshot_of(vec![cached], vec![], vec![])]), []);
}

#[test]
fn memory_of_node_beyond_page_cache_is_ghosts() {
    let ghost = |host_use| {
        let info = process(100, "python");
        let holders = vec![context(&info, &[0])];
        found(&[snapshot_of(vec![of(NODE, 40_000, Some(host_use))], holders, vec![info])])
    };
    assert_eq!(ghost(20_000), [(FindingKind::Ghost, Confidence::Likely)]);
    assert_eq!(ghost(40_000), [], "all of it is the host's");
    let leaked = snapshot_of(vec![of(NODE, 40_000, Some(20_000))], vec![], vec![]);
    let diagnosis = diagnose(&[leaked]);
    let [leak] = &diagnosis.findings[..] else { panic!("{diagnosis:?}") };
    assert_eq!((leak.kind, leak.confidence), (FindingKind::DriverLeak, Confidence::Possible));
    assert_eq!(leak.memory, Some(Bytes::from_mib(20_000)));
    assert!(!leak.advice.contains(&Advice::ResetDevice(0)), "the kernel may keep the pages");
}

#[test]
fn unlisted_holder_is_suspected_where_memory_is_not_measured() {
    let with = |kind, others: bool, age_s: u64| {
        let mut device = of(kind, 40_000, None);
        let mut infos = vec![process(100, "python")];
        infos[0].started_at = Ok(Timestamp(1_000_000 - age_s * 1000));
        let mut holders = vec![context(&infos[0], &[0])];
        if others {
            device = listing(device, 200, 500);
            infos.push(process(200, "train"));
            holders.push(context(&infos[1], &[0]));
        }
        diagnose(&[snapshot_of(vec![device], holders, infos)]).findings
    };
    for kind in shared() {
        for (others, confidence) in [(true, Confidence::Likely), (false, Confidence::Possible)] {
            let findings = with(kind, others, 600);
            let [ghost] = &findings[..] else { panic!("{kind:?}: {findings:?}") };
            assert_eq!((ghost.kind, ghost.confidence), (FindingKind::Ghost, confidence));
            assert_eq!((ghost.memory, ghost.suspects.len()), (None, 1));
            assert_eq!(ghost.suspects[0].process.pid, Pid(100));
        }
        assert_eq!(with(kind, true, 5), [], "it has just started");
    }
}

#[test]
fn holders_show_whether_shared_device_is_free() {
    for kind in shared() {
        let mut idle = snapshot_of(vec![of(kind, 40_000, None)], vec![], vec![]);
        let id = idle.devices[0].id().clone();
        let is_free = |snapshot: &Snapshot| Usage::of(snapshot).is_free(&id);
        assert!(is_free(&idle), "{kind:?}");
        assert_eq!(Usage::of(&idle).account(&id), None, "{kind:?}: not measured");
        let info = process(100, "python");
        let held = snapshot_of(vec![of(kind, 0, None)], vec![context(&info, &[0])], vec![info]);
        assert!(!is_free(&held), "{kind:?}");
        idle.unreadable.count(Absent::NotPermitted);
        assert!(!is_free(&idle), "{kind:?}: a process could not be read");
        idle.unreadable = Unreadable::default();
        for change in [
            |snapshot: &mut Snapshot| snapshot.sees_host_pids = Ok(false),
            |snapshot: &mut Snapshot| snapshot.origin = Origin::Pasted,
            |snapshot: &mut Snapshot| {
                snapshot.holders = Err(Fault { kind: ErrorKind::Io, text: "read".into() })
            },
        ] {
            let mut unsure = idle.clone();
            change(&mut unsure);
            assert!(!is_free(&unsure), "{kind:?}");
        }
    }
}

#[test]
fn small_use_of_virtual_gpu_is_measured() {
    let device = of(MemoryKind::VirtualGpu, 0, None);
    let idle = snapshot_of(vec![device], vec![], vec![]);
    assert_eq!(Usage::of(&idle).account(idle.devices[0].id()), Some(Bytes(0)));
}
