//! Groups of details that few ask for: what each costs, and what comes of each.

use crate::stage::Stage;
use gpu_core::*;
use std::collections::BTreeMap;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);
const RARE: [Group; 4] =
    [Group::Inforom, Group::OperationModes, Group::Engines, Group::PowerReadings];

/// Returns how often each function is called by a look at the four devices of a machine.
fn calls(groups: impl IntoIterator<Item = Group>) -> BTreeMap<String, u64> {
    let stage = Stage::of("labbox", Duration::ZERO);
    let nvml = stage.nvml(DEADLINE);
    let look = nvml.look(groups.into_iter().collect());
    assert_eq!(look.devices.iter().filter(|state| state.details.is_ok()).count(), 4);
    drop(nvml);
    stage.calls()
}

#[test]
fn a_group_costs_one_call_for_each_value_of_its_own_and_no_other() {
    let plain = calls([]);
    assert!(!plain.is_empty());
    for (group, own) in RARE.into_iter().zip([
        &["nvmlDeviceGetInforomImageVersion"][..],
        &["nvmlDeviceGetGpuOperationMode"],
        &["nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization"],
        &["nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerManagementMode"],
    ]) {
        let mut expected = plain.clone();
        expected.extend(own.iter().map(|function| ((*function).to_owned(), 4)));
        assert_eq!(expected.len(), plain.len() + own.len(), "{group:?}: it is asked for anyhow");
        assert_eq!(calls([group]), expected, "{group:?}");
    }
}

#[test]
fn what_few_devices_tell_comes_through_and_what_is_absent_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let machine = "description = 'made: a device with every choice, and one with none'\n\
        clock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 100\npower_draw_mw = 250000\n\
        details.product = { compute_capability = [8, 6] }\n\
        details.inforom = { image = 'G001.0000.03.07' }\n\
        details.operation_modes = { current = 'low-double-precision', pending = 'compute' }\n\
        details.engines = { jpeg_percent = 12, ofa_percent = 3 }\n\
        details.power_readings = { managed = false, instant_mw = 241505 }\n\
        [[gpu]]\nindex = 1\nmemory_total_mib = 100\n\
        unsupported = ['power-draw', 'power-limit']\n\
        details.engines = { jpeg_percent = { absent = 'not-permitted' } }\n";
    std::fs::write(folder.path().join("machine.toml"), machine).unwrap();
    let stage = Stage::of(folder.path().to_str().unwrap(), Duration::ZERO);
    let nvml = stage.nvml(DEADLINE);
    let of = |gpu| nvml.details(&DeviceId::from_index(gpu), RARE.into_iter().collect()).unwrap();
    let percent = |share| Percent::new(share).ok_or(Absent::Implausible);
    let told = DeviceDetails {
        inforom: Some(Inforom { image: Ok("G001.0000.03.07".to_owned()) }),
        operation_modes: Some(OperationModes {
            current: Ok(OperationMode::LowDoublePrecision),
            pending: Ok(OperationMode::Compute),
        }),
        engines: Some(Engines { jpeg: percent(12), ofa: percent(3) }),
        power_readings: Some(PowerReadings {
            managed: Ok(false),
            instant: Ok(Milliwatts(241_505)),
            average: Ok(Milliwatts(250_000)),
        }),
        ..DeviceDetails::default()
    };
    assert_eq!(of(0), told);
    let untold = DeviceDetails {
        inforom: Some(Default::default()),
        operation_modes: Some(Default::default()),
        engines: Some(Engines { jpeg: Err(Absent::NotPermitted), ..Default::default() }),
        power_readings: Some(Default::default()),
        ..DeviceDetails::default()
    };
    assert_eq!(of(1), untold);
}
