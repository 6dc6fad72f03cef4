//! A made machine behind the ports: devices, processes, holders and topology.

use gpu_core::*;
use gpu_drm::{CopiedMachine, Root, Tree, drivers};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const CARDS: [(&str, &str, u32); 3] = [
    ("0000:83:00.0", "amdgpu", 128),
    ("0000:03:00.0", "amdgpu", 129),
    ("0000:00:02.0", "i915", 130),
];

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A machine with two AMD cards, which KFD lists in the reverse order of their addresses, and an
/// integrated one of Intel.
fn machine() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for (bus, driver, minor) in CARDS {
        let device = format!("sys/devices/pci0000:00/{bus}");
        let vendor = if driver == "i915" { "8086" } else { "1002" };
        let events = format!("DRIVER={driver}\nPCI_ID={vendor}:7777\nPCI_SLOT_NAME={bus}\n");
        write(root, &format!("{device}/uevent"), &events);
        write(root, &format!("{device}/mem_info_vram_total"), "17163091968\n");
        write(root, &format!("{device}/mem_info_vram_used"), "4400000000\n");
        write(root, &format!("{device}/drm/renderD{minor}/device"), "../../../");
        write(root, &format!("sys/class/drm/renderD{minor}/device/uevent"), &events);
        for file in
            ["mem_info_vram_total", "mem_info_vram_used"].iter().filter(|_| driver == "amdgpu")
        {
            let from = root.join(&device).join(file);
            fs::copy(from, root.join(format!("sys/class/drm/renderD{minor}/device/{file}")))
                .unwrap();
        }
    }
    let kfd = "sys/class/kfd/kfd";
    for (node, id, location, minor) in [(1, 11, 0x8300, 128), (2, 22, 0x0300, 129)] {
        let node = format!("{kfd}/topology/nodes/{node}");
        write(root, &format!("{node}/gpu_id"), &format!("{id}\n"));
        let properties =
            format!("simd_count 64\nlocation_id {location}\ndrm_render_minor {minor}\n");
        write(root, &format!("{node}/properties"), &properties);
        let other = if id == 11 { 2 } else { 1 };
        write(
            root,
            &format!("{node}/io_links/0/properties"),
            &format!("type 11\nnode_to {other}\n"),
        );
    }
    // 500 computes on the first GPU; 600 has only opened KFD; 700 has ended.
    for (pid, memory, queue) in
        [(500, 3_000_000_000_u64, true), (600, 0, false), (700, 5_000_000, true)]
    {
        write(root, &format!("{kfd}/proc/{pid}/vram_11"), &memory.to_string());
        write(root, &format!("{kfd}/proc/{pid}/vram_22"), "0");
        fs::create_dir_all(root.join(format!("{kfd}/proc/{pid}/queues"))).unwrap();
        if queue {
            write(root, &format!("{kfd}/proc/{pid}/queues/0/gpuid"), "11");
        }
    }
    let client = |bus: &str, driver: &str, id: u32, memory: &str| {
        format!("drm-driver:\t{driver}\ndrm-client-id:\t{id}\ndrm-pdev:\t{bus}\n{memory}\n")
    };
    for (pid, descriptor, text) in [
        (500, 7, client("0000:83:00.0", "amdgpu", 1, "drm-memory-vram:\t2000 MiB")),
        (
            501,
            7,
            client(
                "0000:03:00.0",
                "amdgpu",
                2,
                "drm-memory-vram:\t4000 MiB\ndrm-engine-gfx:\t5 ns",
            ),
        ),
        // The child of 501 inherited the client.
        (502, 7, client("0000:03:00.0", "amdgpu", 2, "drm-memory-vram:\t4000 MiB")),
        (600, 3, client("0000:00:02.0", "i915", 3, "drm-resident-system0:\t30 MiB")),
    ] {
        write(root, &format!("proc/{pid}/fdinfo/{descriptor}"), &text);
        write(root, &format!("proc/{pid}/comm"), "train\n");
        write(
            root,
            &format!("proc/{pid}/status"),
            "Name:\ttrain\nPPid:\t1\nUid:\t7\t8\t7\t7\nVmSize:\t9 kB\n",
        );
    }
    dir
}

