//! Snapshots of pasted output.

use super::*;
use crate::sections;
use gpu_core::{Bytes, DeviceFault, DeviceProcessKind, FileId, FileRole, Link, NvLink, Percent};
use proptest::prelude::*;

fn of(paste: &str) -> Snapshot {
    snapshot(&sections(paste.as_bytes()), Timestamp(1))
}

const GPUS: &str = "index, uuid, name, memory.used [MiB], utilization.gpu [%], power.draw [W]\n\
                        0, GPU-a, Test K80, 5000 MiB, 87 %, 25.50 W\n\
                        1, GPU-b, Test K80, 25 MiB, [N/A], [GPU is lost]\n";
const APPS: &str = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n\
                        GPU-b, 7, /opt/bin/train -x, 20 MiB\nGPU-b, 8, [Not Found], [N/A]\n";
const FUSER: &str = "                     USER        PID ACCESS COMMAND\n\
                         /dev/nvidia0:        root     kernel mount /dev/nvidia0\n\
                         \x20                    ann         9 F...m train\n";
const LSOF: &str = "train 9 ann 4u CHR 195,255 0t0 5 /dev/nvidiactl\n\
                        train 9 ann 3r CHR 195,0 0t0 5 /dev/nvidia0\n\
                        init 1 root NOFD /proc/1/fd (opendir: Permission denied)\n";

#[test]
fn missing_holder_list_is_not_recorded() {
    let snapshot = of(GPUS);
    let fault = snapshot.holders.unwrap_err();
    assert_eq!(fault.kind, ErrorKind::Field(Absent::NotRecorded));
    assert!(snapshot.files.is_empty());
    assert_eq!(snapshot.origin, Origin::Pasted);
    let listed = snapshot.devices[0].processes.as_ref().unwrap_err();
    assert_eq!(listed.kind, ErrorKind::Field(Absent::NotRecorded));
}

#[test]
fn driver_messages_have_time_of_line_or_none() {
    let absent = of(GPUS).driver_messages.unwrap_err();
    assert_eq!(absent.kind, ErrorKind::Field(Absent::NotRecorded));
    let xid = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=7, name=train, Ch 1\n";
    let lost = "1970-01-01T00:00:01Z n kernel: NVRM: GPU 0000:5e:00.0: GPU has fallen off the bus.";
    let messages = of(&format!("{GPUS}[1.5] {xid}{lost}\n")).driver_messages.unwrap();
    let parsed = |line: &str, at| gpu_nvidia_driver::parse_message(line, Timestamp(at)).unwrap();
    assert_eq!(DriverMessage::UNDATED, Timestamp(0));
    let elapsed = Some(std::time::Duration::from_millis(1500));
    assert_eq!(messages, [DriverMessage { elapsed, ..parsed(xid, 0) }, parsed(lost, 1000)]);
}

#[test]
fn devices_keep_values_and_reasons() {
    let devices = of(GPUS).devices;
    let sample = devices[0].sample.as_ref().unwrap();
    assert_eq!(sample.memory.used, Ok(Bytes::from_mib(5000)));
    assert_eq!(sample.memory.total, Err(Absent::NotRecorded));
    assert_eq!(sample.utilization, Ok(Percent::new(87).unwrap()));
    assert_eq!(sample.power_draw, Ok(gpu_core::Milliwatts(25_500)));
    let sample = devices[1].sample.as_ref().unwrap();
    assert_eq!(sample.utilization, Err(Absent::NotSupported));
    assert_eq!(sample.power_draw, Err(Absent::DeviceLost));
}

