//! Snapshots written by hand, for tests of pure functions.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod ports;

use gpu_core::*;
use std::collections::BTreeMap;

pub(crate) fn device(index: u32, used_mib: u64, total_mib: u64) -> DeviceState {
    let mut id = DeviceId::from_index(index);
    id.uuid = Ok(DeviceUuid(format!("GPU-{index}")));
    id.minor = Ok(index);
    let mut sample = DeviceSample::absent(Absent::NotSupported);
    sample.memory.used = Ok(Bytes::from_mib(used_mib));
    sample.memory.total = Ok(Bytes::from_mib(total_mib));
    sample.utilization = Ok(Percent::new(0).unwrap());
    let info = DeviceInfo { name: Ok("Tesla".into()), ..DeviceInfo::unknown(id) };
    DeviceState {
        info,
        sample: Ok(sample),
        processes: Ok(vec![]),
        mig: Ok(vec![]),
        details: Ok(DeviceDetails::default()),
    }
}

pub(crate) fn busy(mut device: DeviceState, percent: u64) -> DeviceState {
    device.sample.as_mut().unwrap().utilization = Ok(Percent::new(percent).unwrap());
    device
}

pub(crate) fn listing(mut device: DeviceState, pid: u32, mib: u64) -> DeviceState {
    device.processes.as_mut().unwrap().push(DeviceProcess {
        pid: Pid(pid),
        kind: DeviceProcessKind::Compute,
        memory: Ok(Bytes::from_mib(mib)),
        utilization: Err(Absent::NotSupported),
        name: Err(Absent::NotRecorded),
        gpu_instance: None,
        compute_instance: None,
    });
    device
}

/// A process of user 1000, child of 2, leader of its own group.
pub(crate) fn process(pid: u32, name: &str) -> ProcessInfo {
    let mut info = ProcessInfo::from_name(Pid(pid), name);
    info.key.start = Some(StartTime(u64::from(pid) * 10));
    info.uid = Ok(1000);
    info.user = Ok("user".into());
    info.parent = Ok(Pid(2));
    info.group = Ok(Pid(pid));
    info.session = Ok(Pid(2));
    info.state = Ok(ProcessState::Sleeping);
    info.live_threads = Ok(1);
    info.cpu_time = Ok(std::time::Duration::from_secs(1));
    info
}

pub(crate) fn holder(info: &ProcessInfo, files: &[(&str, &str)]) -> Holder {
    let held = files.iter().map(|(path, letters)| HeldFile {
        path: (*path).into(),
        kind: DeviceFileKind::of_path(path),
        access: Access::from_letters(letters).unwrap(),
        descriptors: vec![],
    });
    Holder { process: info.key, held: held.collect(), through_thread: None }
}

/// Open and mapped on these devices, uvm open: a CUDA context.
pub(crate) fn context(info: &ProcessInfo, minors: &[u32]) -> Holder {
    let paths: Vec<String> = minors.iter().map(|minor| format!("/dev/nvidia{minor}")).collect();
    let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "F...m")).collect();
    files.extend([("/dev/nvidiactl", "F...."), ("/dev/nvidia-uvm", "F....")]);
    holder(info, &files)
}

pub(crate) fn look(
    devices: Vec<DeviceState>,
    holders: Vec<Holder>,
    processes: Vec<ProcessInfo>,
) -> Snapshot {
    let mut all: BTreeMap<Pid, Process> =
        processes.into_iter().map(|info| (info.key.pid, Process::from(Ok(info)))).collect();
    for relative in [1, 2] {
        all.entry(Pid(relative)).or_insert_with(|| {
            let mut info = process(relative, if relative == 1 { "systemd" } else { "bash" });
            info.parent = Ok(Pid(relative - 1));
            Process::from(Ok(info))
        });
    }
    Snapshot {
        taken_at: Timestamp(1_000_000),
        origin: Origin::Simulated("scene".into()),
        hostname: Err(Absent::NotRecorded),
        driver: Ok(Driver { version: Ok("535.1".into()), cuda: Err(Absent::NotRecorded) }),
        unasked: Vec::new(),
        files: (0..devices.len())
            .map(|minor| DeviceFile {
                path: format!("/dev/nvidia{minor}").into(),
                kind: DeviceFileKind::Gpu(minor as u32),
                id: Ok(FileId::Device { major: 195, minor: minor as u32 }),
            })
            .collect(),
        devices,
        holders: Ok(holders),
        unreadable: Unreadable::default(),
        processes: all,
        sees_host_pids: Ok(true),
    }
}
