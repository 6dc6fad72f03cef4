//! Each embedded machine shows its scenario.

use gpu_core::{
    Absent, ActToken, Bytes, Clock, GpuBackend, Pid, ProcessTable, Signal, Snapshot, observe,
};
use gpu_sim::{Machine, Simulation};
use std::path::Path;
use std::time::Duration;

fn start(name: &str) -> Simulation {
    Simulation::embedded(name).unwrap_or_else(|error| panic!("failed to {}", error.fault().text))
}

fn take_snapshot(simulation: &Simulation) -> Snapshot {
    observe(simulation, simulation, simulation)
}

fn used_mib(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.devices.iter().map(|device| device.memory_used().unwrap().mib()).collect()
}

#[test]
fn p100_ghost_memory_is_freed_after_sigkill() {
    let simulation = start("p100-ghost");
    let before = take_snapshot(&simulation);
    let device = &before.devices[0];
    assert_eq!(device.memory_used().unwrap(), Bytes::from_mib(15_849));
    assert_eq!(device.memory_total().unwrap(), Bytes::from_mib(16_280));
    assert_eq!(device.processes, Ok(vec![]));
    assert_eq!(device.sample.as_ref().unwrap().utilization.unwrap().get(), 87);
    assert_eq!(before.driver.as_ref().unwrap().version, Ok("418.87.00".to_owned()));
    let holders: Vec<_> = before
        .holders()
        .iter()
        .map(|h| {
            (before.process(h.process.pid).unwrap().name.as_str(), h.may_use_memory_of(device.id()))
        })
        .collect();
    assert_eq!(holders, [("argusagent", false), ("t2t-decoder", true)]);

    let token = ActToken::user_confirmed();
    assert!(simulation.reset(device.id(), &token).is_err());
    let handle = simulation.open(Pid(100_562)).unwrap();
    handle.signal(Signal::Term, &token).unwrap();
    simulation.sleep(Duration::from_secs(10));
    assert!(!handle.has_exited().unwrap());
    handle.signal(Signal::Kill, &token).unwrap();
    simulation.sleep(Duration::from_millis(200));
    assert!(handle.has_exited().unwrap());
    assert_eq!(used_mib(&take_snapshot(&simulation)), [15_849]);
    simulation.sleep(Duration::from_millis(400));
    let after = take_snapshot(&simulation);
    assert_eq!(used_mib(&after), [25]);
    assert_eq!(after.devices[0].sample.as_ref().unwrap().utilization.unwrap().get(), 0);
    assert_eq!(after.holders().len(), 1, "the monitor is still there");
    assert_eq!(simulation.signals().len(), 2);
}

