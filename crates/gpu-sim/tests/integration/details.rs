//! Values beyond a sample: from the product, the device's own entry, and derived.

use gpu_core::{
    Absent, ComputeMode, DeviceDetails, DeviceId, GpuBackend, Groups, Link, PeerAccess, Pid,
    RecoveryAction,
};
use gpu_sim::{Event, Machine, Simulation};

fn details(simulation: &Simulation, gpu: u32) -> DeviceDetails {
    simulation.details(&DeviceId::from_index(gpu), Groups::all()).unwrap()
}

fn start(text: &str) -> Simulation {
    let dir = tempfile::tempdir().unwrap();
    let head = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n";
    std::fs::write(dir.path().join("machine.toml"), format!("{head}{text}")).unwrap();
    Simulation::named(dir.path()).unwrap()
}

/// Returns the values in nvidia-smi's table for each device: fan, performance state, ECC, compute
/// mode.
fn printed(table: &str) -> Vec<[String; 4]> {
    let cells = |line: &str, nth: usize| -> Vec<String> {
        let cell = line.split('|').nth(nth).unwrap_or_default();
        cell.split_whitespace().map(str::to_owned).collect()
    };
    let lines: Vec<&str> = table.lines().collect();
    let rows = lines.windows(2).filter(|pair| pair[1].contains("MiB /"));
    rows.map(|pair| {
        let (left, right) = (cells(pair[1], 1), cells(pair[1], 3));
        [left[0].clone(), left[2].clone(), cells(pair[0], 3)[0].clone(), right[1].clone()]
    })
    .collect()
}

#[test]
fn recorded_q_output_gives_machine_health() {
    let h200 = details(&Simulation::embedded("h200-jobs").unwrap(), 0);
    assert_eq!(h200.reset_status.unwrap().recovery, Ok(RecoveryAction::None));
    let health = h200.memory_health.unwrap();
    assert_eq!((health.remapped_corrected, health.remapped_uncorrected), (Ok(1), Ok(0)));
    assert_eq!((health.remapped_pending, health.remapped_failure), (Ok(false), Ok(false)));
    assert_eq!((health.banks_max, health.banks_none), (Ok(3072), Ok(0)));
    assert_eq!(health.sram_threshold_exceeded, Ok(false));
}

#[test]
fn bank_counts_are_described_together() {
    let health = |described: &str| {
        let line = format!("[[gpu]]\nindex = 0\ndetails.memory_health = {{ {described} }}\n");
        details(&start(&line), 0).memory_health.unwrap()
    };
    let some = health("banks_none = 2");
    assert_eq!((some.banks_max, some.banks_low, some.banks_none), (Ok(0), Ok(0), Ok(2)));
    assert_eq!(health("uncorrected = 0").banks_none, Err(Absent::NotSupported));
}

