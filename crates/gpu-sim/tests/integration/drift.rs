//! Values of busy devices drift with time, identically for every reader.

use gpu_core::{DeviceState, GpuBackend, Groups, Inventory};
use gpu_sim::{Event, Machine, Seed, Simulation};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

fn start(name: &str, seed: u64) -> Simulation {
    Simulation::start(Machine::embedded(name).unwrap(), Seed(seed))
}

fn inventory_at(simulation: &Simulation, millis: u64) -> Inventory {
    simulation.advance_to(Duration::from_millis(millis));
    simulation.inventory(Groups::all())
}

/// The drifting values of one device: utilisation, temperature, power, clock, fan, traffic.
fn moving(device: &DeviceState) -> [Option<u64>; 6] {
    let sample = device.sample.as_ref().unwrap();
    let details = device.details.as_ref().unwrap();
    [
        sample.utilization.ok().map(|percent| u64::from(percent.get())),
        sample.temperature.ok().map(|degrees| degrees.0 as u64),
        sample.power_draw.ok().map(|power| power.0),
        details.clocks.as_ref().unwrap().sm.ok().map(u64::from),
        details.thermal.as_ref().unwrap().fan_speed.ok().map(u64::from),
        details.pcie_throughput.as_ref().unwrap().received.ok().map(u64::from),
    ]
}

fn energy(device: &DeviceState) -> Option<u64> {
    device.details.as_ref().unwrap().power.as_ref().unwrap().energy.ok()
}

#[test]
fn readings_match_description_first_then_change_each_second() {
    for machine in gpu_sim::machines() {
        let simulation = start(machine.name, 3);
        for second in [0, 1, 2, 59, 3600] {
            let early = inventory_at(&simulation, second * 1000);
            assert_eq!(early, inventory_at(&simulation, second * 1000 + 999), "{}", machine.name);
        }
        let other = start(machine.name, 4);
        let first = inventory_at(&start(machine.name, 3), 0);
        assert_eq!(first, inventory_at(&other, 999), "{}: whatever the seed", machine.name);
    }
}

#[test]
fn readings_drift_only_on_busy_device() {
    let simulation = start("labbox", 0);
    let first = inventory_at(&simulation, 0);
    let mut seen: [BTreeSet<Option<u64>>; 6] = Default::default();
    let mut before = energy(&first.devices[0]).unwrap();
    for second in 1..60 {
        let now = inventory_at(&simulation, second * 1000);
        for (values, value) in seen.iter_mut().zip(moving(&now.devices[0])) {
            values.insert(value);
        }
        let used = energy(&now.devices[0]).unwrap();
        assert_eq!(used - before, 312_000, "joules are watts and seconds");
        before = used;
        for (rests, described) in now.devices.iter().zip(&first.devices).skip(1) {
            assert_eq!(moving(rests), moving(described));
        }
        let device = &now.devices[0];
        let shares = device.processes.as_ref().unwrap();
        let utilization = device.sample.as_ref().unwrap().utilization;
        assert_eq!(shares[0].utilization, utilization, "it alone is at work");
    }
    let distinct = seen.map(|values| values.len());
    assert!(distinct[0] >= 4 && distinct[1] >= 4 && distinct[2] >= 20, "{distinct:?}");
    assert!(distinct[3] >= 4 && distinct[4] == 1 && distinct[5] >= 20, "{distinct:?}: no fan");
    let other = start("lost-gpu", 0);
    let fan = |second: u64| moving(&inventory_at(&other, second * 1000).devices[0])[4];
    let fans: BTreeSet<_> = (1..60).map(fan).collect();
    assert!(fans.len() >= 4, "{fans:?}");

    simulation.happen(Event::Exit(gpu_core::Pid(21_044)));
    let ended = inventory_at(&simulation, 100_000);
    assert_eq!(moving(&ended.devices[0])[0], Some(0));
    assert_eq!(moving(&ended.devices[0])[3], Some(210), "its clocks fall");
}

