//! `gpuws demo`: shows every step on a simulated machine.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{Source, opening};
use crate::terminal::{Line, Screen};
use crate::wording;
use clap::Args;
use gpu_host::SystemClock;
use gpu_reaper::Guard;
use gpu_report::wording::demo;
use gpu_sim::Simulation;
use std::path::Path;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The machine; or `claims`, for two claims that race for one GPU: a check that exclusion works
    /// on this machine, in the directory GPUWS_CLAIMS if it is set.
    #[arg(default_value = "p100-ghost")]
    pub(crate) machine: String,
}

pub(crate) fn run(args: &DemoArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let name = &args.machine;
    if name == "claims" {
        return claims(screen);
    }
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
    let (request, options) = demo::request(&diagnosis);
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

/// Shows that two claims for one GPU exclude each other, without and with waiting.
fn claims(screen: &mut Screen) -> Result<Exit, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("find gpuws", error))?;
    let mut are_exclusive = true;
    for (waits, option) in [(false, "--no-wait"), (true, "--wait")] {
        chapter(screen, "Two claims for GPU 0", &format!("gpuws run --gpu 0 {option} -- JOB"))?;
        let raced = gpu_machine::race(&program, waits, &SystemClock::new())?;
        screen.print_all(demo::raced(raced.exits, raced.is_exclusive(), raced.is_shared()))?;
        are_exclusive &= raced.is_exclusive();
    }
    Ok(if are_exclusive { Exit::Done } else { Exit::Remains })
}

fn the_end(screen: &mut Screen, sim: &str) -> Result<Exit, Failure> {
    screen.print(&Line::new())?;
    let line = Line::new().plain("Each run starts fresh. Try it yourself: ");
    screen.print(&line.accent(format!("gpuws {sim}doctor")))?;
    Ok(Exit::Done)
}

fn chapter(screen: &mut Screen, title: &str, command: &str) -> Result<(), Failure> {
    screen.print(&Line::new())?;
    screen.print(&Line::new().accent(format!("── {title}  ")).dim(format!("$ {command}")))
}