#[test]
fn recorded_machine_matches_its_recording() {
    let mut compared = 0;
    for machine in gpu_sim::machines().iter().filter(|m| m.description.starts_with("recorded")) {
        let recorded = Machine::embedded(machine.name).unwrap();
        let table = String::from_utf8(recorded.recordings["nvidia-smi.txt"].clone()).unwrap();
        let simulation = Simulation::embedded(machine.name).unwrap();
        let rows = printed(&table);
        assert_eq!(rows.len(), recorded.devices.len(), "{}", machine.name);
        for (gpu, [fan, state, ecc, mode]) in rows.iter().enumerate() {
            let mut details = details(&simulation, gpu as u32);
            let modes = details.modes.as_mut().unwrap();
            assert_eq!((mode.as_str(), modes.compute_mode), ("Default", Ok(ComputeMode::Default)));
            let thermal = details.thermal.as_mut().unwrap();
            let fan = fan.strip_suffix('%').and_then(|fan| fan.parse().ok());
            assert_eq!(thermal.fan_speed, fan.ok_or(Absent::NotSupported), "{}", machine.name);
            let activity = details.activity.as_mut().unwrap();
            let state = state.strip_prefix('P').unwrap().parse().unwrap();
            assert_eq!(activity.performance_state, Ok(state), "{}", machine.name);
            let health = details.memory_health.as_mut().unwrap();
            let errors = ecc.parse().ok();
            assert_eq!(health.uncorrected, errors.ok_or(Absent::NotSupported), "{}", machine.name);
            assert_eq!(modes.ecc, errors.map(|_| true).ok_or(Absent::NotSupported));

            // The output of `-q` has more values.
            if recorded.recordings.contains_key("nvidia-smi-q.txt") {
                compared += 1;
                continue;
            }
            // NVML returns these values together with a printed value, so they are present too.
            assert_eq!(modes.ecc_pending, modes.ecc, "{}", machine.name);
            assert!(activity.memory.is_ok(), "{}", machine.name);
            modes.ecc_pending = Err(Absent::NotSupported);
            activity.memory = Err(Absent::NotSupported);
            // All other values are absent.
            modes.compute_mode = Err(Absent::NotSupported);
            modes.ecc = Err(Absent::NotSupported);
            thermal.fan_speed = Err(Absent::NotSupported);
            activity.performance_state = Err(Absent::NotSupported);
            health.uncorrected = Err(Absent::NotSupported);
            let bare = DeviceDetails {
                product: Some(Default::default()),
                modes: Some(Default::default()),
                inforom: Some(Default::default()),
                gsp_firmware: Some(Default::default()),
                virtual_gpus: Some(Default::default()),
                reset_status: Some(Default::default()),
                operation_modes: Some(Default::default()),
                rare_modes: Some(Default::default()),
                activity: Some(Default::default()),
                throttle_times: Some(Default::default()),
                engines: Some(Default::default()),
                clocks: Some(Default::default()),
                application_clocks: Some(Default::default()),
                supported_clocks: Some(Default::default()),
                power: Some(Default::default()),
                power_readings: Some(Default::default()),
                module_power: Some(Default::default()),
                thermal: Some(Default::default()),
                pcie: Some(Default::default()),
                pcie_throughput: Some(Default::default()),
                protected_memory: Some(Default::default()),
                memory_health: Some(Default::default()),
                memory_errors: Some(Default::default()),
                sram_errors: Some(Default::default()),
                nvlinks: Some(Vec::new()),
                fabric: Some(Default::default()),
                platform: Some(Default::default()),
                accounting: Some(Default::default()),
            };
            assert_eq!(details, bare, "{} GPU {gpu}", machine.name);
            compared += 1;
        }
    }
    assert_eq!(compared, 19);
}

#[test]
fn devices_override_product_details() {
    let simulation = start(
        "[product.'G'.details.clocks]\nsm_mhz = 100\nsm_max_mhz = 900\n\
         [product.'G'.details.product]\nserial = '1'\n\
         [product.'G'.busy.clocks]\nsm_mhz = 800\n\
         [[gpu]]\nindex = 0\nname = 'G'\nmemory_total_mib = 100\n\
         [[gpu]]\nindex = 1\nname = 'G'\nmemory_total_mib = 100\n\
         details.clocks = { sm_mhz = 110 }\ndetails.product = { serial = '2' }\n\
         [[gpu]]\nindex = 2\nname = 'H'\nmemory_total_mib = 100\n\
         [[process]]\npid = 7\nname = 'a'\n\
         memory = [{ gpu = 0, mib = 1, utilization_percent = 50 }]\n",
    );
    let reported = |gpu| {
        let details = details(&simulation, gpu);
        let clocks = details.clocks.unwrap();
        (clocks.sm.ok(), clocks.sm_max.ok(), details.product.unwrap().serial.ok())
    };
    assert_eq!(reported(0), (Some(800), Some(900), Some("1".to_owned())), "it is at work");
    assert_eq!(reported(1), (Some(110), Some(900), Some("2".to_owned())));
    assert_eq!(reported(2), (None, None, None));
    simulation.happen(Event::Exit(Pid(7)));
    assert_eq!(reported(0).0, Some(100), "it rests");
}

