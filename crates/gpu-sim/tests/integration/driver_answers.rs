//! A running machine answers like a driver: with a value, or with a driver's reason.

use gpu_core::{
    Absent, Bytes, DeviceId, DeviceProcess, DeviceProcessKind, ErrorKind, GpuBackend, Group,
    Groups, Pid, observe,
};
use gpu_sim::{Event, Machine, Recording, Seed, Simulation};
use std::time::Duration;

/// Starts a machine with two devices and the processes in `text`.
fn start(text: &str) -> Simulation {
    let dir = tempfile::tempdir().unwrap();
    let head = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 1000\n\
        [[gpu]]\nindex = 1\nmemory_total_mib = 1000\nmig_enabled = true\n\
        mig = [{ index = 0, gpu_instance = 1, compute_instance = 0, memory_total_mib = 500 }]\n";
    std::fs::write(dir.path().join("machine.toml"), format!("{head}{text}")).unwrap();
    Simulation::named(dir.path()).unwrap()
}

fn listed(simulation: &Simulation, gpu: u32) -> Vec<DeviceProcess> {
    GpuBackend::processes(simulation, &DeviceId::from_index(gpu)).unwrap()
}

fn process(pid: u32, memory: &str) -> String {
    format!("[[process]]\npid = {pid}\nname = 'p{pid}'\nmemory = [{memory}]\n")
}

/// The driver's answers, as text.
fn reported(simulation: &Simulation) -> String {
    let inventory = simulation.inventory(Groups::all());
    let topology = simulation.topology().map_err(|error| error.fault());
    let details = inventory.devices.iter().filter_map(|device| device.details.as_ref().ok());
    for details in details {
        let reported = serde_json::to_value(details).unwrap();
        assert_eq!(reported.as_object().unwrap().len(), Group::ALL.len(), "every group is there");
    }
    format!(
        "{}{}",
        serde_json::to_string(&inventory).unwrap(),
        serde_json::to_string(&topology).unwrap()
    )
}

#[test]
fn driver_values_are_never_not_recorded() {
    for machine in gpu_sim::machines() {
        let simulation = Simulation::embedded(machine.name).unwrap();
        let reported = reported(&simulation);
        assert!(!reported.contains("not-recorded"), "{}: {reported}", machine.name);
        // A recording of the machine that omits all optional values.
        let snapshot = observe(&simulation, &simulation, &simulation);
        let mut text = "{\"gpuws_recording\":1,\"anonymous\":false}\n".to_owned().into_bytes();
        for offset in [0, 1000] {
            let snapshot = serde_json::to_string(&snapshot).unwrap();
            let snapshot = snapshot.replace("not-supported", "not-recorded");
            let line = format!("{{\"offset_ms\":{offset},\"snapshot\":{snapshot}}}\n");
            text.extend(line.into_bytes());
        }
        let recording = Recording::read(&text[..]).unwrap();
        let machine = Machine::from_recording("again", recording);
        let again = Simulation::start(machine, Seed(0));
        for seconds in [0, 5] {
            again.advance_to(Duration::from_secs(seconds));
            let reported = self::reported(&again);
            assert!(!reported.contains("not-recorded"), "{}: {reported}", snapshot.origin);
        }
    }
}

#[test]
fn unrecorded_topology_is_not_supported() {
    let simulation = start("");
    let error = simulation.topology().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Field(Absent::NotSupported));
}

#[test]
fn process_list_has_no_names_and_is_sorted_by_pid() {
    let simulation = start(&format!(
        "{}{}",
        process(9, "{ gpu = 0, mib = 1 }"),
        process(
            7,
            "{ gpu = 0, mib = 2 }, { gpu = 1, mib = 3, gpu_instance = 1, compute_instance = 0 }"
        )
    ));
    let seen: Vec<_> = listed(&simulation, 0).iter().map(|p| (p.pid, p.name.clone())).collect();
    let none = Err(Absent::NotSupported);
    assert_eq!(seen, [(Pid(7), none.clone()), (Pid(9), none)]);
    let inside = listed(&simulation, 1);
    assert_eq!((inside[0].gpu_instance, inside[0].compute_instance), (Some(1), Some(0)));
}

#[test]
fn process_with_two_kinds_of_use_is_one_entry() {
    use DeviceProcessKind::{Compute, ComputeAndGraphics, Graphics, Mps};
    for (kinds, expected) in [
        (["compute", "compute"], Compute),
        (["compute", "graphics"], ComputeAndGraphics),
        (["graphics", "compute"], ComputeAndGraphics),
        (["graphics", "compute-and-graphics"], ComputeAndGraphics),
        (["compute", "mps"], Mps),
        (["mps", "graphics"], ComputeAndGraphics),
        (["unknown", "graphics"], Graphics),
    ] {
        let memory = kinds.map(|kind| {
            format!("{{ gpu = 0, mib = 30, kind = '{kind}', utilization_percent = 60 }}")
        });
        let simulation = start(&process(7, &memory.join(", ")));
        let list = listed(&simulation, 0);
        assert_eq!(list.len(), 1, "{kinds:?}");
        assert_eq!(list[0].kind, expected, "{kinds:?}");
        assert_eq!(list[0].memory, Ok(Bytes::from_mib(60)));
        assert_eq!(list[0].utilization.unwrap().get(), 100, "never above the whole");
    }
    let parts = "{ gpu = 0, mib = 1, utilization_percent = 20 }, \
                 { gpu = 0, mib = 2, utilization_percent = 30 }";
    let list = listed(&start(&process(7, parts)), 0);
    assert_eq!((list[0].memory, list[0].utilization.unwrap().get()), (Ok(Bytes::from_mib(3)), 50));
    let apart = start(&process(
        7,
        "{ gpu = 1, mib = 1 }, { gpu = 1, mib = 2, gpu_instance = 1, compute_instance = 0 }",
    ));
    assert_eq!(listed(&apart, 1).len(), 2, "another instance is another entry");
}

#[test]
fn process_utilization_is_reported_only_for_whole_devices() {
    let shares = |simulation: &Simulation, gpu: u32| -> Vec<_> {
        let list = listed(simulation, gpu).into_iter();
        list.map(|process| process.utilization.map(|percent| percent.get())).collect()
    };
    let reported = "{ gpu = 0, mib = 1, utilization_percent = 40 }";
    let unreported = "{ gpu = 0, mib = 1 }";
    let unlisted = "{ gpu = 0, mib = 1, listed = false }";
    let simulation = start(&format!("{}{}", process(7, reported), process(8, unlisted)));
    assert_eq!(shares(&simulation, 0), [Ok(40)], "an unlisted process has no utilisation either");
    let simulation = start(&format!("{}{}", process(7, reported), process(8, unreported)));
    assert_eq!(shares(&simulation, 0), [Err(Absent::NotSupported); 2]);
    simulation.happen(Event::Exit(Pid(8)));
    assert_eq!(shares(&simulation, 0), [Ok(40)]);
    let inside = "{ gpu = 1, mib = 1, utilization_percent = 40, gpu_instance = 1 }";
    assert_eq!(shares(&start(&process(7, inside)), 1), [Err(Absent::NotSupported)]);
}
