//! `gpuws reset`: who is in the way of a reset, and with nobody left and --yes the reset itself.

use crate::args::{Global, ResetArgs, shell_word};
use crate::blockers::{Blocker, Blockers, Linked};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json;
use crate::source::{Source, sim_option};
use crate::terminal::{Line, Screen, one_line};
use crate::wording;
use gpu_core::selector::select;
use gpu_core::{
    Absent, ActToken, DeviceFault, DeviceState, ErrorKind, Fault, Groups, Journal, Origin, Pid,
    Snapshot,
};
use serde::Serialize;

/// What was found out, and what became of it.
pub(crate) struct Reset<'a> {
    pub(crate) now: &'a Snapshot,
    pub(crate) device: &'a DeviceState,
    /// The devices that are reset with it.
    pub(crate) linked: Linked,
    pub(crate) blockers: &'a Blockers,
    /// What the driver answered and how the device is after it; `None` where it was not asked.
    pub(crate) outcome: Option<Outcome>,
}

/// What the driver answered to a reset, and how the device is after it.
pub(crate) struct Outcome {
    pub(crate) answer: Result<(), Fault>,
    pub(crate) after: Option<DeviceState>,
}

pub(crate) fn run(args: &ResetArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let source = Source::open_to_look(global, Groups::NONE, false)?;
    let now = source.look();
    if let (Err(fault), true) = (&now.driver, now.devices.is_empty()) {
        return Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone())));
    }
    let chosen = select(now.devices.clone(), std::slice::from_ref(&args.gpu))?;
    let Some(device) = chosen.first() else { return Ok(Exit::CannotObserve) };
    let topology = source.backend.topology().map_err(|error| error.kind().absent());
    let linked = Linked::of(&topology, &now.devices, device.id().index);
    let sim = sim_option(&now.origin, global);
    let own = Pid(rustix::process::getpid().as_raw_nonzero().get() as u32);
    let blockers = Blockers::of(&now, device, &linked, own, &sim);
    let mut reset = Reset { now: &now, device, linked, blockers: &blockers, outcome: None };
    if args.yes && may_ask(&source, &reset) {
        reset.outcome = Some(carry_out(&source, &reset)?);
    }
    if global.json {
        screen.json(&json::Reset::of(&reset))?;
    } else {
        show(screen, args, global, &reset)?;
    }
    Ok(exit(&reset))
}

/// Tells whether the driver may be asked for the reset: surely nobody is in the way.
///
/// A simulated machine that is asked directly may be when somebody has the very file of the device
/// open, too: it then surely refuses, with the words that were recorded. Behind its NVML there is
/// nothing that would say them.
fn may_ask(source: &Source, reset: &Reset<'_>) -> bool {
    let gpu = reset.now.minor_of(reset.device).map(gpu_core::DeviceFileKind::Gpu);
    let mut files = reset.blockers.users.iter().flat_map(|blocker| &blocker.files);
    reset.blockers.is_clear() || (source.is_simulated() && files.any(|file| Some(file.kind) == gpu))
}

fn carry_out(source: &Source, reset: &Reset<'_>) -> Result<Outcome, Failure> {
    let journal = source.journal()?;
    let id = reset.device.id();
    note(&*journal, source, reset, "reset", None)?;
    let token = ActToken::user_confirmed();
    let answer = source.backend.reset(id, &token).map_err(|error| error.fault());
    let after = source.look().device(id).cloned();
    note(
        &*journal,
        source,
        reset,
        "outcome",
        Some(if answer.is_ok() { "reset" } else { "failed" }),
    )?;
    Ok(Outcome { answer, after })
}

/// A line of the audit log. Field names are a stable contract (docs/safety.md).
#[derive(Serialize)]
struct AuditLine<'a> {
    schema: u32,
    time: String,
    machine: String,
    event: &'a str,
    gpu_index: u32,
    gpu_uuid: Option<&'a str>,
    gpu_bus_id: Option<String>,
    outcome: Option<&'a str>,
}

fn note(
    journal: &dyn Journal,
    source: &Source,
    reset: &Reset<'_>,
    event: &str,
    outcome: Option<&str>,
) -> Result<(), Failure> {
    let id = reset.device.id();
    let line = AuditLine {
        schema: 1,
        time: source.clock.wall().to_string(),
        machine: match &reset.now.origin {
            Origin::Live => reset.now.hostname.clone().unwrap_or_else(|_| Origin::Live.to_string()),
            origin => origin.to_string(),
        },
        event,
        gpu_index: id.index,
        gpu_uuid: id.uuid.as_ref().ok().map(|uuid| uuid.0.as_str()),
        gpu_bus_id: id.bus.ok().map(|bus| bus.to_string()),
        outcome,
    };
    let line = one_line(&line).map_err(|error| {
        Failure::new(Exit::CannotObserve, "write an audit record").with_source(error)
    })?;
    journal.append(&line).map_err(|error| Failure::from(error).ending(Exit::NotPermitted))
}

