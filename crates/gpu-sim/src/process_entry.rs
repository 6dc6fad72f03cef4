//! A `[[process]]` of `machine.toml`.

use crate::cards::{Cards, entry};
use crate::date::timestamp;
use crate::device_entry::set;
use crate::file::{EventEntry, MemoryEntry, ProcessEntry, ReactionEntry};
use crate::machine::{Device, Holding, Machine, Process, Reaction};
use crate::toml_source::TomlSource;
use gpu_core::{
    Absent, Access, Bytes, DeviceProcessKind, Error, HeldFile, Pid, ProcessInfo, ProcessState,
    Result, StartTime, Timestamp, Workload,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Returns an error about one process.
pub(crate) fn error(source: TomlSource<'_>, entry: &ProcessEntry, what: &str) -> Error {
    let what = format!("process {} {what}", entry.pid.get_ref());
    source.error(Some(entry.pid.span()), &what)
}

/// Adds the process that `entry` describes, or applies the entry to a recorded one.
pub(crate) fn overlay(
    machine: &mut Machine,
    source: TomlSource<'_>,
    entry: &ProcessEntry,
) -> Result<()> {
    let pid = Pid(*entry.pid.get_ref());
    let position = machine.processes.iter().position(|process| process.pid() == pid);
    let recorded = position.map(|position| machine.processes.swap_remove(position));
    let process = read(machine, recorded, source, entry)?;
    machine.processes.push(process);
    Ok(())
}

/// Returns the process that `entry` describes, on top of its `recorded` data.
pub(crate) fn read(
    machine: &Machine,
    recorded: Option<Process>,
    source: TomlSource<'_>,
    entry: &ProcessEntry,
) -> Result<Process> {
    let pid = Pid(*entry.pid.get_ref());
    if pid == Pid(0) {
        return Err(error(source, entry, "is invalid: PIDs start at 1"));
    }
    let Some(mut process) = recorded
        .or_else(|| entry.name.as_ref().map(|n| Process::new(ProcessInfo::from_name(pid, n))))
    else {
        return Err(error(source, entry, "has no name and is not in any recording"));
    };
    if entry.name.is_some() {
        process.hidden = None;
    }
    if entry.gone == Some(true) {
        process.hidden = Some(Absent::NotFound);
    }
    overlay_info(&mut process.info, source, entry)?;
    if let Some(namespace) = &entry.namespace {
        process.namespace = Some((namespace.name.clone(), Pid(namespace.pid)));
    }
    if let Some(memory) = &entry.memory {
        let holdings: Result<_> =
            memory.iter().map(|memory| holding(machine, source, entry, memory)).collect();
        process.holdings = holdings?;
    }
    if let Some(files) = &entry.files {
        let files: Result<_> = files
            .iter()
            .map(|(path, letters)| {
                held_file(path, letters.get_ref()).ok_or_else(|| {
                    let what = format!("'{}' is not a fuser access string", letters.get_ref());
                    source.error(Some(letters.span()), &what)
                })
            })
            .collect();
        process.files = Arc::new(files?);
    }
    process.opened_kfd = entry.opened_kfd.unwrap_or(process.opened_kfd);
    overlay_reactions(&mut process, source, entry)?;
    Ok(process)
}

fn overlay_info(
    info: &mut ProcessInfo,
    source: TomlSource<'_>,
    entry: &ProcessEntry,
) -> Result<()> {
    if let Some(name) = &entry.name {
        if name.len() > 15 {
            let what = format!("has the name '{name}', longer than the kernel's limit of 15 bytes");
            return Err(error(source, entry, &what));
        }
        info.name.clone_from(name);
    }
    set(&mut info.command_line, entry.command_line.clone().map(Arc::from));
    set(&mut info.uid, entry.uid);
    set(&mut info.user, entry.user.clone());
    set(&mut info.parent, entry.parent.map(Pid));
    set(&mut info.group, entry.group.map(Pid));
    set(&mut info.session, entry.session.map(Pid));
    set(&mut info.cgroup, entry.cgroup.clone());
    set(&mut info.ignores_hangup, entry.ignores_hangup);
    set(&mut info.tracer, entry.tracer.map(Pid));
    set(&mut info.state, entry.state);
    set(&mut info.live_threads, entry.threads);
    set(&mut info.cpu_time, entry.cpu_time_ms.map(Duration::from_millis));
    if let Some(workload) = &entry.workload {
        let Some(cgroup) = entry.cgroup.clone() else {
            return Err(error(source, entry, "has a workload but no cgroup"));
        };
        let (kind, id) = (workload.kind, workload.id.clone());
        info.workload = Some(Box::new(Workload { kind, id, cgroup }));
    }
    if let Some(started) = &entry.started {
        let started = timestamp(started);
        let what = "has an invalid start; expected e.g. 2026-11-21T09:00:00Z";
        let started = started.ok_or_else(|| error(source, entry, what))?;
        info.started_at = Ok(started);
    }
    info.kernel_thread = entry.kernel_thread.unwrap_or(info.kernel_thread);
    Ok(())
}

fn overlay_reactions(
    process: &mut Process,
    source: TomlSource<'_>,
    entry: &ProcessEntry,
) -> Result<()> {
    if let Some(percent) = entry.cpu_percent {
        process.cpu_percent = percent;
    }
    if let Some(kill) = entry.on_kill {
        process.on_kill = reaction(kill);
        if process.on_kill == Reaction::Ignores {
            return Err(error(source, entry, "cannot ignore SIGKILL; use 'stuck'"));
        }
        if let Reaction::Stuck(_) = process.on_kill {
            process.on_term = process.on_kill;
        }
    }
    if let Some(term) = entry.on_term {
        process.on_term = reaction(term);
    }
    if let Some(millis) = entry.memory_returns_after_ms {
        process.memory_returns = Some(Duration::from_millis(millis));
    }
    if entry.leaks_memory == Some(true) {
        process.memory_returns = None;
    }
    if let Some(millis) = entry.respawns_after_ms {
        process.respawns = Some(Duration::from_millis(millis));
    }
    Ok(())
}

fn reaction(entry: ReactionEntry) -> Reaction {
    match entry {
        ReactionEntry::Ignores => Reaction::Ignores,
        ReactionEntry::ExitsAfterMs(millis) => Reaction::ExitsAfter(Duration::from_millis(millis)),
        ReactionEntry::Stuck => Reaction::Stuck(None),
        ReactionEntry::StuckUntilMs(millis) => Reaction::Stuck(Some(Duration::from_millis(millis))),
        ReactionEntry::LeavesThreads => Reaction::LeavesThreads,
    }
}

fn holding(
    machine: &Machine,
    source: TomlSource<'_>,
    entry: &ProcessEntry,
    memory: &MemoryEntry,
) -> Result<Holding> {
    if let Some(card) = &memory.card {
        let held = entry::holding(&machine.cards, memory, card);
        return held.map_err(|what| error(source, entry, &what));
    }
    let Some(gpu) = memory.gpu else {
        return Err(error(source, entry, "has memory without a 'gpu' or a 'card'; add one"));
    };
    let numbers = [memory.host_mib.is_some(), memory.client.is_some(), memory.partition.is_some()];
    if memory.inherited || numbers.contains(&true) {
        let what = "has memory on a GPU with a field of cards: 'host_mib', 'client', 'inherited' or \
                    'partition'";
        return Err(error(source, entry, what));
    }
    let Some(device) = machine.devices.iter().find(|device| device.info.id.index == gpu) else {
        let what = format!("has memory on GPU {gpu}, which is not in this machine");
        return Err(error(source, entry, &what));
    };
    let instance = memory.gpu_instance;
    if instance.is_some() && !device.mig.iter().any(|mig| mig.gpu_instance == instance) {
        return Err(error(source, entry, "has memory in a GPU instance that does not exist"));
    }
    let load = memory.utilization_percent;
    if load.is_some_and(|load| load > 100) {
        return Err(error(source, entry, "uses more than 100 percent of a device"));
    }
    Ok(Holding {
        listed: memory.listed.then_some(memory.kind),
        load: load.unwrap_or(0),
        memory_untold: (!memory.reported).then_some(Absent::NotSupported),
        load_untold: load.is_none().then_some(Absent::NotSupported),
        gpu_instance: instance,
        compute_instance: memory.compute_instance,
        ..Holding::new(gpu, Bytes::from_mib(memory.mib))
    })
}

/// Returns a file with the access that fuser's letters describe.
pub(crate) fn held_file(path: &str, letters: &str) -> Option<HeldFile> {
    let access = Access::from_letters(letters).filter(|access| !access.is_empty())?;
    Some(gpu_nvidia_driver::held_file(path, access))
}

/// Returns the users of a machine with their UIDs: as stated, root 0, the others from 1001 on in
/// the order of their names.
pub(crate) fn users(machine: &Machine, events: &[EventEntry]) -> BTreeMap<String, u32> {
    let mut users = BTreeMap::from([("root".to_owned(), 0)]);
    let infos = machine.processes.iter().map(|process| &process.info);
    let mut named: Vec<(Option<String>, Option<u32>)> =
        infos.map(|info| (info.user.clone().ok(), info.uid.ok())).collect();
    let started = events.iter().filter_map(|event| event.start.as_ref());
    named.extend(started.map(|entry| (entry.user.clone(), entry.uid)));
    for (user, uid) in &named {
        if let (Some(user), Some(uid)) = (user, uid) {
            users.insert(user.clone(), *uid);
        }
    }
    let mut unnumbered: Vec<String> = named.into_iter().filter_map(|(user, _)| user).collect();
    unnumbered.sort();
    let mut next = 1001;
    for user in unnumbered {
        if !users.contains_key(&user) {
            while users.values().any(|uid| *uid == next) {
                next += 1;
            }
            users.insert(user, next);
        }
    }
    users
}

/// Returns the name of a user with only a UID.
pub(crate) fn user_name(uid: u32) -> String {
    if uid == 0 { "root".to_owned() } else { format!("user{uid}") }
}

/// Fills in values that a live machine would show and that neither recording nor file has.
pub(crate) fn complete(
    process: &mut Process,
    (devices, cards): (&[Device], &Cards),
    users: &BTreeMap<String, u32>,
    clock: Timestamp,
    booted: Timestamp,
) {
    let info = &mut process.info;
    let pid = info.key.pid;
    if let (Err(_), Ok(user)) = (info.uid, &info.user) {
        info.uid = users.get(user).copied().ok_or(Absent::NotFound);
    }
    let uid = info.uid.unwrap_or(if info.kernel_thread { 0 } else { 1000 });
    let named = users.iter().find(|(_, known)| **known == uid).map(|(name, _)| name.clone());
    fill(&mut info.uid, uid);
    fill(&mut info.user, named.unwrap_or_else(|| user_name(uid)));
    fill(&mut info.parent, Pid(if pid.0 == 1 { 0 } else { 1 }));
    fill(&mut info.group, pid);
    fill(&mut info.session, info.group.unwrap_or(pid));
    fill(&mut info.ignores_hangup, false);
    if info.tracer == Err(Absent::NotRecorded) {
        info.tracer = Err(Absent::NotFound);
    }
    fill(&mut info.state, ProcessState::Sleeping);
    fill(&mut info.live_threads, 1);
    fill(&mut info.cpu_time, Duration::from_secs(60));
    fill(&mut info.started_at, Timestamp(clock.0.saturating_sub(3_600_000)));
    let line = if info.kernel_thread { Vec::new() } else { vec![info.name.clone()] };
    fill(&mut info.command_line, line.into());
    let slice = match uid {
        0 => format!("/system.slice/{}.service", info.name),
        _ => format!("/user.slice/user-{uid}.slice/session-{}.scope", info.session.unwrap_or(pid)),
    };
    fill(&mut info.cgroup, slice);
    let started = info.started_at.unwrap_or(clock);
    info.key.start = Some(ticks(started.since(booted)));
    if process.files.is_empty() && process.hidden.is_none() {
        let (cards_own, own): (Vec<_>, Vec<_>) =
            process.holdings.iter().cloned().partition(|holding| holding.client.is_some());
        let mut files = default_files(&own, devices);
        files.extend(cards.files_of(&cards_own));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup();
        process.files = Arc::new(files);
    }
}

fn fill<T>(reading: &mut gpu_core::Reading<T>, value: T) {
    if reading.is_err() {
        *reading = Ok(value);
    }
}

/// Converts a time since boot into clock ticks of 10 ms.
pub(crate) fn ticks(since_boot: Duration) -> StartTime {
    StartTime(u64::try_from(since_boot.as_millis() / 10).unwrap_or(u64::MAX))
}

/// Returns the files of a process with these allocations.
pub(crate) fn default_files(holdings: &[Holding], devices: &[Device]) -> Vec<HeldFile> {
    let minors = holdings.iter().filter_map(|holding| {
        let device = devices.iter().find(|device| device.info.id.index == holding.device)?;
        device.info.id.minor().ok()
    });
    if holdings.is_empty() {
        return Vec::new();
    }
    let graphics = |holding: &Holding| holding.listed == Some(DeviceProcessKind::Graphics);
    let mut files = context_files(minors, holdings.iter().all(graphics));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup();
    files
}

/// Returns the files that a program with a graphics or CUDA context on these devices has.
pub(crate) fn context_files(minors: impl Iterator<Item = u32>, graphics: bool) -> Vec<HeldFile> {
    let gpus = minors.map(|minor| held_file(&format!("/dev/nvidia{minor}"), "F...m"));
    let kind = if graphics {
        held_file("/dev/nvidia-modeset", "F....")
    } else {
        held_file("/dev/nvidia-uvm", "F...m")
    };
    gpus.chain([kind, held_file("/dev/nvidiactl", "F...m")]).flatten().collect()
}
