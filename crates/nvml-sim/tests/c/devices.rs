use crate::fixture::{Stage, session, text};
use gpu_core::{GpuBackend, Group};
use gpu_sim::Simulation;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t,
    nvmlTemperature_t, nvmlUtilization_t,
};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

fn all_zero<T>() -> T {
    // SAFETY: used only for NVML structs, which consist of numbers, texts and pointers.
    unsafe { std::mem::zeroed() }
}

#[test]
fn handle_is_found_by_index_uuid_serial_and_bus_id() {
    for machine in gpu_sim::machines() {
        let simulation = Simulation::embedded(machine.name).unwrap();
        let Ok(devices) = simulation.devices() else { continue };
        let stage = Stage::begun(session(machine.name));
        let nvml = stage.nvml;
        let mut count = 0;
        // SAFETY: the value outlives the call.
        assert_eq!(unsafe { nvml.nvmlDeviceGetCount_v2(&mut count) }, 0);
        assert_eq!(count as usize, devices.len(), "{}", machine.name);
        for info in devices {
            let device = stage.device(info.id.index);
            let mut index = 99;
            // SAFETY: as above.
            assert_eq!(unsafe { nvml.nvmlDeviceGetIndex(device, &mut index) }, 0);
            assert_eq!(index, info.id.index);
            let mut pci: nvmlPciInfo_t = all_zero();
            // SAFETY: as above.
            let code = unsafe { nvml.nvmlDeviceGetPciInfo_v3(device, &mut pci) };
            let Ok(address) = info.id.bus else {
                assert_eq!(code, 3, "{}: it is not supported", machine.name);
                continue;
            };
            assert_eq!(code, 0, "{}", machine.name);
            // SAFETY: the text in the struct is NUL-terminated.
            let bus = unsafe { CStr::from_ptr(pci.busId.as_ptr()) };
            assert_eq!(bus.to_str().unwrap(), address.to_string());
            let mut found = null_mut();
            // SAFETY: as above.
            let code = unsafe { nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.as_ptr(), &mut found) };
            assert_eq!((code, found), (0, device));
            if let Ok(uuid) = &info.id.uuid {
                let uuid = CString::new(uuid.0.clone()).unwrap();
                found = null_mut();
                // SAFETY: as above.
                let code = unsafe { nvml.nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &mut found) };
                assert_eq!((code, found), (0, device));
            }
            // SAFETY: the buffer has the stated length.
            let name = text(|buffer, size| unsafe { nvml.nvmlDeviceGetName(device, buffer, size) });
            assert_eq!(name.is_ok(), info.name.is_ok(), "{}: {name:?}", machine.name);
            assert_eq!(name.ok(), info.name.ok());
        }
        // SAFETY: as above.
        let code = unsafe { nvml.nvmlDeviceGetHandleByIndex_v2(count, &mut null_mut()) };
        assert_eq!(code, 2);
    }
}

#[test]
fn readings_match_machine() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let details = simulation
        .details(
            &simulation.devices().unwrap()[0].id,
            [Group::Clocks, Group::Power, Group::Pcie].into_iter().collect(),
        )
        .unwrap();
    let stage = Stage::begun(session("labbox"));
    let (nvml, device) = (stage.nvml, stage.device(0));
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    let (mut draw, mut limit) = (0, 0);
    // SAFETY: the values outlive the calls.
    unsafe {
        assert_eq!(nvml.nvmlDeviceGetUtilizationRates(device, &mut rates), 0);
        assert_eq!(nvml.nvmlDeviceGetPowerUsage(device, &mut draw), 0);
        assert_eq!(nvml.nvmlDeviceGetEnforcedPowerLimit(device, &mut limit), 0);
    }
    assert_eq!((rates.gpu, draw, limit), (98, 312_000, 400_000));

    let clocks = details.clocks.unwrap();
    for (kind, reported) in
        [(0, clocks.graphics), (1, clocks.sm), (2, clocks.memory), (3, clocks.video)]
    {
        let mut mhz = 0;
        // SAFETY: as above.
        let code = unsafe { nvml.nvmlDeviceGetClockInfo(device, kind, &mut mhz) };
        assert_eq!((code == 0).then_some(mhz), reported.ok());
    }
    // SAFETY: as above.
    assert_eq!(unsafe { nvml.nvmlDeviceGetClockInfo(device, 4, &mut 0) }, 2);
    let mut generation = 0;
    // SAFETY: as above.
    let code = unsafe { nvml.nvmlDeviceGetCurrPcieLinkGeneration(device, &mut generation) };
    assert_eq!((code == 0).then_some(generation), details.pcie.unwrap().generation.ok());
}

