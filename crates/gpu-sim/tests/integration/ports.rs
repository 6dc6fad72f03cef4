//! The ports over one state: visibility for each viewer, refusals, and fault injection.

use gpu_core::{
    Absent, ActToken, Bytes, Clock, DeviceFault, DeviceFiles, DeviceId, DeviceMemory, DeviceUuid,
    DriverView, ErrorKind, GpuBackend, Groups, Journal, MachineFault, Pid, ProcessFault,
    ProcessTable, Reach, Region, Signal, observe,
};
use gpu_sim::{Call, Event, Fault, Simulation};
use std::time::Duration;

fn token() -> ActToken {
    ActToken::user_confirmed()
}

fn first() -> DeviceId {
    DeviceId::from_index(0)
}

#[test]
fn snapshot_of_every_embedded_machine_is_complete() {
    for machine in gpu_sim::machines() {
        let simulation = Simulation::embedded(machine.name).unwrap();
        assert!(!machine.description.is_empty(), "{}", machine.name);
        let snapshot = observe(&simulation, &simulation, &simulation);
        let again = observe(&simulation, &simulation, &simulation);
        assert_eq!(
            snapshot, again,
            "{}: time does not advance between two snapshots",
            machine.name
        );
        assert!(snapshot.holders.is_ok(), "{}", machine.name);
        for device in &snapshot.devices {
            // An Orin has neither, and WSL has one file for all devices.
            let id = &device.info.id;
            let is_named = id.node.is_ok() && id.bus.is_ok();
            assert_eq!(is_named, !["orin", "wsl"].contains(&machine.name), "{}", machine.name);
            let listed = device.memory_listed().unwrap_or_default();
            if let (Ok(used), Ok(total)) = (device.memory_used(), device.memory_total()) {
                assert!(listed <= used && used <= total, "{}", machine.name);
            }
        }
        assert!(simulation.signals().is_empty() && simulation.count(Call::Signal) == 0);
    }
}

#[test]
fn unknown_device_is_an_error() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let mut unknown = first();
    unknown.uuid = Ok(DeviceUuid("GPU-0".into()));
    for wrong in [DeviceId::from_index(9), unknown] {
        assert_eq!(simulation.sample(&wrong).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(
            GpuBackend::processes(&simulation, &wrong).unwrap_err().kind(),
            ErrorKind::Invalid
        );
        assert_eq!(simulation.reset(&wrong, &token()).unwrap_err().kind(), ErrorKind::Invalid);
        assert!(simulation.device_memory(&wrong).is_err());
    }
}

#[test]
fn failed_driver_does_not_affect_proc() {
    let simulation = Simulation::embedded("driver-mismatch").unwrap();
    let snapshot = observe(&simulation, &simulation, &simulation);
    let fault = snapshot.driver.clone().unwrap_err();
    assert_eq!(fault.kind, ErrorKind::Machine(MachineFault::VersionMismatch));
    assert!(snapshot.devices.is_empty());
    assert_eq!(snapshot.holders()[0].process.pid, Pid(3300));
    for call in [simulation.sample(&first()).err(), simulation.topology().err()] {
        assert_eq!(call.unwrap().kind().reach(), Reach::Machine);
    }
}

#[test]
fn lost_device_does_not_affect_others() {
    let simulation = Simulation::embedded("lost-gpu").unwrap();
    let snapshot = observe(&simulation, &simulation, &simulation);
    let kinds: Vec<_> =
        snapshot.devices.iter().map(|d| d.sample.as_ref().err().map(|fault| fault.kind)).collect();
    assert_eq!(kinds, [None, None, Some(ErrorKind::Device(DeviceFault::Lost)), None]);
    assert_eq!(snapshot.devices[2].info.name, Err(Absent::DeviceLost));
    let reset = simulation.reset(snapshot.devices[2].id(), &token()).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::Device(DeviceFault::Lost));
}

