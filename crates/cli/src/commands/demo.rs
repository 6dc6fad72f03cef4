//! `gpuws demo`: shows every step on a simulated machine.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{Source, opening};
use crate::terminal::{Line, Screen};
use crate::wording;
use clap::Args;
use gpu_core::Pid;
use gpu_reaper::{Advice, Diagnosis, Guard, Request};
use gpu_sim::Simulation;
use std::path::Path;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The machine.
    #[arg(default_value = "p100-ghost")]
    pub(crate) machine: String,
}

pub(crate) fn run(args: &DemoArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let name = &args.machine;
    let simulation = Simulation::embedded(name);
    let simulation = simulation.map_err(|error| opening(Some(Path::new(name)), error))?;
    let source = Source::simulated(simulation);
    let sim = format!("--sim {name} ");
    screen.print(&Line::new().accent(format!("simulated machine {name}")))?;
    if let Some(machine) = gpu_sim::machines().iter().find(|machine| machine.name == *name) {
        wording::flow(screen, Line::new().plain("  "), &machine.description)?;
    }

    chapter(screen, "See", &format!("gpuws {sim}status"))?;
    let snapshots = source.two_snapshots();
    let Some(now) = snapshots.last() else { return Ok(Exit::Done) };
    let diagnosis = gpu_reaper::diagnose(&snapshots);
    super::status::show(screen, global, now, &diagnosis)?;
    if now.devices.is_empty() {
        return the_end(screen, &sim);
    }

    chapter(screen, "Explain", &format!("gpuws {sim}doctor"))?;
    super::doctor::show(screen, global, now, &diagnosis)?;

    let guard = Guard::new(&*source.host, Vec::new())?;
    let (request, options) = request(&diagnosis);
    let plan = gpu_reaper::plan(&snapshots, &diagnosis, &guard, &request);
    chapter(screen, "Decide", &format!("gpuws {sim}reap{options}"))?;
    super::reap::show_plan(screen, now, &diagnosis, &plan, false)?;
    if !plan.targets.is_empty() {
        chapter(screen, "Free and verify", &format!("gpuws {sim}reap{options} --yes"))?;
        let report = super::reap::carry_out(&source, &plan, &guard, Some(screen))?;
        super::reap::show_report(screen, &report)?;
        chapter(screen, "Check again", &format!("gpuws {sim}status"))?;
        let after = source.snapshot();
        let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&after));
        super::status::show(screen, global, &after, &diagnosis)?;
    }
    the_end(screen, &sim)
}

fn the_end(screen: &mut Screen, sim: &str) -> Result<Exit, Failure> {
    screen.print(&Line::new())?;
    let line = Line::new().plain("Each run starts fresh. Try it yourself: ");
    screen.print(&line.accent(format!("gpuws {sim}doctor")))?;
    Ok(Exit::Done)
}

/// Returns the request that the findings advise, or the default request.
fn request(diagnosis: &Diagnosis) -> (Request<'static>, String) {
    let advised = diagnosis.findings.iter().flat_map(|finding| &finding.advice);
    let mut pids: Vec<Pid> = Vec::new();
    for advice in advised {
        match advice {
            Advice::ReapDevice(_) => return (Request::default(), String::new()),
            Advice::ReapProcess(pid) if !pids.contains(pid) => pids.push(*pid),
            _ => {}
        }
    }
    let options: String = pids.iter().map(|pid| format!(" --pid {pid}")).collect();
    (Request { pids, ..Request::default() }, options)
}

fn chapter(screen: &mut Screen, title: &str, command: &str) -> Result<(), Failure> {
    screen.print(&Line::new())?;
    screen.print(&Line::new().accent(format!("── {title}  ")).dim(format!("$ {command}")))
}
