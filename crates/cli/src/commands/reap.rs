//! `gpuws reap`: plan, act, proof.

use crate::args::{Global, ReapArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json;
use crate::selector::indexes;
use crate::source::{Source, sim_option};
use crate::terminal::{Line, Screen, clean};
use crate::words;
use gpu_core::{ActToken, DeviceId, ErrorKind, Groups, Snapshot};
use gpu_reaper::{
    Diagnosis, Event, Freed, Guard, Membership, Outcome, Plan, Protect, Report, Request, Scope,
    Target, Why,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) fn run(args: &ReapArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let source = Source::open_to_look(global, Groups::NONE, false)?;
    let looks = source.two_looks();
    let Some(now) = looks.last() else { return Ok(Exit::Done) };
    if let (Err(fault), true, true) = (&now.driver, now.devices.is_empty(), args.pid.is_empty()) {
        return Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone())));
    }
    let diagnosis = gpu_reaper::diagnose(&looks);
    let request = request(args, now)?;
    protects_somebody(&source, &args.protect)?;
    let guard = Guard::new(&*source.host, args.protect.clone())?;
    let plan = plan(&source, &looks, &diagnosis, &guard, &request)?;
    if !global.json {
        if let Some(line) = super::doctor::origin(now) {
            screen.print(&line)?;
        }
        show_plan(screen, now, &diagnosis, &plan, args.yes)?;
    }
    if !args.yes {
        if global.json {
            screen.json(&json::Reap::of(now, &plan, None))?;
        } else if !global.quiet {
            not_done(screen, args, global, &source, now, &plan)?;
        }
        return Ok(Exit::Done);
    }
    let report = carry_out(&source, &plan, &guard, (!global.json).then_some(&mut *screen))?;
    if global.json {
        screen.json(&json::Reap::of(now, &plan, Some(&report)))?;
    } else {
        show_report(screen, &report)?;
    }
    Ok(exit(&plan, &report))
}

/// Ends with 0 only when all that was asked for is gone and its memory back.
fn exit(plan: &Plan, report: &Report) -> Exit {
    match &report.stopped {
        Some(fault) if fault.kind == ErrorKind::Interrupted => return Exit::Remains,
        Some(fault) if fault.kind == ErrorKind::Io => return Exit::NotPermitted,
        Some(_) => return Exit::CannotObserve,
        None => {}
    }
    let denied = report.actions.iter().any(|action| {
        matches!(&action.outcome, Outcome::Failed { why }
            if why.kind == gpu_core::ErrorKind::Process(gpu_core::ProcessFault::NotPermitted))
    });
    match (report.is_complete() && plan.refused.is_empty(), denied) {
        (true, _) => Exit::Done,
        (false, true) => Exit::NotPermitted,
        (false, false) => Exit::Remains,
    }
}

/// Makes sure that whom the user wants protected exists: a name that is mistyped protects nobody.
fn protects_somebody(source: &Source, protect: &[Protect]) -> Result<(), Failure> {
    if protect.is_empty() {
        return Ok(());
    }
    let everyone = source.host.processes()?.processes;
    match protect.iter().find(|protect| !everyone.iter().any(|process| protect.covers(process))) {
        None => Ok(()),
        Some(nobody) => {
            let word = match nobody {
                Protect::Pid(pid) => pid.to_string(),
                Protect::Name(name) => name.clone(),
                Protect::User(user) => format!("user:{user}"),
            };
            Err(Failure::new(Exit::Usage, format!("protect '{word}'"))
                .with_source("no process that can be seen has that number, name or user")
                .with_hint("a process is named as ps -e shows it, a user as user:NAME"))
        }
    }
}

fn request(args: &ReapArgs, now: &Snapshot) -> Result<Request, Failure> {
    let gpus = indexes(&now.devices, &args.gpu)?;
    let devices = now.devices.iter().map(|device| device.id());
    let devices: Vec<DeviceId> = devices.filter(|id| gpus.contains(&id.index)).cloned().collect();
    Ok(Request {
        pids: args.pid.clone(),
        devices,
        users: args.user.clone(),
        scope: args.scope,
        grace: args.grace(),
    })
}

/// Makes the plan; a scope wider than a process needs to know everybody.
pub(crate) fn plan(
    source: &Source,
    looks: &[Snapshot],
    diagnosis: &Diagnosis,
    guard: &Guard,
    request: &Request,
) -> Result<Plan, Failure> {
    let everyone = if request.scope == Scope::Process && request.pids.is_empty() {
        Vec::new()
    } else {
        source.host.processes()?.processes
    };
    Ok(gpu_reaper::plan(looks, diagnosis, &everyone, guard, request))
}