#[test]
fn reserved_memory_counts_as_used_in_v1_only() {
    let dir = tempfile::tempdir().unwrap();
    let machine = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 100\nmemory_reserved_mib = 30\n";
    std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
    let stage = Stage::begun(session(dir.path().to_str().unwrap()));
    let mut one = nvmlMemory_t { total: 0, free: 0, used: 0 };
    let version = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
    let mut two = nvmlMemory_v2_t { version, ..all_zero() };
    // SAFETY: the values outlive the calls.
    unsafe {
        assert_eq!(stage.nvml.nvmlDeviceGetMemoryInfo(stage.device(0), &mut one), 0);
        assert_eq!(stage.nvml.nvmlDeviceGetMemoryInfo_v2(stage.device(0), &mut two), 0);
    }
    assert_eq!((one.used, two.reserved), (two.used + (30 << 20), 30 << 20));
    assert_eq!((one.free, two.free), (one.total - one.used, one.free));
}

#[test]
fn memory_adds_up_in_v1_and_v2() {
    let stage = Stage::begun(session("labbox"));
    let (nvml, device) = (stage.nvml, stage.device(0));
    let mut one = nvmlMemory_t { total: 0, free: 0, used: 0 };
    let mut two: nvmlMemory_v2_t = all_zero();
    // SAFETY: the values outlive the calls.
    unsafe {
        assert_eq!(nvml.nvmlDeviceGetMemoryInfo(device, &mut one), 0);
        assert_eq!(nvml.nvmlDeviceGetMemoryInfo_v2(device, &mut two), 25, "of no version");
        assert_eq!(two.total, 0);
        two.version = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
        assert_eq!(nvml.nvmlDeviceGetMemoryInfo_v2(device, &mut two), 0);
    }
    assert_eq!(one.total, 81920 << 20);
    assert_eq!(one.free, one.total - one.used);
    assert_eq!((two.total, two.free), (one.total, one.free));
    let reserved = if two.reserved == u64::MAX { 0 } else { two.reserved };
    assert_eq!(two.used + reserved, one.used);
}

#[test]
fn short_buffer_is_not_written() {
    let stage = Stage::begun(session("labbox"));
    let (nvml, device) = (stage.nvml, stage.device(0));
    let name = "NVIDIA A100-SXM4-80GB";
    let mut buffer = [0x7f; 64];
    // SAFETY: the buffer is longer than stated.
    unsafe {
        let length = name.len() as u32;
        assert_eq!(nvml.nvmlDeviceGetName(device, buffer.as_mut_ptr(), length), 7);
        assert_eq!(nvml.nvmlDeviceGetName(device, buffer.as_mut_ptr(), 0), 7);
        assert_eq!(buffer, [0x7f; 64]);
        assert_eq!(nvml.nvmlDeviceGetName(device, buffer.as_mut_ptr(), length + 1), 0);
        assert_eq!(CStr::from_ptr(buffer.as_ptr()).to_str().unwrap(), name);
        assert_eq!(buffer[name.len() + 1..], [0x7f; 64][name.len() + 1..]);
        assert_eq!(nvml.nvmlSystemGetDriverVersion(buffer.as_mut_ptr(), 3), 7);
        assert_eq!(nvml.nvmlDeviceGetUUID(device, buffer.as_mut_ptr(), 10), 7);
    }
    // SAFETY: the buffer has the stated length.
    let version = text(|buffer, size| unsafe { nvml.nvmlSystemGetNVMLVersion(buffer, size) });
    assert_eq!(version.as_deref(), Ok("12.535.261.03"));
}

