//! The invariants of every fuzz target: the same result twice, a result in proportion to the file,
//! names where they are needed, errors that are safe to print on a terminal, and graphs that are
//! built and placed or refused.

use gpu_graph::placer::{self, Options};
use gpu_graph::read::{self, Document, Form, Limits, ReadError};
use gpu_graph::{Attr, DeviceSet, Graph, NodeDef, Registry};

/// Reads bytes as a file of one form.
///
/// # Panics
/// If an invariant is violated.
pub fn of_form(bytes: &[u8], form: Form) {
    check(bytes, || read::graph_as(form, bytes, &Limits::default()));
}

/// Reads bytes as a file whose form is detected.
///
/// # Panics
/// If an invariant is violated.
pub fn any(bytes: &[u8]) {
    check(bytes, || read::graph(bytes, &Limits::default()));
}

/// Reads bytes as lists of operations and of kernels.
///
/// # Panics
/// If an invariant is violated.
pub fn operations(bytes: &[u8]) {
    match read::ops(bytes, &Limits::default()) {
        Ok(ops) => {
            assert!(ops.iter().all(|op| !op.name.is_empty()));
            assert!(ops.len() <= bytes.len());
        }
        Err(error) => check_error(&error),
    }
    match read::kernels(bytes, &Limits::default()) {
        Ok(kernels) => {
            assert!(kernels.iter().all(|of| !of.op.is_empty() && !of.device_type.is_empty()));
            assert!(kernels.len() <= bytes.len());
        }
        Err(error) => check_error(&error),
    }
}

fn check(bytes: &[u8], read: impl Fn() -> Result<Document, ReadError>) {
    let document = match read() {
        Ok(document) => document,
        Err(error) => {
            check_error(&error);
            assert_eq!(read().err(), Some(error));
            return;
        }
    };
    let graph = &document.graph;
    let in_functions = graph.functions.iter().flat_map(|function| &function.nodes);
    let mut values = 0;
    for node in graph.nodes.iter().chain(in_functions) {
        check_node(node);
        values += 1 + node.inputs.len() + node.attrs.values().map(count).sum::<usize>();
    }
    // ONNX nodes have at most four attributes that are not in the file.
    assert!(values <= 8 * bytes.len() + 8, "{values} values");
    // Compare as text, because NaN differs from itself.
    assert_eq!(read().map(|again| format!("{:?}", again.graph)), Ok(format!("{graph:?}")));
    place(document);
}

/// Builds and places a graph with TensorFlow's kernels and with kernels for all operations.
fn place(document: Document) {
    let Document { graph: def, registry: own, .. } = document;
    let names = ["CPU:0", "GPU:0"].map(|of| format!("/job:localhost/replica:0/task:0/device:{of}"));
    let Some(devices) = DeviceSet::named(names.iter().map(String::as_str)) else { return };
    let mut tensorflow = Registry::tensorflow();
    tensorflow.extend(own.unwrap_or_default());
    for registry in [Registry::supporting(&def, &["CPU", "GPU"]), tensorflow] {
        let Ok(graph) = Graph::build(def.clone(), &registry) else { continue };
        let Ok(placement) = placer::place(&graph, &registry, &devices, &Options::default()) else {
            continue;
        };
        let count = graph.nodes().len() + placement.inserted().len();
        assert_eq!(placement.devices().len(), count);
    }
}

fn check_node(node: &NodeDef) {
    assert!(!node.name.is_empty() && !node.op.is_empty());
}

fn count(value: &Attr) -> usize {
    match value {
        Attr::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Attr::Function(_, attrs) => 1 + attrs.values().map(count).sum::<usize>(),
        Attr::Shape(Some(dims)) => 1 + dims.len(),
        _ => 1,
    }
}

fn check_error(error: &ReadError) {
    let text = error.to_string();
    assert!(text.len() < 1_000 && !text.contains(char::is_control), "{text:?}");
}