/// Carries a plan out, telling each step on `screen`.
pub(crate) fn carry_out(
    source: &Source,
    plan: &Plan,
    guard: &Guard,
    screen: Option<&mut Screen>,
) -> Result<Report, Failure> {
    if plan.targets.is_empty() {
        return Ok(Report::nothing());
    }
    let journal = source.journal()?;
    let token = ActToken::the_user_asked();
    // From here on Ctrl-C does not leave a process half ended without a word.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Failure::io("watch for Ctrl-C", error))?;
    }
    let mut teller = Teller { screen, interrupted, told_waiting: false, failure: None };
    let report = gpu_reaper::execute(plan, guard, source.ports(&*journal), &token, &mut |event| {
        teller.tell(event)
    });
    let Some(failure) = teller.failure else { return Ok(report) };
    // What was done must be told somewhere, when standard output cannot take it.
    for action in &report.actions {
        let _ = writeln!(
            std::io::stderr(),
            "gpuws: {} {}: {:?}",
            action.pid,
            clean(&action.name),
            action.outcome
        );
    }
    Err(failure)
}

/// Tells what happens while it happens. An output that fails does not stop an act halfway.
struct Teller<'a> {
    screen: Option<&'a mut Screen>,
    interrupted: Arc<AtomicBool>,
    told_waiting: bool,
    failure: Option<Failure>,
}

impl Teller<'_> {
    /// Tells an event, and whether to go on: not once somebody pressed Ctrl-C.
    fn tell(&mut self, event: Event<'_>) -> ControlFlow<()> {
        self.print(event);
        match self.interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn print(&mut self, event: Event<'_>) {
        let process = |target: &Target| words::process(target.key.pid, &target.process.name);
        let line = match event {
            Event::Signalled(target, signal) => {
                self.told_waiting = false;
                Line::new().accent(signal.to_string()).plain(format!("  {}", process(target)))
            }
            Event::Settled(target, outcome) => Line::new()
                .plain("         ")
                .plain(format!("{} ", process(target)))
                .line(became(outcome)),
            Event::StillThere(target, after) => Line::new()
                .plain(format!("         {} ", process(target)))
                .accent(format!("still there after {:.1} s", after.as_secs_f64())),
            Event::WaitingForEnd(left, waited) if self.is_late(waited) => {
                let left = words::count(left, "process", "processes");
                Line::new().dim(format!("         … waiting for {left} to end"))
            }
            Event::WaitingForMemory(waited) if self.is_late(waited) => {
                Line::new().dim("         … waiting for the memory to come back")
            }
            Event::WaitingForEnd(..) | Event::WaitingForMemory(_) => return,
        };
        if let Some(screen) = &mut self.screen
            && let Err(failure) = screen.print(&line)
        {
            self.failure.get_or_insert(failure);
        }
    }

    /// What lasts longer than a second is told, once.
    fn is_late(&mut self, waited: Duration) -> bool {
        waited >= Duration::from_secs(1) && !std::mem::replace(&mut self.told_waiting, true)
    }
}

fn became(outcome: &Outcome) -> Line {
    let line = Line::new();
    match outcome {
        Outcome::NotReached => line.accent("was not reached"),
        Outcome::Unsettled => line.accent("was not waited for to its end"),
        Outcome::AlreadyGone => line.plain("was gone already"),
        Outcome::Ended { after_ms } => {
            line.plain(format!("gone after {:.1} s", *after_ms as f64 / 1000.0))
        }
        Outcome::LetGo => line.plain("let go of the device by itself; nothing more was sent"),
        Outcome::NotTheSame => line.accent("is another process by now; nothing was sent"),
        Outcome::Protected => line.accent("is protected; nothing was sent"),
        Outcome::Spared => line.plain("spared with the process that it was in the scope of"),
        Outcome::Survived { state: Ok(gpu_core::ProcessState::Uninterruptible) } => {
            line.accent("survived SIGKILL: state D, it ends when its wait does")
        }
        Outcome::Survived { .. } => line.accent("survived SIGKILL"),
        Outcome::Failed { why } => line.accent(format!("could not be ended: {why}")),
    }
}

/// Prints the whole plan.
pub(crate) fn show_plan(
    screen: &mut Screen,
    now: &Snapshot,
    diagnosis: &Diagnosis,
    plan: &Plan,
    yes: bool,
) -> Result<(), Failure> {
    let verb = if yes { "will send SIGTERM to " } else { "would send SIGTERM to " };
    for target in &plan.targets {
        let about = about(now, target);
        let head =
            Line::new().plain(verb).accent(words::process(target.key.pid, &target.process.name));
        words::flow(screen, head.plain(" "), &format!("({about})"))?;
        for warning in &target.warnings {
            words::flow(screen, Line::new().plain("  ").accent("mind: "), warning)?;
        }
    }
    if !plan.targets.is_empty() {
        let they = if plan.targets.len() == 1 { "it is" } else { "they are" };
        let grace = plan.grace.as_secs();
        screen.print(
            &Line::new().plain(format!("  after {grace} s SIGKILL, if {they} still there")),
        )?;
    }
    for expected in &plan.expected {
        let device = format!("GPU {}", expected.device.index);
        let line = match expected.memory {
            Some(bytes) => format!("frees up to {bytes} on {device}"),
            None => format!("frees memory on {device}; how much is not known"),
        };
        screen.print(&Line::new().plain(line))?;
    }
    for refused in &plan.refused {
        let who = words::process(refused.pid, refused.name.as_deref().unwrap_or(""));
        words::flow(
            screen,
            Line::new().accent("refused ").plain(who.trim_end()).plain(": "),
            &refused.why.to_string(),
        )?;
    }
    for left_out in &plan.left_out {
        let who = words::process(left_out.pid, left_out.name.as_deref().unwrap_or("?"));
        words::flow(
            screen,
            Line::new().dim("left out ").plain(who).plain(": "),
            &left_out.why.to_string(),
        )?;
    }
    if plan.targets.is_empty() && plan.refused.is_empty() && plan.left_out.is_empty() {
        let line = if diagnosis.findings.is_empty() {
            "nothing to reap: no memory is held that should not be"
        } else {
            "nothing to reap without a number: no finding names a process with high confidence"
        };
        words::flow(screen, Line::new(), line)?;
    }
    Ok(())
}

