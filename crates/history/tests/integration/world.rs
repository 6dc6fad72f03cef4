//! A synthetic machine that changes from snapshot to snapshot.

use gpu_core::{
    Absent, Access, Bytes, Celsius, Claim, DeviceFault, DeviceId, DeviceInfo, DeviceKey,
    DeviceProcess, DeviceProcessKind, DeviceSample, DeviceState, DeviceUuid, Driver, Error,
    ErrorKind, Executable, FileId, FileRole, HeldFile, Holder, LeaseEntry, LeaseId, MemoryInfo,
    MemoryUse, Milliwatts, Origin, OuterLease, Partition, Percent, Pid, Process, ProcessInfo,
    ProcessKey, ProcessState, Reading, Snapshot, StartTime, Timestamp, UnreadProcess, Workload,
    WorkloadKind,
};
use gpu_history::Frame;
use std::time::Duration;

/// 2026-11-24 00:00 UTC.
pub(crate) const START: Timestamp = Timestamp(1_795_478_400_000);

/// Random numbers from a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) frame: Frame,
    next_pid: u32,
}

impl World {
    /// Returns a machine with this many devices and processes on each.
    pub(crate) fn new(seed: u64, devices: u32, each: u32) -> Self {
        let mut snapshot = Snapshot::empty(Origin::Live, START);
        snapshot.hostname = Ok("box".to_owned());
        snapshot.driver = Ok(Driver { version: Ok("1.2".to_owned()), cuda: Err(Absent::TooOld) });
        let mut random = Random(seed);
        snapshot.devices = (0..devices).map(|index| device(&mut random, index)).collect();
        snapshot.holders = Ok(Vec::new());
        let frame = Frame { snapshot, leases: Ok(Vec::new()) };
        let mut world = World { random, frame, next_pid: 100 };
        (0..devices * each).for_each(|number| world.start((number / each) as usize));
        world
    }

    /// Returns the next frame, a second later.
    pub(crate) fn frame(&mut self) -> Frame {
        let random = &mut self.random;
        let snapshot = &mut self.frame.snapshot;
        snapshot.taken_at.0 += 1000;
        for device in &mut snapshot.devices {
            if let Ok(sample) = &mut device.sample {
                sample.utilization = random_reading(random, percent);
                sample.power_draw = Ok(Milliwatts(250_000 + random.below(50_000)));
                sample.temperature = Ok(Celsius(random.below(90) as i32 - 10));
            }
            for process in device.processes.iter_mut().flatten() {
                if random.one_in(2) {
                    process.utilization = random_reading(random, percent);
                }
                if random.one_in(20) {
                    process.memory = Ok(Bytes(random.below(400) << 21));
                }
            }
        }
        for info in snapshot.processes.values_mut().filter_map(Process::info_mut) {
            if random.one_in(2) {
                let more = Duration::from_millis(random.below(100) * 10);
                info.cpu_time = info.cpu_time.map(|time| time + more);
                info.state = Ok(match random.one_in(2) {
                    true => ProcessState::Running,
                    false => ProcessState::Sleeping,
                });
            }
            if random.one_in(50) {
                info.command_line = Ok(vec!["train".to_owned(), random.next().to_string()].into());
            }
        }
        let devices = self.frame.snapshot.devices.len() as u64;
        if devices > 0 && self.random.one_in(4) {
            let device = self.random.below(devices) as usize;
            self.end(device);
            self.start(device);
        }
        if self.random.one_in(40) {
            self.disturb();
        }
        self.frame.clone()
    }

    fn start(&mut self, device: usize) {
        self.next_pid += 1 + self.random.below(9) as u32;
        let pid = Pid(self.next_pid);
        let info = process(&mut self.random, pid);
        let snapshot = &mut self.frame.snapshot;
        let held = HeldFile {
            path: format!("/dev/nvidia{device}").into(),
            role: FileRole::Compute,
            device: Some(DeviceKey::Node(node(device as u32))),
            memory: MemoryUse::Certain(None),
            access: Access::OPEN_FOR_WRITING | Access::MAPPED,
            descriptors: (0..self.random.below(4) as u32).collect(),
            clients: Vec::new(),
        };
        let holder = Holder { process: info.key, held: vec![held], through_thread: None };
        snapshot.holders.as_mut().unwrap().push(holder);
        snapshot.processes.insert(pid, Reading::Ok(info).into());
        let listed = DeviceProcess {
            pid,
            kind: DeviceProcessKind::Compute,
            memory: Ok(Bytes(self.random.below(400) << 21)),
            utilization: Err(Absent::NotSupported),
            name: Ok("python".to_owned()),
            gpu_instance: self.random.one_in(3).then_some(1),
            compute_instance: None,
        };
        if let Ok(list) = &mut snapshot.devices[device].processes {
            let at = self.random.below(list.len() as u64 + 1) as usize;
            list.insert(at, listed);
        }
    }

    fn end(&mut self, device: usize) {
        let snapshot = &mut self.frame.snapshot;
        let Ok(list) = &mut snapshot.devices[device].processes else { return };
        if list.is_empty() {
            return;
        }
        let ended = list.remove(self.random.below(list.len() as u64) as usize).pid;
        snapshot.processes.remove(&ended);
        snapshot.holders.as_mut().unwrap().retain(|holder| holder.process.pid != ended);
    }

