//! `gpuws place graph --run`: the values of a graph.

use super::devices::Machine;
use super::{draw, schedule::time};
use crate::args::Global;
use crate::commands::place::PlaceGraphArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen, warn};
use crate::wording::{count, flow};
use gpu_executor::{
    Fetched, Options, Program, ProgramError, ProgramOptions, RunLimits, virtual_run,
};
use gpu_graph::cost::{Estimates, estimate};
use gpu_graph::placer::Placement;
use gpu_graph::{Graph, Registry};
use gpu_host::SystemClock;
use gpu_report::json::{RanGraph, Version, run_graph::Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;

/// The result of a run, or what it would take.
enum Ran {
    Values(Vec<Fetched>),
    Estimate { unsupported: BTreeMap<String, usize>, nanos: u64 },
}

pub(super) fn run(
    args: &PlaceGraphArgs,
    global: &Global,
    screen: &mut Screen,
    machine: &Machine,
    (graph, registry, placement, notes): (&Graph, &Registry, &Placement, &[String]),
) -> Result<Exit, Failure> {
    let failed = |exit| Failure::new(exit, format!("run '{}'", args.file.display()));
    let cores = available_parallelism().map_or(1, usize::from);
    let [inter_op_threads, intra_op_threads] =
        [args.inter_op_threads, args.intra_op_threads].map(|of| of.map_or(cores, usize::from));
    let drawn = args.svg.is_some() || args.trace.is_some();
    let ran = match Program::of(graph, &args.fetch) {
        Ok(program) => {
            let limits = RunLimits { memory: args.memory, ..RunLimits::default() };
            let clock = drawn.then(|| Arc::new(SystemClock::new()) as _);
            let run = Options { clock, ..Options::default() };
            let options = ProgramOptions { inter_op_threads, intra_op_threads, limits, run };
            let outcome = program.run(&options).map_err(|error| {
                failed(Exit::Remains)
                    .with_source(error)
                    .with_hint("--memory permits larger values, --schedule estimates without them")
            })?;
            if drawn {
                draw(args, program.tasks(), &outcome.trace)?;
            }
            Ran::Values(outcome.fetched)
        }
        Err(ProgramError::Unsupported(unsupported)) => {
            let (cluster, mut placed) = (machine.cluster(), graph.clone());
            placement.apply(&mut placed, &machine.devices);
            let dag = estimate(&placed, registry, &cluster, &Estimates::default())
                .map_err(|error| failed(Exit::Usage).with_source(error))?;
            let on: Vec<usize> = placement.devices().collect();
            let (tasks, trace) = virtual_run(&dag, &cluster, &on, inter_op_threads)
                .map_err(|error| failed(Exit::Usage).with_source(error))?;
            if drawn {
                draw(args, &tasks, &trace)?;
            }
            Ran::Estimate { unsupported, nanos: trace.makespan_nanos() }
        }
        Err(error) => return Err(failed(Exit::Usage).with_source(error)),
    };
    let exit = if matches!(ran, Ran::Values(_)) { Exit::Done } else { Exit::Estimate };
    if global.json {
        let none = BTreeMap::new();
        let (values, unsupported, makespan_ns) = match &ran {
            Ran::Values(values) => (values.as_slice(), &none, None),
            Ran::Estimate { unsupported, nanos } => (&[][..], unsupported, Some(*nanos)),
        };
        screen.json(&RanGraph {
            schema: Version,
            file: &args.file.display().to_string(),
            machine: machine.name.as_deref(),
            inter_op_threads,
            intra_op_threads,
            values: values.iter().map(Value::of).collect(),
            unsupported,
            makespan_ns,
            notes,
        })?;
        return Ok(exit);
    }
    if !global.quiet {
        notes.iter().for_each(|note| warn(note));
        placement.warning_lines(graph, &machine.devices).for_each(|warning| warn(&warning));
    }
    if args.log {
        for line in placement.log(graph, &machine.devices) {
            screen.print(&Line::new().plain(line))?;
        }
    } else if let Some(name) = &machine.name {
        screen.print(&Line::new().accent(format_args!("simulated machine {name}")))?;
    }
    show(args, screen, graph, &ran)?;
    Ok(exit)
}

/// Prints the values, or the time that the run would take. With the log, it prints values alone, as
/// a program of TensorFlow does.
fn show(
    args: &PlaceGraphArgs,
    screen: &mut Screen,
    graph: &Graph,
    ran: &Ran,
) -> Result<(), Failure> {
    match ran {
        Ran::Values(values) => {
            for Fetched { name, tensor } in values {
                let Some(tensor) = tensor else {
                    screen.print(&Line::new().accent(name).plain(" has run"))?;
                    continue;
                };
                if !args.log {
                    let what = format!("  {} {:?}", tensor.dtype(), tensor.shape());
                    screen.print(&Line::new().accent(name).plain(what))?;
                }
                for line in tensor.to_string().lines() {
                    screen.print(&Line::new().plain(line))?;
                }
            }
        }
        Ran::Estimate { unsupported, nanos } => {
            let error = ProgramError::Unsupported(unsupported.clone());
            warn(&format!(
                "no kernel here can {error}: the run is in virtual time, without values"
            ));
            let nodes = count(graph.nodes().len(), "operation", "operations");
            flow(screen, Line::new(), &format!("{nodes} in {} of virtual time", time(*nanos)))?;
        }
    }
    Ok(())
}