#[test]
fn implausible_values_are_absent() {
    let snapshot = of(
        "index, memory.total [MiB], memory.used [MiB], utilization.gpu [%], temperature.gpu, power.draw [W]\n\
             0, 16384 MiB, 16385 MiB, 255 %, -256, 4000000000.00 W\n\
             1, 16384 MiB, 16384 MiB, 100 %, 90, 700.00 W\n",
    );
    let implausible = Absent::Implausible;
    let sample = snapshot.devices[0].sample.as_ref().unwrap();
    assert_eq!(sample.memory.total, Ok(Bytes::from_mib(16_384)));
    assert_eq!(sample.memory.used, Err(implausible));
    assert_eq!(sample.utilization, Err(implausible));
    assert_eq!(sample.temperature, Err(implausible));
    assert_eq!(sample.power_draw, Err(implausible));
    let sample = snapshot.devices[1].sample.as_ref().unwrap();
    assert_eq!(sample.temperature, Ok(gpu_core::Celsius(90)));
    assert_eq!(sample.memory.used, Ok(Bytes::from_mib(16_384)));
}

#[test]
fn process_list_with_pid_0_is_rejected() {
    let apps =
        |pid| format!("pid, gpu_uuid, used_memory [MiB]\n7, GPU-a, 5 MiB\n{pid}, GPU-a, 9 MiB\n");
    let listed = |pid| of(&format!("{GPUS}\n{}", apps(pid))).devices[0].processes.clone();
    assert_eq!(listed(8).unwrap().len(), 2);
    assert!(listed(0).is_err());
}

#[test]
fn listed_processes_are_matched_to_device() {
    let pmon = "# gpu pid type sm command\n# Idx # C/G % name\n1 7 C 55 train\n1 7 C - train\n";
    let snapshot = of(&format!("{GPUS}{APPS}{pmon}"));
    assert_eq!(snapshot.devices[0].processes, Ok(vec![]));
    let listed = snapshot.devices[1].processes.as_ref().unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].kind, DeviceProcessKind::Compute);
    assert_eq!(listed[0].memory, Ok(Bytes::from_mib(20)));
    assert_eq!(listed[0].utilization, Ok(Percent::new(55).unwrap()));
    assert_eq!(snapshot.process(Pid(7)).unwrap().name, "train");
    assert_eq!(snapshot.process(Pid(8)), Err(Absent::NotFound));
}

#[test]
fn process_in_mig_device_is_listed_on_parent_device() {
    let list =
        "GPU 0: K (UUID: GPU-a)\nGPU 1: K (UUID: GPU-b)\n  MIG 1g.5gb Device 0: (UUID: MIG-c)\n";
    let snapshot = of(&format!("{list}{}", APPS.replace("GPU-b", "MIG-c")));
    let listed: Vec<_> =
        snapshot.devices.iter().map(|device| device.processes.as_ref().unwrap().len()).collect();
    assert_eq!(listed, [0, 2]);
    assert_eq!(snapshot.devices[1].partitions.as_ref().map(Vec::len), Ok(1));
}

#[test]
fn process_of_unknown_device_makes_all_lists_unknown() {
    let snapshot = of(&format!("{GPUS}{}", APPS.replace("GPU-b, 8", "GPU-c, 8")));
    assert_eq!(snapshot.devices.len(), 3, "the list names a third device");
    let apps = "pid, used_memory [MiB]\n7, 5 MiB\n";
    assert!(of(&format!("{GPUS}{apps}")).devices.iter().all(|device| device.processes.is_err()));
}

#[test]
fn holders_from_fuser_and_lsof_are_merged() {
    let snapshot = of(&format!("{FUSER}{LSOF}"));
    let [holder] = snapshot.holders() else { panic!("{:?}", snapshot.holders) };
    assert_eq!((holder.process.pid, holder.process.start), (Pid(9), None));
    let held: Vec<_> = holder
        .held
        .iter()
        .map(|held| (held.role, held.access.to_string(), held.descriptors.clone()))
        .collect();
    assert_eq!(
        held,
        [
            (FileRole::Compute, "F...m".to_owned(), vec![3]),
            (FileRole::Control, "F....".to_owned(), vec![4]),
        ]
    );
    let nvidia0 = snapshot.files.iter().find(|file| &*file.path == "/dev/nvidia0").unwrap();
    assert_eq!(nvidia0.id, Ok(FileId::Device { major: 195, minor: 0 }));
    assert_eq!(snapshot.process(Pid(9)).unwrap().user, Ok("ann".to_owned()));
    assert_eq!(snapshot.unreadable.total(), 1);
    assert_eq!(snapshot.driver.unwrap_err().kind, ErrorKind::Field(Absent::NotRecorded));
}

