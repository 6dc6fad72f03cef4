//! `gpuws reset`: lists what blocks a reset, and with --yes resets an unblocked device.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source, sim_option};
use crate::terminal::{Line, Screen};
use crate::wording::{self, shell_word};
use clap::Args;
use gpu_core::selector::select;
use gpu_core::{Absent, ActToken, DeviceFault, ErrorKind, Observation, Selector};
use gpu_reaper::reset::{Blocker, Blockers, Check, Linked, Outcome};
use gpu_report::json;
use gpu_report::wording::reset as reset_wording;

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// The device, by index, UUID or PCI bus ID.
    #[arg(value_parser = Selector::single)]
    pub(crate) gpu: Selector,
    /// Perform the reset; without it blockers are only listed.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The result of the check and of the reset.
pub(crate) struct Reset<'a> {
    pub(crate) check: Check<'a>,
    /// The option that names a simulated machine in the suggested commands.
    pub(crate) sim: String,
    /// The result of the reset and the state of the device after it; `None` if none was requested.
    pub(crate) outcome: Option<Outcome>,
}

pub(crate) fn run(args: &ResetArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let groups = gpu_reaper::defect_groups();
    let source = source::open_for_query(global, groups, false)?;
    let now = source.detailed_snapshot(Observation { groups, ..Observation::default() });
    if let (Err(fault), true) = (&now.driver, now.devices.is_empty()) {
        return Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone())));
    }
    let chosen = select(now.devices.clone(), std::slice::from_ref(&args.gpu))?;
    let Some(device) = chosen.first() else { return Ok(Exit::CannotObserve) };
    let topology = source.backend.topology().map_err(|error| error.kind().absent());
    let linked = Linked::of(&topology, &now.devices, device.id().index);
    let sim = sim_option(&now.origin, global);
    let own = source.host.own_ancestry()?.first().map(|own| own.pid);
    let blockers = Blockers::of(&now, device, &linked, own);
    let check = Check { now: &now, device, linked, blockers };
    let outcome = if args.yes && check.may_ask(source.is_simulated()) {
        Some(carry_out(&source, &check)?)
    } else {
        None
    };
    let reset = Reset { check, sim, outcome };
    if global.json {
        screen.json(&json::Reset::of(&reset.check, reset.outcome.as_ref(), &reset.sim))?;
    } else {
        show(screen, args, global, &reset)?;
    }
    Ok(exit(&reset))
}

fn carry_out(source: &Source, check: &Check<'_>) -> Result<Outcome, Failure> {
    let journal = source.journal()?;
    let token = ActToken::user_confirmed();
    gpu_reaper::reset::reset(check, source.ports(&*journal), &token)
        .map_err(|error| Failure::from(error).ending(Exit::NotPermitted))
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
        None if !reset.check.blockers.users.is_empty() => Exit::Remains,
        None if reset.check.blockers.unknown.is_some() => Exit::NotPermitted,
        None => Exit::Done,
    }
}

fn show(
    screen: &mut Screen,
    args: &ResetArgs,
    global: &Global,
    reset: &Reset<'_>,
) -> Result<(), Failure> {
    super::doctor::show_origin(screen, global, reset.check.now)?;
    let devices = wording::devices(reset.check.now, std::slice::from_ref(reset.check.device.id()));
    let Linked { peers, whole, xgmi } = &reset.check.linked;
    for note in reset_wording::notes(&reset.check) {
        wording::flow(screen, Line::new().accent("note: "), &note)?;
    }
    if !peers.is_empty() {
        let all = std::iter::once(&reset.check.device.id().index).chain(peers);
        let all = all.map(u32::to_string).collect::<Vec<_>>().join(",");
        let what = reset_wording::together(&devices, &reset.check.linked);
        wording::flow(screen, Line::new().accent("note: "), &what)?;
        if *whole && !xgmi {
            let command = format!("sudo nvidia-smi --gpu-reset -i {all}");
            screen.print(&Line::new().padded_to(6).accent(command))?;
        }
    }
    for blocker in &reset.check.blockers.users {
        show_blocker(screen, reset, blocker)?;
    }
    let is_root = reset.check.now.is_root == Ok(true);
    if let Some(unknown) = reset.check.blockers.unknown {
        let what = format!("{}; another process may be affected", reset_wording::why(unknown));
        wording::flow(screen, Line::new().accent("unknown: "), &what)?;
        screen.print(&Line::new().padded_to(11).accent(reset_wording::remedy(unknown, is_root)))?;
    }
    match &reset.outcome {
        Some(outcome) => show_outcome(screen, &devices, reset, outcome),
        None if reset.check.blockers.is_clear() => {
            let text = format!("no process has {devices} open; it can be reset");
            screen.print(&Line::new().plain(text))?;
            if global.quiet {
                return Ok(());
            }
            let (sim, gpu) = (&reset.sim, shell_word(&args.gpu.to_string()));
            let line = Line::new().plain("nothing was done.   ");
            screen.print(&line.accent(format!("gpuws {sim}reset {gpu} --yes")))
        }
        None => screen.print(&Line::new().plain(format!("{devices} was not reset"))),
    }
}

fn show_blocker(screen: &mut Screen, reset: &Reset<'_>, blocker: &Blocker) -> Result<(), Failure> {
    let process = reset.check.now.process(blocker.pid);
    let name = process.map_or("?", |info| info.name.as_str());
    let head = Line::new().accent("blocked by ").plain(wording::process(blocker.pid, name));
    let head = head.plain(format!("  {}  ", wording::user(process)));
    wording::print_wrapped(screen, head, &reset_wording::usage(blocker))?;
    let (command, about) = reset_wording::way(&blocker.way, &reset.sim);
    wording::print_wrapped(screen, Line::new().padded_to(11).accent(command).plain("   "), about)
}

fn show_outcome(
    screen: &mut Screen,
    devices: &str,
    reset: &Reset<'_>,
    outcome: &Outcome,
) -> Result<(), Failure> {
    wording::flow(screen, Line::new(), &reset_wording::answer(devices, &outcome.answer))?;
    let before = reset.check.device.memory_used();
    let after = outcome.after.as_ref().and_then(|device| device.memory_used().ok());
    let (Ok(before), Some(after)) = (before, after) else { return Ok(()) };
    let line = format!("GPU {}: {before} → {after}", reset.check.device.id().index);
    screen.print(&Line::new().plain(line))
}
