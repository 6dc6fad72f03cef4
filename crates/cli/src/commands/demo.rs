//! `gpuws demo`: the whole story on a simulated machine.

use crate::args::{DemoArgs, Global};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{Source, unknown_machine};
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_core::Pid;
use gpu_reaper::{Advice, Diagnosis, Guard, Request};
use gpu_sim::Simulation;

pub(crate) fn run(args: &DemoArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let machines = gpu_sim::machines();
    let Some(machine) = machines.iter().find(|machine| machine.name == args.machine) else {
        return Err(unknown_machine(&args.machine));
    };
    let source = Source::simulated(Simulation::embedded(machine.name)?);
    let sim = format!("--sim {} ", machine.name);
    screen.print(&Line::new().accent(format!("simulated machine {}", machine.name)))?;
    wording::flow(screen, Line::new().plain("  "), &machine.description)?;

    chapter(screen, "See", &format!("gpuws {sim}status"))?;
    let looks = source.two_looks();
    let Some(now) = looks.last() else { return Ok(Exit::Done) };
    let diagnosis = gpu_reaper::diagnose(&looks);
    super::status::show(screen, &quiet(), now, &diagnosis)?;
    if now.devices.is_empty() {
        return the_end(screen, &sim);
    }

    chapter(screen, "Explain", &format!("gpuws {sim}doctor"))?;
    super::doctor::show(screen, global, now, &diagnosis)?;

    let guard = Guard::new(&*source.host, Vec::new())?;
    let (request, options) = request(&diagnosis);
    let plan = gpu_reaper::plan(&looks, &diagnosis, &guard, &request);
    chapter(screen, "Decide", &format!("gpuws {sim}reap{options}"))?;
    super::reap::show_plan(screen, now, &diagnosis, &plan, false)?;
    if !plan.targets.is_empty() {
        chapter(screen, "Free and verify", &format!("gpuws {sim}reap{options} --yes"))?;
        let report = super::reap::carry_out(&source, &plan, &guard, Some(screen))?;
        super::reap::show_report(screen, &report)?;
        chapter(screen, "Check again", &format!("gpuws {sim}status"))?;
        let after = source.look();
        let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&after));
        super::status::show(screen, &quiet(), &after, &diagnosis)?;
    }
    the_end(screen, &sim)
}

fn the_end(screen: &mut Screen, sim: &str) -> Result<Exit, Failure> {
    screen.print(&Line::new())?;
    let line = Line::new().plain("Each run starts fresh. Try it yourself: ");
    screen.print(&line.accent(format!("gpuws {sim}doctor")))?;
    Ok(Exit::Done)
}

fn quiet() -> Global {
    Global { quiet: true, ..Global::default() }
}

/// What a person would type next: what the findings advise, else a look at the plan.
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
