//! `gpuws reap`: plans, executes and verifies.

mod act;
mod args;
mod render;

pub(crate) use act::carry_out;
pub(crate) use args::{Reach, ReapArgs};
pub(crate) use render::{show, show_plan, show_report};

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::selector::chosen;
use crate::source::{self, Source, sim_option};
use crate::terminal::{Line, Screen};
use gpu_core::{
    DeviceId, ErrorKind, Groups, Origin, ProcessFault, ProcessInfo, Snapshot, look_up_processes,
};
use gpu_reaper::{Guard, Outcome, Plan, Protect, Report, Request, Scope};
use gpu_report::json;
use gpu_report::wording::reap;

pub(crate) fn run(args: &ReapArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let source = source::open_for_query(global, Groups::NONE, false)?;
    let mut snapshots = source.two_snapshots();
    if let Some(last) = snapshots.last_mut() {
        look_up_processes(&*source.host, last, &args.pid);
    }
    let Some(now) = snapshots.last() else { return Ok(Exit::Done) };
    if let (Err(fault), true, true) = (&now.driver, now.devices.is_empty(), args.pid.is_empty()) {
        return Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone())));
    }
    let diagnosis = gpu_reaper::diagnose(&snapshots);
    let everyone = match args.scope {
        Reach::Process => Vec::new(),
        Reach::Group | Reach::Container => source.host.processes()?.processes,
    };
    let request = request(args, now, &everyone)?;
    check_protected(&source, &args.protect)?;
    check_users(&source, &args.user, global)?;
    let guard = Guard::new(&*source.host, args.protect.clone())?;
    let plan = gpu_reaper::plan(&snapshots, &diagnosis, &guard, &request);
    if !global.json {
        super::doctor::show_origin(screen, global, now)?;
        show_plan(screen, now, &diagnosis, &plan, args.yes)?;
        if args.pid.is_empty() {
            let sim = sim_option(&now.origin, global);
            show(screen, reap::untouched(now, &diagnosis, &plan, &sim))?;
        }
    }
    if !args.yes {
        if global.json {
            screen.json(&json::Reap::of(now, &plan, None))?;
        } else if !global.quiet {
            not_done(screen, args, global, &source, now, &plan)?;
        }
        return match &now.driver {
            // Without a driver, only holders of device files can be targets.
            Err(fault) if now.devices.is_empty() && plan.targets.is_empty() => {
                Err(gpu_core::Error::new(fault.kind, fault.text.clone()).into())
            }
            _ => Ok(Exit::Done),
        };
    }
    let report = carry_out(&source, &plan, &guard, (!global.json).then_some(&mut *screen))?;
    if global.json {
        screen.json(&json::Reap::of(now, &plan, Some(&report)))?;
    } else {
        show_report(screen, &report)?;
    }
    Ok(exit(&plan, &report))
}

/// Returns 0 only if all targets ended and their memory was freed.
fn exit(plan: &Plan, report: &Report) -> Exit {
    match &report.stopped {
        Some(fault) if fault.kind == ErrorKind::Interrupted => return Exit::Remains,
        Some(fault) if fault.kind == ErrorKind::Io => return Exit::NotPermitted,
        Some(_) => return Exit::CannotObserve,
        None => {}
    }
    let denied = report.actions.iter().any(|action| {
        matches!(&action.outcome, Outcome::Failed { why }
            if why.kind == ErrorKind::Process(ProcessFault::NotPermitted))
    });
    match (report.is_complete() && plan.refused.is_empty(), denied) {
        (true, _) => Exit::Done,
        (false, true) => Exit::NotPermitted,
        (false, false) => Exit::Remains,
    }
}

/// Rejects a `--protect` value that matches no process: a misspelled name would protect none.
fn check_protected(source: &Source, protect: &[Protect]) -> Result<(), Failure> {
    if protect.is_empty() {
        return Ok(());
    }
    let everyone = source.host.processes()?.processes;
    match protect.iter().find(|protect| !everyone.iter().any(|process| protect.covers(process))) {
        None => Ok(()),
        Some(unmatched) => {
            let word = match unmatched {
                Protect::Pid(pid) => pid.to_string(),
                Protect::Name(name) => name.clone(),
                Protect::User(user) => format!("user:{user}"),
            };
            Err(Failure::new(Exit::Usage, format!("protect '{word}'"))
                .with_source("no visible process matches this PID, name or user")
                .with_hint("use a process name as in ps -e, or user:NAME"))
        }
    }
}