#[test]
fn drift_depends_on_seed_and_device() {
    let readings = |seed: u64, device: usize| -> Vec<_> {
        let simulation = start("healthy-box", seed);
        (1..30).map(|s| moving(&inventory_at(&simulation, s * 1000).devices[device])[0]).collect()
    };
    assert_eq!(readings(1, 0), readings(1, 0));
    assert_ne!(readings(1, 0), readings(2, 0));
    assert_ne!(readings(1, 0), readings(1, 3));
}

/// Programs of different versions can read the same session.
#[test]
fn drift_of_a_seed_never_changes() {
    let simulation = start("labbox", 7);
    let values_over_time: Vec<String> = [1, 2, 3, 60, 3600]
        .map(|second| {
            let inventory = inventory_at(&simulation, second * 1000);
            let values =
                moving(&inventory.devices[0]).map(|value| value.unwrap_or_default().to_string());
            let details = inventory.devices[0].details.as_ref().unwrap();
            let activity = details.activity.as_ref().unwrap().memory.unwrap().get();
            format!("{second}: {} {activity}", values.join(" "))
        })
        .into();
    assert_eq!(
        values_over_time,
        [
            "1: 96 56 320112 1365 0 1204780 44",
            "2: 97 54 307320 1350 0 1279120 46",
            "3: 98 54 313560 1380 0 1432520 48",
            "60: 95 52 304200 1380 0 1358180 45",
            "3600: 100 56 317616 1365 0 1158760 43",
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn drifting_readings_stay_within_limits(seed: u64, second in 0u64..4_000_000) {
        for machine in gpu_sim::machines() {
            let simulation = start(machine.name, seed);
            let first = inventory_at(&simulation, 0);
            let now = inventory_at(&simulation, second * 1000);
            for (device, described) in now.devices.iter().zip(&first.devices) {
                let (Ok(sample), Ok(before)) = (&device.sample, &described.sample) else { continue };
                if let (Ok(now), Ok(before)) = (sample.utilization, before.utilization) {
                    prop_assert_eq!(now.get() == 0, before.get() == 0, "{}", machine.name);
                    prop_assert!(now.get().abs_diff(before.get()) <= 4);
                }
                if let (Ok(now), Ok(before)) = (sample.temperature, before.temperature) {
                    prop_assert!(now.0.abs_diff(before.0) <= 2);
                }
                if let (Ok(draw), Ok(limit)) = (sample.power_draw, sample.power_limit) {
                    let recorded = before.power_draw.unwrap();
                    prop_assert!(draw <= limit || draw == recorded, "{}", machine.name);
                }
                let details = device.details.as_ref().unwrap();
                let readings = details.power_readings.as_ref().unwrap();
                for same in [readings.instant, readings.average] {
                    prop_assert!(same.is_err() || same == sample.power_draw, "{}", machine.name);
                }
                let clocks = details.clocks.as_ref().unwrap();
                if let (Ok(sm), Ok(most)) = (clocks.sm, clocks.sm_max) {
                    prop_assert!(0 < sm && sm <= most);
                    prop_assert_eq!(clocks.sm, clocks.graphics);
                }
                let fan = details.thermal.as_ref().unwrap().fan_speed;
                prop_assert!(fan.is_err() || fan.unwrap() <= 100);
                prop_assert!(energy(device) >= energy(described));
                let shares = device.processes.as_deref().unwrap_or_default();
                let old = described.processes.as_deref().unwrap_or_default();
                let total = sample.utilization;
                prop_assert_eq!(device.processes.is_ok(), described.processes.is_ok());
                for (share, old) in shares.iter().zip(old) {
                    let (Ok(share), Ok(old)) = (share.utilization, old.utilization) else { continue };
                    prop_assert_eq!(share.get() == 0, old.get() == 0);
                    prop_assert!(share <= total.unwrap());
                }
            }
        }
    }
}
