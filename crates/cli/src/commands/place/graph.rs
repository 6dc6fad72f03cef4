//! `gpuws place graph`: which device each operation is placed on, and why.

mod args;
mod devices;
mod input;
mod run;
mod schedule;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen, warn};
use crate::wording::{count, flow};
pub(crate) use args::PlaceGraphArgs;
use devices::Machine;
use gpu_executor::{PlacedGraph, TaskGraph, Trace, chrome, svg};
use gpu_graph::Graph;
use gpu_graph::placer::{self, Options, PlaceErrorKind, Placement};
use gpu_report::json;
use gpu_report::wording::place;
use input::Input;

pub(crate) fn run(
    args: &PlaceGraphArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let mut input = input::read(&args.file, &args.kernels, args.run)?;
    let machine = Machine::select(args, input.devices.take(), global)?;
    machine.replicate(args, &mut input).map_err(|error| {
        Failure::new(Exit::Usage, "replicate the graph")
            .with_source(error)
            .with_hint("--contexts names the devices of the replicas")
    })?;
    let Input { graph, registry, mut notes, .. } = input;
    let mut graph = input::build(&args.file, graph, &registry)?;
    if let Some(path) = &args.placed {
        notes.extend(input::assign(path, &mut graph, &machine.devices)?);
    }
    if args.schedule {
        return schedule::run(args, global, screen, &machine, (&graph, &registry, &notes));
    }
    let options = Options { soft: !args.hard, ..Options::default() };
    let placement =
        placer::place(&graph, &registry, &machine.devices, &options).map_err(|error| {
            let hint = match args.hard {
                true => {
                    "omit --hard to place operations elsewhere where their request cannot be met"
                }
                false => "--devices names other devices, --kernels other kernels",
            };
            let exit = match error.kind {
                PlaceErrorKind::MalformedRequest => Exit::Usage,
                _ => Exit::Remains,
            };
            let why = error.message.split_whitespace().collect::<Vec<_>>().join(" ");
            let failure = Failure::new(exit, format!("place '{}'", args.file.display()));
            let failure = failure.with_source(why);
            if exit == Exit::Usage { failure } else { failure.with_hint(hint) }
        })?;
    let devices = &machine.devices;
    if args.run {
        let placed =
            PlacedGraph { graph: &graph, registry: &registry, devices, placement: &placement };
        return run::run(args, global, screen, &machine, placed, &notes);
    }
    if args.log {
        for line in placement.log(&graph, devices) {
            screen.print(&Line::new().plain(line))?;
        }
        return Ok(Exit::Done);
    }
    let file = args.file.display().to_string();
    if global.json {
        let machine = machine.name.as_deref();
        let placed = json::PlacedGraph::of(&file, machine, &graph, devices, &placement, &notes);
        screen.json(&placed)?;
        return Ok(Exit::Done);
    }
    if !global.quiet {
        notes.iter().for_each(|note| warn(note));
    }
    screen.together(|screen| show(args, global, screen, &machine, &graph, &placement))?;
    placement.warning_lines(&graph, devices).for_each(|warning| warn(&warning));
    Ok(Exit::Done)
}

/// Draws a trace to a picture and to a file for a viewer, each a new file, as the user requests.
fn draw(args: &PlaceGraphArgs, tasks: &TaskGraph, trace: &Trace) -> Result<(), Failure> {
    let write = gpu_host::output::write_new;
    if let Some(path) = &args.svg {
        write(path, svg(trace, tasks, &args.file.display().to_string()).as_bytes())?;
    }
    if let Some(path) = &args.trace {
        write(path, chrome(trace, tasks).as_bytes())?;
    }
    Ok(())
}

fn show(
    args: &PlaceGraphArgs,
    global: &Global,
    screen: &mut Screen,
    machine: &Machine,
    graph: &Graph,
    placement: &Placement,
) -> Result<(), Failure> {
    if let Some(name) = &machine.name {
        screen.print(&Line::new().accent(format_args!("simulated machine {name}")))?;
    }
    let nodes = count(graph.nodes().len(), "operation", "operations");
    let on = count(machine.devices.devices().len(), "device", "devices");
    screen.print(&Line::new().plain(format_args!("{nodes} on {on}")))?;
    let devices = &machine.devices;
    screen.print_all(match args.explain {
        true => place::reasons(graph, placement, devices, screen.room(0)),
        false => place::summary(graph, placement, devices, screen.width()),
    })?;
    if !global.quiet && !args.explain {
        let next = "next: --explain shows the reason for each, --log prints TensorFlow's log";
        flow(screen, Line::new(), next)?;
    }
    Ok(())
}