#[test]
fn derived_details_are_reported() {
    let simulation = Simulation::embedded("labbox").unwrap();
    for gpu in 0..4 {
        let details = details(&simulation, gpu);
        let (modes, power) = (details.modes.unwrap(), details.power.unwrap());
        let device = &simulation.devices().unwrap()[gpu as usize];
        assert_eq!(modes.mig_pending, device.partitioned);
        assert_eq!(modes.ecc_pending, Ok(true));
        assert_eq!(modes.display_attached, Ok(false));
        let sample = simulation.sample(&device.id).unwrap();
        assert_eq!(power.limit, sample.power_limit);
        let readings = details.power_readings.unwrap();
        assert_eq!((readings.managed, readings.instant), (Ok(true), sample.power_draw));
        assert_eq!(
            readings.average,
            Err(Absent::NotSupported),
            "an A100 reports the instantaneous draw"
        );
    }
    let states: Vec<_> =
        (0..4).map(|gpu| details(&simulation, gpu).clocks.unwrap().sm.unwrap()).collect();
    assert_eq!(states, [1410, 210, 210, 210], "only the first is at work");
}

#[test]
fn nvlinks_match_topology() {
    let mut links = 0;
    for machine in gpu_sim::machines() {
        let simulation = Simulation::embedded(machine.name).unwrap();
        let Ok(topology) = simulation.topology() else { continue };
        let devices = simulation.devices().unwrap();
        assert_eq!(topology.links.len(), devices.len(), "{}", machine.name);
        for (i, device) in devices.iter().enumerate() {
            let Ok(details) = simulation.details(&device.id, Groups::all()) else { continue };
            let own = details.nvlinks.unwrap();
            let buses: Vec<_> = devices.iter().map(|other| other.id.bus).collect();
            // Through switches, each of these links reaches every device with a spare link.
            let to_switches = |links: &[gpu_core::NvLink]| {
                links.iter().filter(|link| !buses.contains(&link.remote)).count()
            };
            let switched = to_switches(&own);
            assert!(switched == 0 || switched == own.len(), "{}", machine.name);
            for (j, other) in devices.iter().enumerate() {
                let to_other = own.iter().filter(|link| link.remote == other.id.bus).count();
                let expected = match topology.links[i][j] {
                    Link::NvLink(count) => usize::from(count),
                    _ => 0,
                };
                let others = simulation.details(&other.id, Groups::all());
                let others = others.ok().and_then(|details| details.nvlinks);
                let through = match others {
                    Some(links) if i != j => switched.min(to_switches(&links)),
                    _ => 0,
                };
                assert_eq!(to_other + through, expected, "{} {i} {j}", machine.name);
                assert_eq!(topology.links[i][j], topology.links[j][i], "{}", machine.name);
                let same = topology.links[i][j] == Link::Itself;
                assert_eq!(i == j, same, "{}", machine.name);
                assert_eq!(topology.peers[i][j] == PeerAccess::Itself, same, "{}", machine.name);
            }
            links += own.len();
            let version = match details.product.unwrap().architecture.as_deref() {
                Ok("Pascal") => Ok(1),
                Ok("Volta" | "Turing") => Ok(2),
                Ok("Ampere") => Ok(3),
                Ok("Hopper") => Ok(4),
                _ => Err(Absent::NotSupported),
            };
            assert!(own.iter().all(|link| link.version == version), "{}", machine.name);
        }
    }
    assert!(links >= 96, "{links}");
}

