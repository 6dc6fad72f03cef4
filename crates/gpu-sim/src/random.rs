//! Random machines, scripts and faults, all from one seed, for tests of whole cycles.

use crate::faults::{Call, Fault};
use crate::machine::{
    Device, Event, Holding, Machine, Process, Reaction, Scheduled, When, device_file, drivers,
};
use crate::process_entry::{complete, held_file, user_name};
use crate::seed::Seed;
use crate::simulation::Simulation;
use gpu_core::{
    Absent, Bytes, DeviceEventKind, DeviceFault, DeviceProcessKind, ErrorKind, Pid, ProcessFault,
    ProcessInfo, ProcessState, Timestamp,
};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// 2025-03-03 10:00 UTC: the start of random machines.
const CLOCK: Timestamp = Timestamp(1_740_996_000_000);
const TOTAL: Bytes = Bytes::from_mib(24_576);
const RESERVE: Bytes = Bytes::from_mib(11);

/// Starts a random machine with a random script; the same seed always gives the same result.
pub fn random(seed: Seed) -> Simulation {
    let mut machine = random_machine(seed);
    machine.events = random_script(seed, &machine);
    Simulation::start(machine, seed)
}

/// Returns a random machine without scripted events: one to four devices, and holders, monitors,
/// daemons, supervisors and bystanders of several users with every kind of reaction.
pub fn random_machine(seed: Seed) -> Machine {
    let mut rng = seed.child("machine");
    let mut machine = crate::empty::empty(&format!("random-{}", seed.0));
    machine.description = format!("generated randomly from seed {}", seed.0);
    machine.clock = CLOCK;
    machine.booted = Timestamp(CLOCK.0 - 7 * 86_400_000);
    machine.hostname = Ok("random".to_owned());
    for index in 0..rng.random_range(1..=4) {
        machine.devices.push(device(&mut rng, index, &machine.name));
    }
    let mut pid = rng.random_range(1000..40_000);
    for _ in 0..rng.random_range(0..=8) {
        pid += pick(&mut rng, [1, 2, 17, 300]);
        let process = process(&mut rng, &machine, Pid(pid));
        machine.processes.push(process);
    }
    machine.files = files(&machine.devices);
    if rng.random_bool(0.2) {
        machine.viewer.uid = 1001;
        machine.viewer.privileged = false;
    }
    machine.viewer.user = user_name(machine.viewer.uid);
    machine
}

/// Returns a random script for a machine. In the first half minute, processes start, end, release
/// devices, take more memory, and change group or cgroup; PIDs are reused; devices fail and report
/// events.
pub fn random_script(seed: Seed, machine: &Machine) -> Vec<Scheduled> {
    let mut rng = seed.child("script");
    let count = rng.random_range(0..=6);
    (0..count).filter_map(|_| scheduled(&mut rng, machine)).collect()
}

/// Returns random faults, each with its call and call number: any error kind, delays, hangs,
/// changed lists, and changes of the machine between two calls, including a reused PID.
pub fn random_faults(seed: Seed, machine: &Machine, count: usize) -> Vec<(Call, u64, Fault)> {
    let mut rng = seed.child("faults");
    let mut faults = Vec::new();
    while faults.len() < count {
        let (call, _) = pick(&mut rng, Call::ALL);
        let nth = rng.random_range(1..=12);
        let reused = machine.processes.choose(&mut rng).filter(|_| rng.random_bool(0.2));
        if let Some(process) = reused {
            let exit = Event::Exit(process.pid());
            let start = Event::Start(Box::new(successor(machine, process.pid())));
            faults.push((call, nth, Fault::Meanwhile(exit)));
            faults.push((call, nth, Fault::Meanwhile(start)));
        } else if let Some(fault) = fault(&mut rng, machine) {
            faults.push((call, nth, fault));
        }
    }
    faults
}

fn pick<T: Copy, const N: usize>(rng: &mut ChaCha8Rng, items: [T; N]) -> T {
    items[rng.random_range(0..N)]
}

fn millis(rng: &mut ChaCha8Rng, most: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..=most))
}

fn device(rng: &mut ChaCha8Rng, index: u32, machine: &str) -> Device {
    let mut device = crate::device_entry::made(index);
    device.info.name = Ok("NVIDIA GeForce RTX 3090".to_owned());
    device.total = Ok(TOTAL);
    device.reserve = RESERVE;
    if rng.random_bool(0.1) {
        device.leaked = Bytes::from_mib(rng.random_range(1..4000));
    }
    crate::device_entry::complete(&mut device, machine);
    device
}