fn exit(reset: &Reset<'_>) -> Exit {
    match reset.outcome.as_ref().map(|outcome| &outcome.answer) {
        Some(Ok(())) => Exit::Done,
        Some(Err(fault)) => match fault.kind {
            ErrorKind::Device(DeviceFault::InUse) => Exit::Remains,
            ErrorKind::Field(Absent::NotPermitted) | ErrorKind::Machine(_) => Exit::NotPermitted,
            ErrorKind::TimedOut => Exit::Deadline,
            _ => Exit::CannotObserve,
        },
        None if !reset.blockers.users.is_empty() => Exit::Remains,
        None if reset.blockers.unknown.is_some() => Exit::NotPermitted,
        None => Exit::Done,
    }
}

fn show(
    screen: &mut Screen,
    args: &ResetArgs,
    global: &Global,
    reset: &Reset<'_>,
) -> Result<(), Failure> {
    if let Some(line) = super::doctor::origin(reset.now) {
        screen.print(&line)?;
    }
    let devices = wording::devices(reset.now, std::slice::from_ref(reset.device.id()));
    let Linked { peers, whole } = &reset.linked;
    if !peers.is_empty() {
        let all: Vec<u32> = std::iter::once(reset.device.id().index).chain(peers.clone()).collect();
        let all = all.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let what = format!(
            "{devices} is connected by NVLink to {}; they are reset together.",
            ranges(peers)
        );
        wording::flow(screen, Line::new().accent("mind: "), &what)?;
        if *whole {
            let command = format!("sudo nvidia-smi --gpu-reset -i {all}");
            screen.print(&Line::new().padded_to(6).accent(command))?;
        }
    }
    for blocker in &reset.blockers.users {
        show_blocker(screen, reset.now, blocker)?;
    }
    if let Some(unknown) = reset.blockers.unknown {
        let what = format!("{}; another process may be affected", unknown.why());
        wording::flow(screen, Line::new().accent("unknown: "), &what)?;
        screen.print(&Line::new().padded_to(11).accent(unknown.remedy()))?;
    }
    match &reset.outcome {
        Some(outcome) => show_outcome(screen, &devices, reset, outcome),
        None if reset.blockers.is_clear() => {
            screen.print(
                &Line::new().plain(format!("no process has {devices} open; it can be reset")),
            )?;
            let sim = sim_option(&reset.now.origin, global);
            let gpu = shell_word(&args.gpu.to_string());
            let line = Line::new().plain("nothing was done.   ");
            screen.print(&line.accent(format!("gpuws {sim}reset {gpu} --yes")))
        }
        None => screen.print(&Line::new().plain(format!("{devices} was not reset"))),
    }
}

fn ranges(indexes: &[u32]) -> String {
    let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
    format!("{word} {}", wording::ranges(indexes))
}

fn show_blocker(screen: &mut Screen, now: &Snapshot, blocker: &Blocker) -> Result<(), Failure> {
    let process = now.process(blocker.pid);
    let name = process.map_or("?", |info| info.name.as_str());
    let files = blocker.files.iter().map(|held| held.path.rsplit('/').next().unwrap_or_default());
    let files = files.collect::<Vec<_>>().join(" ");
    let what = match (files.is_empty(), blocker.role) {
        (true, _) => format!("listed by NVML on {}", ranges(&blocker.devices)),
        (false, gpu_reaper::Role::MemoryUser) => {
            format!("uses {}: has {files}", ranges(&blocker.devices))
        }
        (false, role) => format!("{}: has {files} open", wording::role(role)),
    };
    let head = Line::new().accent("blocked by ").plain(wording::process(blocker.pid, name));
    let head = head.plain(format!("  {}  ", wording::user(process)));
    wording::print_wrapped(screen, head, &what)?;
    let (command, about) = &blocker.way;
    wording::print_wrapped(screen, Line::new().padded_to(11).accent(command).plain("   "), about)
}

fn show_outcome(
    screen: &mut Screen,
    devices: &str,
    reset: &Reset<'_>,
    outcome: &Outcome,
) -> Result<(), Failure> {
    match &outcome.answer {
        Ok(()) => screen.print(&Line::new().plain(format!("{devices} was reset")))?,
        Err(fault) => {
            let head = Line::new().accent(format!("{devices} was not reset: "));
            wording::flow(screen, head, &said(&fault.text))?;
        }
    }
    let memory = |device: Option<&DeviceState>| match device.map(DeviceState::memory_used) {
        Some(Ok(bytes)) => bytes.to_string(),
        Some(Err(absent)) => format!("({absent})"),
        None => "(no longer visible)".to_owned(),
    };
    let before = memory(Some(reset.device));
    let after = memory(outcome.after.as_ref());
    let line = format!("GPU {}: {before} → {after}", reset.device.id().index);
    screen.print(&Line::new().plain(line))
}

/// What the driver said, of which the lines are made one.
fn said(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
