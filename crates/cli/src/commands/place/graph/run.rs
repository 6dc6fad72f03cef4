//! `gpuws place graph --run`: the values of a graph.

use super::args::PlaceGraphArgs;
use super::devices::Machine;
use super::{draw, schedule::time};
use crate::args::Global;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen, warn};
use crate::wording::{count, flow};
use gpu_executor::{Options, PlacedGraph, ProgramOptions, RanError, RunLimits, run_placed};
use gpu_host::SystemClock;
use gpu_report::json::RanGraph;
use gpu_report::json::run_graph::{lines, why_virtual};
use std::sync::Arc;
use std::thread::available_parallelism;

pub(super) fn run(
    args: &PlaceGraphArgs,
    global: &Global,
    screen: &mut Screen,
    machine: &Machine,
    placed: PlacedGraph<'_>,
    notes: &[String],
) -> Result<Exit, Failure> {
    let file = args.file.display().to_string();
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = [args.inter_op_threads, args.intra_op_threads];
    let threads = threads.map(|count| count.map_or(cores, usize::from));
    let [inter_op_threads, intra_op_threads] = threads;
    let is_drawn = args.svg.is_some() || args.trace.is_some();
    let clock = is_drawn.then(|| Arc::new(SystemClock::new()) as _);
    let run = Options { clock, ..Options::default() };
    let limits = RunLimits { memory: args.memory, ..RunLimits::default() };
    let options = ProgramOptions { inter_op_threads, intra_op_threads, limits, run };
    let ran = run_placed(placed, &machine.cluster(), &args.fetch, &options).map_err(|error| {
        let exit = match error {
            RanError::Operation(_) => Exit::Remains,
            _ => Exit::Usage,
        };
        let hint = "--memory permits larger values, --schedule estimates without them";
        let failure = Failure::new(exit, format!("run '{file}'")).with_source(error);
        if exit == Exit::Usage { failure } else { failure.with_hint(hint) }
    })?;
    draw(args, &ran.tasks, &ran.trace)?;
    let is_virtual = !ran.unsupported.is_empty();
    let exit = if is_virtual { Exit::Estimate } else { Exit::Done };
    if global.json {
        screen.json(&RanGraph::of(&file, machine.name.as_deref(), threads, &ran, notes))?;
        return Ok(exit);
    }
    let PlacedGraph { graph, placement, devices, .. } = placed;
    if !global.quiet {
        notes.iter().for_each(|note| warn(note));
        placement.warning_lines(graph, devices).for_each(|warning| warn(&warning));
    }
    if args.log {
        for line in placement.log(graph, devices) {
            screen.print(&Line::new().plain(line))?;
        }
    } else if let Some(name) = &machine.name {
        screen.print(&Line::new().accent(format_args!("simulated machine {name}")))?;
    }
    for line in ran.values.iter().flat_map(|value| lines(value, args.log)) {
        screen.print(&Line::new().plain(line))?;
    }
    if is_virtual {
        warn(&why_virtual(&ran));
        let (nodes, end) = (graph.nodes().len(), time(ran.trace.makespan_nanos()));
        let nodes = count(nodes, "operation", "operations");
        flow(screen, Line::new(), &format!("{nodes} in {end} of virtual time"))?;
    }
    Ok(exit)
}