#[test]
fn mounted_file_alone_has_no_holder() {
    let snapshot = of("/dev/nvidia0:        root     kernel mount /dev/nvidia0\n");
    assert_eq!(snapshot.holders, Ok(vec![]));
    assert_eq!(snapshot.files.len(), 1);
}

#[test]
fn device_ids_from_different_texts_are_joined() {
    let list = "GPU 0: Test K80 (UUID: GPU-a)\nGPU 1: Test K80 (UUID: GPU-b)\n";
    let buses = "index, pci.bus_id\n1, 00000000:05:00.0\n0, 00000000:04:00.0\n";
    let used = "uuid, memory.used [MiB]\nGPU-b, 7 MiB\nGPU-a, 6 MiB\n";
    for paste in [[list, buses, used], [used, buses, list], [buses, used, list]] {
        let devices = of(&paste.join("$ \n")).devices;
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[1].info.id.uuid.as_ref().unwrap().0, "GPU-b");
        assert_eq!(devices[1].info.id.bus.unwrap().bus, 5);
        assert_eq!(devices[1].memory_used(), Ok(Bytes::from_mib(7)));
    }
}

#[test]
fn devices_without_index_are_keyed_by_bus_id() {
    let snapshot = of("pci.bus_id, memory.used [MiB]\n\
                           00000000:8B:00.0, 1 MiB\n00000000:0B:00.0, 2 MiB\n00000000:8B:00.0, 3 MiB\n");
    let used: Vec<_> = snapshot.devices.iter().map(|device| device.memory_used()).collect();
    assert_eq!(used, [Ok(Bytes::from_mib(2)), Ok(Bytes::from_mib(3))]);
}

#[test]
fn machine_errors_become_driver_fault() {
    let snapshot = of("Failed to initialize NVML: Driver/library version mismatch\n");
    assert_eq!(snapshot.driver.unwrap_err().kind, MachineFault::VersionMismatch.into());
    assert!(of(&format!("No devices were found\n\n{GPUS}")).driver.is_ok());
}

#[test]
fn topology_is_separate_from_snapshot() {
    let documents = sections(b"\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV2\t0\nGPU1\tNV2\tX\t0\n");
    let links = crate::topology(&documents[0]).unwrap().links;
    assert_eq!(links[1], [Link::NvLink(2), Link::Itself]);
    assert!(snapshot(&documents, Timestamp(0)).devices.is_empty());
}

#[test]
fn every_machine_error_has_its_own_fault() {
    for (message, kind) in [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            MachineFault::DriverNotLoaded,
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch",
            MachineFault::VersionMismatch,
        ),
        ("No devices were found", MachineFault::NoDevices),
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
            MachineFault::NoLibrary,
        ),
        (
            "Failed to initialize NVML: GPU access blocked by the operating system",
            MachineFault::Blocked,
        ),
        ("Failed to initialize NVML: Insufficient Permissions", MachineFault::NotPermitted),
    ] {
        assert_eq!(of(message).driver.unwrap_err().kind, kind.into(), "{message}");
    }
    let other = of("Unable to determine the device handle for some GPU: Unknown Error");
    assert_eq!(other.driver.unwrap_err().kind, ErrorKind::Field(Absent::NotRecorded));
    let versions = of("driver_version, name\n470.1, K80\n").driver.unwrap();
    assert_eq!(versions.version.as_deref(), Ok("470.1"));
}

/// The index, the fault of the sample, and the current and pending MIG modes.
type State = (u32, Option<ErrorKind>, Reading<bool>, Reading<bool>);