/// The error for an unknown user.
pub(super) const NO_USER: &str = "no such user, and no visible process belongs to them";

/// Rejects an unknown user, for which the command would have no effect.
fn check_users(source: &Source, users: &[String], global: &Global) -> Result<(), Failure> {
    match source.unknown_user(users)? {
        None => Ok(()),
        Some(user) => Err(Failure::new(Exit::Usage, format!("reap for user '{user}'"))
            .with_source(NO_USER)
            .with_hint(match source.host.origin() {
                Origin::Live => "see who uses the GPUs: gpuws holders".to_owned(),
                origin => {
                    format!("see who uses the GPUs: gpuws {}holders", sim_option(&origin, global))
                }
            })),
    }
}

fn request<'a>(
    args: &ReapArgs,
    now: &Snapshot,
    everyone: &'a [ProcessInfo],
) -> Result<Request<'a>, Failure> {
    let gpus = chosen(now, &args.gpu)?;
    let devices = now.devices.iter().map(|device| device.id());
    let devices: Vec<DeviceId> = devices.filter(|id| gpus.contains(&id.index)).cloned().collect();
    Ok(Request {
        pids: args.pid.clone(),
        suspects: Vec::new(),
        seen: Vec::new(),
        devices,
        users: args.user.clone(),
        scope: match args.scope {
            Reach::Process => Scope::Process,
            Reach::Group => Scope::Group(everyone),
            Reach::Container => Scope::Container(everyone),
        },
        grace: args.grace,
    })
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
        let line = line.plain("   to act on real placeholder processes, use ");
        return screen.print(&line.accent("gpuws sim --live"));
    }
    if plan.targets.is_empty() {
        let sim = sim_option(&now.origin, global);
        return screen.print(&line.plain("   ").accent(format!("gpuws {sim}doctor")));
    }
    screen.print(&line.plain("   ").accent(args.again_with_yes(&sim_option(&now.origin, global))))
}

#[cfg(test)]
mod tests {
    use super::*;

    use gpu_core::{Absent, Fault, Pid, Reading};
    use gpu_reaper::{Action, Newcomer, Refusal, Refused, Role};

    fn fault(kind: impl Into<ErrorKind>) -> Fault {
        Fault { kind: kind.into(), text: "end process 7".into() }
    }

    fn exit_of(outcome: Outcome) -> Exit {
        let (pid, name) = (Pid(7), "python".to_owned());
        let action = Action { pid, name, signals: Vec::new(), outcome };
        exit(&Plan::default(), &Report { actions: vec![action], ..Report::nothing() })
    }

    #[test]
    fn exit_code_reflects_target_outcomes() {
        let failed = |kind: ErrorKind| exit_of(Outcome::Failed { why: fault(kind) });
        assert_eq!(exit_of(Outcome::Ended { after_ms: 0 }), Exit::Done);
        assert_eq!(exit_of(Outcome::AlreadyGone), Exit::Done);
        assert_eq!(failed(ProcessFault::NotPermitted.into()), Exit::NotPermitted);
        assert_eq!(failed(ErrorKind::Io), Exit::Remains);
        for outcome in [
            Outcome::AnotherProgram,
            Outcome::LoginSession,
            Outcome::RoleForbids { role: Role::Monitor },
            Outcome::Survived { state: Err(Absent::NotPermitted) },
        ] {
            assert_eq!(exit_of(outcome), Exit::Remains);
        }
    }

    #[test]
    fn exit_code_reflects_reason_for_abort() {
        let stopped = |kind: ErrorKind| {
            let report = Report { stopped: Some(fault(kind)), ..Report::nothing() };
            exit(&Plan::default(), &report)
        };
        assert_eq!(stopped(ErrorKind::Interrupted), Exit::Remains);
        assert_eq!(stopped(ErrorKind::Io), Exit::NotPermitted);
        assert_eq!(stopped(ErrorKind::Invalid), Exit::CannotObserve);
    }

    #[test]
    fn exit_code_is_nonzero_if_processes_may_remain() {
        let with = |newcomers: Reading<Vec<Newcomer>>| {
            exit(&Plan::default(), &Report { newcomers, ..Report::nothing() })
        };
        assert_eq!(with(Ok(Vec::new())), Exit::Done);
        assert_eq!(with(Err(Absent::NotPermitted)), Exit::Remains);
        let refused = vec![Refused { pid: Pid(7), name: None, why: Refusal::LoginSession }];
        let plan = Plan { refused, ..Plan::default() };
        assert_eq!(exit(&plan, &Report::nothing()), Exit::Remains);
    }
}