#[test]
fn listed_pids_are_foreign_inside_container() {
    let simulation = Simulation::embedded("inside-container").unwrap();
    let snapshot = observe(&simulation, &simulation, &simulation);
    assert_eq!(snapshot.sees_host_pids, Ok(false));
    let listed = snapshot.devices[0].processes.as_ref().unwrap()[0].pid;
    assert_eq!(listed, Pid(48210));
    assert!(
        snapshot.process(listed).is_err() && ProcessTable::process(&simulation, listed).is_err()
    );
    let holders: Vec<_> = snapshot.holders().iter().map(|holder| holder.process.pid).collect();
    assert_eq!(holders, [Pid(17)]);
    assert_eq!(snapshot.process(Pid(17)).unwrap().namespace_pids, Ok(vec![Pid(17)]));
    assert_eq!(snapshot.process(Pid(17)).unwrap().parent, Ok(Pid(0)), "it lies outside");
    assert!(simulation.open(Pid(51200)).is_err());
    let own = simulation.own_ancestry().unwrap();
    assert_eq!(own.last().unwrap().pid, Pid(1), "the shell is the first of its namespace");
}

#[test]
fn container_process_has_both_pids_on_host() {
    let simulation = Simulation::embedded("container-ghost").unwrap();
    let info = ProcessTable::process(&simulation, Pid(48210)).unwrap();
    assert_eq!(info.namespace_pids, Ok(vec![Pid(48210), Pid(17)]));
    let workload = info.workload.unwrap();
    assert!(info.cgroup.unwrap().contains(&workload.id));
    assert_eq!(simulation.sees_host_pids(), Ok(true));
}

#[test]
fn unprivileged_viewer_cannot_see_files_or_signal_others() {
    let simulation = Simulation::embedded("other-user").unwrap();
    let files = simulation.device_files().unwrap();
    let scan = simulation.holders(&files).unwrap();
    let holders: Vec<_> = scan.holders.iter().map(|holder| holder.process.pid).collect();
    assert_eq!(holders, [Pid(6700)]);
    assert_eq!(scan.unreadable.0[&Absent::NotPermitted], 2, "bob's, and the first process");
    let other = simulation.open(Pid(6600)).unwrap();
    assert_eq!(other.info().unwrap().name, "python");
    for refused in [other.held(&files).err(), other.signal(Signal::Term, &token()).err()] {
        assert_eq!(refused.unwrap().kind(), ErrorKind::Process(ProcessFault::NotPermitted));
    }
    assert!(simulation.signals().is_empty());
    let reset = simulation.reset(&first(), &token()).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::Field(Absent::NotPermitted));
}

#[test]
fn listed_but_gone_process_is_not_found() {
    let simulation = Simulation::embedded("listed-but-gone").unwrap();
    let listed = GpuBackend::processes(&simulation, &first()).unwrap();
    assert_eq!(listed[0].pid, Pid(31337));
    let gone = ErrorKind::Process(ProcessFault::Gone);
    assert_eq!(ProcessTable::process(&simulation, Pid(31337)).unwrap_err().kind(), gone);
    assert_eq!(simulation.open(Pid(31337)).err().unwrap().kind(), gone);
    simulation.reset(&first(), &token()).unwrap();
    assert_eq!(GpuBackend::processes(&simulation, &first()).unwrap(), []);
}

#[test]
fn reset_of_used_device_is_refused_with_driver_message() {
    let simulation = Simulation::embedded("blocked-reset").unwrap();
    let refused = simulation.reset(&first(), &token()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Device(DeviceFault::InUse));
    let text = refused.fault().text;
    assert!(text.contains("Unable to reset this GPU because it's being used"), "{text}");
    assert!(!refused.to_string().contains("Unable"), "the source is not repeated");
    simulation.happen(Event::Exit(Pid(1105)));
    simulation.reset(&first(), &token()).unwrap();
    let used = simulation.sample(&first()).unwrap().memory.used;
    assert_eq!(used, Ok(Bytes::from_mib(11)));
}

#[test]
fn mig_instance_memory_sums_its_processes() {
    let simulation = Simulation::embedded("mig-a100").unwrap();
    let used = |simulation: &Simulation| -> Vec<u64> {
        let instances = simulation.partitions(&first()).unwrap();
        instances.iter().map(|instance| instance.memory.used.unwrap().mib()).collect()
    };
    assert_eq!(used(&simulation), [14_361, 5132, 12]);
    let handle = simulation.open(Pid(15077)).unwrap();
    handle.signal(Signal::Term, &token()).unwrap();
    simulation.sleep(Duration::from_secs(10));
    assert_eq!(used(&simulation), [14_361, 12, 12]);
    let listed = GpuBackend::processes(&simulation, &first()).unwrap();
    assert_eq!(listed[0].utilization, Err(Absent::NotSupported));
    assert_eq!(simulation.sample(&first()).unwrap().utilization, Err(Absent::NotSupported));
}