#[test]
fn null_pointer_is_invalid_argument() {
    let stage = Stage::begun(session("labbox"));
    let (nvml, device) = (stage.nvml, stage.device(0));
    // SAFETY: this tests null.
    let codes = unsafe {
        [
            nvml.nvmlSystemGetDriverVersion(null_mut(), 80),
            nvml.nvmlSystemGetCudaDriverVersion_v2(null_mut()),
            nvml.nvmlDeviceGetCount_v2(null_mut()),
            nvml.nvmlDeviceGetHandleByIndex_v2(0, null_mut()),
            nvml.nvmlDeviceGetHandleByUUID(null(), &mut null_mut()),
            nvml.nvmlDeviceGetHandleByPciBusId_v2(null(), &mut null_mut()),
            nvml.nvmlDeviceGetName(device, null_mut(), 64),
            nvml.nvmlDeviceGetUUID(device, null_mut(), 80),
            nvml.nvmlDeviceGetPciInfo_v3(device, null_mut()),
            nvml.nvmlDeviceGetMinorNumber(device, null_mut()),
            nvml.nvmlDeviceGetMemoryInfo(device, null_mut()),
            nvml.nvmlDeviceGetMemoryInfo_v2(device, null_mut()),
            nvml.nvmlDeviceGetUtilizationRates(device, null_mut()),
            nvml.nvmlDeviceGetTemperature(device, 0, null_mut()),
            nvml.nvmlDeviceGetPowerUsage(device, null_mut()),
            nvml.nvmlDeviceGetPersistenceMode(device, null_mut()),
            nvml.nvmlDeviceGetMigMode(device, null_mut(), null_mut()),
            nvml.nvmlDeviceGetFieldValues(device, 1, null_mut()),
            nvml.nvmlDeviceIsMigDeviceHandle(device, null_mut()),
        ]
    };
    assert_eq!(codes, [2; 19]);
}

#[test]
fn garbage_handle_is_rejected() {
    let stage = Stage::begun(session("labbox"));
    let real = stage.device(3) as usize;
    let garbage =
        [0, 1, real + 1, real + 0x40, real - 0x1000, real | 1 << 62, usize::MAX, 0xdead_beef];
    for handle in garbage {
        assert_eq!(stage.temperature(handle as nvmlDevice_t), (2, 0), "{handle:#x}");
    }
    assert_eq!(stage.temperature(real as nvmlDevice_t).0, 0);
}

#[test]
fn versioned_temperature_call_is_supported() {
    let stage = Stage::begun(session("labbox"));
    let device = stage.device(0);
    let mut asked: nvmlTemperature_t = all_zero();
    // SAFETY: the value outlives the calls.
    let ask = |asked: &mut nvmlTemperature_t| unsafe {
        stage.nvml.nvmlDeviceGetTemperatureV(device, asked)
    };
    assert_eq!(ask(&mut asked), 25);
    asked.version = size_of::<nvmlTemperature_t>() as u32 | 1 << 24;
    assert_eq!(ask(&mut asked), 0);
    assert_eq!(asked.temperature, 54);
    asked.sensorType = 7;
    assert_eq!(ask(&mut asked), 2);
}

