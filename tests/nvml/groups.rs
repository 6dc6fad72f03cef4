//! Optional groups of details: the cost and the content of each.

use crate::fixture::Fixture;
use gpu_core::*;
use std::collections::BTreeMap;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);

/// A group, and the number of calls of each function per device.
type Cost = (Group, &'static [(&'static str, u64)]);

const RARE: [Cost; 11] = [
    (
        Group::Inforom,
        &[("nvmlDeviceGetInforomImageVersion", 1), ("nvmlDeviceGetInforomVersion", 3)],
    ),
    (Group::GspFirmware, &[("nvmlDeviceGetGspFirmwareMode", 1)]),
    (
        Group::VirtualGpus,
        &[("nvmlGetVgpuDriverCapabilities", 1), ("nvmlDeviceGetVgpuCapabilities", 3)],
    ),
    (Group::ResetStatus, &[("nvmlDeviceGetFieldValues", 1)]),
    (Group::OperationModes, &[("nvmlDeviceGetGpuOperationMode", 1)]),
    (Group::Engines, &[("nvmlDeviceGetJpgUtilization", 1), ("nvmlDeviceGetOfaUtilization", 1)]),
    (
        Group::ApplicationClocks,
        &[("nvmlDeviceGetApplicationsClock", 2), ("nvmlDeviceGetDefaultApplicationsClock", 2)],
    ),
    (
        Group::PowerReadings,
        &[("nvmlDeviceGetFieldValues", 1), ("nvmlDeviceGetPowerManagementMode", 1)],
    ),
    (Group::ProtectedMemory, &[("nvmlDeviceGetConfComputeProtectedMemoryUsage", 1)]),
    (Group::MemoryErrors, &[("nvmlDeviceGetMemoryErrorCounter", 28)]),
    (Group::Fabric, &[("nvmlDeviceGetGpuFabricInfo", 1)]),
];

/// Returns the number of calls of each function for a snapshot of a machine with four devices.
fn calls(groups: impl IntoIterator<Item = Group>) -> BTreeMap<String, u64> {
    let fixture = Fixture::of("labbox", Duration::ZERO);
    let nvml = fixture.nvml(DEADLINE);
    let inventory = nvml.look(groups.into_iter().collect());
    assert_eq!(inventory.devices.iter().filter(|state| state.details.is_ok()).count(), 4);
    drop(nvml);
    fixture.calls()
}

#[test]
fn group_makes_only_its_own_calls() {
    let plain = calls([]);
    assert!(!plain.is_empty());
    for (group, own) in RARE {
        let mut expected = plain.clone();
        expected.extend(own.iter().map(|(function, times)| ((*function).to_owned(), times * 4)));
        assert_eq!(expected.len(), plain.len() + own.len(), "{group:?}: queried twice");
        assert_eq!(calls([group]), expected, "{group:?}");
    }
}

