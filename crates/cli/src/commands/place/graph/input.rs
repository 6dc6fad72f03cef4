//! The graph, and the operations and kernels that it uses.

use crate::commands::parse::read_up_to;
use crate::exit::Exit;
use crate::failure::Failure;
use gpu_graph::read::{self, Document, Form, Limits, ReadError};
use gpu_graph::{BuildError, Device, DeviceSet, Graph, GraphDef, Registry};
use gpu_report::placed;
use std::path::{Path, PathBuf};

/// What the files contain.
pub(super) struct Input {
    pub(super) graph: GraphDef,
    pub(super) registry: Registry,
    /// The devices, where the file lists them.
    pub(super) devices: Option<Vec<Device>>,
    pub(super) notes: Vec<String>,
}

/// Reads a graph and files of kernels; without any, the kernels are those of the graph's file or
/// TensorFlow's.
///
/// # Errors
/// If a file cannot be read or is malformed.
pub(super) fn read(file: &Path, kernels: &[PathBuf], contents: bool) -> Result<Input, Failure> {
    let limits = Limits { contents, ..Limits::default() };
    let bytes = read_up_to(file, limits.bytes)?;
    let Document { form, graph, registry, devices, mut notes } =
        read::graph(&bytes, &limits).map_err(|error| unreadable(file, error))?;
    let mut registry = match (registry, kernels.is_empty(), form) {
        (Some(registry), ..) => registry,
        (None, false, _) => Registry::default(),
        (None, true, Form::Onnx) => {
            notes.push(ANY_DEVICE.to_owned());
            Registry::supporting(&graph, &["GPU", "CPU"])
        }
        (None, true, _) => Registry::tensorflow(),
    };
    for path in kernels {
        add_kernels(&mut registry, path, &limits)?;
    }
    Ok(Input { graph, registry, devices, notes })
}

/// Resolves the names of a graph.
///
/// # Errors
/// If the graph refers to what is not there.
pub(super) fn build(file: &Path, graph: GraphDef, registry: &Registry) -> Result<Graph, Failure> {
    Graph::build(graph, registry).map_err(|error| {
        let failure = Failure::new(Exit::Usage, format!("build the graph of '{}'", file.display()));
        let is_unknown = matches!(error, BuildError::UnknownOp { .. });
        let failure = failure.with_source(error);
        match is_unknown {
            true => failure
                .with_hint("--kernels FILE adds operations and kernels (docs/graph-formats.md)"),
            false => failure,
        }
    })
}

/// ONNX has no list of kernels: which operations run where depends on the program that runs it.
const ANY_DEVICE: &str = "the file lists no kernels: each operation is assumed to run on CPUs and \
                          GPUs (change this with --kernels FILE)";

/// Adds the operations and kernels of a file.
fn add_kernels(registry: &mut Registry, path: &Path, limits: &Limits) -> Result<(), Failure> {
    let unreadable = |error| unreadable(path, error);
    let bytes = read_up_to(path, limits.bytes)?;
    match read::detect(&bytes).map_err(unreadable)? {
        Form::Ops => read::ops(&bytes, limits)
            .map_err(unreadable)?
            .into_iter()
            .for_each(|op| registry.add_op(op)),
        Form::Kernels => read::kernels(&bytes, limits)
            .map_err(unreadable)?
            .into_iter()
            .for_each(|kernel| registry.add_kernel(kernel)),
        _ => match read::graph(&bytes, limits).map_err(unreadable)?.registry {
            Some(more) => registry.extend(more),
            None => {
                let what = format!("find kernels in '{}'", path.display());
                return Err(Failure::new(Exit::Usage, what)
                    .with_source("it lists neither operations nor kernels"));
            }
        },
    }
    Ok(())
}

/// Assigns nodes to the devices of an earlier placement, and returns a note about operations that
/// the graph lacks.
///
/// # Errors
/// If the file cannot be read or is no placement on these devices.
pub(super) fn assign(
    path: &Path,
    graph: &mut Graph,
    devices: &DeviceSet,
) -> Result<Option<String>, Failure> {
    let bytes = read_up_to(path, Limits::default().bytes)?;
    let missing = placed::assign(graph, devices, &bytes).map_err(|why| {
        Failure::new(Exit::Usage, format!("read the placement '{}'", path.display()))
            .with_source(why.why)
            .with_hint(why.hint)
    })?;
    Ok(placed::missing(&missing, &path.display().to_string()))
}

fn unreadable(path: &Path, error: ReadError) -> Failure {
    Failure::new(Exit::Usage, format!("read '{}'", path.display())).with_source(error)
}