fn states(text: &str) -> Vec<State> {
    let state = |device: DeviceState| {
        let pending = device.details.unwrap().modes.map(|modes| modes.mig_pending);
        let fault = device.sample.err().map(|fault| fault.kind);
        let pending = pending.unwrap_or(Err(Absent::NotRecorded));
        (device.info.id.index, fault, device.info.partitioned, pending)
    };
    of(text).devices.into_iter().map(state).collect()
}

#[test]
fn failure_text_applies_to_named_device() {
    let unknown = Err(Absent::NotRecorded);
    let lost = Some(ErrorKind::Device(DeviceFault::Lost));
    let handle =
        |name: &str| format!("Unable to determine the device handle for {name}: GPU is lost.");
    assert_eq!(states(&handle("GPU 0000:0A:00.0")), [(0, lost, unknown, unknown)]);
    assert_eq!(states(&handle("GPU3")), [(3, lost, unknown, unknown)]);
    // The device that is missing from the table.
    let listed = format!("index, pci.bus_id\n0, 0:1:0.0\n2, 0:3:0.0\n\n{}", handle("GPU 0:2:0.0"));
    assert_eq!(
        states(&listed),
        [(0, None, unknown, unknown), (1, lost, unknown, unknown), (2, None, unknown, unknown)]
    );
    let pending = "Warning: MIG mode is in pending disable state for GPU 00000000:0A:00.0:In use by another client";
    assert_eq!(states(pending), [(0, None, Ok(true), Ok(false))]);
    let pending = pending.replace("disable", "enable");
    assert_eq!(states(&pending), [(0, None, Ok(false), Ok(true))]);
}

#[test]
fn mig_devices_are_unknown_unless_text_lists_them() {
    let mig = |text: &str| {
        of(text).devices[0].partitions.as_ref().map(Vec::len).map_err(|fault| fault.kind)
    };
    let absent = Err(ErrorKind::Field(Absent::NotRecorded));
    assert_eq!(mig("index, mig.mode.current\n0, Enabled\n"), absent);
    assert_eq!(mig("index, mig.mode.current\n0, Disabled\n"), Ok(0));
    let listed = "index, mig.mode.current\n0, Enabled\n\nGPU 0: A100 (UUID: GPU-1)\n";
    assert_eq!(mig(listed), Ok(0));
}

#[test]
fn nvlinks_are_read_below_their_device() {
    let links = |text: &str| -> Vec<Option<Vec<Reading<bool>>>> {
        let links = |device: DeviceState| device.details.unwrap().nvlinks;
        let active = |links: Vec<NvLink>| links.iter().map(|link| link.active).collect();
        of(text).devices.into_iter().map(|device| links(device).map(active)).collect()
    };
    let gpus = ["GPU 0: A100 (UUID: GPU-1)", "GPU 1: A100 (UUID: GPU-2)"];
    let text = format!("{}\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n{}\n", gpus[0], gpus[1]);
    assert_eq!(links(&text), [Some(vec![Ok(true), Ok(false)]), None]);
    let text = format!(
        "{}\nNVML: Unable to retrieve NVLink information as all links are inActive\n",
        gpus[1]
    );
    assert_eq!(links(&text), [Some(vec![Ok(false)])]);
}

#[test]
fn printed_process_kinds_are_kept_and_joined() {
    let kind = |rows: &str| {
        let pmon = format!("# gpu pid type sm command\n{rows}");
        let snapshot = of(&pmon);
        let listed = snapshot.devices[0].processes.clone().unwrap();
        assert_eq!(listed.len(), 1, "{rows}");
        listed[0].kind
    };
    for (first, second, want) in [
        ("C", "-", DeviceProcessKind::Compute),
        ("-", "G", DeviceProcessKind::Graphics),
        ("C", "G", DeviceProcessKind::ComputeAndGraphics),
        ("G", "C", DeviceProcessKind::ComputeAndGraphics),
        ("C", "C", DeviceProcessKind::Compute),
        ("C+G", "-", DeviceProcessKind::ComputeAndGraphics),
        ("G+C", "-", DeviceProcessKind::ComputeAndGraphics),
        ("C", "M", DeviceProcessKind::Mps),
        ("M+C", "-", DeviceProcessKind::Mps),
        ("C+M", "-", DeviceProcessKind::Mps),
        ("X", "-", DeviceProcessKind::Unknown),
    ] {
        assert_eq!(kind(&format!("0 7 {first} 1 x\n0 7 {second} 2 x\n")), want, "{first} {second}");
    }
}