fn about(now: &Snapshot, target: &Target) -> String {
    let mut parts = vec![words::user(Ok(&target.process)).into_owned()];
    if let Ok(at) = target.process.started_at {
        parts.push(format!("started {}", words::started(at, now.taken_at)));
    }
    parts.push(match &target.membership {
        Membership::Holds(minors) => {
            let names: Vec<String> = minors.iter().map(|minor| format!("nvidia{minor}")).collect();
            format!("holds {}", names.join(" "))
        }
        Membership::Group(group) => format!("in process group {group}"),
        Membership::Cgroup(cgroup) => format!("in {cgroup}"),
        Membership::Descends(root) => format!("descends from {root}"),
    });
    parts.push(target.why.clone());
    parts.join(", ")
}

fn not_done(
    screen: &mut Screen,
    args: &ReapArgs,
    global: &Global,
    source: &Source,
    now: &Snapshot,
    plan: &Plan,
) -> Result<(), Failure> {
    let line = Line::new().plain("nothing was done.");
    if !source.can_end_processes && !plan.targets.is_empty() {
        let line = line.plain("   real processes stand for them within ");
        return screen.print(&line.accent("gpuws sim --live"));
    }
    if plan.targets.is_empty() {
        let sim = sim_option(&now.origin, global);
        return screen.print(&line.plain("   ").accent(format!("gpuws {sim}doctor")));
    }
    screen.print(&line.plain("   ").accent(args.again_with_yes(&sim_option(&now.origin, global))))
}

/// Prints the proof: what came back of what was expected.
pub(crate) fn show_report(screen: &mut Screen, report: &Report) -> Result<(), Failure> {
    if let Some(fault) = &report.stopped {
        let why = match fault.kind {
            ErrorKind::Interrupted => "you asked to; nothing more was sent".to_owned(),
            _ => format!("failed to {fault}; nothing more was sent"),
        };
        words::flow(screen, Line::new().accent("stopped: "), &why)?;
    }
    report.memory.iter().try_for_each(|freed| screen.print(&proof(freed)))?;
    let mind = || Line::new().accent("mind: ");
    let newcomers = match &report.newcomers {
        Ok(newcomers) => newcomers,
        Err(absent) => {
            let what =
                format!("whether somebody took the devices again could not be seen: {absent}");
            return words::flow(screen, mind(), &what);
        }
    };
    for newcomer in newcomers {
        let who = words::process(newcomer.pid, newcomer.name.as_deref().unwrap_or("?"));
        let what = match newcomer.why {
            Why::TookTheDevice => format!(
                "has taken the device since; what starts it is told by systemctl status {}",
                newcomer.pid
            ),
            Why::JoinedTheScope => "came into the scope meanwhile and lives".to_owned(),
        };
        words::flow(screen, mind().plain(who).plain(" "), &what)?;
    }
    Ok(())
}

fn proof(freed: &Freed) -> Line {
    let line = Line::new().plain(format!("GPU {}: ", freed.device.index));
    let (Ok(before), Ok(after), Some(bytes)) = (freed.before, freed.after, freed.freed) else {
        let reason =
            freed.after.err().or(freed.before.err()).map_or(String::new(), |why| why.to_string());
        return line.accent(format!("whether memory came back is not known: {reason}"));
    };
    let before = before.to_string();
    let line = line.plain(format!("{} → {after}   ", before.trim_end_matches(" MiB")));
    let seen = format!("{:.1} s later", freed.seen_after.as_secs_f64());
    match (freed.came_back, bytes.0) {
        (true, _) => line.plain(format!("freed {bytes}, seen {seen}")),
        (false, 0) => line.accent("did not come back"),
        (false, _) => {
            let expected =
                freed.expected.map_or(String::new(), |expected| format!(" of {expected}"));
            line.accent(format!("freed {bytes}{expected}; the rest did not come back"))
        }
    }
}
