//! `gpuws demo`: the whole story on a simulated machine.

use crate::args::{DemoArgs, Global};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{Source, unknown_machine};
use crate::terminal::{Line, Screen};
use crate::words;
use gpu_core::Pid;
use gpu_reaper::{Advice, Diagnosis, Guard, Plan, Request};
use gpu_sim::Simulation;

pub(crate) fn run(args: &DemoArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let machines = gpu_sim::machines();
    let Some(machine) = machines.iter().find(|machine| machine.name == args.machine) else {
        return Err(unknown_machine(&args.machine));
    };
    let source = Source::simulated(Simulation::embedded(machine.name)?);
    screen.print(&Line::new().accent(format!("simulated machine {}", machine.name)))?;
    words::flow(screen, Line::new().plain("  "), &machine.description)?;

    chapter(screen, "See", "gpuws status")?;
    let looks = source.two_looks();
    let Some(now) = looks.last() else { return Ok(Exit::Done) };
    let diagnosis = gpu_reaper::diagnose(&looks);
    super::status::show(screen, &quiet(global), now, &diagnosis)?;

    chapter(screen, "Explain", "gpuws doctor")?;
    super::doctor::show(screen, global, now, &diagnosis)?;

    let guard = Guard::new(&*source.host, Vec::new())?;
    let (request, command) = request(&diagnosis);
    let plan = super::reap::plan(&source, &looks, &diagnosis, &guard, &request)?;
    chapter(screen, "Decide", &command)?;
    super::reap::show_plan(screen, now, &diagnosis, &plan, false)?;
    if !plan.targets.is_empty() {
        free(screen, &source, &guard, &plan, &command)?;
    }
    screen.print(&Line::new())?;
    let next = format!("gpuws --sim {} doctor", machine.name);
    screen.print(&Line::new().plain("Try it yourself: ").accent(next))?;
    Ok(Exit::Done)
}

fn free(
    screen: &mut Screen,
    source: &Source,
    guard: &Guard,
    plan: &Plan,
    command: &str,
) -> Result<(), Failure> {
    chapter(screen, "Free and prove", &format!("{command} --yes"))?;
    let report = super::reap::carry_out(source, plan, guard, Some(screen))?;
    super::reap::show_report(screen, &report)?;
    chapter(screen, "Look again", "gpuws status")?;
    let after = source.look();
    let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&after));
    let global = Global { quiet: true, ..Global::default() };
    super::status::show(screen, &global, &after, &diagnosis)
}

fn quiet(global: &Global) -> Global {
    Global { quiet: true, sim: global.sim.clone(), ..*global }
}

/// What a person would type next: what the findings advise, else a look at the plan.
fn request(diagnosis: &Diagnosis) -> (Request, String) {
    let advised = diagnosis.findings.iter().flat_map(|finding| &finding.advice);
    let mut pids: Vec<Pid> = Vec::new();
    for advice in advised {
        match advice {
            Advice::ReapDevice(_) => return (Request::default(), "gpuws reap".to_owned()),
            Advice::ReapProcess(pid) if !pids.contains(pid) => pids.push(*pid),
            _ => {}
        }
    }
    let options: String = pids.iter().map(|pid| format!(" --pid {pid}")).collect();
    (Request { pids, ..Request::default() }, format!("gpuws reap{options}"))
}

fn chapter(screen: &mut Screen, title: &str, command: &str) -> Result<(), Failure> {
    screen.print(&Line::new())?;
    screen.print(&Line::new().accent(format!("── {title} ")).dim(format!("$ {command}")))
}