#[test]
fn monitored_rows_become_processes_with_reasons() {
    let snapshot = of(
        "# gpu pid type sm fb command\n0 7 C 101 - x\n0 8 C -5 9 N/A\n0 - - - - -\n1 - - - - -\n",
    );
    let listed = snapshot.devices[0].processes.as_ref().unwrap();
    let values: Vec<_> = listed.iter().map(|p| (p.pid.0, p.utilization, p.memory)).collect();
    assert_eq!(
        values,
        [
            (7, Err(Absent::Implausible), Err(Absent::NotSupported)),
            (8, Err(Absent::Implausible), Ok(Bytes::from_mib(9))),
        ]
    );
    assert_eq!(snapshot.devices[1].processes, Ok(vec![]), "the device was monitored");
    assert_eq!(snapshot.process(Pid(7)).unwrap().name, "x");
    assert!(snapshot.process(Pid(8)).is_err(), "an absent name is none");
}

#[test]
fn dmon_values_follow_its_columns() {
    let snapshot = of("# gpu pwr gtemp sm fb\n0 50 40 30 20\n# gpu temp sm\n1 60 -7\n");
    let values: Vec<_> = snapshot
        .devices
        .iter()
        .map(|device| {
            let sample = device.sample.as_ref().unwrap();
            (
                sample.power_draw.ok(),
                sample.temperature.ok(),
                sample.utilization.ok(),
                sample.memory.used.ok(),
            )
        })
        .collect();
    let (watts, celsius) = (gpu_core::Milliwatts(50_000), gpu_core::Celsius);
    assert_eq!(
        values,
        [
            (Some(watts), Some(celsius(40)), Percent::new(30), Some(Bytes::from_mib(20))),
            (None, Some(celsius(60)), Percent::new(0), None),
        ]
    );
}

#[test]
fn lsof_access_comes_from_descriptor() {
    for (fd, access, descriptors) in [
        ("mem", "....m", &[][..]),
        ("mmap", "....m", &[]),
        ("DEL", "....m", &[]),
        ("txt", "...e.", &[]),
        ("cwd", "..c..", &[]),
        ("rtd", ".r...", &[]),
        ("5r", "f....", &[5]),
        ("5", "f....", &[5]),
        ("5u", "F....", &[5]),
        ("5w", "F....", &[5]),
        ("5uW", "F....", &[5]),
        ("err", ".....", &[]),
    ] {
        let snapshot = of(&format!("x 9 ann {fd} CHR 195,0 0t0 5 /dev/nvidia0\n"));
        let held = &snapshot.holders()[0].held[0];
        assert_eq!(
            (held.access.to_string().as_str(), held.descriptors.as_slice()),
            (access, descriptors),
            "{fd}"
        );
    }
    let plain = of("/dev/nvidia0: 9 10m\n");
    let held: Vec<_> = plain.holders().iter().map(|h| h.held[0].access.to_string()).collect();
    assert_eq!(held, ["f....", "....m"]);
}