#[test]
fn own_allocation_counts_as_used_and_is_released_once() {
    let simulation = Simulation::embedded("driver-leak").unwrap();
    let memory = simulation.device_memory(&first()).unwrap();
    let before = memory.info().unwrap().used.unwrap();
    let region = memory.reserve(Bytes(1000)).unwrap();
    assert_eq!((region.address % 256, region.size), (0, Bytes(1024)));
    let own = simulation.own_ancestry().unwrap()[0].pid;
    assert_eq!(memory.info().unwrap().used, Ok(before + Bytes(1024)));
    let snapshot = observe(&simulation, &simulation, &simulation);
    assert_eq!(snapshot.devices[0].processes.as_ref().unwrap()[0].pid, own);
    assert_eq!(snapshot.holders()[0].process.pid, own);

    let invalid = |region| memory.release(region).unwrap_err().kind() == ErrorKind::Invalid;
    assert!(invalid(Region { size: Bytes(512), ..region }), "not in part");
    assert!(invalid(Region { address: region.address + 256, ..region }), "not another");
    memory.release(region).unwrap();
    assert!(invalid(region), "not twice");
    assert_eq!(memory.info().unwrap().used, Ok(before));
    assert_ne!(memory.reserve(Bytes(1000)).unwrap(), region, "no address comes twice");

    let kind = |size| memory.reserve(Bytes(size)).unwrap_err().kind();
    assert_eq!(kind(0), ErrorKind::Invalid);
    assert_eq!(kind(u64::MAX), ErrorKind::Device(DeviceFault::OutOfMemory));
    assert_eq!(kind(24 << 30), ErrorKind::Device(DeviceFault::OutOfMemory));
}

#[test]
fn own_pages_count_as_used_and_addresses_are_unique() {
    let simulation = Simulation::embedded("driver-leak").unwrap();
    let memory = simulation.device_memory(&first()).unwrap();
    let used = || memory.info().unwrap().used.unwrap();
    let before = used();
    memory.reserve(Bytes(256)).map(|region| memory.release(region).unwrap()).unwrap();
    let range = memory.reserve_addresses(Bytes(8 << 20)).unwrap();
    assert_eq!((range.address % (2 << 20), used()), (0, before));
    let part = Region { size: Bytes(4 << 20), ..range };
    memory.map(part).unwrap();
    assert_eq!(used(), before + Bytes(4 << 20));
    let own = simulation.own_ancestry().unwrap()[0].pid;
    let snapshot = observe(&simulation, &simulation, &simulation);
    assert_eq!(snapshot.devices[0].processes.as_ref().unwrap()[0].pid, own);
    memory.unmap(Region { size: Bytes(2 << 20), ..part }).unwrap();
    memory.map(Region { size: Bytes(2 << 20), ..part }).unwrap();
    memory.release_addresses(range).unwrap();
    assert_eq!(used(), before);
    assert_ne!(memory.reserve_addresses(Bytes(8 << 20)).unwrap(), range);
    let lost = gpu_core::Fault { kind: DeviceFault::Lost.into(), text: "look at GPU 0".into() };
    simulation.happen(Event::Fails(0, lost));
    assert_eq!(memory.map(part).unwrap_err().kind(), ErrorKind::Invalid, "it was given back");
    assert_eq!(memory.page().unwrap_err().kind(), DeviceFault::Lost.into());
}

#[test]
fn faults_fire_at_their_call_number() {
    let simulation = Simulation::embedded("labbox").unwrap();
    simulation.inject(Call::Sample, 2, Fault::Error(ErrorKind::Device(DeviceFault::Lost)));
    simulation.inject(Call::Sample, 3, Fault::Delay(Duration::from_secs(2)));
    simulation.inject(Call::Sample, 4, Fault::Hang(Duration::from_secs(3)));
    simulation.inject(Call::Sample, 5, Fault::ListChanged);
    let sample = || simulation.sample(&first()).map_err(|error| error.kind());
    assert!(sample().is_ok());
    assert_eq!(sample(), Err(ErrorKind::Device(DeviceFault::Lost)));
    assert!(sample().is_ok());
    assert_eq!(simulation.elapsed(), Duration::from_secs(2));
    assert_eq!(sample(), Err(ErrorKind::TimedOut));
    assert_eq!(simulation.elapsed(), Duration::from_secs(5));
    assert_eq!(sample(), Err(ErrorKind::Again));
    assert!(sample().is_ok());
    assert_eq!(simulation.count(Call::Sample), 6);
    assert_eq!(simulation.calls().into_iter().collect::<Vec<_>>(), [(Call::Sample, 6)]);
}

