//! Graphs of which only the costs are known: their order, their schedules, and runs in virtual
//! time.

use crate::error::RunError;
use crate::graph::{GraphError, NodeIx, TaskGraph};
use crate::simulated::{Placed, PlacedError, Virtual, VirtualDevice};
use crate::trace::{Lane, Span, Trace};
use gpu_graph::cost::{Cluster, Dag, Schedule};
use std::convert::Infallible;
use std::sync::Arc;

/// Returns the items of a graph of costs as tasks.
///
/// # Errors
/// If items wait for each other, or there are too many.
pub fn task_graph(dag: &Dag) -> Result<TaskGraph, GraphError> {
    let edges = (0_u32..)
        .zip(&dag.items)
        .flat_map(|(to, item)| item.inputs.iter().map(move |input| (input.item, to)));
    let names = dag.items.iter().map(|item| Arc::clone(&item.name)).collect();
    TaskGraph::with_names(dag.items.len(), edges, names)
}

/// Returns a schedule as a trace, with a lane for each processor.
pub fn schedule_trace(cluster: &Cluster, schedule: &Schedule) -> Trace {
    let mut trace = Trace::default();
    for processor in &cluster.processors {
        let (process, name) =
            processor.name.rsplit_once("/device:").unwrap_or(("", &processor.name));
        trace.lanes.push(Lane { process: process.to_owned(), name: name.to_owned() });
    }
    for (at, slot) in (0_u32..).zip(&schedule.slots) {
        trace.spans.push(Span {
            node: NodeIx(at),
            lane: slot.processor,
            start_nanos: slot.start_nanos,
            end_nanos: slot.end_nanos,
        });
    }
    trace.spans.sort_by_key(|span| (span.start_nanos, span.node.0));
    trace
}

/// Why a run in virtual time is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VirtualError {
    /// Items wait for each other.
    #[error(transparent)]
    Order(#[from] GraphError),
    /// An item has no processor, or one that does not exist.
    #[error(transparent)]
    Placed(#[from] PlacedError),
    /// The run was ended.
    #[error(transparent)]
    Ended(#[from] RunError<Infallible>),
}

/// Runs a graph of costs in virtual time, given the index of the processor of each item. A GPU runs
/// one item at a time, any other processor `inter_op_threads`.
///
/// # Errors
/// If items wait for each other, or a processor does not exist.
pub(crate) fn virtual_run(
    dag: &Dag,
    cluster: &Cluster,
    processors: &[usize],
    inter_op_threads: usize,
) -> Result<(TaskGraph, Trace), VirtualError> {
    let graph = task_graph(dag)?;
    let devices = cluster.processors.iter().map(|processor| {
        let streams = if processor.name.contains("/device:GPU:") { 1 } else { inter_op_threads };
        VirtualDevice { name: processor.name.to_string(), streams }
    });
    let devices: Vec<VirtualDevice> = devices.collect();
    let placed = dag.items.iter().zip(processors).map(|(item, device)| {
        let nanos = item.nanos.get(*device).copied().flatten();
        // An item without a kernel on its device takes as long as on another.
        let nanos = nanos.or_else(|| item.nanos.iter().flatten().max().copied());
        Placed { device: *device, stream: None, duration_nanos: nanos.unwrap_or(0) }
    });
    let placed: Vec<Placed> = placed.collect();
    let transfer = |from: NodeIx, to: NodeIx| {
        let item = |at: NodeIx| dag.items.get(at.index());
        let inputs = item(to).into_iter().flat_map(|item| &item.inputs);
        let outputs = inputs.filter(|input| input.item == from.0).filter_map(|input| input.output);
        let size = |output: u32| item(from)?.outputs.get(output as usize).copied();
        let bytes: gpu_core::Bytes = outputs.filter_map(size).sum();
        let on = |at: NodeIx| placed.get(at.index()).map_or(0, |at| at.device as u32);
        cluster.route(on(from), on(to)).nanos(bytes.0)
    };
    let run = Virtual::new(&graph, &devices, &placed)?;
    let trace = run.run(transfer, |_| Ok::<(), Infallible>(()), None)?;
    Ok((graph, trace))
}