#[test]
fn device_file_is_identified_by_its_numbers() {
    for (row, path, id) in [
        ("CHR 195,3 0t0 5 /run/x/nvidia0", "/dev/nvidia3", Some((195, 3))),
        ("CHR 195,254 0t0 5 /x", "/dev/nvidia-modeset", Some((195, 254))),
        ("CHR 195,255 0t0 5 /x", "/dev/nvidiactl", Some((195, 255))),
        ("CHR 510,0 0t0 5 /dev/nvidia-uvm (deleted)", "/dev/nvidia-uvm", Some((510, 0))),
        ("REG 8,1 4096 5 /home/ann/x", "/home/ann/x", None),
    ] {
        let snapshot = of(&format!("x 9 ann 3u {row}\n"));
        let file = &snapshot.files[0];
        assert_eq!(&*file.path, path, "{row}");
        let want = id.map(|(major, minor)| FileId::Device { major, minor });
        assert_eq!(file.id.ok(), want, "{row}");
    }
    assert_eq!(of("x 9 ann 3u sock 0,9 0t0 5 protocol: TCP\n").holders().len(), 0);
    let many: String =
        (0..70).rev().map(|fd| format!("x 9 ann {fd}u CHR 195,0 0t0 5 /dev/nvidia0\n")).collect();
    let twice = of(&format!("{many}{many}"));
    assert_eq!(twice.holders()[0].held[0].descriptors, (0..64).collect::<Vec<_>>());
}

#[test]
fn program_is_last_part_of_its_path() {
    for (name, want) in [
        ("/opt/a b/train -x", "a"),
        ("./bin/train -x", "train"),
        ("C:\\a b\\c.exe", "c.exe"),
        ("my tool", "my tool"),
        ("/", "/"),
    ] {
        assert_eq!(program(name), want, "{name}");
    }
}

#[test]
fn known_value_is_replaced_by_value_or_device_loss() {
    let absent = |reason| -> Reading<u8> { Err(reason) };
    for (earlier, later, want) in [
        (Ok(1), Ok(2), Ok(2)),
        (Ok(1), absent(Absent::NotSupported), Ok(1)),
        (Ok(1), absent(Absent::DeviceLost), absent(Absent::DeviceLost)),
        (Ok(1), absent(Absent::Failed), absent(Absent::Failed)),
        (absent(Absent::NotRecorded), absent(Absent::NotSupported), absent(Absent::NotSupported)),
        (absent(Absent::NotPermitted), absent(Absent::NotSupported), absent(Absent::NotPermitted)),
        (absent(Absent::Failed), Ok(2), Ok(2)),
    ] {
        let mut value = earlier;
        take_later(&mut value, later);
        assert_eq!(value, want, "{earlier:?} {later:?}");
    }
}

#[test]
fn mig_devices_of_all_texts_are_joined_and_bounded() {
    let list = "GPU 0: K (UUID: GPU-a)\n  MIG 1g.5gb Device 1: (UUID: MIG-x)\n";
    let log = "==NVSMI LOG==\nGPU 00000000:0A:00.0\n    GPU UUID : GPU-a\n    MIG Device\n        \
            Index : 1\n        GPU Instance ID : 3\n        Compute Instance ID : 0\n        FB Memory Usage\n            \
            Total : 900 MiB\n            Used : 13 MiB\n";
    for paste in [format!("{list}{log}"), format!("{log}{list}")] {
        let snapshot = of(&paste);
        let [mig] = snapshot.devices[0].partitions.as_deref().unwrap() else { panic!("{paste}") };
        assert_eq!((mig.index, mig.gpu_instance, mig.compute_instance), (1, Some(3), Some(0)));
        assert_eq!(mig.uuid.as_ref().unwrap().0, "MIG-x");
        assert_eq!(mig.memory.used, Ok(Bytes::from_mib(13)));
        assert_eq!(mig.memory.total, Ok(Bytes::from_mib(900)));
    }
    let line = |n: usize| format!("  MIG 1g.5gb Device {n}: (UUID: MIG-{n})\n");
    let many: String = (0..65).map(line).collect();
    let snapshot = of(&format!("GPU 0: K (UUID: GPU-a)\n{many}{}", line(3)));
    assert_eq!(snapshot.devices[0].partitions.as_ref().unwrap().len(), 64);
}