fn files(devices: &[Device]) -> Vec<gpu_core::DeviceFile> {
    let paths = drivers(devices).chain(["/dev/nvidia-modeset".to_owned()]);
    paths.map(|path| device_file(&path)).collect()
}

/// The kind of a random process.
#[derive(Clone, Copy)]
enum Role {
    /// A process with memory that NVML lists.
    Listed,
    /// A process with memory that NVML does not list.
    Unlisted,
    /// A process that only has the device open.
    Monitor,
    /// A process that renders graphics.
    Display,
    /// A process that is still listed but has ended.
    Gone,
    /// A process that uses no device.
    Bystander,
}

fn process(rng: &mut ChaCha8Rng, machine: &Machine, pid: Pid) -> Process {
    use Role::{Bystander, Display, Gone, Listed, Monitor, Unlisted};
    let role = pick(rng, [Listed, Listed, Unlisted, Unlisted, Monitor, Display, Gone, Bystander]);
    let name = match role {
        Display => pick(rng, ["Xorg", "gnome-shell"]),
        Monitor => pick(rng, ["nv-hostengine", "argusagent", "nvidia-persiste"]),
        _ => pick(rng, ["python", "t2t-decoder", "worker", "Xorg", "a\x1b[2J\n"]),
    };
    let mut process = Process::new(ProcessInfo::from_name(pid, name));
    let info = &mut process.info;
    info.uid = Ok(pick(rng, [0, 1001, 1002]));
    let earlier = |rng: &mut ChaCha8Rng| machine.processes.choose(rng).map(Process::pid);
    if rng.random_bool(0.4) {
        info.parent = Ok(earlier(rng).unwrap_or(Pid(1)));
    }
    if rng.random_bool(0.4) {
        info.group = Ok(earlier(rng).unwrap_or(pid));
        info.session = info.group;
    }
    if rng.random_bool(0.2) {
        let cgroup = "/system.slice/docker-0123456789abcdef.scope".to_owned();
        info.workload = Some(Box::new(gpu_core::Workload {
            kind: gpu_core::WorkloadKind::Container,
            id: "0123456789abcdef".to_owned(),
            cgroup: cgroup.clone(),
        }));
        info.cgroup = Ok(cgroup);
        process.namespace = Some(("container".to_owned(), Pid(rng.random_range(1..100))));
    }
    let has = !matches!(role, Bystander);
    if rng.random_bool(0.1) {
        info.state = Ok(ProcessState::Zombie);
        info.live_threads = Ok(rng.random_range(if has { 1..4 } else { 0..4 }));
    }
    if matches!(role, Listed | Unlisted | Display | Gone) {
        process.holdings = holdings(rng, machine, role);
    }
    if matches!(role, Monitor) {
        let minor = machine.devices.choose(rng).and_then(|device| device.info.id.minor().ok());
        let paths = [format!("/dev/nvidia{}", minor.unwrap_or(0)), "/dev/nvidiactl".to_owned()];
        let files = paths.iter().filter_map(|path| held_file(path, "F...."));
        process.files = Arc::new(files.collect());
    }
    if matches!(role, Gone) {
        process.hidden = Some(Absent::NotFound);
    }
    process.cpu_percent = pick(rng, [0, 0, 100, 350]);
    process.on_term = reaction(rng, true);
    process.on_kill = reaction(rng, false);
    process.memory_returns = rng.random_bool(0.9).then(|| millis(rng, 3000));
    process.respawns = rng.random_bool(0.15).then(|| millis(rng, 2000));
    complete(
        &mut process,
        (&machine.devices, &machine.cards),
        &BTreeMap::new(),
        machine.clock,
        machine.booted,
    );
    process
}

