//! Machines of any size, created by name.

use gpu_core::{
    Bytes, DeviceProcess, ErrorKind, GpuBackend, Groups, Observation, Pid, ProcessTable,
    observe_in_detail,
};
use gpu_sim::{Event, Machine, Simulation};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn crowd_is_deterministic_by_name() {
    let made = Machine::crowd(64, 32).unwrap();
    assert_eq!(made, Machine::named(Path::new("crowd:64x32")).unwrap());
    assert_eq!((made.devices.len(), made.processes.len()), (64, 2048));
    assert_ne!(made, Machine::crowd(64, 31).unwrap());
    for (wrong, why) in [
        ("crowd:0x1", "a crowd requires 1 to 64 GPUs and at most 256 processes on each"),
        ("crowd:65x1", "a crowd requires 1 to 64 GPUs and at most 256 processes on each"),
        ("crowd:1x257", "a crowd requires 1 to 64 GPUs and at most 256 processes on each"),
        ("crowd:", "expected crowd:GPUSxPROCESSES, e.g. 'crowd:8x32'"),
        ("crowd:8", "expected crowd:GPUSxPROCESSES, e.g. 'crowd:8x32'"),
        ("crowd:-8x1", "expected crowd:GPUSxPROCESSES, e.g. 'crowd:8x32'"),
        ("crowd:99999999999x1", "expected crowd:GPUSxPROCESSES, e.g. 'crowd:8x32'"),
    ] {
        let error = Machine::named(Path::new(wrong)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.fault().text, format!("generate machine '{wrong}': {why}"));
    }
    let error = Machine::named(Path::new("./crowd:1x1")).unwrap_err();
    assert!(error.fault().text.starts_with("find machine './crowd:1x1'"), "that is a path");
}

#[test]
fn crowd_process_is_found_by_pid_until_it_exits() {
    let simulation = Simulation::named(Path::new("crowd:4x8")).unwrap();
    let devices = simulation.devices().unwrap();
    for (gpu, device) in devices.iter().enumerate() {
        let listed = GpuBackend::processes(&simulation, &device.id).unwrap();
        assert_eq!(listed.len(), 8);
        let before = simulation.sample(&device.id).unwrap().memory.used.unwrap();
        for (gone, process) in listed.iter().enumerate() {
            let info = ProcessTable::process(&simulation, process.pid).unwrap();
            assert_eq!(info.key.pid, process.pid);
            simulation.happen(Event::Exit(process.pid));
            assert!(ProcessTable::process(&simulation, process.pid).is_err());
            let left = GpuBackend::processes(&simulation, &device.id).unwrap();
            let pids = |list: &[DeviceProcess]| list.iter().map(|p| p.pid).collect::<Vec<_>>();
            assert_eq!(pids(&left), pids(&listed[gone + 1..]), "GPU {gpu}");
        }
        simulation.advance_to(simulation.elapsed() + std::time::Duration::from_secs(1));
        let after = simulation.sample(&device.id).unwrap().memory.used.unwrap();
        assert!(before > after && after == Bytes::from_mib(4));
    }
}

/// Benchmark results of different years must be comparable.
#[test]
fn crowd_never_changes() {
    let machine = Machine::crowd(9, 3).unwrap();
    assert_eq!(machine.clock.0 - machine.booted.0, 40 * 86_400_000);
    let shown = |process: &gpu_sim::Process| {
        let info = &process.info;
        let holding = &process.holdings[0];
        format!(
            "GPU {} {} {} {} ({}) {} MiB {} % of {} % CPU, {} s",
            holding.device,
            info.key.pid,
            info.name,
            info.user.as_ref().unwrap(),
            info.uid.unwrap(),
            holding.memory.mib(),
            holding.load,
            process.cpu_percent,
            machine.clock.since(info.started_at.unwrap()).as_secs(),
        )
    };
    let some: Vec<String> = machine.processes.iter().skip(21).map(shown).collect();
    assert_eq!(
        some,
        [
            "GPU 7 5792 simulate carol (1003) 456 MiB 44 % of 100 % CPU, 1430845 s",
            "GPU 7 5793 python alice (1001) 744 MiB 15 % of 100 % CPU, 304576 s",
            "GPU 7 5794 python alice (1001) 166 MiB 41 % of 100 % CPU, 1323502 s",
            "GPU 8 6048 python bob (1002) 299 MiB 7 % of 100 % CPU, 1598499 s",
            "GPU 8 6049 python carol (1003) 389 MiB 64 % of 100 % CPU, 1924826 s",
            "GPU 8 6050 python bob (1002) 468 MiB 7 % of 100 % CPU, 672679 s",
        ]
    );
    let devices: Vec<_> = machine
        .devices
        .iter()
        .skip(7)
        .map(|device| {
            let bus = device.info.id.bus.unwrap();
            (bus.domain, bus.bus, device.temperature.unwrap().0, device.power_draw.unwrap().0)
        })
        .collect();
    assert_eq!(devices, [(0, 119, 70, 380_000), (1, 7, 61, 309_600)]);
}

