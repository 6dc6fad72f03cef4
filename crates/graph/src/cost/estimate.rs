//! The costs of the nodes of a graph, measured where possible and otherwise estimated.

use super::cluster::Cluster;
use super::dag::{Dag, Input, Item};
use crate::def::Attr;
use crate::device::DeviceSpec;
use crate::graph::Graph;
use crate::node::Node;
use crate::registry::{Kernel, Registry};
use gpu_core::Bytes;
use std::collections::HashMap;

/// The assumptions where a graph and its kernels have no information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimates {
    /// The size of an output whose shape is unknown. Default: 4 KiB.
    pub output: Bytes,
    /// The time to start an operation, in nanoseconds. Default: 5 µs, a launch of a CUDA kernel.
    pub start_nanos: u64,
    /// The bytes of inputs and outputs that an operation processes per second on a processor with
    /// speed 1. Default: 500 GB/s, the memory of a GPU with GDDR6.
    pub bytes_per_second: u64,
    /// The factor by which operations that use each byte many times (matrix products, convolutions)
    /// take longer. Default: 16.
    pub dense_factor: u64,
}

impl Default for Estimates {
    fn default() -> Self {
        Estimates {
            output: Bytes(4096),
            start_nanos: 5_000,
            bytes_per_second: 500_000_000_000,
            dense_factor: 16,
        }
    }
}

/// A node with an invalid device request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device '{device}' of node '{node}' is malformed")]
pub struct EstimateError {
    /// The node.
    pub node: String,
    /// Its request.
    pub device: String,
}

/// Returns the work of a graph on a cluster, an item for each node.
///
/// - A node can run on the processors whose type has a kernel for it (or `DEFAULT` has), and on all
///   if its operation has neither a kernel nor a definition. Of these, it can run on the one that
///   it was assigned to or those that match its request, even where soft placement would choose
///   another.
/// - Its time is its attribute `_nanos_GPU` (for that type of device) or `_nanos`, or that of its
///   kernel, or else an estimate from the bytes of its inputs and outputs and from the operation,
///   divided by the speed of the processor.
/// - The size of an output is the attribute `_output_bytes` (one number or one for each output), or
///   that of the shape in `_output_shapes` or `shape`, or [`Estimates::output`]. References and
///   resources have none: the variable behind them is persistent memory of its node. The
///   initializers of ONNX models are persistent memory, too.
/// - Nodes that share a reference, a resource or a group in `_class` stay together. A group need
///   not be the name of a node.
/// - One iteration of a loop counts: inputs from `NextIteration` are left out.
///
/// # Errors
/// If a request for a device is malformed.
pub fn estimate(
    graph: &Graph,
    registry: &Registry,
    cluster: &Cluster,
    estimates: &Estimates,
) -> Result<Dag, EstimateError> {
    let names = cluster.processors.iter().map(|at| DeviceSpec::parse(&at.name).unwrap_or_default());
    let names: Vec<_> = names.collect();
    let sizes: Vec<Vec<Bytes>> = graph.nodes().iter().map(|node| sizes(node, estimates)).collect();
    let groups = groups(graph);
    let mut items = Vec::with_capacity(graph.nodes().len());
    for (at, node) in graph.nodes().iter().enumerate() {
        let text = node.assigned.as_ref().unwrap_or(&node.requested);
        let request = DeviceSpec::parse(text)
            .ok_or_else(|| EstimateError { node: node.name.to_string(), device: text.clone() })?;
        let closes_loop = |of: usize| graph.nodes()[of].op.ends_with("NextIteration");
        let values = node.inputs.iter().filter(|input| !closes_loop(input.node.index()));
        let values = values.map(|input| Input::value(input.node.0, input.output));
        let orders = node.controls.iter().filter(|control| !closes_loop(control.index()));
        let inputs = values.chain(orders.map(|control| Input::order(control.0))).collect();
        let read = node
            .inputs
            .iter()
            .filter_map(|input| sizes.get(input.node.index())?.get(input.output as usize));
        let moved: Bytes = read.chain(&sizes[at]).copied().sum();
        let is_unknown = registry.kernels(&node.op).is_empty() && registry.op(&node.op).is_none();
        let time = |(name, processor): (&DeviceSpec, &super::Processor)| {
            let kind = name.kind.as_deref()?;
            let kernel = kernel(registry, node, kind);
            (is_unknown || kernel.is_some()).then_some(())?;
            request.matches(name).then_some(())?;
            let stated = node.attrs.get(&format!("_nanos_{kind}"));
            let stated = stated.or_else(|| node.attrs.get("_nanos")).and_then(Attr::as_int);
            let stated = stated.and_then(|nanos| u64::try_from(nanos).ok());
            let stated = stated.or_else(|| kernel?.nanos);
            let estimated = || {
                let nanos = estimates.nanos(&node.op, moved) as f64;
                (nanos / processor.speed.max(f64::MIN_POSITIVE)).ceil() as u64
            };
            Some(stated.unwrap_or_else(estimated))
        };
        let is_initializer = &*node.op == "Initializer";
        let is_variable = node.inputs.is_empty() && node.outputs.iter().any(|of| of.binds());
        let outputs = sizes[at].iter().zip(&node.outputs);
        let outputs = outputs.map(|(bytes, of)| if of.binds() { Bytes(0) } else { *bytes });
        items.push(Item {
            name: node.name.clone(),
            inputs,
            outputs: outputs.collect(),
            nanos: names.iter().zip(&cluster.processors).map(time).collect(),
            workspace: Bytes(0),
            persistent: if is_variable || is_initializer {
                sizes[at].iter().copied().sum()
            } else {
                Bytes(0)
            },
            keeps_outputs: is_initializer,
            group: groups.get(&at).copied(),
            fixed: None,
        });
    }
    Ok(Dag { items })
}

