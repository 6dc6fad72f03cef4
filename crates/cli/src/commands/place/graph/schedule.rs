//! `gpuws place graph --schedule`: where and when each operation runs, by costs.

use super::args::PlaceGraphArgs;
use super::devices::Machine;
use super::draw;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Align, Line, Screen, Table, warn};
use crate::wording::{count, flow};
use gpu_core::{Bytes, amount};
use gpu_executor::{schedule_trace, task_graph};
use gpu_graph::cost::{Cluster, Estimates, Schedule, estimate, list_schedule};
use gpu_graph::{Graph, Registry};
use gpu_report::json::ScheduledGraph;
use gpu_report::json::schedule::{Processor, explained};
use gpu_report::wording::short_names;

pub(super) fn run(
    args: &PlaceGraphArgs,
    global: &Global,
    screen: &mut Screen,
    machine: &Machine,
    (graph, registry, notes): (&Graph, &Registry, &[String]),
) -> Result<Exit, Failure> {
    let file = args.file.display().to_string();
    let failed = || Failure::new(Exit::Remains, format!("schedule '{file}'"));
    let cluster = machine.cluster();
    let dag = estimate(graph, registry, &cluster, &Estimates::default())
        .map_err(|error| failed().ending(Exit::Usage).with_source(error))?;
    let schedule = list_schedule(&dag, &cluster).map_err(|error| {
        failed()
            .with_source(error)
            .with_hint("--devices names other devices, --kernels other kernels")
    })?;
    let tasks = task_graph(&dag).map_err(|error| failed().with_source(error))?;
    draw(args, &tasks, &schedule_trace(&cluster, &schedule))?;
    if global.json {
        let machine = machine.name.as_deref();
        let scheduled = ScheduledGraph::of(&file, machine, graph, &cluster, &schedule, notes);
        screen.json(&scheduled)?;
        return Ok(Exit::Done);
    }
    if !global.quiet {
        notes.iter().for_each(|note| warn(note));
    }
    screen.together(|screen| show(args, global, screen, machine, graph, &cluster, &schedule))?;
    Ok(Exit::Done)
}

fn show(
    args: &PlaceGraphArgs,
    global: &Global,
    screen: &mut Screen,
    machine: &Machine,
    graph: &Graph,
    cluster: &Cluster,
    schedule: &Schedule,
) -> Result<(), Failure> {
    if let Some(name) = &machine.name {
        screen.print(&Line::new().accent(format_args!("simulated machine {name}")))?;
    }
    let copied: Bytes = schedule.transfers.iter().map(|copy| copy.bytes).sum();
    let text = format!(
        "{} in {}; {} between devices, {}",
        count(graph.nodes().len(), "operation", "operations"),
        time(schedule.makespan_nanos),
        count(schedule.transfers.len(), "copy", "copies"),
        amount(copied)
    );
    flow(screen, Line::new(), &text)?;
    let mut table = Table::new(&[
        ("  device", Align::Left),
        ("speed", Align::Right),
        ("operations", Align::Right),
        ("busy", Align::Right),
        ("share", Align::Right),
        ("peak memory", Align::Right),
    ]);
    let names = short_names(cluster.processors.iter().map(|of| &*of.name));
    for (of, name) in Processor::each(cluster, schedule).into_iter().zip(names) {
        let share = of.busy_ns as f64 / schedule.makespan_nanos.max(1) as f64;
        table.row([
            Line::new().plain(format_args!("  {name}")),
            Line::new().plain(format_args!("{:.2}", of.speed_ratio)),
            Line::new().plain(of.node_count),
            Line::new().plain(time(of.busy_ns)),
            Line::new().plain(format_args!("{:.0} %", share * 100.0)),
            Line::new().plain(amount(Bytes(of.peak_memory_bytes))),
        ]);
    }
    screen.print_all(table.lines(screen.room(0)))?;
    if args.explain {
        return explain(screen, graph, cluster, schedule);
    }
    if !global.quiet {
        let next = "next: --explain shows the time and reason for each, --trace OUT writes them \
                    for ui.perfetto.dev";
        flow(screen, Line::new(), next)?;
    }
    Ok(())
}

/// Prints each operation with its device, time and reason, by start.
fn explain(
    screen: &mut Screen,
    graph: &Graph,
    cluster: &Cluster,
    schedule: &Schedule,
) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("  start", Align::Right),
        ("end", Align::Right),
        ("device", Align::Left),
        ("operation", Align::Left),
        ("reason", Align::Left),
    ]);
    let mut order: Vec<usize> = (0..graph.nodes().len().min(schedule.slots.len())).collect();
    let names = short_names(cluster.processors.iter().map(|of| &*of.name));
    order.sort_by_key(|at| (schedule.slots[*at].start_nanos, *at));
    for at in order {
        let (node, slot) = (&graph.nodes()[at], schedule.slots[at]);
        let device = names.get(slot.processor as usize).copied();
        let reason = schedule.reasons.get(at).map(|choice| explained(*choice, &names));
        table.row([
            Line::new().plain(format_args!("  {}", time(slot.start_nanos))),
            Line::new().plain(time(slot.end_nanos)),
            Line::new().accent(device.unwrap_or_default()),
            Line::new().plain(format_args!("{} ({})", node.name, node.op)),
            Line::new().dim(reason.unwrap_or_default()),
        ]);
    }
    screen.print_all(table.lines(screen.room(0)))
}

pub(super) fn time(nanos: u64) -> String {
    match nanos {
        0..10_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}
