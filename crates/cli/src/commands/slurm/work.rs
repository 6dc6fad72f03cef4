//! The work of a script: scans, ends leftover processes, and reports held devices.

use super::{Script, SlurmArgs, say};
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use gpu_core::{ActToken, Error, ErrorKind, NoJournal};
use gpu_machine::{SlurmTools, node_name, slurm_devices};
use gpu_reaper::{Event, Guard};
use gpu_report::wording::reap::{Paragraph, Steps, report};
use gpu_slurm::{Change, Cleaner, Job, NodeDevice, Phase, WorkerReport, change, health, reason};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(super) fn run(args: &SlurmArgs, global: &Global) -> Result<Exit, Failure> {
    // A driver that hangs must leave time for the rest.
    let deadline = global.deadline.min(args.limit / 4);
    let source =
        source::open(&Global { deadline, nvml: global.nvml.clone(), ..Global::default() })?;
    let slurm = SlurmTools::find(args.slurm.as_deref(), Arc::clone(&source.clock), args.limit)?;
    let node = node_name(args.node.as_deref(), source.host.hostname().ok().as_deref())?;
    if args.script == Script::Prolog {
        // A job with a private /tmp needs a lease directory that all jobs see.
        source.lease_store(None)?.prepare()?;
    }
    let job = match args.script {
        Script::Health => None,
        Script::Prolog | Script::Epilog => {
            let variable = |name: &str| std::env::var(name).ok();
            Some(Job::from_environment(&variable)?)
        }
    };
    if job.as_ref().is_some_and(|job| job.positions.is_empty()) {
        return print_report(None, true);
    }
    let (source, all) = slurm_devices(source, &slurm, job.as_ref())?;
    match job {
        Some(job) => clean_after(args, &source, &slurm, (&node, &all), &job),
        None => check_health(&source, &slurm, &node, &all),
    }
}

/// Cleans the devices of a job.
fn clean_after(
    args: &SlurmArgs,
    source: &Source,
    slurm: &SlurmTools,
    (node, devices): (&str, &[NodeDevice]),
    job: &Job,
) -> Result<Exit, Failure> {
    let guard = Guard::new(&*source.host, Vec::new())?;
    // Without an audit log, no process is signalled, but the holders are named.
    let journal = source.journal().unwrap_or_else(|error| {
        let failure = error.into_error();
        say(format!("gpuws: failed to {}", failure.fault().text));
        Box::new(NoJournal::new(failure))
    });
    let ports = source.ports(&*journal);
    let cleaner = Cleaner { ports, slurm, guard: &guard, node, devices, grace: args.grace };
    let phase = match args.script {
        Script::Prolog => Phase::Before,
        _ => Phase::After,
    };
    let mut steps = Steps::default();
    let mut watch = |event: Event<'_>| {
        steps.line(&event).iter().for_each(|line| say(line.text()));
        ControlFlow::Continue(())
    };
    // The administrator who named this command in slurm.conf requested the action.
    let token = ActToken::user_confirmed();
    let mut meanwhile = |reason: Option<String>| drop(print_report(reason, false));
    let cleaned = cleaner.clean(job, phase, &token, &mut meanwhile, &mut watch)?;
    for Paragraph { head, text } in cleaned.reports.iter().flat_map(report) {
        say(format!("{} {text}", head.text()));
    }
    if let Some(fault) = &cleaned.unknown {
        say(format!("gpuws: unknown owner of a process that holds a device: {}", fault.text));
    }
    print_report(reason(&cleaned.held), true)
}

/// Finds devices that are held although no job has them, and changes the state of the node.
fn check_health(
    source: &Source,
    slurm: &SlurmTools,
    node: &str,
    devices: &[NodeDevice],
) -> Result<Exit, Failure> {
    let never = Error::new(ErrorKind::Invalid, "end a process in a health check");
    let journal = NoJournal::new(never);
    let mut meanwhile = |reason| drop(print_report(reason, false));
    let health = health(source.ports(&journal), slurm, node, devices, &mut meanwhile)?;
    let change = change(&health);
    if change != Change::None {
        say(format!("gpuws: node {node}: {change}"));
    }
    change.make(slurm, node)?;
    print_report(reason(&health.held), true)
}

/// Reports the held devices to the process that waits for this one.
fn print_report(reason: Option<String>, is_done: bool) -> Result<Exit, Failure> {
    let mut out = std::io::stdout();
    let lines = WorkerReport { reason, is_done }.lines();
    out.write_all(lines.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("report the held devices", error))?;
    Ok(Exit::Done)
}