#[test]
fn field_values_have_individual_codes() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let id = &simulation.devices().unwrap()[0].id;
    let groups = [Group::Power, Group::Thermal].into_iter().collect();
    let details = simulation.details(id, groups).unwrap();
    let stage = Stage::begun(session("labbox"));
    let (energy, memory, unknown, spare) = (83, 82, 9999, 200);
    let mut values: [nvmlFieldValue_t; 4] = all_zero();
    for (value, field) in values.iter_mut().zip([energy, memory, unknown, spare]) {
        value.fieldId = field;
    }
    // SAFETY: the array has four elements.
    let code =
        unsafe { stage.nvml.nvmlDeviceGetFieldValues(stage.device(0), 4, values.as_mut_ptr()) };
    assert_eq!(code, 0);
    let [energy, memory, unknown, spare] = values;
    let power = details.power.unwrap();
    // SAFETY: the answer has the type of the field that is read.
    let reported = (energy.nvmlReturn == 0).then_some(unsafe { energy.value.ullVal });
    assert_eq!(reported, power.energy.ok());
    // SAFETY: as above.
    let reported = (memory.nvmlReturn == 0).then_some(unsafe { memory.value.siVal });
    assert_eq!(reported, details.thermal.unwrap().memory.ok().map(|degrees| degrees.0));
    assert_eq!((unknown.nvmlReturn, spare.nvmlReturn), (2, 3));
}

#[test]
fn power_field_scope_is_gpu_only() {
    let stage = Stage::begun(session("hgx-h100-x8"));
    let (average, instant, of_gpu, of_module, of_memory) = (185, 186, 0, 1, 2);
    for field in [average, instant] {
        for (scope, code) in [(of_gpu, 0), (of_module, 3), (of_memory, 3)] {
            let mut value: nvmlFieldValue_t = all_zero();
            (value.fieldId, value.scopeId) = (field, scope);
            // SAFETY: the array has one element.
            let asked =
                unsafe { stage.nvml.nvmlDeviceGetFieldValues(stage.device(0), 1, &mut value) };
            assert_eq!((asked, value.nvmlReturn), (0, code), "{field} of {scope}");
            // SAFETY: every bit pattern is a number.
            assert_eq!(unsafe { value.value.uiVal }, if code == 0 { 71_000 } else { 0 });
        }
    }
}

#[test]
fn operation_mode_pointers_are_optional() {
    let dir = tempfile::tempdir().unwrap();
    let machine = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 100\n\
        details.operation_modes = { current = 'compute', pending = 'low-double-precision' }\n\
        [[gpu]]\nindex = 1\nmemory_total_mib = 100\n";
    std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
    let stage = Stage::begun(session(dir.path().to_str().unwrap()));
    let ask = |gpu, current: *mut u32, pending: *mut u32| {
        // SAFETY: each pointer is null or valid during the call.
        unsafe { stage.nvml.nvmlDeviceGetGpuOperationMode(stage.device(gpu), current, pending) }
    };
    let (mut current, mut pending) = (9, 9);
    assert_eq!((ask(0, &mut current, null_mut()), current), (0, 1));
    assert_eq!((ask(0, null_mut(), &mut pending), pending), (0, 2));
    assert_eq!(ask(0, null_mut(), null_mut()), 2);
    assert_eq!((ask(1, &mut current, &mut pending), current, pending), (3, 1, 2));
}

#[test]
fn lost_device_fails_everything_but_location() {
    let stage = Stage::begun(session("lost-gpu"));
    let simulation = Simulation::embedded("lost-gpu").unwrap();
    let mut lost = 0;
    for info in simulation.devices().unwrap() {
        let answers = simulation.sample(&info.id).is_ok();
        let device = stage.device(info.id.index);
        let (code, _) = stage.temperature(device);
        // SAFETY: the buffer has the stated length.
        let name =
            text(|buffer, size| unsafe { stage.nvml.nvmlDeviceGetName(device, buffer, size) });
        if answers {
            assert!(code == 0 || code == 3, "{code}");
            assert!(name.is_ok());
        } else {
            assert_eq!((code, name), (15, Err(15)));
            lost += 1;
        }
    }
    assert_eq!(lost, 1);
}