impl Estimates {
    fn nanos(&self, op: &str, moved: Bytes) -> u64 {
        // `Constant`, `Initializer` and `Input` come from ONNX.
        const STRUCTURE: [&str; 11] = [
            "Const",
            "Constant",
            "Identity",
            "Initializer",
            "Input",
            "NoOp",
            "Placeholder",
            "Variable",
            "VariableV2",
            "VarHandleOp",
            "_Arg",
        ];
        if STRUCTURE.contains(&op) {
            return 0;
        }
        let dense = ["MatMul", "Conv", "Einsum"].iter().any(|part| op.contains(part));
        let factor = if dense { self.dense_factor } else { 1 };
        let bytes = u128::from(moved.0) * u128::from(factor) * 1_000_000_000;
        let nanos = bytes / u128::from(self.bytes_per_second.max(1));
        self.start_nanos.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Returns the kernel of a node for a type of device: its own with the highest priority, or the
/// kernel for all devices.
fn kernel<'a>(registry: &'a Registry, node: &Node, kind: &str) -> Option<&'a Kernel> {
    let of = |kind: &str| {
        let kernels = registry.kernels(&node.op).iter();
        let fit = kernels.filter(|of| of.device_type == kind && of.accepts(&node.attrs));
        // The first of several equal priorities.
        fit.rev().max_by_key(|kernel| kernel.priority)
    };
    of(kind).or_else(|| of("DEFAULT"))
}

/// Returns the size of each output.
fn sizes(node: &Node, estimates: &Estimates) -> Vec<Bytes> {
    let attr = |name: &str| node.attrs.get(name).map(Attr::items).unwrap_or_default();
    let stated = attr("_output_bytes");
    let shapes = match attr("_output_shapes") {
        [] => attr("shape"),
        shapes => shapes,
    };
    let size = |(at, of): (usize, &crate::ValueType)| {
        let stated = stated.get(at).and_then(Attr::as_int);
        // −1 for a missing value.
        if let Some(bytes) = stated.and_then(|bytes| u64::try_from(bytes).ok()) {
            return Bytes(bytes);
        }
        let Some(Attr::Shape(Some(shape))) = shapes.get(at) else { return estimates.output };
        let elements = shape.iter().try_fold(1_u64, |product, dimension| {
            Some(product.saturating_mul(u64::try_from(*dimension).ok()?))
        });
        match (elements, of.dtype.bits()) {
            (Some(elements), Some(bits)) => {
                Bytes(elements.saturating_mul(u64::from(bits)).div_ceil(8))
            }
            _ => estimates.output,
        }
    };
    node.outputs.iter().enumerate().map(size).collect()
}

/// Returns the group of each node that has one.
fn groups(graph: &Graph) -> HashMap<usize, u32> {
    let mut parents: Vec<usize> = (0..graph.nodes().len()).collect();
    let mut grouped = Vec::new();
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(graph.nodes().len());
    for (at, node) in graph.nodes().iter().enumerate() {
        let bound = node.inputs.iter().filter(|input| {
            let from = graph.nodes().get(input.node.index());
            let of = from.and_then(|from| from.outputs.get(input.output as usize));
            of.is_some_and(|of| of.binds())
        });
        let bound = bound.map(|input| input.node.index());
        let named = node.colocation().chain([&*node.name]);
        let named = named.map(|group| *first.entry(group).or_insert(at));
        for other in bound.chain(named).filter(|other| *other != at) {
            grouped.extend([at, other]);
            let (a, b) = (root(&mut parents, at), root(&mut parents, other));
            parents[a.max(b)] = a.min(b);
        }
    }
    let group = |at: usize| (at, root(&mut parents, at) as u32);
    grouped.into_iter().map(group).collect()
}

