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

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, Route};
    use gpu_graph::cost::{Input, Item, Processor, Slot};

    fn cluster() -> Cluster {
        let processor = |name: &str| Processor { name: name.into(), speed: 1.0, memory: None };
        let names = ["/job:a/device:GPU:0", "/job:a/device:CPU:0"];
        // One byte takes 10 ns.
        let route = Route { bytes_per_second: 100_000_000, ..Route::default() };
        Cluster {
            processors: names.map(processor).into(),
            routes: vec![vec![Route::default(), route], vec![route, Route::default()]],
            one_port: false,
        }
    }

    fn item(name: &str, nanos: [Option<u64>; 2], inputs: &[Input]) -> Item {
        let outputs = vec![Bytes(3), Bytes(4)];
        Item {
            name: name.into(),
            inputs: inputs.into(),
            outputs,
            nanos: nanos.into(),
            ..Item::default()
        }
    }

    fn times(trace: &Trace) -> Vec<(u32, u32, u64, u64)> {
        let spans = trace.spans.iter();
        spans.map(|of| (of.node.0, of.lane, of.start_nanos, of.end_nanos)).collect()
    }

    #[test]
    fn run_in_virtual_time_uses_the_times_and_routes_of_the_cluster() {
        let inputs = [Input::value(0, 0), Input::value(0, 1), Input::order(0), Input::value(1, 1)];
        let items = vec![
            item("a", [Some(5), None], &[]),
            item("b", [Some(7), Some(9)], &[]),
            // Without a time on the CPU, it takes the longest of the others.
            item("c", [Some(20), None], &inputs),
            item("d", [None, Some(30)], &[]),
            item("e", [None, Some(30)], &[]),
        ];
        let (tasks, trace) =
            virtual_run(&Dag { items }, &cluster(), &[0, 0, 1, 1, 1], 2).expect("it runs");
        assert_eq!(&*tasks.name(NodeIx(2)), "c");
        let lanes: Vec<_> = trace.lanes.iter().map(|of| (&*of.process, &*of.name)).collect();
        let (gpu, cpu) = ("/job:a/device:GPU:0", "/job:a/device:CPU:0");
        assert_eq!(lanes, [(gpu, "stream 0"), (cpu, "stream 0"), (cpu, "stream 1")]);
        // `a` ends at 5 and sends 7 bytes; `b` ends at 12 and sends 4.
        assert_eq!(
            times(&trace),
            [(0, 0, 0, 5), (3, 1, 0, 30), (4, 2, 0, 30), (1, 0, 5, 12), (2, 1, 75, 95)]
        );
    }

    #[test]
    fn run_in_virtual_time_needs_an_order_and_processors() {
        let cycle = vec![item("a", [Some(5), None], &[Input::order(0)])];
        let error = virtual_run(&Dag { items: cycle }, &cluster(), &[0], 1).unwrap_err();
        assert!(matches!(error, VirtualError::Order(_)), "{error}");
        let items = vec![item("a", [Some(5), None], &[])];
        let error = virtual_run(&Dag { items }, &cluster(), &[2], 1).unwrap_err();
        assert_eq!(error, VirtualError::Placed(PlacedError::Unknown(NodeIx(0))));
    }

    #[test]
    fn trace_of_a_schedule_has_a_lane_for_each_processor_and_spans_by_their_start() {
        let slot = |processor, start_nanos, end_nanos| Slot { processor, start_nanos, end_nanos };
        let slots = vec![slot(1, 8, 9), slot(0, 2, 5), slot(1, 2, 8)];
        let schedule = Schedule { slots, ..Schedule::default() };
        let trace = schedule_trace(&cluster(), &schedule);
        let lanes: Vec<_> = trace.lanes.iter().map(|of| (&*of.process, &*of.name)).collect();
        assert_eq!(lanes, [("/job:a", "GPU:0"), ("/job:a", "CPU:0")]);
        assert_eq!(times(&trace), [(1, 0, 2, 5), (2, 1, 2, 8), (0, 1, 8, 9)]);
    }
}