#[test]
fn failed_call_has_no_effect() {
    let simulation = Simulation::embedded("labbox").unwrap();
    simulation.inject_from(Call::Append, 1, Fault::Error(ErrorKind::Io));
    simulation.inject(Call::Signal, 1, Fault::Hang(Duration::from_secs(1)));
    assert_eq!(simulation.append("a line").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(simulation.append("a line").unwrap_err().kind(), ErrorKind::Io);
    let journal: Vec<String> = simulation.journal();
    assert!(journal.is_empty());
    let handle = simulation.open(Pid(18250)).unwrap();
    assert_eq!(handle.signal(Signal::Kill, &token()).unwrap_err().kind(), ErrorKind::TimedOut);
    simulation.sleep(Duration::from_secs(60));
    assert!(!handle.has_exited().unwrap());
    handle.signal(Signal::Kill, &token()).unwrap();
    simulation.sleep(Duration::from_secs(60));
    assert!(handle.has_exited().unwrap());
}

#[test]
fn every_call_but_the_clock_is_counted_and_can_fail() {
    for (call, fragment) in Call::ALL {
        assert_eq!(call.to_string(), fragment);
        let simulation = Simulation::embedded("labbox").unwrap();
        let memory = simulation.device_memory(&first()).unwrap();
        let region = memory.reserve(Bytes(256)).unwrap();
        let range = memory.reserve_addresses(Bytes(4 << 20)).unwrap();
        let part = Region { size: Bytes(2 << 20), ..range };
        memory.map(part).unwrap();
        let other = Region { address: part.address + (2 << 20), ..part };
        let handle = simulation.open(Pid(18250)).unwrap();
        let before = simulation.count(call);
        simulation.inject(call, before + 1, Fault::Error(ErrorKind::Io));
        let device = first();
        let failed = match call {
            Call::Driver => simulation.driver().is_err(),
            Call::Devices => simulation.devices().is_err(),
            Call::Sample => simulation.sample(&device).is_err(),
            Call::DeviceProcesses => GpuBackend::processes(&simulation, &device).is_err(),
            Call::MigInstances => simulation.partitions(&device).is_err(),
            Call::Details => simulation.details(&device, Groups::all()).is_err(),
            Call::DeviceEvents => simulation.events(Duration::ZERO).is_err(),
            Call::Topology => simulation.topology().is_err(),
            Call::Reset => simulation.reset(&device, &token()).unwrap_err().kind() == ErrorKind::Io,
            Call::Hostname => simulation.hostname() == Err(Absent::Failed),
            Call::SeesHostPids => simulation.sees_host_pids() == Err(Absent::Failed),
            Call::DriverDevices => simulation.driver_devices().is_err(),
            Call::DriverMessages => simulation.driver_messages().is_err(),
            Call::DeviceFiles => simulation.device_files().is_err(),
            Call::Holders => simulation.holders(&[]).is_err(),
            Call::Process => ProcessTable::process(&simulation, Pid(1)).is_err(),
            Call::Processes => ProcessTable::processes(&simulation).is_err(),
            Call::OwnAncestry => simulation.own_ancestry().is_err(),
            Call::Open => simulation.open(Pid(1)).is_err(),
            Call::Info => handle.info().is_err(),
            Call::HeldFiles => handle.held(&[]).is_err(),
            Call::HasExited => handle.has_exited().is_err(),
            Call::Signal => handle.signal(Signal::Term, &token()).is_err(),
            Call::Append => simulation.append("").is_err(),
            Call::MemoryInfo => memory.info().is_err(),
            Call::Reserve => memory.reserve(Bytes(1)).is_err(),
            Call::Release => memory.release(region).is_err(),
            Call::ReserveAddresses => memory.reserve_addresses(Bytes(2 << 20)).is_err(),
            Call::Map => memory.map(other).is_err(),
            Call::Unmap => memory.unmap(part).is_err(),
            Call::ReleaseAddresses => memory.release_addresses(range).is_err(),
            Call::Page => memory.page().is_err(),
            Call::Wall => simulation.wall() == simulation.wall(),
            Call::Monotonic => simulation.monotonic() == simulation.monotonic(),
            Call::Sleep => {
                simulation.sleep(Duration::from_secs(1));
                simulation.elapsed() == Duration::from_secs(1)
            }
        };
        assert!(failed, "{call:?}");
        let made = if matches!(call, Call::Wall | Call::Monotonic) { 2 } else { 1 };
        assert_eq!(simulation.count(call), before + made, "{call:?}");
    }
}

#[test]
fn machine_can_change_between_two_calls() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let old = simulation.open(Pid(18250)).unwrap();
    let mut other = old.info().unwrap();
    other.name = "sshd".into();
    let start = Event::Start(Box::new(gpu_sim::Process::new(other)));
    simulation.inject(Call::Signal, 1, Fault::Meanwhile(Event::Exit(Pid(18250))));
    simulation.inject(Call::Signal, 1, Fault::Meanwhile(start));
    let refused = old.signal(Signal::Kill, &token()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Process(ProcessFault::Gone));
    assert_eq!(ProcessTable::process(&simulation, Pid(18250)).unwrap().name, "sshd");
    assert!(simulation.signals().is_empty());
}