/// The number of NVLinks per product in NVIDIA's data sheets.
#[test]
fn no_machine_has_more_nvlinks_than_its_product() {
    let products =
        [("P100-SXM2", 4), ("V100-SXM2", 6), ("A100-SXM4", 12), ("H100", 18), ("H200", 18)];
    let mut compared = 0;
    for machine in gpu_sim::machines() {
        let simulation = start(machine.name);
        let groups = gpu_core::Groups::all();
        let observation = gpu_core::Observation { groups, ..gpu_core::Observation::default() };
        let now = gpu_core::observe_in_detail(&simulation, &simulation, &simulation, observation);
        for device in &now.devices {
            let name = device.info.name.as_deref().unwrap_or_default();
            let most = products.iter().find(|(product, _)| name.contains(product));
            let links = device.details.as_ref().ok().and_then(|details| details.nvlinks.as_ref());
            let (Some((_, most)), Some(links)) = (most, links) else { continue };
            assert!(links.len() <= *most, "{} has {} of {most}", machine.name, links.len());
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn hoarder_computes_only_on_first_of_eight_gpus() {
    let simulation = start("gtx1080ti-x8-hoarder");
    let before = take_snapshot(&simulation);
    assert_eq!(used_mib(&before)[..2], [10_803, 10_631]);
    assert_eq!(before.devices.len(), 8);
    let loads: Vec<u8> = before
        .devices
        .iter()
        .map(|device| device.sample.as_ref().unwrap().utilization.unwrap().get())
        .collect();
    assert_eq!(loads, [97, 0, 0, 0, 0, 0, 0, 0]);
    let holder = &before.holders()[0];
    assert_eq!(holder.process.pid, Pid(45_479));
    assert!(before.devices.iter().all(|device| holder.has_device(device.id())));
    let process = &before.devices[3].processes.as_ref().unwrap()[0];
    assert_eq!(process.utilization, Err(Absent::NotSupported), "one snapshot does not show it");
    simulation
        .open(Pid(45_479))
        .unwrap()
        .signal(Signal::Term, &ActToken::user_confirmed())
        .unwrap();
    simulation.sleep(Duration::from_secs(5));
    assert_eq!(used_mib(&take_snapshot(&simulation)), [12; 8]);
}

#[test]
fn ending_one_of_two_jobs_frees_its_memory() {
    let simulation = start("gtx1080ti-x8-kill");
    let before = take_snapshot(&simulation);
    assert_eq!(used_mib(&before), [0, 10_775, 0, 0, 0, 0, 253, 0]);
    let line = before.process(Pid(20_187)).unwrap().command_line.clone().unwrap();
    assert_eq!(line[1], "new_age_test.py");
    simulation
        .open(Pid(20_187))
        .unwrap()
        .signal(Signal::Kill, &ActToken::user_confirmed())
        .unwrap();
    simulation.sleep(Duration::from_secs(5));
    assert_eq!(used_mib(&take_snapshot(&simulation)), [0, 10_775, 0, 0, 0, 0, 10, 0]);
}

#[test]
fn k80_reserves_eleven_mib() {
    let before = take_snapshot(&start("k80-single"));
    assert_eq!(used_mib(&before), [2259]);
    assert_eq!(before.devices[0].memory_listed(), Some(Bytes::from_mib(2248)));
    assert_eq!(before.driver.unwrap().version, Err(Absent::NotSupported), "it was not recorded");
}

#[test]
fn gb10_reports_memory_only_per_process() {
    let before = take_snapshot(&start("gb10-unified"));
    let device = &before.devices[0];
    let reported = device.sample.as_ref().unwrap().memory;
    assert_eq!(reported.total, Err(Absent::NotSupported));
    assert_eq!(reported.used, Err(Absent::NotSupported));
    assert_eq!(device.memory_total(), Ok(Bytes(127_600_748 << 10)));
    assert_eq!(device.memory_used(), Err(Absent::NotSupported));
    assert_eq!(device.memory_listed(), Some(Bytes::from_mib(43 + 41_472 + 22_528)));
    assert_eq!(device.sample.as_ref().unwrap().utilization.unwrap().get(), 94);
}

#[test]
fn embedded_machines_match_fixture_dirs() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines");
    let mut names: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let embedded: Vec<&str> = gpu_sim::machines().iter().map(|machine| machine.name).collect();
    assert_eq!(embedded, names);
    for name in names {
        let machine = Machine::from_dir(&dir.join(&name)).unwrap();
        assert_eq!(machine, Machine::embedded(&name).unwrap());
        let made = machine.description.starts_with("made: ");
        let recorded = machine.description.starts_with("recorded: ");
        assert!(made || recorded, "{name}: {}", machine.description);
        assert_eq!(recorded, machine.recordings.contains_key("nvidia-smi.txt"), "{name}");
    }
}

#[test]
fn machines_are_described_and_name_no_real_person() {
    let users = [
        "root", "admin", "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi",
        "ivan", "judy", "mallory", "niaj", "serving", "triton", "user1", "user2", "user1000",
        "vllm",
    ];
    for machine in gpu_sim::machines() {
        let simulation = start(machine.name);
        for process in ProcessTable::processes(&simulation).unwrap().processes {
            let user = process.user.unwrap();
            assert!(users.contains(&user.as_str()), "{}: {user}", machine.name);
        }
    }
}
