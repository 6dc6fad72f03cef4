//! A placed graph that runs, for real or in virtual time.

use crate::costs::{VirtualError, virtual_run};
use crate::error::RunError;
use crate::graph::TaskGraph;
use crate::operation::OpError;
use crate::program::{Fetched, Program, ProgramError, ProgramOptions};
use crate::trace::Trace;
use gpu_graph::cost::{Cluster, EstimateError, Estimates, estimate};
use gpu_graph::placer::Placement;
use gpu_graph::{DeviceSet, Graph, Registry};
use std::collections::BTreeMap;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The values; empty for a run in virtual time.
    pub values: Vec<Fetched>,
    /// The number of nodes of each operation without a kernel here. If there are any, the run was
    /// in virtual time.
    pub unsupported: BTreeMap<String, usize>,
    /// The tasks of the trace.
    pub tasks: TaskGraph,
    /// When each task ran; empty for a real run without a clock.
    pub trace: Trace,
}

/// Why a graph does not run.
#[derive(Debug, thiserror::Error)]
pub enum RanError {
    /// A value that was asked for does not exist, or operations wait for each other.
    #[error(transparent)]
    Program(ProgramError),
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] RunError<OpError>),
    /// A request for a device is malformed.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// Virtual time is impossible.
    #[error(transparent)]
    Virtual(#[from] VirtualError),
}

/// A graph, and where its operations are placed.
#[derive(Clone, Copy, Debug)]
pub struct PlacedGraph<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its operations and kernels.
    pub registry: &'a Registry,
    /// The devices.
    pub devices: &'a DeviceSet,
    /// The device of each operation.
    pub placement: &'a Placement,
}

/// Computes values by name on CPU threads ([`Program`]). If they need an operation without a kernel
/// here, runs the whole graph in virtual time on the devices of a cluster.
///
/// # Errors
/// If a name is unknown or an operation fails.
pub fn run_placed(
    placed: PlacedGraph<'_>,
    cluster: &Cluster,
    fetches: &[String],
    options: &ProgramOptions,
) -> Result<Ran, RanError> {
    let PlacedGraph { graph, registry, devices, placement } = placed;
    match Program::of(graph, fetches) {
        Ok(program) => {
            let outcome = program.run(options)?;
            let (values, trace) = (outcome.fetched, outcome.trace);
            Ok(Ran { values, trace, tasks: program.into_tasks(), ..Ran::default() })
        }
        Err(ProgramError::Unsupported(unsupported)) => {
            let mut graph = graph.clone();
            placement.apply(&mut graph, devices);
            let dag = estimate(&graph, registry, cluster, &Estimates::default())?;
            let on: Vec<usize> = placement.devices().collect();
            let (tasks, trace) = virtual_run(&dag, cluster, &on, options.inter_op_threads)?;
            Ok(Ran { unsupported, tasks, trace, ..Ran::default() })
        }
        Err(error) => Err(RanError::Program(error)),
    }
}