    /// Causes a rare change.
    fn disturb(&mut self) {
        let random = &mut self.random;
        let fault = || Error::new(DeviceFault::Lost, "sample GPU 0").fault();
        let snapshot = &mut self.frame.snapshot;
        match random.below(7) {
            0 => {
                if let Some(device) = snapshot.devices.first_mut() {
                    device.sample = if device.sample.is_ok() {
                        Err(fault())
                    } else {
                        Ok(DeviceSample::absent(Absent::Failed))
                    };
                }
            }
            1 => {
                snapshot.unreadable.count(Absent::NotPermitted);
                snapshot.unread.push(UnreadProcess {
                    pid: Pid(1),
                    name: Ok("systemd\n\u{202e}".to_owned()),
                    user: Err(Absent::NotFound),
                    reason: Absent::NotPermitted,
                    open_files_read: true,
                });
            }
            2 => {
                snapshot.processes.insert(Pid(7), Process(Err(Absent::NotFound)));
            }
            3 => {
                let leases = self.frame.leases.or_none();
                leases.push(lease(random));
            }
            4 => self.frame.leases = Err(Error::new(ErrorKind::Io, "read the leases").fault()),
            5 => snapshot.driver_messages = Ok(Vec::new()),
            _ => snapshot.is_root = Ok(random.one_in(2)),
        }
    }
}

/// Replaces unknown leases by none.
trait OrNone {
    fn or_none(&mut self) -> &mut Vec<LeaseEntry>;
}

impl<E> OrNone for Result<Vec<LeaseEntry>, E> {
    fn or_none(&mut self) -> &mut Vec<LeaseEntry> {
        if self.is_err() {
            *self = Ok(Vec::new());
        }
        match self {
            Ok(leases) => leases,
            Err(_) => unreachable!("it was replaced"),
        }
    }
}

fn random_reading<T>(random: &mut Random, value: impl Fn(&mut Random) -> T) -> Reading<T> {
    match random.below(8) {
        0 => Err(Absent::NotSupported),
        1 => Err(Absent::Failed),
        _ => Ok(value(random)),
    }
}

fn node(minor: u32) -> FileId {
    FileId::Device { major: 195, minor }
}

fn percent(random: &mut Random) -> Percent {
    Percent::new(random.below(101)).unwrap()
}

fn device(random: &mut Random, index: u32) -> DeviceState {
    let id = DeviceId {
        uuid: Ok(DeviceUuid(format!("GPU-{:036x}", random.next()))),
        index,
        node: Ok(node(index)),
        bus: "0000:04:00.0".parse().map_err(|_| Absent::Failed),
    };
    let memory = MemoryInfo {
        total: Ok(Bytes::from_mib(81_920)),
        used: Ok(Bytes(u64::MAX)),
        reserved: Err(Absent::TooOld),
    };
    let mig = Partition {
        index: 0,
        uuid: Ok(DeviceUuid("MIG-1".to_owned())),
        profile: Ok("1g.5gb".to_owned()),
        gpu_instance: Some(1),
        compute_instance: None,
        memory,
    };
    DeviceState {
        info: DeviceInfo { name: Ok("NVIDIA A100".to_owned()), ..DeviceInfo::unknown(id) },
        sample: Ok(DeviceSample { memory, ..DeviceSample::absent(Absent::NotSupported) }),
        processes: Ok(Vec::new()),
        partitions: Ok(vec![mig]),
        details: Ok(Default::default()),
    }
}

fn process(random: &mut Random, pid: Pid) -> ProcessInfo {
    let mut info = ProcessInfo::from_name(pid, "python");
    info.key = ProcessKey { pid, start: Some(StartTime(random.below(1 << 40))) };
    info.uid = Ok(1000 + random.below(3) as u32);
    info.user = Ok("alice".to_owned());
    info.cpu_time = Ok(Duration::from_millis(random.below(1 << 30)));
    info.namespace_pids = Ok(vec![pid, Pid(1)]);
    info.executable = Ok(Box::new(Executable {
        path: "/usr/bin/python3".to_owned(),
        file: FileId::Inode { dev: 7, ino: random.next() },
        owner: 0,
        writable_by_others: false,
        seen_by_caller: Ok(true),
    }));
    info.workload = random.one_in(2).then(|| {
        let (id, cgroup) = ("17".to_owned(), "/slurm/job_17".to_owned());
        Box::new(Workload { kind: WorkloadKind::SlurmJob, id, cgroup })
    });
    info
}

fn lease(random: &mut Random) -> LeaseEntry {
    let id = LeaseId::parse(&format!("{:x}", random.next())).unwrap();
    LeaseEntry {
        id: id.clone(),
        ticket: random.next(),
        owner: 1001,
        root: ProcessKey { pid: Pid(4711), start: Some(StartTime(9)) },
        within: vec![OuterLease { id, owner: 1002 }],
        claim: Claim { compute_capability: Some((8, 0)), ..Claim::whole(2) },
        devices: vec![DeviceUuid("GPU-1".to_owned())],
        parts_of: Vec::new(),
        merged: None,
        command: "python train.py".to_owned(),
        since: START,
    }
}