#[test]
fn peer_access_follows_topology_unless_set() {
    use PeerAccess::{Disabled, Itself, Ok as Reaches, TopologyNotSupported};
    let gpus = "[[gpu]]\nindex = 0\n[[gpu]]\nindex = 1\n[[gpu]]\nindex = 2\n";
    let topology = "topology = ['X PHB SYS', 'PHB X NODE', 'SYS NODE X']\n";
    let derived = start(&format!("{topology}{gpus}")).topology().unwrap();
    assert_eq!(
        derived.peers,
        [
            [Itself, Reaches, TopologyNotSupported],
            [Reaches, Itself, TopologyNotSupported],
            [TopologyNotSupported, TopologyNotSupported, Itself],
        ]
    );
    let reported = "peers = ['X DR OK', 'DR X OK', 'OK OK X']\n";
    let reported = start(&format!("{topology}{reported}{gpus}")).topology().unwrap();
    assert_eq!(reported.peers[0], [Itself, Disabled, Reaches]);
    let lone = start("[[gpu]]\nindex = 0\n").topology().unwrap();
    assert_eq!((lone.links, lone.peers), (vec![vec![Link::Itself]], vec![vec![Itself]]));
}

#[test]
fn pcie_paths_follow_topology_unless_set() {
    use Link::{Itself, Node, NvLink, Phb, Pix, Sys};
    let gpus = "[[gpu]]\nindex = 0\n[[gpu]]\nindex = 1\n[[gpu]]\nindex = 2\n";
    let topology = "topology = ['X NV2 NODE', 'NV2 X PHB', 'NODE PHB X']\n";
    let derived = start(&format!("{topology}{gpus}")).topology().unwrap();
    assert_eq!(derived.paths, [[Itself, Sys, Node], [Sys, Itself, Phb], [Node, Phb, Itself]]);
    let reported = "paths = ['X PIX NODE', 'PIX X PHB', 'NODE PHB X']\n";
    let reported = start(&format!("{topology}{reported}{gpus}")).topology().unwrap();
    assert_eq!((reported.links[0][1], reported.paths[0][1]), (NvLink(2), Pix));
    assert_eq!((reported.score(0, 1), derived.score(0, 1)), (250, 210));
    let lone = start("[[gpu]]\nindex = 0\n").topology().unwrap();
    assert_eq!(lone.paths, [[Itself]]);
}

#[test]
fn accounting_records_outlive_processes() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let accounts = || {
        let kept = details(&simulation, 0).accounting.unwrap().processes.unwrap();
        kept.into_iter().map(|p| (p.pid.unwrap().0, p.running.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(accounts(), [(20_911, false), (21_044, true)]);
    simulation.happen(Event::Exit(Pid(21_044)));
    assert_eq!(accounts(), [(20_911, false), (21_044, false)]);
    assert_eq!(details(&simulation, 1).accounting.unwrap().processes, Ok(vec![]));
}

#[test]
fn power_draw_is_average_from_ampere_on() {
    for (capability, averages) in [
        ("", false),
        ("compute_capability = [7, 5]", false),
        ("compute_capability = [8, 0]", false),
        ("compute_capability = [8, 6]", true),
        ("compute_capability = [9, 0]", true),
    ] {
        let simulation = start(&format!(
            "[[gpu]]\nindex = 0\npower_draw_mw = 70\npower_limit_mw = 90\n\
             [gpu.details.product]\n{capability}\n"
        ));
        let readings = details(&simulation, 0).power_readings.unwrap();
        assert_eq!(readings.instant.unwrap().0, 70);
        assert_eq!(
            readings.average.map(|draw| draw.0).ok(),
            averages.then_some(70),
            "{capability}"
        );
        assert_eq!(readings.managed, Ok(true));
    }
    let stated =
        "power_draw_mw = 70\ndetails.power_readings = { managed = false, instant_mw = 60 }";
    let readings =
        details(&start(&format!("[[gpu]]\nindex = 0\n{stated}\n")), 0).power_readings.unwrap();
    assert_eq!((readings.managed, readings.instant.unwrap().0), (Ok(false), 60), "as stated");
    let without = start("[[gpu]]\nindex = 0\nunsupported = ['power-limit']\n");
    let readings = details(&without, 0).power_readings.unwrap();
    assert_eq!(readings.managed, Err(Absent::NotSupported), "it has no limit");
}