#[test]
fn rare_values_and_absences_are_preserved() {
    let dir = tempfile::tempdir().unwrap();
    let machine = "description = 'made: a device with every choice, and one with none'\n\
        clock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 100\npower_draw_mw = 250000\n\
        details.product = { compute_capability = [8, 6] }\n\
        details.inforom = { image = 'G001.0000.03.07', ecc = '7.16', power = '3.0' }\n\
        details.gsp_firmware = { enabled = true, enabled_by_default = false }\n\
        details.virtual_gpus = { heterogeneous = 1, timeslice_profiles = 1, timeslice_sizes = 0 }\n\
        details.reset_status = { required = false, drain_recommended = true, \
            recovery = 'drain-peers' }\n\
        details.operation_modes = { current = 'low-double-precision', pending = 'compute' }\n\
        details.engines = { jpeg_percent = 12, ofa_percent = 3 }\n\
        details.power_readings = { managed = false, instant_mw = 241505 }\n\
        details.application_clocks = { graphics_mhz = 1, memory_mhz = 2, \
            default_graphics_mhz = 3, default_memory_mhz = 4 }\n\
        details.protected_memory = { total_bytes = 300, used_bytes = 100 }\n\
        details.modes = { ecc = true, addressing = 'hmm' }\n\
        details.memory_errors.corrected = { device_memory = 1, register_file = 2, l1_cache = 3, \
            l2_cache = 4, texture_memory = 5, cbu = 6, sram = 7 }\n\
        details.memory_errors.uncorrected = { device_memory = 8 }\n\
        details.memory_errors.corrected_lifetime = { device_memory = 9 }\n\
        details.memory_errors.uncorrected_lifetime = { device_memory = 10 }\n\
        details.fabric = { state = 'completed', status_code = 9 }\n\
        details.pcie = { generation = 3, device_generation_max = 5 }\n\
        details.thermal = { margin_c = -4 }\n\
        details.activity = { throttle = 4, throttle_supported = 6 }\n\
        [[gpu]]\nindex = 1\nmemory_total_mib = 100\n\
        unsupported = ['power-draw', 'power-limit']\n\
        details.engines = { jpeg_percent = { absent = 'not-permitted' } }\n\
        details.power_readings = { managed = { absent = 'deprecated' } }\n\
        details.virtual_gpus = { heterogeneous = 1 }\n\
        details.activity = { throttle = 4 }\n\
        details.fabric = { state = 'in-progress' }\n";
    std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
    let fixture = Fixture::of(dir.path().to_str().unwrap(), Duration::ZERO);
    let nvml = fixture.nvml(DEADLINE);
    let rare: Groups = RARE.into_iter().map(|(group, _)| group).collect();
    let of = |gpu| nvml.details(&DeviceId::from_index(gpu), rare).unwrap();
    let percent = |share| Percent::new(share).ok_or(Absent::Implausible);
    let reported = DeviceDetails {
        inforom: Some(Inforom {
            image: Ok("G001.0000.03.07".to_owned()),
            oem: Err(Absent::NotSupported),
            ecc: Ok("7.16".to_owned()),
            power: Ok("3.0".to_owned()),
        }),
        gsp_firmware: Some(GspFirmware { enabled: Ok(true), enabled_by_default: Ok(false) }),
        virtual_gpus: Some(VirtualGpus {
            heterogeneous: Ok(1),
            fractional: Err(Absent::NotSupported),
            timeslice_profiles: Ok(1),
            timeslice_sizes: Ok(0),
        }),
        reset_status: Some(ResetStatus {
            required: Ok(false),
            drain_recommended: Ok(true),
            recovery: Ok(RecoveryAction::DrainPeers),
        }),
        application_clocks: Some(ApplicationClocks {
            graphics: Ok(1),
            memory: Ok(2),
            default_graphics: Ok(3),
            default_memory: Ok(4),
        }),
        protected_memory: Some(ProtectedMemory { total: Ok(Bytes(300)), used: Ok(Bytes(100)) }),
        memory_errors: Some(Box::new(MemoryErrors {
            corrected: ErrorsByPlace {
                device_memory: Ok(1),
                register_file: Ok(2),
                l1_cache: Ok(3),
                l2_cache: Ok(4),
                texture_memory: Ok(5),
                cbu: Ok(6),
                sram: Ok(7),
            },
            uncorrected: ErrorsByPlace { device_memory: Ok(8), ..Default::default() },
            corrected_lifetime: ErrorsByPlace { device_memory: Ok(9), ..Default::default() },
            uncorrected_lifetime: ErrorsByPlace { device_memory: Ok(10), ..Default::default() },
        })),
        fabric: Some(Fabric {
            state: Ok(FabricState::Completed),
            status: Ok(9),
            ..Fabric::default()
        }),
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
    assert_eq!(of(0), reported);
    let unreported = DeviceDetails {
        inforom: Some(Default::default()),
        gsp_firmware: Some(Default::default()),
        virtual_gpus: Some(VirtualGpus { heterogeneous: Ok(1), ..Default::default() }),
        reset_status: Some(Default::default()),
        operation_modes: Some(Default::default()),
        application_clocks: Some(Default::default()),
        protected_memory: Some(Default::default()),
        memory_errors: Some(Default::default()),
        fabric: Some(Fabric { state: Ok(FabricState::InProgress), ..Default::default() }),
        engines: Some(Engines { jpeg: Err(Absent::NotPermitted), ..Default::default() }),
        power_readings: Some(PowerReadings {
            managed: Err(Absent::Deprecated),
            ..Default::default()
        }),
        ..DeviceDetails::default()
    };
    assert_eq!(of(1), unreported);

    // The remaining details belong to other groups.
    let more: Groups =
        [Group::Modes, Group::Activity, Group::Thermal, Group::Pcie].into_iter().collect();
    let of = |gpu| nvml.details(&DeviceId::from_index(gpu), more).unwrap();
    let values = |details: &DeviceDetails| {
        (
            details.modes.as_ref().unwrap().addressing,
            details.activity.as_ref().unwrap().throttle_supported,
            details.thermal.as_ref().unwrap().margin,
            details.pcie.as_ref().unwrap().device_generation_max,
        )
    };
    let reported = (Ok(AddressingMode::Hmm), Ok(ThrottleReasons(6)), Ok(Celsius(-4)), Ok(5));
    assert_eq!(values(&of(0)), reported);
    let not = Absent::NotSupported;
    let every = ThrottleReasons::all_named();
    assert_eq!(values(&of(1)), (Err(not), Ok(every), Err(not), Err(not)));
}
