//! The memory of devices of every kind.

use crate::fixture::*;
use gpu_core::*;

const GIB: u64 = 1024;

/// Returns a device with 40 of 96 GiB used as its driver reports it, 10 GiB of them by a process.
fn of(kind: MemoryKind, host: Reading<HostMemory>) -> DeviceState {
    let mut device = DeviceState { processes: Ok(vec![listed(70, 10 * GIB, None)]), ..state(0) };
    let sample = device.sample.as_mut().unwrap();
    sample.memory = MemoryInfo { total: gib(96), used: gib(40), reserved: Err(Absent::TooOld) };
    sample.source = MemorySource { kind, host };
    device
}

fn gib(amount: u64) -> Reading<Bytes> {
    Ok(Bytes::from_mib(amount * GIB))
}

/// Returns host memory of 128 GiB or of a node of 96 GiB.
fn host(total: u64, free: u64, available: u64, host_use: Reading<Bytes>) -> Reading<HostMemory> {
    let [total, free, available] = [total, free, available].map(|n| Bytes::from_mib(n * GIB));
    Ok(HostMemory { total, free, available, host_use })
}

const NODE: MemoryKind = MemoryKind::NumaNode(Some(1));
const UNKNOWN: Absent = Absent::NotSupported;

#[test]
fn figures_depend_on_kind() {
    let shared = || host(128, 20, 60, Err(UNKNOWN));
    // 30 GiB of the node are the host's, and 10 GiB are the process's.
    let node = || host(96, 56, 80, gib(30));
    for (kind, host, used, total, free, unlisted) in [
        (MemoryKind::Dedicated, Err(UNKNOWN), gib(40), gib(96), gib(56), Some(30)),
        (MemoryKind::Host, shared(), Err(UNKNOWN), gib(128), gib(60 - 16), None),
        (MemoryKind::CarveOut, shared(), Err(UNKNOWN), gib(128), gib(60 - 16), None),
        (MemoryKind::Host, Err(UNKNOWN), Err(UNKNOWN), Err(UNKNOWN), Err(UNKNOWN), None),
        (NODE, node(), gib(10), gib(96), gib(80), Some(0)),
        (NODE, Err(UNKNOWN), Err(UNKNOWN), gib(96), Err(UNKNOWN), None),
        (NODE, host(96, 56, 80, Err(UNKNOWN)), Err(UNKNOWN), gib(96), gib(80), None),
        (MemoryKind::NumaNode(None), Err(UNKNOWN), Err(UNKNOWN), gib(96), Err(UNKNOWN), None),
        (MemoryKind::VirtualGpu, Err(UNKNOWN), gib(40), gib(96), gib(56), None),
        (MemoryKind::Wddm, Err(UNKNOWN), gib(40), gib(96), gib(56), None),
    ] {
        let device = of(kind, host);
        let what = format!("{kind:?} with {host:?}");
        assert_eq!(device.memory_used(), used, "{what}");
        assert_eq!(device.memory_total(), total, "{what}");
        // The driver's own reserve is not part of it.
        assert_eq!(device.memory_free(), free, "{what}");
        assert_eq!(device.memory_unlisted().map(|bytes| bytes.mib() / GIB), unlisted, "{what}");
    }
}

#[test]
fn memory_of_node_that_neither_host_nor_process_has_is_unlisted() {
    // The driver may count page cache (40 GiB) or not (29 GiB).
    for reported in [gib(40), gib(29)] {
        let mut device = of(NODE, host(96, 56, 66, gib(11)));
        device.sample.as_mut().unwrap().memory.used = reported;
        assert_eq!(device.memory_used(), gib(29));
        assert_eq!(device.memory_unlisted(), Some(Bytes::from_mib(19 * GIB)), "{reported:?}");
    }
}

#[test]
fn sum_of_processes_is_shown_as_floor_where_nothing_else_is_known() {
    let shared = host(128, 20, 60, Err(UNKNOWN));
    let shown = |kind, host| of(kind, host).memory_shown();
    let sum = Bytes::from_mib(10 * GIB);
    assert_eq!(shown(MemoryKind::Host, shared), Ok((sum, true)));
    assert_eq!(shown(MemoryKind::CarveOut, shared), Ok((sum, true)));
    assert_eq!(shown(NODE, Err(UNKNOWN)), Ok((sum, true)));
    assert_eq!(shown(NODE, host(96, 56, 80, gib(30))), Ok((sum, false)));
    assert_eq!(shown(MemoryKind::Dedicated, Err(UNKNOWN)), Ok((Bytes::from_mib(40 * GIB), false)));
    let mut silent = of(MemoryKind::Host, shared);
    silent.processes.as_mut().unwrap()[0].memory = Err(UNKNOWN);
    assert_eq!(silent.memory_shown(), Err(UNKNOWN));
}

#[test]
fn host_keeps_quarter_of_small_memory() {
    let device = of(MemoryKind::Host, host(8, 6, 7, Err(UNKNOWN)));
    assert_eq!(device.memory_free(), gib(5));
    let full = of(MemoryKind::Host, host(8, 1, 2, Err(UNKNOWN)));
    assert_eq!(full.memory_free(), gib(0));
}

#[test]
fn observation_reads_host_memory_of_kind() {
    let observed =
        |kind, version: &'static str, partitioned, answer: fn() -> Result<HostMemory>| {
            let mut backend = MockGpuBackend::new();
            backend.expect_inventory().returning(move |_| {
                let mut device = of(kind, Err(UNKNOWN));
                device.info.partitioned = partitioned;
                Inventory {
                    driver: Ok(Driver { version: Ok(version.into()), cuda: Err(UNKNOWN) }),
                    devices: vec![device],
                }
            });
            let mut machine = MockHost::new();
            machine.expect_host_memory().returning(move |_| answer());
            take_inventory(&backend, &machine, Groups::NONE).devices[0].memory_source()
        };
    let node = || host(96, 56, 80, Ok(Bytes(0))).map_err(|_| unreachable!());
    let available = |source: MemorySource| source.host.unwrap().available.mib() / GIB;
    assert_eq!(available(observed(NODE, "570.86.10", Ok(false), node)), 80);
    for older in ["550.54.15", "?"] {
        assert_eq!(available(observed(NODE, older, Ok(false), node)), 56, "keeps page cache");
    }
    assert_eq!(available(observed(MemoryKind::Host, "550.54.15", Ok(false), node)), 80);
    let divided = observed(NODE, "570.86.10", Ok(true), node);
    assert_eq!(divided.host, Err(UNKNOWN), "each MIG device is a node");
    let of_cpus = || Err(Error::new(ErrorKind::Invalid, "read a node with CPUs"));
    assert_eq!(observed(NODE, "570.86.10", Ok(false), of_cpus), MemorySource::default());
    let unread = observed(NODE, "570.86.10", Ok(false), || Err(Error::new(ErrorKind::Io, "read")));
    assert_eq!((unread.kind, unread.host.is_err()), (NODE, true));
}
