//! Optional groups of details: the cost and the content of each.

use crate::fixture::Fixture;
use gpu_core::*;
use std::collections::BTreeMap;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);

/// A group, and the number of calls of each function per device.
type Cost = (Group, &'static [(&'static str, u64)]);

const RARE: [Cost; 17] = [
    (
        Group::Inforom,
        &[
            ("nvmlDeviceGetInforomImageVersion", 1),
            ("nvmlDeviceGetInforomVersion", 3),
            ("nvmlDeviceValidateInforom", 1),
        ],
    ),
    (Group::RareModes, &[("nvmlDeviceGetC2cModeInfoV", 1), ("nvmlDeviceGetDramEncryptionMode", 1)]),
    (Group::ThrottleTimes, &[("nvmlDeviceGetFieldValues", 1)]),
    (Group::SupportedClocks, &[("nvmlDeviceGetSupportedMemoryClocks", 1)]),
    (Group::ModulePower, &[("nvmlDeviceGetFieldValues", 1)]),
    (Group::SramErrors, &[("nvmlDeviceGetSramEccErrorStatus", 1)]),
    (Group::Platform, &[("nvmlDeviceGetPlatformInfo", 1)]),
    (Group::GspFirmware, &[("nvmlDeviceGetGspFirmwareMode", 1)]),
    (
        Group::VirtualGpus,
        &[("nvmlGetVgpuDriverCapabilities", 1), ("nvmlDeviceGetVgpuCapabilities", 6)],
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
    (Group::Fabric, &[("nvmlDeviceGetGpuFabricInfoV", 1)]),
];

/// Returns the number of calls of each function for a snapshot of a machine with four devices.
fn calls(groups: impl IntoIterator<Item = Group>) -> BTreeMap<String, u64> {
    let fixture = Fixture::of("labbox", Duration::ZERO);
    let nvml = fixture.nvml(DEADLINE);
    let inventory = nvml.inventory(groups.into_iter().collect());
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

/// Returns the number of calls of each function in some snapshots of the view, one a second, which
/// read these groups each time.
fn calls_of_view(snapshots: u32, always: Groups) -> BTreeMap<String, u64> {
    let fixture = Fixture::of("labbox", Duration::ZERO);
    let (nvml, machine) = (fixture.nvml(DEADLINE).keep_open(), fixture.simulation());
    let mut observer = Observer::new().with_rare_details();
    observer.read_always(always);
    for _ in 0..snapshots {
        let observation = gpu_top::frame::observation();
        let snapshot = observer.observe(&nvml, &machine, &machine, observation);
        assert!(snapshot.devices.iter().all(|device| device.details.is_ok()));
        machine.sleep(Duration::from_secs(1));
    }
    drop(nvml);
    fixture.calls()
}

#[test]
fn second_lines_of_the_view_cost_no_call_until_they_are_shown() {
    let plain = calls([]);
    let (few, more) = (calls_of_view(2, Groups::NONE), calls_of_view(5, Groups::NONE));
    for (function, count) in &more {
        match plain.get(function) {
            // Once more than there are snapshots, as a list of processes is read again if it grew.
            Some(each) => assert!(*count <= each * 6, "{function}: {count} calls"),
            // Details that are queried rarely.
            None => assert_eq!(Some(count), few.get(function), "{function}"),
        }
    }
    let shown = calls_of_view(5, gpu_top::more::groups());
    // It does not wait for a measurement.
    assert_eq!(shown.get("nvmlDeviceGetPcieThroughput"), None);
    for (function, times) in [
        ("nvmlDeviceGetClockInfo", 4),
        ("nvmlDeviceGetEncoderUtilization", 1),
        ("nvmlDeviceGetDecoderUtilization", 1),
        ("nvmlDeviceGetFanSpeed", 1),
    ] {
        assert_eq!(more.get(function), None, "{function}");
        // Four devices, five snapshots; the end of the child may hide the last calls.
        let count = shown.get(function).copied().unwrap_or(0);
        assert!((times * 4 * 4..=times * 4 * 5).contains(&count), "{function}: {count} calls");
    }
}

#[test]
fn rare_values_and_absences_are_preserved() {
    let dir = tempfile::tempdir().unwrap();
    let machine = "description = 'made: a device with every choice, and one with none'\n\
        clock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 100\npower_draw_mw = 250000\n\
        details.product = { compute_capability = [8, 6] }\n\
        details.inforom = { image = 'G001.0000.03.07', ecc = '7.16', power = '3.0', \
            valid = false }\n\
        details.gsp_firmware = { enabled = true, enabled_by_default = false }\n\
        details.virtual_gpus = { heterogeneous = 1, timeslice_profiles = 1, \
            timeslice_sizes = 0, homogeneous_placements = 2, mig_timeslicing = 3, \
            mig_timeslicing_enabled = 4 }\n\
        details.rare_modes = { c2c = true, memory_encryption = false, \
            memory_encryption_pending = true }\n\
        details.throttle_times = { software_power_cap_ns = 1, sync_boost_ns = 2, \
            software_thermal_ns = 3, hardware_thermal_ns = 4, hardware_power_brake_ns = 5 }\n\
        details.supported_clocks.combinations = [\
            { memory_mhz = 900, graphics_mhz = [210, 105] }, \
            { memory_mhz = 100, graphics_mhz = [105] }]\n\
        details.module_power = { average_mw = 1, instant_mw = 2, limit_mw = 3, \
            enforced_limit_mw = 4, default_limit_mw = 5, limit_min_mw = 6, limit_max_mw = 7 }\n\
        details.sram_errors = { parity = 1, multi_bit = 2, parity_lifetime = 3, \
            multi_bit_lifetime = 4, l2_cache = 5, sm = 6, microcontroller = 7, pcie = 8, \
            other = 9 }\n\
        details.platform = { chassis_serial = 'C-15 characters', slot = 1, tray = 2, \
            host = 3, switched = true, module = 4, fabric_guid = 0x1234 }\n\
        details.reset_status = { required = false, drain_recommended = true, \
            recovery = 'drain-peers' }\n\
        details.operation_modes = { current = 'low-double-precision', pending = 'compute' }\n\
        details.engines = { jpeg_percent = 12, ofa_percent = 3 }\n\
        details.power_readings = { managed = false, instant_mw = 241505, \
            peak_share_percent = 80 }\n\
        details.application_clocks = { graphics_mhz = 1, memory_mhz = 2, \
            default_graphics_mhz = 3, default_memory_mhz = 4 }\n\
        details.protected_memory = { total_bytes = 300, used_bytes = 100 }\n\
        details.modes = { ecc = true, addressing = 'hmm' }\n\
        details.memory_errors.corrected = { device_memory = 1, register_file = 2, l1_cache = 3, \
            l2_cache = 4, texture_memory = 5, cbu = 6, sram = 7 }\n\
        details.memory_errors.uncorrected = { device_memory = 8 }\n\
        details.memory_errors.corrected_lifetime = { device_memory = 9 }\n\
        details.memory_errors.uncorrected_lifetime = { device_memory = 10 }\n\
        details.fabric = { state = 'completed', status_code = 9, clique = 8, \
            cluster = '00112233-4455-6677-8899-aabbccddeeff', health = 'Limited Capacity', \
            bandwidth_degraded = true, route_recovery = false, access_timeout_recovery = true, \
            incorrect_configuration = 'No partition' }\n\
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
            valid: Ok(false),
        }),
        rare_modes: Some(RareModes {
            c2c: Ok(true),
            memory_encryption: Ok(false),
            memory_encryption_pending: Ok(true),
        }),
        throttle_times: Some(ThrottleTimes {
            software_power_cap: Ok(1),
            sync_boost: Ok(2),
            software_thermal: Ok(3),
            hardware_thermal: Ok(4),
            hardware_power_brake: Ok(5),
        }),
        supported_clocks: Some(SupportedClocks {
            combinations: Ok(vec![
                ClockChoice { memory_mhz: 900, graphics_mhz: vec![210, 105] },
                ClockChoice { memory_mhz: 100, graphics_mhz: vec![105] },
            ]),
        }),
        module_power: Some(ModulePower {
            average: Ok(Milliwatts(1)),
            instant: Ok(Milliwatts(2)),
            limit: Ok(Milliwatts(3)),
            enforced_limit: Ok(Milliwatts(4)),
            default_limit: Ok(Milliwatts(5)),
            limit_min: Ok(Milliwatts(6)),
            limit_max: Ok(Milliwatts(7)),
        }),
        sram_errors: Some(SramErrors {
            parity: Ok(1),
            multi_bit: Ok(2),
            parity_lifetime: Ok(3),
            multi_bit_lifetime: Ok(4),
            l2_cache: Ok(5),
            sm: Ok(6),
            microcontroller: Ok(7),
            pcie: Ok(8),
            other: Ok(9),
        }),
        platform: Some(Platform {
            chassis_serial: Ok("C-15 characters".to_owned()),
            slot: Ok(1),
            tray: Ok(2),
            host: Ok(3),
            switched: Ok(true),
            module: Ok(4),
            fabric_guid: Ok(0x1234),
        }),
        gsp_firmware: Some(GspFirmware { enabled: Ok(true), enabled_by_default: Ok(false) }),
        virtual_gpus: Some(VirtualGpus {
            heterogeneous: Ok(1),
            fractional: Err(Absent::NotSupported),
            timeslice_profiles: Ok(1),
            timeslice_sizes: Ok(0),
            homogeneous_placements: Ok(2),
            mig_timeslicing: Ok(3),
            mig_timeslicing_enabled: Ok(4),
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
            clique: Ok(8),
            cluster: Ok("00112233-4455-6677-8899-aabbccddeeff".to_owned()),
            health: Ok("Limited Capacity".to_owned()),
            bandwidth_degraded: Ok(true),
            route_recovery: Ok(false),
            access_timeout_recovery: Ok(true),
            incorrect_configuration: Ok("No partition".to_owned()),
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
            peak_share: Ok(80),
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
        rare_modes: Some(Default::default()),
        throttle_times: Some(Default::default()),
        supported_clocks: Some(Default::default()),
        module_power: Some(Default::default()),
        sram_errors: Some(Default::default()),
        platform: Some(Default::default()),
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