/// Finds the first of a set, and halves the path to it.
fn root(parents: &mut [usize], mut at: usize) -> usize {
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::{Processor, list_schedule};
    use super::*;
    use crate::{Dtype, NodeId, Source, ValueType};
    use gpu_core::Topology;

    fn graph(nodes: Vec<Node>) -> Graph {
        let by_name = (0_u32..).zip(&nodes).map(|(at, node)| (node.name.clone(), NodeId(at)));
        Graph { by_name: by_name.collect(), nodes, functions: Default::default() }
    }

    fn node(name: &str, op: &str, inputs: &[u32], attrs: &[(&str, Attr)]) -> Node {
        let source = |at: &u32| Source { node: NodeId(*at), output: 0 };
        Node {
            name: name.into(),
            op: op.into(),
            inputs: inputs.iter().map(source).collect(),
            controls: Vec::new(),
            outputs: vec![ValueType::of(Dtype::FLOAT)],
            requested: String::new(),
            assigned: None,
            attrs: attrs.iter().map(|(name, attr)| ((*name).to_owned(), attr.clone())).collect(),
        }
    }

    fn registry() -> Registry {
        let mut registry = Registry::default();
        for (op, kind, nanos) in [
            ("MatMul", "GPU", Some(700)),
            ("MatMul", "CPU", None),
            ("Variable", "DEFAULT", None),
            ("Read", "CPU", None),
            ("Assign", "DEFAULT", None),
        ] {
            let (op, device_type) = (op.to_owned(), kind.to_owned());
            registry.add_kernel(Kernel { op, device_type, nanos, ..Kernel::default() });
        }
        registry
    }

    fn cluster() -> Cluster {
        let processor = |name: &str, speed| Processor { name: name.into(), speed, memory: None };
        let device = "/job:localhost/replica:0/task:0/device";
        let gpus = vec![processor(&format!("{device}:GPU:0"), 2.0)];
        let host = processor(&format!("{device}:CPU:0"), 0.5);
        Cluster::of_machine(gpus, Some(host), &Topology::default(), &gpu_core::Rates::default())
    }

    #[test]
    fn times_come_from_the_node_the_kernel_or_the_estimate() {
        let shape = Attr::Shape(Some(vec![1000, 250]));
        let nodes = vec![
            node("r", "Read", &[], &[("_output_bytes", Attr::Int(1_000_000))]),
            node("k", "MatMul", &[0], &[("shape", shape)]),
            node("s", "MatMul", &[1], &[("_nanos", Attr::Int(90))]),
        ];
        let dag = estimate(&graph(nodes), &registry(), &cluster(), &Estimates::default()).unwrap();
        assert_eq!(dag.items[0].nanos, [None, Some(2 * (5000 + 2000))]);
        assert_eq!(dag.items[1].outputs, [Bytes(1_000_000)]);
        // 2 MB, 16 times, at 500 GB/s.
        // The kernel's time is as stated.
        assert_eq!(dag.items[1].nanos, [Some(700), Some(2 * (5000 + 64_000))]);
        assert_eq!(dag.items[2].nanos, [Some(90), Some(90)]);
        assert_eq!(dag.items[2].outputs, [Bytes(4096)]);
    }

    #[test]
    fn variables_are_persistent_and_bind_their_users() {
        let mut variable = node("v", "Variable", &[], &[("_output_bytes", Attr::Int(64))]);
        variable.outputs = vec![ValueType::reference_to(Dtype::FLOAT)];
        let class = Attr::List(vec![Attr::Text("loc:@v".to_owned())]);
        let nodes = vec![
            variable,
            node("a", "Assign", &[0], &[]),
            node("m", "MatMul", &[], &[("_class", class)]),
            node("free", "MatMul", &[], &[]),
        ];
        let dag = estimate(&graph(nodes), &registry(), &cluster(), &Estimates::default()).unwrap();
        let groups: Vec<_> = dag.items.iter().map(|item| item.group).collect();
        assert_eq!(groups, [Some(0), Some(0), Some(0), None]);
        assert_eq!((dag.items[0].persistent, dag.items[0].outputs[0]), (Bytes(64), Bytes(0)));
    }

    #[test]
    fn requests_narrow_the_processors() {
        let mut pinned = node("m", "MatMul", &[], &[]);
        pinned.requested = "/cpu:0".to_owned();
        let of = |node: Node| {
            estimate(&graph(vec![node]), &registry(), &cluster(), &Estimates::default())
        };
        let dag = of(pinned.clone()).unwrap();
        assert_eq!(list_schedule(&dag, &cluster()).unwrap().slots[0].processor, 1);
        pinned.requested = "/fake".to_owned();
        let error = of(pinned).unwrap_err();
        assert_eq!(error.to_string(), "the device '/fake' of node 'm' is malformed");
    }

    #[test]
    fn loops_count_once() {
        let nodes = vec![node("m", "MatMul", &[1], &[]), node("n", "NextIteration", &[0], &[])];
        let mut registry = registry();
        let (op, device_type) = ("NextIteration".to_owned(), "DEFAULT".to_owned());
        registry.add_kernel(Kernel { op, device_type, ..Kernel::default() });
        let dag = estimate(&graph(nodes), &registry, &cluster(), &Estimates::default()).unwrap();
        assert!(dag.items[0].inputs.is_empty());
        list_schedule(&dag, &cluster()).unwrap();
    }
}
