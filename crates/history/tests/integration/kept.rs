//! A history that an earlier version wrote: its frames are read, and a new one is no larger.
//!
//! The predictions of the coder are part of the format: a reader with others reads other numbers.
//! `SNAPSHOTS=overwrite` writes the files again; that is right only if their size has changed.

use crate::round_trip::{dir, reader, writer};
use crate::world::START;
use gpu_core::{
    Absent, Bytes, Celsius, Claim, DeviceId, DeviceInfo, DeviceProcess, DeviceProcessKind,
    DeviceSample, DeviceState, DeviceUuid, Driver, ErrorKind, Fault, LeaseEntry, LeaseId,
    MemoryInfo, Milliwatts, Origin, Percent, Pid, Process, ProcessInfo, ProcessKey, ProcessState,
    Snapshot, StartTime, Timestamp,
};
use gpu_history::Frame;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const FILES: [&str; 2] = ["data_2026-11-24", "index_2026-11-24"];
/// The frames of two runs.
const RUNS: [std::ops::Range<u64>; 2] = [0..150, 150..170];

fn kept(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/integration/kept").join(name)
}

/// Numbers without a pattern.
fn noise(second: u64, salt: u64) -> u64 {
    let mixed = (second * 31 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 48
}

/// The processes of a second: one that stays, one that comes and goes, one on both devices, and many
/// short ones.
fn pids(second: u64) -> Vec<(u32, u32)> {
    let mut pids = vec![(0, 100), (0, 300), (1, 300)];
    if (20..90).contains(&second) {
        pids.insert(1, (0, 200));
    }
    if second % 40 >= 30 {
        pids.extend((0..4).map(|at| (1, 400 + (second / 40 * 4) as u32 + at)));
    }
    pids
}

fn device(index: u32, second: u64) -> DeviceState {
    let of_process = |pid: u32| DeviceProcess {
        pid: Pid(pid),
        kind: DeviceProcessKind::Compute,
        // The first grows by two pages a second, another one by steps, and the others stay.
        memory: Ok(match pid {
            100 => Bytes((1000 << 20) + second * 8192),
            200 => Bytes((second / 10) << 21),
            _ => Bytes(u64::from(pid) << 20),
        }),
        utilization: Percent::new(noise(second, pid.into()) % 101).ok_or(Absent::Failed),
        name: Err(Absent::NotSupported),
        gpu_instance: None,
        compute_instance: None,
    };
    let processes: Vec<DeviceProcess> = pids(second)
        .into_iter()
        .filter(|(gpu, _)| *gpu == index)
        .map(|(_, pid)| of_process(pid))
        .collect();
    let used = processes.iter().map(|process| process.memory.unwrap_or_default()).sum();
    let id =
        DeviceId { uuid: Ok(DeviceUuid(format!("GPU-{index}"))), ..DeviceId::from_index(index) };
    let sample = DeviceSample {
        memory: MemoryInfo {
            total: Ok(Bytes(80 << 30)),
            used: Ok(used),
            reserved: Err(Absent::TooOld),
        },
        source: Default::default(),
        utilization: Percent::new(second * 37 % 101).ok_or(Absent::Failed),
        temperature: if second % 60 < 50 {
            Ok(Celsius(40 + (second / 7 % 30) as i32 - 20 * index as i32))
        } else {
            Err(Absent::NoAnswer)
        },
        power_draw: Ok(Milliwatts(60_000 + noise(second, index.into()) % 4000 * 50)),
        power_limit: Ok(Milliwatts(400_000)),
    };
    let lost = Fault { kind: ErrorKind::TimedOut, text: "query GPU 1".to_owned() };
    DeviceState {
        info: DeviceInfo { name: Ok("A100".to_owned()), ..DeviceInfo::unknown(id) },
        sample: if index == 1 && (100..103).contains(&second) { Err(lost) } else { Ok(sample) },
        processes: Ok(processes),
        partitions: Ok(Vec::new()),
        details: Ok(Default::default()),
    }
}

fn process(pid: u32, second: u64) -> ProcessInfo {
    let mut info = ProcessInfo::from_name(Pid(pid), "python");
    info.key.start = Some(StartTime(u64::from(pid) * 7919));
    info.uid = Ok(1000 + pid % 3);
    info.command_line = Ok([format!("python train-{pid}.py")].into());
    info.cpu_time = Ok(Duration::from_millis(match pid {
        100 => second * 990,
        200 => second * 1000 + noise(second, 200) % 20,
        _ => 4000,
    }));
    info.resident = Ok(Bytes((2 << 30) + (noise(second, pid.into()) % 3) * 4096));
    info.state =
        Ok(if second.is_multiple_of(9) { ProcessState::Running } else { ProcessState::Sleeping });
    info
}

/// Returns the frame of a second.
fn frame(second: u64) -> Frame {
    // Every tenth one is late.
    let at = START.0 + second * 1000 + u64::from(second.is_multiple_of(10)) * 3;
    let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(at));
    snapshot.hostname = Ok("box".to_owned());
    snapshot.driver = Ok(Driver { version: Ok("580.1".to_owned()), cuda: Err(Absent::TooOld) });
    snapshot.devices = (0..2).map(|index| device(index, second)).collect();
    // The driver starts late.
    if second < 2 {
        snapshot.devices.clear();
    }
    let processes = pids(second).into_iter().map(|(_, pid)| process(pid, second));
    snapshot.processes = processes.map(|info| (info.key.pid, Process::from(Ok(info)))).collect();
    let lease = LeaseEntry {
        id: LeaseId::parse("0000000000a1").unwrap(),
        ticket: 1 << 40,
        owner: 1001,
        root: ProcessKey { pid: Pid(100), start: Some(StartTime(791_900)) },
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: vec![DeviceUuid("GPU-0".to_owned())],
        parts_of: Vec::new(),
        merged: None,
        command: "python train-100.py".to_owned(),
        since: Timestamp(START.0 + 10_000),
    };
    let leases = if (10..120).contains(&second) { vec![lease] } else { Vec::new() };
    Frame { snapshot, leases: Ok(leases) }
}

#[test]
fn kept_history_is_read() {
    let dir = dir();
    for name in FILES {
        fs::copy(kept(name), dir.path().join(name)).unwrap();
    }
    let mut reader = reader(&dir);
    assert_eq!(reader.len(), 170);
    for second in 0..170 {
        assert!(reader.frame(second).as_ref() == Some(&frame(second as u64)), "{second}");
    }
    assert_eq!(reader.check(), []);
}

#[test]
fn new_history_is_no_larger_than_the_kept_one() {
    let dir = dir();
    let mut written = 0;
    for run in RUNS {
        let mut writer = writer(&dir);
        for second in run.clone() {
            writer.add(&frame(second)).unwrap();
        }
        assert_eq!(writer.frames(), run.end - run.start);
        written += writer.written();
    }
    let size = |path: PathBuf| fs::metadata(path).unwrap().len();
    let headers = 2 * 32;
    assert_eq!(
        written + headers,
        FILES.map(|name| size(dir.path().join(name))).iter().sum::<u64>()
    );
    for name in FILES {
        let new = dir.path().join(name);
        if std::env::var_os("SNAPSHOTS").is_some_and(|value| value == "overwrite") {
            fs::create_dir_all(kept("")).unwrap();
            fs::copy(&new, kept(name)).unwrap();
        }
        assert!(size(new) <= size(kept(name)), "{name}");
    }
}
