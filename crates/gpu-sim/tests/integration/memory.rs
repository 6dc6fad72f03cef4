//! The memory of a simulated device: valid and invalid regions, ranges and parts.

use gpu_core::{
    Absent, Bytes, DeviceFault, DeviceFiles, DeviceId, DeviceMemory, ErrorKind, GpuBackend,
    ProcessTable, Region, Result,
};
use gpu_sim::{SimulatedMemory, Simulation};

const PAGE: u64 = 2 << 20;

/// Starts a machine with two devices of 64 MiB each, 20 MiB of them in use.
fn start() -> Simulation {
    let dir = tempfile::tempdir().unwrap();
    let text = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nthrough = 1\nmemory_total_mib = 64\ndriver_reserve_mib = 6\n\
        memory_reserved_mib = 8\nmemory_leaked_mib = 2\n\
        [[process]]\npid = 7\nname = 'a'\n\
        memory = [{ gpu = 0, mib = 4 }, { gpu = 1, mib = 4 }]\n";
    std::fs::write(dir.path().join("machine.toml"), text).unwrap();
    Simulation::named(dir.path()).unwrap()
}

fn memory(simulation: &Simulation, gpu: u32) -> SimulatedMemory {
    simulation.device_memory(&DeviceId::from_index(gpu)).unwrap()
}

fn kind<T: std::fmt::Debug>(refused: Result<T>) -> ErrorKind {
    refused.unwrap_err().kind()
}

/// Returns the memory of the viewer's own process on each device, and its device files.
fn own(simulation: &Simulation) -> (Vec<(u32, u64)>, Vec<String>) {
    let own = simulation.own_ancestry().unwrap()[0].pid;
    let mut memory = Vec::new();
    for gpu in 0..2 {
        let listed = GpuBackend::processes(simulation, &DeviceId::from_index(gpu)).unwrap();
        let mine = listed.iter().filter(|process| process.pid == own);
        memory.extend(mine.map(|process| (gpu, process.memory.unwrap().0)));
    }
    let files = simulation.device_files().unwrap();
    let mut held: Vec<String> = simulation
        .open(own)
        .unwrap()
        .held(&files)
        .unwrap()
        .iter()
        .map(|file| file.path.trim_start_matches("/dev/").to_owned())
        .collect();
    held.sort();
    (memory, held)
}

const OUT_OF_MEMORY: ErrorKind = ErrorKind::Device(DeviceFault::OutOfMemory);

#[test]
fn free_memory_can_be_allocated_to_the_last_byte() {
    let simulation = start();
    let memory = memory(&simulation, 0);
    let free = Bytes::from_mib(44);
    assert_eq!(kind(memory.reserve(Bytes(free.0 + 1))), OUT_OF_MEMORY);
    let most = memory.reserve(free).unwrap();
    assert_eq!(most.size, free);
    assert_eq!(memory.info().unwrap().used, Ok(Bytes::from_mib(56)));
    assert_eq!(kind(memory.reserve(Bytes(1))), OUT_OF_MEMORY);
    memory.release(most).unwrap();

    let range = memory.reserve_addresses(Bytes::from_mib(46)).unwrap();
    assert_eq!(kind(memory.map(range)), OUT_OF_MEMORY);
    memory.map(Region { size: free, ..range }).unwrap();
    assert_eq!(memory.info().unwrap().used, Ok(Bytes::from_mib(56)));
    assert_eq!(memory.page().unwrap(), Bytes(PAGE));
}

#[test]
fn device_files_stay_open_until_last_allocation_is_released() {
    let simulation = start();
    let (first, second) = (memory(&simulation, 0), memory(&simulation, 1));
    assert_eq!(own(&simulation), (vec![], vec![]));
    let a = first.reserve(Bytes(256)).unwrap();
    let b = first.reserve(Bytes(512)).unwrap();
    let open = |gpus: &[&str]| -> Vec<String> {
        let mut names = vec!["nvidia-uvm".to_owned(), "nvidiactl".to_owned()];
        names.extend(gpus.iter().map(|&name| name.to_owned()));
        names.sort();
        names
    };
    assert_eq!(own(&simulation), (vec![(0, 768)], open(&["nvidia0"])));
    let c = second.reserve(Bytes(1024)).unwrap();
    assert_eq!(own(&simulation), (vec![(0, 768), (1, 1024)], open(&["nvidia0", "nvidia1"])));
    assert_eq!(kind(second.release(a)), ErrorKind::Invalid, "a region of another device");
    first.release(a).unwrap();
    assert_eq!(own(&simulation).0, [(0, 512), (1, 1024)]);
    first.release(b).unwrap();
    assert_eq!(own(&simulation), (vec![(1, 1024)], open(&["nvidia0", "nvidia1"])));
    second.release(c).unwrap();
    assert_eq!(own(&simulation), (vec![], vec![]));
}