fn holdings(rng: &mut ChaCha8Rng, machine: &Machine, role: Role) -> Vec<Holding> {
    let mut holdings = Vec::new();
    for device in &machine.devices {
        if !holdings.is_empty() && rng.random_bool(0.7) {
            continue;
        }
        // Eight processes of this size and the largest leak fit on a device.
        let memory = Bytes::from_mib(rng.random_range(0..2500));
        let mut holding = Holding::new(device.info.id.index, memory);
        holding.listed = match role {
            Role::Unlisted => None,
            Role::Display => Some(DeviceProcessKind::Graphics),
            _ => Some(DeviceProcessKind::Compute),
        };
        holding.load = pick(rng, [0, 0, 30, 100]);
        if rng.random_bool(0.5) {
            holding.load_untold = None;
        }
        holdings.push(holding);
    }
    holdings
}

fn reaction(rng: &mut ChaCha8Rng, may_ignore: bool) -> Reaction {
    match rng.random_range(0..10) {
        0..=1 if may_ignore => Reaction::Ignores,
        2 => Reaction::Stuck(None),
        3 => Reaction::Stuck(Some(millis(rng, 20_000))),
        4 => Reaction::LeavesThreads,
        5 => Reaction::ExitsAfter(Duration::from_secs(30)),
        _ => Reaction::ExitsAfter(millis(rng, 2000)),
    }
}

fn scheduled(rng: &mut ChaCha8Rng, machine: &Machine) -> Option<Scheduled> {
    let process = machine.processes.choose(rng)?;
    let event = event(rng, machine, process)?;
    let when = match event {
        Event::Start(_) => When::AfterExit(process.pid(), millis(rng, 500)),
        _ => When::At(millis(rng, 30_000)),
    };
    Some(Scheduled { when, event })
}

fn event(rng: &mut ChaCha8Rng, machine: &Machine, process: &Process) -> Option<Event> {
    let pid = process.pid();
    let device = machine.devices.choose(rng)?.info.id.index;
    Some(match rng.random_range(0..10) {
        0 => Event::Exit(pid),
        1 => Event::LetGo(pid, None),
        2 => Event::LetGo(pid, Some(device)),
        3 => Event::Start(Box::new(successor(machine, pid))),
        4 => {
            let memory = Bytes::from_mib(rng.random_range(0..2500));
            Event::Uses(pid, device, memory, rng.random_range(0..=100))
        }
        5 => Event::Computes(pid, rng.random_range(0..200)),
        6 => Event::JoinsGroup(pid, Pid(rng.random_range(2..1000))),
        7 => Event::JoinsCgroup(pid, "/user.slice/elsewhere.scope".to_owned()),
        8 => Event::Reports(device, report(rng)),
        _ => {
            let text = format!("query GPU {device}: it is lost");
            Event::Fails(device, gpu_core::Fault { kind: DeviceFault::Lost.into(), text })
        }
    })
}

/// Returns a random event of a device: a program error, a memory error, or loss from the bus.
fn report(rng: &mut ChaCha8Rng) -> DeviceEventKind {
    use DeviceEventKind::{CorrectedMemoryError, Error, UncorrectedMemoryError};
    pick(rng, [Error(13), Error(48), Error(79), CorrectedMemoryError, UncorrectedMemoryError])
}

/// Returns the process that reuses a PID: another user's shell.
fn successor(machine: &Machine, pid: Pid) -> Process {
    let mut info = ProcessInfo::from_name(pid, "bash");
    info.uid = Ok(1002);
    let mut process = Process::new(info);
    complete(&mut process, (&[], &machine.cards), &BTreeMap::new(), machine.clock, machine.booted);
    process
}

fn fault(rng: &mut ChaCha8Rng, machine: &Machine) -> Option<Fault> {
    let kinds = [
        ErrorKind::Machine(gpu_core::MachineFault::DriverNotLoaded),
        ErrorKind::Device(DeviceFault::Lost),
        ErrorKind::Field(Absent::NotPermitted),
        ErrorKind::Again,
        ErrorKind::TimedOut,
        ErrorKind::Process(ProcessFault::Gone),
        ErrorKind::Process(ProcessFault::NotPermitted),
        ErrorKind::Io,
        ErrorKind::Invalid,
        ErrorKind::Unsupported,
    ];
    Some(match rng.random_range(0..5) {
        0 | 1 => Fault::Error(pick(rng, kinds)),
        2 => Fault::Delay(millis(rng, 5000)),
        3 if rng.random_bool(0.5) => Fault::Hang(millis(rng, 5000)),
        3 => Fault::ListChanged,
        _ => {
            let process = machine.processes.choose(rng)?;
            Fault::Meanwhile(event(rng, machine, process)?)
        }
    })
}
