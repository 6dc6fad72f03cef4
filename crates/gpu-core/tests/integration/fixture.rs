//! Devices and processes with every value.

use gpu_core::*;

pub(crate) fn uuid(name: &str) -> DeviceUuid {
    DeviceUuid(name.to_owned())
}

pub(crate) fn node(minor: u32) -> FileId {
    FileId::Device { major: 195, minor }
}

/// The file through which programs compute on a device.
pub(crate) fn device_file(number: u32) -> DeviceFile {
    DeviceFile {
        role: FileRole::Compute,
        device: Some(DeviceKey::Node(node(number))),
        ..DeviceFile::any(format!("/dev/nvidia{number}").into(), Ok(node(number)))
    }
}

pub(crate) fn device_id(index: u32) -> DeviceId {
    DeviceId {
        uuid: Ok(uuid(&format!("GPU-{index}"))),
        index,
        node: Ok(node(index)),
        bus: Ok(PciBusId { domain: 0, bus: index as u8 + 4, device: 0, function: 0 }),
    }
}

pub(crate) fn info(index: u32) -> DeviceInfo {
    DeviceInfo { name: Ok("A100".into()), ..DeviceInfo::unknown(device_id(index)) }
}

pub(crate) fn sample(used: u64, percent: u64) -> DeviceSample {
    DeviceSample {
        memory: MemoryInfo {
            total: Ok(Bytes::from_mib(16_000)),
            used: Ok(Bytes::from_mib(used)),
            reserved: Err(Absent::TooOld),
        },
        source: Default::default(),
        utilization: Ok(Percent::new(percent).unwrap()),
        temperature: Ok(Celsius(41)),
        power_draw: Ok(Milliwatts(70_000)),
        power_limit: Err(Absent::NotSupported),
    }
}

pub(crate) fn driver_message() -> DriverMessage {
    DriverMessage {
        at: Timestamp(5),
        elapsed: None,
        is_local: false,
        bus: PciBusId { domain: 0, bus: 4, device: 0, function: 0 },
        code: DriverErrorCode { list: "xid".into(), number: Some(43) },
        pid: Some(Pid(100)),
        process: Some("train".into()),
        gpu_instance: Some(2),
        compute_instance: None,
        text: "Ch 00000008".into(),
        error: DriverError::default(),
    }
}

pub(crate) fn listed(pid: u32, mib: u64, percent: Option<u64>) -> DeviceProcess {
    DeviceProcess {
        pid: Pid(pid),
        kind: DeviceProcessKind::Compute,
        memory: Ok(Bytes::from_mib(mib)),
        utilization: percent.and_then(Percent::new).ok_or(Absent::NotSupported),
        name: Err(Absent::NotRecorded),
        gpu_instance: None,
        compute_instance: None,
    }
}

pub(crate) fn state(index: u32) -> DeviceState {
    DeviceState {
        info: info(index),
        sample: Ok(sample(400, 0)),
        processes: Ok(vec![]),
        partitions: Ok(vec![]),
        details: Ok(DeviceDetails::default()),
    }
}

/// A MIG device by its GPU instance and compute instance, with 5,000 of 8,000 MiB used.
pub(crate) fn mig(gpu_instance: u32, compute_instance: u32) -> Partition {
    let mut memory = sample(5_000, 0).memory;
    memory.total = Ok(Bytes::from_mib(8_000));
    Partition {
        index: gpu_instance + compute_instance,
        uuid: Ok(uuid(&format!("MIG-{gpu_instance}-{compute_instance}"))),
        profile: Err(Absent::NotRecorded),
        gpu_instance: Some(gpu_instance),
        compute_instance: Some(compute_instance),
        memory,
    }
}

/// A process with this parent.
pub(crate) fn process(pid: u32, parent: u32) -> ProcessInfo {
    ProcessInfo {
        key: ProcessKey { pid: Pid(pid), start: Some(StartTime(u64::from(pid))) },
        parent: Ok(Pid(parent)),
        ..ProcessInfo::from_name(Pid(pid), format!("p{pid}"))
    }
}

pub(crate) fn holder(key: ProcessKey, files: &[(&str, Access)]) -> Holder {
    let held = files.iter().map(|(path, access)| {
        let device = path.strip_prefix("/dev/nvidia").and_then(|number| number.parse().ok());
        let any = DeviceFile::any((*path).into(), Err(Absent::NotRecorded));
        let file = match device {
            Some(number) => device_file(number),
            None => any,
        };
        HeldFile::of(&file, *access, vec![3])
    });
    Holder { process: key, held: held.collect(), through_thread: None }
}

/// An entry of user 1000.
pub(crate) fn entry(id: &str, ticket: u64) -> LeaseEntry {
    LeaseEntry {
        id: LeaseId::parse(id).unwrap(),
        ticket,
        owner: 1000,
        root: process(100, 1).key,
        within: vec![],
        claim: Claim::whole(1),
        devices: vec![],
        parts_of: vec![],
        merged: None,
        command: "train".into(),
        since: Timestamp(7),
    }
}