#[test]
fn whole_name_is_preferred_to_truncated_one() {
    let row = |name: &str| format!("index, name\n0, {name}\n");
    for (first, second, want) in [
        ("Tesla A...", "Tesla A100", "Tesla A100"),
        ("Tesla A100", "Tesla A...", "Tesla A100"),
        ("Tesla A100", "Tesla H100", "Tesla H100"),
        ("Tesla A100", "[N/A]", "Tesla A100"),
    ] {
        let snapshot = of(&format!("{}{}", row(first), row(second)));
        assert_eq!(snapshot.devices[0].info.name.as_deref(), Ok(want), "{first} {second}");
    }
}

#[test]
fn list_of_all_processes_replaces_earlier_ones() {
    let log = |pid: u32| {
        format!(
            "==NVSMI LOG==\nGPU 00000000:0A:00.0\n    GPU UUID : GPU-a\n    Processes\n        Process ID : {pid}\n            Name : x\n"
        )
    };
    let apps = |pid: u32| format!("gpu_uuid, pid\nGPU-a, {pid}\n");
    let pids = |paste: String| -> Vec<u32> {
        let snapshot = of(&paste);
        snapshot.devices[0].processes.as_ref().unwrap().iter().map(|p| p.pid.0).collect()
    };
    assert_eq!(pids(format!("{}{}", log(7), log(8))), [8]);
    assert_eq!(pids(format!("{}{}", apps(7), apps(8))), [7, 8]);
    assert_eq!(pids(format!("{}{}", log(7), apps(8))), [7, 8]);
}

#[test]
fn rows_without_identifier_are_devices_by_position() {
    let names = "index, uuid\n0, GPU-a\n1, GPU-b\n";
    let used = "memory.used [MiB]\n5 MiB\n6 MiB\n";
    for paste in [format!("{names}$ \n{used}"), format!("{used}$ \n{names}")] {
        let devices = of(&paste).devices;
        let used: Vec<_> = devices.iter().map(|device| device.memory_used().ok()).collect();
        assert_eq!(used, [Some(Bytes::from_mib(5)), Some(Bytes::from_mib(6))], "{paste}");
        assert_eq!(devices[1].info.id.uuid.as_ref().unwrap().0, "GPU-b");
    }
    assert_eq!(of(used).devices.len(), 2);
    let uuids = "uuid\nGPU-b\nGPU-c\n";
    let devices = of(&format!("{names}$ \n{uuids}")).devices;
    let uuids: Vec<_> =
        devices.iter().map(|device| device.info.id.uuid.as_ref().unwrap().0.as_str()).collect();
    assert_eq!(uuids, ["GPU-a", "GPU-b", "GPU-c"]);
}

proptest! {
    #[test]
    fn arbitrary_paste_is_joined(
        parts in prop::collection::vec(
            prop::sample::select(vec![GPUS, APPS, FUSER, LSOF, "0, GPU-z, a, b\n", "x\n", "\n",
                "# gpu pid sm fb command\n", "# gpu sm pwr\n", "0 9 5 - x\n", "1 8 7 6 y\n",
                "GPU 1: K (UUID: GPU-b)\n", " MIG 1g.5gb Device 0: (UUID: MIG-x)\n",
                "memory.used [MiB]\n", "5 MiB\n", "No devices were found\n"]),
            0..20,
        ),
    ) {
        let snapshot = of(&parts.concat());
        let asked = parts.iter().any(|part| *part == FUSER || *part == LSOF);
        prop_assert_eq!(snapshot.holders.is_ok(), asked);
        let listed = snapshot.devices.iter().flat_map(|device| device.processes.iter().flatten());
        let named = listed.map(|process| process.pid)
            .chain(snapshot.holders().iter().map(|holder| holder.process.pid));
        for pid in named {
            prop_assert!(snapshot.processes.contains_key(&pid));
        }
        prop_assert!(snapshot.holders().iter().all(|holder| holder.process.start.is_none()));
    }
}