#[test]
fn clones_share_state_and_survive_panics() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let clone = simulation.clone();
    let panicked = std::thread::spawn(move || {
        clone.sleep(Duration::from_secs(1));
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(simulation.elapsed(), Duration::from_secs(1));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let clone = simulation.clone();
            std::thread::spawn(move || {
                for _ in 0..100 {
                    clone.sleep(Duration::from_millis(1));
                    observe(&clone, &clone, &clone);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(simulation.elapsed(), Duration::from_millis(1800));
}

/// Starts the machine that this file describes.
fn start(text: &str) -> Simulation {
    let dir = tempfile::tempdir().unwrap();
    let head = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n";
    std::fs::write(dir.path().join("machine.toml"), format!("{head}{text}")).unwrap();
    Simulation::named(dir.path()).unwrap()
}

#[test]
fn reset_affects_one_device() {
    let both = "memory = [{ gpu = 0, mib = 20 }, { gpu = 1, mib = 30 }]";
    let simulation = start(&format!(
        "[[gpu]]\nindex = 0\nthrough = 1\nmemory_total_mib = 1000\nmemory_leaked_mib = 100\n\
         [[gpu]]\nindex = 2\nfault = 'reset-required'\n\
         [[process]]\npid = 7\nname = 'listed'\ngone = true\n{both}\n\
         [[process]]\npid = 8\nname = 'ending'\nmemory_returns_after_ms = 5000\n{both}\n\
         [[process]]\npid = 9\nname = 'monitor'\nfiles = {{ '/dev/nvidia1' = 'F....' }}\n"
    ));
    simulation.happen(Event::Exit(Pid(8)));
    let device = DeviceId::from_index;
    let used = |gpu| simulation.sample(&device(gpu)).unwrap().memory.used.unwrap().mib();
    let listed = |gpu| GpuBackend::processes(&simulation, &device(gpu)).unwrap().len();
    assert_eq!((used(0), used(1), listed(0), listed(1)), (140, 160, 1, 1));
    let refused = simulation.reset(&device(1), &token()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Device(DeviceFault::InUse), "the monitor has it open");
    simulation.reset(&device(0), &token()).unwrap();
    assert_eq!((used(0), used(1), listed(0), listed(1)), (0, 160, 0, 1));
    assert!(simulation.sample(&device(2)).is_err());
    simulation.reset(&device(2), &token()).unwrap();
    assert!(simulation.sample(&device(2)).is_ok());
    simulation.happen(Event::Exit(Pid(9)));
    simulation.reset(&device(1), &token()).unwrap();
    assert_eq!((used(1), listed(1)), (0, 0));
}

#[test]
fn kernel_module_lists_devices_if_it_is_loaded() {
    for (fault, listed) in [
        ("", 2),
        ("fault = 'version-mismatch'", 2),
        ("fault = 'not-permitted'", 2),
        ("fault = 'no-library'", 0),
        ("fault = 'driver-not-loaded'", 0),
    ] {
        let gpus = "[[gpu]]\nindex = 0\nthrough = 1\nname = 'G'\npersistence = true\n";
        let simulation = start(&format!("[driver]\n{fault}\n{gpus}"));
        let devices = simulation.driver_devices().unwrap();
        assert_eq!(devices.len(), listed, "{fault}");
        for device in devices {
            assert_eq!(device.name, Ok("G".to_owned()));
            assert!(device.id.uuid.is_ok() && device.persistence.is_err(), "nothing else");
        }
    }
}

#[test]
fn holders_are_found_by_device_number() {
    let simulation = start(
        "[[gpu]]\nindex = 0\nthrough = 1\n\
         [[process]]\npid = 7\nname = 'a'\n\
         files = { '/dev/nvidia0' = '....m', '/dev/nvidia1' = 'F....', '/dev/nvidiactl' = 'F...m' }\n",
    );
    let known = simulation.device_files().unwrap();
    let file = |path: &str| known.iter().find(|file| &*file.path == path).unwrap().clone();
    let held = |files: &[gpu_core::DeviceFile]| -> Vec<(String, Vec<u32>)> {
        let scan = simulation.holders(files).unwrap();
        let held = scan.holders.into_iter().flat_map(|holder| {
            assert_eq!((holder.process.pid, holder.through_thread), (Pid(7), None));
            holder.held
        });
        held.map(|file| (file.path.to_string(), file.descriptors)).collect()
    };
    let of = |path: &str, descriptors: &[u32]| (path.to_owned(), descriptors.to_vec());
    // An open file has a descriptor; a file that is only mapped has none.
    let second = file("/dev/nvidia1");
    assert_eq!(held(std::slice::from_ref(&second)), [of("/dev/nvidia1", &[4])]);
    assert_eq!(
        held(&[file("/dev/nvidiactl"), file("/dev/nvidia0")]),
        [of("/dev/nvidiactl", &[5]), of("/dev/nvidia0", &[])],
        "in the order of the request"
    );
    let elsewhere = gpu_core::DeviceFile { path: "/mnt/dev/a".into(), ..second.clone() };
    assert_eq!(
        held(std::slice::from_ref(&elsewhere)),
        [of("/mnt/dev/a", &[4])],
        "a node of a container"
    );
    let unnumbered = gpu_core::DeviceFile { id: Err(Absent::Failed), ..second };
    assert_eq!(held(&[unnumbered]), [of("/dev/nvidia1", &[4])], "by its path");
    assert_eq!(held(&[gpu_core::DeviceFile { id: Err(Absent::Failed), ..elsewhere }]), []);
    assert_eq!(held(&[]), []);
}

#[test]
fn process_state_follows_its_wait_and_its_work() {
    use gpu_core::ProcessState::{Running, Sleeping, Stopped, Uninterruptible, Zombie};
    for (entry, states) in [
        ("", [Sleeping, Sleeping]),
        ("cpu_percent = 1", [Running, Running]),
        ("state = 'stopped'\ncpu_percent = 1", [Stopped, Stopped]),
        ("state = 'uninterruptible'", [Uninterruptible, Uninterruptible]),
        ("on_kill = 'stuck'", [Uninterruptible, Uninterruptible]),
        ("on_kill = { stuck_until_ms = 5000 }", [Uninterruptible, Sleeping]),
        (
            "state = 'uninterruptible'\non_kill = { stuck_until_ms = 5000 }",
            [Uninterruptible, Sleeping],
        ),
        ("state = 'zombie'\non_kill = 'stuck'", [Zombie, Zombie]),
    ] {
        let simulation = start(&format!("[[process]]\npid = 7\nname = 'a'\n{entry}\n"));
        let state = || ProcessTable::process(&simulation, Pid(7)).unwrap().state.unwrap();
        for (millis, expected) in [(0, states[0]), (4999, states[0]), (5000, states[1])] {
            simulation.advance_to(Duration::from_millis(millis));
            assert_eq!(state(), expected, "{entry} at {millis} ms");
        }
    }
}

#[test]
fn ended_process_memory_stays_in_instance_until_returned() {
    let instances = "[{ index = 0, gpu_instance = 1, memory_total_mib = 50, driver_reserve_mib = 2 }, \
                     { index = 1, gpu_instance = 2, memory_total_mib = 50 }]";
    let simulation = start(&format!(
        "[[gpu]]\nindex = 0\nthrough = 1\nmemory_total_mib = 100\nmig_enabled = true\n\
         mig = {instances}\n\
         [[process]]\npid = 7\nname = 'a'\nmemory_returns_after_ms = 500\n\
         memory = [{{ gpu = 0, mib = 8, gpu_instance = 1 }}, {{ gpu = 1, mib = 9, gpu_instance = 2 }}]\n"
    ));
    let used = || -> Vec<u64> {
        let instances = (0..2).map(|gpu| simulation.partitions(&DeviceId::from_index(gpu)));
        instances.flat_map(Result::unwrap).map(|mig| mig.memory.used.unwrap().mib()).collect()
    };
    assert_eq!(used(), [10, 0, 2, 9]);
    simulation.happen(Event::Exit(Pid(7)));
    assert_eq!(used(), [10, 0, 2, 9]);
    simulation.sleep(Duration::from_millis(500));
    assert_eq!(used(), [2, 0, 2, 0]);
}

#[test]
fn device_load_is_the_sum_of_its_processes() {
    let simulation = start(
        "[[gpu]]\nindex = 0\nthrough = 1\nidle_utilization_percent = 5\n\
         [[process]]\npid = 7\nname = 'a'\nmemory = [{ gpu = 0, mib = 0, utilization_percent = 30 }]\n\
         [[process]]\npid = 8\nname = 'b'\nmemory = [{ gpu = 0, mib = 0, utilization_percent = 22 }]\n",
    );
    let load = |gpu: u32| {
        let device = DeviceId::from_index(gpu);
        let memory = simulation.details(&device, Groups::all()).unwrap().activity.unwrap().memory;
        let whole = simulation.sample(&device).unwrap().utilization.unwrap();
        (whole.get(), memory.unwrap().get())
    };
    assert_eq!((load(0), load(1)), ((57, 28), (5, 2)), "half of it goes to memory");
    simulation.happen(Event::Uses(Pid(7), 0, Bytes(0), 90));
    assert_eq!(load(0), (100, 50), "never above the whole");
    simulation.happen(Event::Exit(Pid(7)));
    simulation.happen(Event::Exit(Pid(8)));
    assert_eq!(load(0), (5, 2));
}

#[test]
fn simulation_has_name_recordings_clock_and_journal() {
    let simulation = Simulation::embedded("p100-ghost").unwrap();
    assert_eq!(GpuBackend::origin(&simulation).to_string(), "simulated machine p100-ghost");
    assert_eq!(ProcessTable::origin(&simulation), GpuBackend::origin(&simulation));
    assert!(simulation.description().starts_with("recorded: 15.8 GiB of a P100"));
    assert!(simulation.recording("fuser.txt").unwrap().starts_with(b"    "));
    assert_eq!(simulation.recording("none.txt"), None);
    assert_eq!(simulation.inherited_leases(), []);
    simulation.sleep(Duration::from_millis(1500));
    assert_eq!(simulation.monotonic(), Duration::from_millis(1500));
    simulation.append("a").unwrap();
    simulation.append("b").unwrap();
    assert_eq!(simulation.journal(), ["a", "b"]);
    simulation.inject(Call::Open, 1, Fault::Error(ErrorKind::Io));
    assert_eq!(simulation.open(Pid(1)).err().unwrap().to_string(), "open a process");
    let handle = simulation.open(Pid(100_562)).unwrap();
    handle.signal(Signal::Term, &token()).unwrap();
    simulation.open(Pid(1)).unwrap().signal(Signal::Kill, &token()).unwrap();
    let sent = simulation.signals();
    let seen: Vec<_> =
        sent.iter().map(|sent| (sent.name.as_str(), sent.held_device_file)).collect();
    assert_eq!(seen, [("t2t-decoder", true), ("systemd", false)]);
    assert_eq!((sent[0].at, sent[0].signal), (Duration::from_millis(1500), Signal::Term));
}
