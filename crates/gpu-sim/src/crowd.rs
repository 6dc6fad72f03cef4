//! A synthetic machine of any size, to test tools with many devices and processes.

use crate::device_entry;
use crate::machine::{Device, Holding, Machine, Process, device_file, drivers};
use crate::process_entry::{complete, default_files};
use crate::product::{self, Products};
use crate::seed::Seed;
use gpu_core::{
    Bytes, Celsius, Driver, Error, ErrorKind, HeldFile, Link, Milliwatts, PciBusId, Pid,
    ProcessInfo, Result, Timestamp, Topology,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// 2025-03-03 10:00 UTC: the start of crowds.
const CLOCK: Timestamp = Timestamp(1_740_996_000_000);
const UPTIME_MS: u64 = 40 * 86_400_000;
const PRODUCT: &str = "NVIDIA A100-SXM4-80GB";
const TOTAL_MIB: u64 = 81_920;
const RESERVE_MIB: u64 = 4;
/// The maximum memory of one process, in MiB.
const MAX_MIB: u64 = 900;
const MAX_GPUS: u32 = 64;
const MAX_PROCESSES: u32 = 256;
/// The number of devices that NVLinks connect with each other.
const ISLAND: u32 = 8;
const FIRST_PID: u32 = 4000;
/// The commands of its processes.
const COMMANDS: [&[&str]; 4] = [
    &["python", "train.py", "--resume"],
    &["python", "-m", "serve", "--port", "8080"],
    &["python", "-c", "from multiprocessing.spawn import spawn_main"],
    &["./simulate", "--steps", "1000000"],
];
/// The prefix of the names of crowds.
const PREFIX: &str = "crowd:";

impl Machine {
    /// Creates a machine of up to 64 A100, each with up to 256 listed processes of several users.
    /// The same arguments always create the same machine. NVLinks connect groups of eight devices.
    ///
    /// # Errors
    /// `Invalid` if a number is zero devices or exceeds these limits.
    pub fn crowd(gpus: u32, processes_each: u32) -> Result<Self> {
        let name = format!("{PREFIX}{gpus}x{processes_each}");
        if !(1..=MAX_GPUS).contains(&gpus) || processes_each > MAX_PROCESSES {
            let what = format!("generate machine '{name}'");
            let why = format!(
                "a crowd requires 1 to {MAX_GPUS} GPUs and at most {MAX_PROCESSES} processes on \
                 each"
            );
            return Err(Error::new(ErrorKind::Invalid, what).with_source(why));
        }
        let mut rng = Seed(0).child(&name);
        let mut machine = crate::empty::empty(&name);
        machine.description =
            format!("generated: {gpus} A100 with {processes_each} processes on each");
        machine.clock = CLOCK;
        machine.booted = Timestamp(CLOCK.0 - UPTIME_MS);
        machine.hostname = Ok("crowd1".to_owned());
        machine.driver =
            Ok(Driver { version: Ok("535.261.03".to_owned()), cuda: Ok("12.2".to_owned()) });
        let room = (TOTAL_MIB - RESERVE_MIB) / u64::from(processes_each.max(1));
        let most = room.min(MAX_MIB);
        let commands = COMMANDS.map(|words| words.iter().map(|&word| word.to_owned()).collect());
        machine.processes.reserve_exact((gpus * processes_each) as usize);
        for index in 0..gpus {
            let mut device = device(index, &name);
            let first = FIRST_PID + index * MAX_PROCESSES;
            let files = default_files(&[Holding::new(index, Bytes(0))], slice::from_ref(&device));
            let files = Arc::new(files);
            let mut left = 100;
            for nth in 0..processes_each {
                let fair = left / u8::try_from(processes_each - nth).unwrap_or(u8::MAX);
                let load = rng.random_range(0..=(fair * 2).max(1)).min(left);
                left -= load;
                let memory = Bytes::from_mib(rng.random_range(100..=most));
                let holding = Holding { load, load_untold: None, ..Holding::new(index, memory) };
                let pid = Pid(first + nth);
                let process = process(&mut rng, pid, holding, Arc::clone(&files), &commands);
                machine.processes.push(process);
            }
            let load = 100 - left;
            device.temperature = Ok(Celsius(30 + i32::from(load) * 2 / 5));
            device.power_draw = Ok(Milliwatts(60_000 + u64::from(load) * 3_200));
            machine.devices.push(device);
        }
        machine.files = drivers(&machine.devices).map(|path| device_file(&path)).collect();
        machine.topology = Ok(topology(machine.devices.len() as u32));
        Ok(machine)
    }

    /// Returns whether a name requests a crowd: `crowd:` and its size.
    pub(crate) fn is_crowd(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// Creates the crowd for a name such as `crowd:64x32`.
    ///
    /// # Errors
    /// `Invalid` when the name has no size; otherwise as [`crowd`](Machine::crowd).
    pub(crate) fn crowd_named(name: &str) -> Result<Self> {
        let size = name.strip_prefix(PREFIX).and_then(|size| size.split_once('x'));
        let size = size.and_then(|(gpus, each)| Some((gpus.parse().ok()?, each.parse().ok()?)));
        let Some((gpus, processes)) = size else {
            let what = format!("generate machine '{name}'");
            let why = "expected crowd:GPUSxPROCESSES, e.g. 'crowd:8x32'";
            return Err(Error::new(ErrorKind::Invalid, what).with_source(why));
        };
        Machine::crowd(gpus, processes)
    }
}

fn device(index: u32, machine: &str) -> Device {
    let mut device = device_entry::made(index);
    device.info.name = Ok(PRODUCT.to_owned());
    device.info.persistence = Ok(true);
    device.info.partitioned = Ok(false);
    device.info.id.bus = Ok(PciBusId {
        domain: index / ISLAND,
        bus: u8::try_from(index % ISLAND * 16 + 7).unwrap_or(7),
        device: 0,
        function: 0,
    });
    device.total = Ok(Bytes::from_mib(TOTAL_MIB));
    device.reserve = Bytes::from_mib(RESERVE_MIB);
    device.power_limit = Ok(Milliwatts(400_000));
    product::overlay(&mut device, &Products::new(), false);
    crate::details::complete(&mut device);
    device_entry::complete(&mut device, machine);
    device
}

fn process(
    rng: &mut ChaCha8Rng,
    pid: Pid,
    holding: Holding,
    files: Arc<Vec<HeldFile>>,
    commands: &[Arc<[String]>],
) -> Process {
    let command = &commands[rng.random_range(0..commands.len())];
    let name = command[0].trim_start_matches("./");
    let mut info = ProcessInfo::from_name(pid, name);
    info.command_line = Ok(Arc::clone(command));
    let users = ["alice", "bob", "carol"];
    let user = rng.random_range(0..users.len());
    info.user = Ok(users[user].to_owned());
    info.uid = Ok(1001 + user as u32);
    let age = Duration::from_secs(rng.random_range(60..30 * 86_400));
    info.started_at = Ok(Timestamp(CLOCK.0 - age.as_millis() as u64));
    let mut process = Process::new(info);
    process.cpu_percent = if holding.load > 0 { 100 } else { 0 };
    process.holdings = vec![holding];
    process.files = files;
    let booted = Timestamp(CLOCK.0 - UPTIME_MS);
    complete(&mut process, (&[], &crate::Cards::default()), &BTreeMap::new(), CLOCK, booted);
    process
}

/// Two NVLinks to each of the other three devices of a board, and one to each of the four of the
/// neighbouring board.
fn topology(gpus: u32) -> Topology {
    let link = |from: u32, to: u32| match () {
        () if from == to => Link::Itself,
        () if from / 4 == to / 4 => Link::NvLink(2),
        () if from / ISLAND == to / ISLAND => Link::NvLink(1),
        () => Link::Sys,
    };
    let row = |from| (0..gpus).map(|to| link(from, to)).collect();
    Topology { links: (0..gpus).map(row).collect(), ..Topology::default() }
}
