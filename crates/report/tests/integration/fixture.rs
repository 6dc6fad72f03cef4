//! A machine with every value, and one with none.

use gpu_core::*;
use gpu_nvidia_driver::held_files;
use serde_json::{Value, json};
use std::time::Duration;

/// Details in which every value is present, each number different.
pub(crate) fn full_details() -> DeviceDetails {
    let untold = DeviceDetails {
        product: Some(Product::default()),
        modes: Some(Modes::default()),
        inforom: Some(Inforom::default()),
        gsp_firmware: Some(GspFirmware::default()),
        virtual_gpus: Some(VirtualGpus::default()),
        reset_status: Some(ResetStatus::default()),
        operation_modes: Some(OperationModes::default()),
        rare_modes: Some(RareModes::default()),
        activity: Some(Activity::default()),
        throttle_times: Some(ThrottleTimes::default()),
        engines: Some(Engines::default()),
        clocks: Some(Clocks::default()),
        application_clocks: Some(ApplicationClocks::default()),
        supported_clocks: Some(SupportedClocks::default()),
        power: Some(Power::default()),
        power_readings: Some(PowerReadings::default()),
        module_power: Some(ModulePower::default()),
        thermal: Some(Thermal::default()),
        pcie: Some(Pcie::default()),
        pcie_throughput: Some(PcieThroughput::default()),
        protected_memory: Some(ProtectedMemory::default()),
        memory_health: Some(MemoryHealth::default()),
        memory_errors: Some(Box::default()),
        sram_errors: Some(SramErrors::default()),
        nvlinks: Some(vec![NvLink::default()]),
        fabric: Some(Fabric::default()),
        platform: Some(Platform::default()),
        accounting: Some(Accounting {
            processes: Ok(vec![AccountedProcess::default()]),
            ..Accounting::default()
        }),
    };
    let mut json = serde_json::to_value(untold).unwrap();
    let mut paths = Vec::new();
    collect_absent(&json, String::new(), &mut paths);
    for (number, path) in (3..).zip(&paths) {
        *json.pointer_mut(path).unwrap() = present(&json, path, number);
    }
    serde_json::from_value(json).unwrap()
}

/// Collects the paths of the absent values.
fn collect_absent(json: &Value, path: String, paths: &mut Vec<String>) {
    match json {
        Value::Object(fields) if fields.contains_key("absent") => paths.push(path),
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_absent(value, format!("{path}/{name}"), paths);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                collect_absent(item, format!("{path}/{place}"), paths);
            }
        }
        _ => {}
    }
}

/// Returns a value of a suitable type.
fn present(json: &Value, path: &str, number: u64) -> Value {
    // Amounts of memory are whole mebibytes, power is whole watts.
    let scale = match path {
        path if path.ends_with("_bytes") => 1 << 20,
        path if path.ends_with("_mw") => 1000,
        path if path.ends_with("_mj") => 1000,
        _ => 1,
    };
    let candidates = [
        json!(number * scale),
        json!(number % 100),
        json!(number.is_multiple_of(2)),
        json!([8, number]),
        json!(format!("v{number}")),
        json!("0000:0A:00.0"),
        json!("exclusive-process"),
        json!("hmm"),
        json!("compute"),
        json!("completed"),
        json!("reset"),
        json!([]),
    ];
    let fits = |candidate: &&Value| {
        let mut with = json.clone();
        *with.pointer_mut(path).unwrap() = (*candidate).clone();
        serde_json::from_value::<DeviceDetails>(with).is_ok()
    };
    candidates.iter().find(fits).unwrap_or_else(|| panic!("nothing fits {path}")).clone()
}

fn id(index: u32) -> DeviceId {
    DeviceId {
        uuid: Ok(DeviceUuid(format!("GPU-{index}"))),
        index,
        node: Ok(FileId::Device { major: 195, minor: index }),
        bus: Ok(PciBusId { domain: 0, bus: 4 + index as u8, device: 0, function: 0 }),
    }
}

fn listed(pid: u32, kind: DeviceProcessKind, mib: u64) -> DeviceProcess {
    DeviceProcess {
        pid: Pid(pid),
        kind,
        memory: Ok(Bytes::from_mib(mib)),
        utilization: Ok(Percent::new(12).unwrap()),
        name: Ok("/usr/bin/listed".into()),
        gpu_instance: None,
        compute_instance: None,
    }
}

