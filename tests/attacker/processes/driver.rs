//! The driver of the substitute device: it counts the memory of every process that has the uvm file
//! open, and lists some or all of them.

use super::roles::WorldDirs;
use super::truth::{Truth, all_pids, descriptors};
use gpu_core::*;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BASE: Bytes = Bytes::from_mib(25);
const TOTAL: Bytes = Bytes::from_mib(512_000);

/// The maximum number of scans to get two consecutive ones that agree.
const MAX_SCANS: usize = 50;

/// A process with memory: its PID, its start time, and its role.
type User = (u32, u64, String);

/// Returns the memory that a process uses while it has the device open.
pub(crate) fn memory_of(pid: u32, start: u64) -> Bytes {
    Bytes::from_mib(2000 + (u64::from(pid) * 31 + start * 7) % 3000)
}

/// Answers requests on standard input with the current users of memory.
pub(crate) fn serve(dirs: &WorldDirs) {
    let uvm = dirs.dev().join("nvidia-uvm");
    let socket = standard_input();
    let mut answer = socket.try_clone().expect("a descriptor is available");
    for _ in BufReader::new(socket).lines().map_while(Result::ok) {
        // A real driver has a consistent view. If two consecutive scans agree, that was the state
        // between them.
        let mut users = users(&uvm);
        for _ in 0..MAX_SCANS {
            let again = self::users(&uvm);
            let settled = again == users;
            users = again;
            if settled {
                break;
            }
        }
        if writeln!(answer, "{}", json!(users)).is_err() {
            return;
        }
    }
}

fn users(uvm: &Path) -> Vec<User> {
    let users = all_pids().into_iter().filter_map(|pid| {
        let has_memory = !descriptors(&pid.to_string(), uvm).is_empty();
        let truth = has_memory.then(|| Truth::of(pid)).flatten()?;
        Some((pid, truth.start, truth.kind().to_owned()))
    });
    users.collect()
}

fn standard_input() -> UnixStream {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    UnixStream::from(socket.expect("a descriptor is available"))
}

/// The device, as reported by the driver process through a pipe.
pub(crate) struct Device {
    socket: Mutex<(UnixStream, BufReader<UnixStream>)>,
    /// Whether it lists no process of the attacked users, which makes them ghosts.
    pub(crate) hides: AtomicBool,
}

impl Device {
    pub(crate) fn new() -> Self {
        let socket = standard_input();
        let reader = BufReader::new(socket.try_clone().expect("a descriptor is available"));
        Device { socket: Mutex::new((socket, reader)), hides: AtomicBool::new(false) }
    }

    /// Returns the processes with memory.
    pub(crate) fn users(&self) -> Vec<User> {
        let mut socket = self.socket.lock().expect("no thread panicked");
        let mut line = String::new();
        socket.0.write_all(b"look\n").expect("the driver runs");
        socket.1.read_line(&mut line).expect("the driver runs");
        serde_json::from_str(&line).expect("the driver prints JSON")
    }
}

impl GpuBackend for Device {
    fn origin(&self) -> Origin {
        Origin::Live
    }
    fn driver(&self) -> Result<Driver> {
        Ok(Driver { version: Err(Absent::NotRecorded), cuda: Err(Absent::NotRecorded) })
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut id = DeviceId::from_index(0);
        id.node = Ok(gpu_nvidia_driver::node(0));
        Ok(vec![DeviceInfo::unknown(id)])
    }
    fn sample(&self, _: &DeviceId) -> Result<DeviceSample> {
        let users = self.users();
        let taken: Bytes = users.iter().map(|(pid, start, _)| memory_of(*pid, *start)).sum();
        let mut sample = DeviceSample::absent(Absent::NotSupported);
        sample.memory.used = Ok(BASE + taken);
        sample.memory.total = Ok(TOTAL);
        Ok(sample)
    }
    fn processes(&self, _: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let hides = self.hides.load(Ordering::Relaxed);
        let users = self.users().into_iter().filter(|user| !hides || user.2 != "attack");
        let listed = users.map(|(pid, start, _)| DeviceProcess {
            pid: Pid(pid),
            kind: DeviceProcessKind::Compute,
            memory: Ok(memory_of(pid, start)),
            utilization: Err(Absent::NotSupported),
            name: Err(Absent::NotRecorded),
            gpu_instance: None,
            compute_instance: None,
        });
        Ok(listed.collect())
    }
    fn partitions(&self, _: &DeviceId) -> Result<Vec<Partition>> {
        Ok(Vec::new())
    }
    fn details(&self, _: &DeviceId, _: Groups) -> Result<DeviceDetails> {
        Ok(DeviceDetails::default())
    }
    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        Ok(Vec::new())
    }
    fn topology(&self) -> Result<Topology> {
        Err(Error::new(Absent::NotSupported, "read the topology"))
    }
    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("reset {device}")))
    }
}