#[test]
fn processes_of_a_full_crowd_fit_its_device() {
    let machine = Machine::crowd(1, 256).unwrap();
    let memory = machine.processes.iter().map(|process| process.holdings[0].memory.mib());
    // 81,916 MiB are free, a share of 319 per process.
    let (least, most) = (memory.clone().min().unwrap(), memory.max().unwrap());
    assert!(least >= 100 && (300..=319).contains(&most), "{least} {most}");
}

#[test]
fn nvlinks_connect_boards_of_four_and_islands_of_eight() {
    use gpu_core::Link::{Itself, NvLink, Sys};
    let topology = Simulation::named(Path::new("crowd:17x0")).unwrap().topology().unwrap();
    for (from, row) in topology.links.iter().enumerate() {
        for (to, link) in row.iter().enumerate() {
            let expected = match (from.abs_diff(to), from / 4 == to / 4, from / 8 == to / 8) {
                (0, ..) => Itself,
                (_, true, _) => NvLink(2),
                (_, _, true) => NvLink(1),
                _ => Sys,
            };
            assert_eq!(*link, expected, "{from} {to}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn crowd_fits_its_machine(gpus in 1u32..=64, each in prop_oneof![0u32..=40, Just(256u32)]) {
        let machine = Machine::crowd(gpus, each).unwrap();
        let pids: BTreeSet<Pid> = machine.processes.iter().map(|process| process.pid()).collect();
        prop_assert_eq!(pids.len() as u32, gpus * each, "each has a number of its own");
        let simulation = Simulation::start(machine, gpu_sim::Seed(0));
        let all = Observation { groups: Groups::all(), ..Observation::default() };
        let snapshot = observe_in_detail(&simulation, &simulation, &simulation, all);
        let names: BTreeSet<_> = snapshot.devices.iter().map(|d| d.info.id.bus.unwrap()).collect();
        prop_assert_eq!(names.len() as u32, gpus);
        for device in &snapshot.devices {
            let listed = device.processes.as_ref().unwrap();
            prop_assert_eq!(listed.len() as u32, each);
            prop_assert_eq!(
                device.memory_used().unwrap(),
                device.memory_listed().unwrap() + Bytes::from_mib(4)
            );
            prop_assert!(device.memory_used() < device.memory_total());
            let shares = listed.iter().map(|p| u64::from(p.utilization.unwrap().get()));
            let busy = device.sample.as_ref().unwrap().utilization.unwrap().get();
            prop_assert_eq!(shares.sum::<u64>(), u64::from(busy));
            for process in listed {
                prop_assert!((100..=900).contains(&process.memory.unwrap().mib()));
                let info = snapshot.process(process.pid).unwrap();
                prop_assert!(info.user.is_ok() && !info.command_line.as_ref().unwrap().is_empty());
            }
            let links = device.details.as_ref().unwrap().nvlinks.as_ref().unwrap();
            prop_assert!(links.len() <= 12 && (gpus == 1 || !links.is_empty()) || gpus % 8 == 1);
        }
        prop_assert_eq!(snapshot.holders().len() as u32, gpus * each);
    }
}