#[test]
fn machine_has_its_devices_and_their_processes() {
    let dir = machine();
    let copy = CopiedMachine::open(dir.path(), Duration::from_secs(60)).unwrap();
    let clock = Still;
    let snapshot = observe(&copy.devices(), &copy, &clock);
    let of = |device: &DeviceState| {
        let list = device.processes.as_ref().unwrap();
        let list = list.iter().map(|process| (process.pid.0, process.memory, process.kind));
        (device.id().bus.unwrap().to_string(), list.collect::<Vec<_>>())
    };
    use DeviceProcessKind::{Compute, Graphics, Unknown};
    let mib = |number| Ok(Bytes::from_mib(number));
    let expected = [
        // The larger of what KFD and the client count, and an entry that outlives its process.
        (
            "00000000:83:00.0",
            vec![(500, Ok(Bytes(3_000_000_000)), Compute), (700, Ok(Bytes(5_000_000)), Compute)],
        ),
        ("00000000:03:00.0", vec![(501, mib(4_000), Graphics), (502, Ok(Bytes(0)), Graphics)]),
        ("00000000:00:02.0", vec![(600, mib(30), Unknown)]),
    ];
    let expected = expected.map(|(bus, list)| (bus.to_owned(), list));
    assert_eq!(snapshot.devices.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(snapshot.process(Pid(700)), Err(Absent::NotFound));
    let info = snapshot.process(Pid(501)).unwrap();
    assert_eq!((info.name.as_str(), info.uid, info.parent), ("train", Ok(8), Ok(Pid(1))));
    let used: Vec<_> = snapshot.devices.iter().map(|device| device.memory_used()).collect();
    assert_eq!(used[0], Ok(Bytes(4_400_000_000)));
    assert!(used[2].is_err(), "the memory of an integrated GPU is the host's");
    let vendors = snapshot.devices.iter().map(|device| device.info.visibility.vendor);
    assert_eq!(vendors.collect::<Vec<_>>(), ["amd", "amd", "intel"]);
    let links = GpuBackend::topology(&copy.devices()).unwrap().links;
    assert_eq!((links[0][1], links[0][0], links[0][2]), (Link::Xgmi, Link::Itself, Link::Unknown));
    assert_eq!(snapshot.origin.to_string(), format!("copied tree {}", dir.path().display()));
    assert!(!snapshot.origin.permits_actions() && copy.open(Pid(501)).is_err());
}

#[test]
fn evidence_of_a_process_is_in_its_clients() {
    let dir = machine();
    let tree: Arc<dyn Tree> = Arc::new(Root::open(dir.path()).unwrap());
    let drivers = drivers(&tree);
    let node = |minor| Ok(FileId::Device { major: 226, minor });
    let amdgpu = drivers.iter().find(|driver| driver.name() == "amdgpu").unwrap();
    let bus: PciBusId = "0000:03:00.0".parse().unwrap();
    let role = amdgpu.describe("/dev/dri/renderD129", node(129));
    assert_eq!(role, Some((FileRole::Compute, Some(DeviceKey::Pci(bus)))));
    assert_eq!(amdgpu.describe("/dev/dri/renderD130", node(130)), None, "that is Intel's");
    assert_eq!(amdgpu.describe("/dev/null", Ok(FileId::Device { major: 1, minor: 3 })), None);
    assert_eq!(
        amdgpu.describe("/dev/kfd", Err(Absent::NotRecorded)),
        Some((FileRole::Control, None))
    );

    let file = DeviceFile {
        path: "/dev/dri/renderD129".into(),
        role: FileRole::Compute,
        device: Some(DeviceKey::Pci(bus)),
        id: node(129),
    };
    let use_of = |texts: &dyn Fn(u32) -> Option<String>| {
        let mut held = [HeldFile::of(&file, Access::OPEN, vec![3, 4])];
        drivers.iter().for_each(|driver| driver.find_memory_use(&mut held, texts));
        held[0].memory
    };
    let client = |id: u32, mib: u32| {
        Some(format!(
            "drm-driver: amdgpu\ndrm-pdev: 0000:03:00.0\ndrm-client-id: {id}\ndrm-memory-vram: {mib} MiB\n"
        ))
    };
    let certain = |mib| MemoryUse::Certain(Some(Bytes::from_mib(mib)));
    assert_eq!(use_of(&|_| client(1, 10)), certain(10), "two descriptors of one client");
    assert_eq!(use_of(&|descriptor| client(descriptor, 10)), certain(20));
    assert_eq!(use_of(&|_| client(1, 0)), MemoryUse::None, "a monitor");
    assert_eq!(use_of(&|_| None), MemoryUse::Possible, "the caller may not read it");
    let other =
        |_| Some("drm-driver: amdgpu\ndrm-pdev: 0000:83:00.0\ndrm-memory-vram: 9 MiB".to_owned());
    assert_eq!(use_of(&other), MemoryUse::Possible);
}

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }
    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }
    fn sleep(&self, _: std::time::Duration) {}
}