#[test]
fn only_whole_unmapped_pages_of_one_range_are_mapped() {
    let simulation = start();
    let memory = memory(&simulation, 0);
    for size in [0, 1, PAGE - 1, PAGE + 256] {
        assert_eq!(kind(memory.reserve_addresses(Bytes(size))), ErrorKind::Invalid, "{size}");
    }
    memory.reserve(Bytes(256)).unwrap();
    let range = memory.reserve_addresses(Bytes(4 * PAGE)).unwrap();
    let next = memory.reserve_addresses(Bytes(PAGE)).unwrap();
    assert_eq!((range.address % PAGE, next.address), (0, range.address + 4 * PAGE));
    let part = |first: u64, pages: u64| Region {
        address: range.address + first * PAGE,
        size: Bytes(pages * PAGE),
    };
    memory.map(part(1, 2)).unwrap();
    for (wrong, why) in [
        (part(0, 0), "nothing"),
        (Region { size: Bytes(256), ..part(0, 1) }, "part of a page"),
        (Region { address: range.address + 256, size: Bytes(PAGE) }, "parts of two pages"),
        (part(0, 2), "its second page has memory"),
        (part(2, 2), "its first page has memory"),
        (part(3, 2), "it ends in another range"),
        (part(9, 1), "it is in no range"),
        (Region { address: range.address - PAGE, size: Bytes(PAGE) }, "it is before any range"),
    ] {
        assert_eq!(kind(memory.map(wrong)), ErrorKind::Invalid, "{why}");
    }
    memory.map(part(0, 1)).unwrap();
    memory.map(part(3, 1)).unwrap();
    memory.map(next).unwrap();
    let used = || memory.info().unwrap().used.unwrap().0 - Bytes::from_mib(12).0 - 256;
    assert_eq!(used(), 5 * PAGE);

    memory.unmap(part(1, 2)).unwrap();
    assert_eq!(used(), 3 * PAGE);
    for wrong in [part(0, 2), part(1, 1), part(2, 2)] {
        assert_eq!(kind(memory.unmap(wrong)), ErrorKind::Invalid, "a page without memory");
    }
    assert_eq!(used(), 3 * PAGE, "a refused call changes nothing");
    for wrong in [part(0, 1), part(1, 3), part(0, 5)] {
        assert_eq!(kind(memory.release_addresses(wrong)), ErrorKind::Invalid, "not the range");
    }
    memory.release_addresses(range).unwrap();
    assert_eq!(used(), PAGE, "with the memory of its pages");
    assert_eq!(kind(memory.unmap(part(0, 1))), ErrorKind::Invalid, "it was given back");
    memory.unmap(next).unwrap();
    assert_eq!(used(), 0);
}

#[test]
fn failed_device_has_no_memory() {
    let simulation = start();
    let memory = memory(&simulation, 0);
    let region = memory.reserve(Bytes(256)).unwrap();
    let range = memory.reserve_addresses(Bytes(2 * PAGE)).unwrap();
    let page = Region { size: Bytes(PAGE), ..range };
    memory.map(page).unwrap();
    let lost = gpu_core::Fault { kind: DeviceFault::Lost.into(), text: "look at GPU 0".into() };
    simulation.happen(gpu_sim::Event::Fails(0, lost));
    let other = Region { address: range.address + PAGE, ..page };
    let lost = ErrorKind::Device(DeviceFault::Lost);
    for refused in [
        memory.info().err(),
        memory.reserve(Bytes(1)).err(),
        memory.release(region).err(),
        memory.reserve_addresses(Bytes(PAGE)).err(),
        memory.map(other).err(),
        memory.unmap(page).err(),
        memory.release_addresses(range).err(),
    ] {
        assert_eq!(refused.unwrap().kind(), lost);
    }
    assert_eq!(lost.absent(), Absent::DeviceLost);
    assert!(self::memory(&simulation, 1).reserve(Bytes(1)).is_ok(), "the other one works");
}