pub(crate) fn full_device(index: u32) -> DeviceState {
    DeviceState {
        info: DeviceInfo {
            id: id(index),
            name: Ok("NVIDIA A100".into()),
            persistence: Ok(true),
            display_active: Ok(false),
            partitioned: Ok(false),
            pid_namespace: Default::default(),
            visibility: Default::default(),
        },
        sample: Ok(DeviceSample {
            memory: MemoryInfo {
                total: Ok(Bytes::from_mib(40_960)),
                used: Ok(Bytes::from_mib(9_000)),
                reserved: Ok(Bytes::from_mib(600)),
            },
            source: Default::default(),
            utilization: Ok(Percent::new(37).unwrap()),
            temperature: Ok(Celsius(51)),
            power_draw: Ok(Milliwatts(61_230)),
            power_limit: Ok(Milliwatts(250_000)),
        }),
        processes: Ok(vec![
            listed(100, DeviceProcessKind::Compute, 1_000),
            listed(700, DeviceProcessKind::Graphics, 30),
        ]),
        partitions: Ok(vec![]),
        details: Ok(full_details()),
    }
}

/// A device with a known index and no other known value.
fn untold_device(index: u32) -> DeviceState {
    let details = DeviceDetails {
        product: Some(Product::default()),
        activity: Some(Activity::absent(Absent::TooOld)),
        ..DeviceDetails::default()
    };
    DeviceState {
        info: DeviceInfo::unknown(DeviceId::from_index(index)),
        sample: Ok(DeviceSample::absent(Absent::NotPermitted)),
        processes: Ok(vec![]),
        partitions: Ok(vec![]),
        details: Ok(details),
    }
}

fn lost_device(index: u32) -> DeviceState {
    let lost = Error::new(DeviceFault::Lost, "sample it").fault();
    DeviceState::unanswered(DeviceInfo::unknown(id(index)), Groups::all(), &lost)
}

pub(crate) fn process(pid: u32, name: &str) -> ProcessInfo {
    ProcessInfo {
        key: ProcessKey { pid: Pid(pid), start: Some(StartTime(u64::from(pid) * 10)) },
        command_line: Ok(vec![format!("/usr/bin/{name}"), "--fast".to_owned()].into()),
        uid: Ok(1000),
        user: Ok("alice".into()),
        parent: Ok(Pid(1)),
        state: Ok(ProcessState::Sleeping),
        cpu_time: Ok(Duration::from_millis(500)),
        resident: Ok(Bytes::from_mib(77)),
        started_at: Ok(Timestamp(1_795_219_483_000)),
        ..ProcessInfo::from_name(Pid(pid), name)
    }
}

/// Two holders: one that NVML does not list, and a display server.
pub(crate) fn snapshot() -> Snapshot {
    let ghost = process(200, "ghost");
    let display = ProcessInfo { uid: Ok(0), user: Ok("root".into()), ..process(700, "Xorg") };
    let mapped = Access::OPEN_FOR_WRITING | Access::MAPPED;
    let holder = |info: &ProcessInfo, path| Holder {
        process: info.key,
        held: held_files([(path, mapped), ("/dev/nvidiactl", Access::OPEN_FOR_WRITING)])
            .into_iter()
            .map(|held| HeldFile { descriptors: vec![3, 4], ..held })
            .collect(),
        through_thread: None,
    };
    let holders = vec![holder(&ghost, "/dev/nvidia0"), holder(&display, "/dev/nvidia-modeset")];
    let processes = [process(100, "python"), ghost, display]
        .into_iter()
        .map(|info| (info.key.pid, Process::from(Ok(info))));
    let mut unreadable = Unreadable::default();
    unreadable.add(Absent::NotPermitted, 2);
    Snapshot {
        hostname: Ok("node7".into()),
        driver: Ok(Driver { version: Ok("550.54.15".into()), cuda: Ok("12.4".into()) }),
        devices: vec![full_device(0), untold_device(1), lost_device(2)],
        holders: Ok(holders),
        unreadable,
        processes: processes.collect(),
        sees_host_pids: Ok(true),
        ..Snapshot::empty(Origin::Live, Timestamp(1_795_223_083_000))
    }
}
