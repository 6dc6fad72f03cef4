//! A training graph on several devices, with the reduction of its gradients.

use super::contexts::ContextError;
use super::gradient::Gradient;
use super::reduction::{Reduction, tree_edges};
use super::steps::{ADD, COPY, JOIN, SCALE, SPLIT};
use crate::def::{Attr, GraphDef, NodeDef};
use crate::device::DeviceSpec;
use crate::dtype::ValueType;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The largest number of replicas: a ring has n² nodes for each gradient.
const MAX_REPLICAS: usize = 64;

/// The attribute with the size of each output.
const BYTES: &str = "_output_bytes";

/// The options of a replication.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicas {
    /// The devices, such as `/device:GPU:0`, one replica on each, in the order of the ring or tree.
    pub devices: Vec<String>,
    /// The gradients to reduce.
    pub gradients: Vec<Gradient>,
    /// Ring or tree.
    pub reduction: Reduction,
    /// Whether the replicas apply the mean of the gradients instead of the sum.
    pub mean: bool,
}

/// A graph that cannot be replicated. Each completes 'failed to replicate the graph: …'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicateError {
    /// There is no device, or there are too many.
    #[error("{count} devices for replicas (1 to {max} are possible)")]
    Devices {
        /// The number of devices.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// The name of a device is malformed or occurs twice.
    #[error("the device '{device}' of a replica is malformed or occurs twice")]
    Device {
        /// The device.
        device: String,
    },
    /// There are more or fewer devices than replicas.
    #[error("{replicas} replicas for {devices} devices")]
    Count {
        /// The number of replicas.
        replicas: usize,
        /// The number of devices.
        devices: usize,
    },
    /// The batch cannot be split.
    #[error(transparent)]
    Batch(#[from] ContextError),
    /// A node does not exist, or the input does not, or is for order only.
    #[error("node '{update}' has no input {input} that is a gradient")]
    Gradient {
        /// The node.
        update: String,
        /// The input.
        input: usize,
    },
}

/// Copies a training graph to several devices. Each copy applies the reduced gradients of all.
///
/// Node `x` becomes `replica_0/x`, `replica_1/x` and so on; each requests its device, except that a
/// node that requests a CPU keeps its request. Colocation groups are renamed, too. The nodes of the
/// reduction are below `reduce/`, and each requests the device that performs the step. A gradient
/// that several nodes apply is reduced once. Functions are shared.
///
/// The variables of the replicas stay equal if they start equal, which is up to the caller: an
/// initializer with random values needs one seed, or its values are copied.
///
/// # Errors
/// If the devices or the gradients are invalid.
pub fn data_parallel(graph: &GraphDef, how: &Replicas) -> Result<GraphDef, ReplicateError> {
    let count = how.devices.len();
    if !(1..=MAX_REPLICAS).contains(&count) {
        return Err(ReplicateError::Devices { count, max: MAX_REPLICAS });
    }
    let mut seen = HashSet::new();
    for device in &how.devices {
        // `/gpu:0` and `/device:GPU:0` are the same device.
        if !DeviceSpec::parse(device).is_some_and(|spec| seen.insert(spec)) {
            return Err(ReplicateError::Device { device: device.clone() });
        }
    }
    let by_name: HashMap<&str, usize> =
        graph.nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut nodes = Vec::with_capacity(count * graph.nodes.len());
    for (at, device) in how.devices.iter().enumerate() {
        nodes.extend(graph.nodes.iter().map(|node| copied(node, at, device)));
    }
    let mut steps = Steps { how, nodes: Vec::new(), prefix: String::new() };
    let mut reduced: HashMap<(&str, usize), Vec<String>> = HashMap::new();
    for Gradient { update, input } in &how.gradients {
        let wrong = || ReplicateError::Gradient { update: update.clone(), input: *input };
        let at = *by_name.get(update.as_str()).ok_or_else(wrong)?;
        let value = graph.nodes.get(at).and_then(|node| node.inputs.get(*input));
        let value = value.filter(|value| !value.starts_with('^')).ok_or_else(wrong)?;
        // `grad` and `grad:0` are the same value.
        let (name, output) = value.rsplit_once(':').unwrap_or((value, "0"));
        let output = output.parse().map_err(|_| wrong())?;
        let number = reduced.len();
        let values = reduced.entry((name, output)).or_insert_with(|| {
            let node = by_name.get(name).and_then(|at| graph.nodes.get(*at));
            steps.prefix = format!("reduce/{number}");
            steps.reduce(value, Value::of(node, output))
        });
        for (replica, value) in values.iter().enumerate() {
            let node = nodes.get_mut(replica * graph.nodes.len() + at);
            if let Some(slot) = node.and_then(|node| node.inputs.get_mut(*input)) {
                slot.clone_from(value);
            }
        }
    }
    nodes.append(&mut steps.nodes);
    Ok(GraphDef { nodes, functions: graph.functions.clone() })
}

/// Returns the node of a replica.
fn copied(node: &NodeDef, replica: usize, device: &str) -> NodeDef {
    let name = |name: &str| format!("replica_{replica}/{name}");
    let mut copy = node.clone();
    copy.name = name(&node.name);
    for input in &mut copy.inputs {
        *input = match input.strip_prefix('^') {
            Some(control) => format!("^{}", name(control)),
            None => name(input),
        };
    }
    let keeps = DeviceSpec::parse(&node.device).is_some_and(|of| of.kind.as_deref() == Some("CPU"));
    if !keeps {
        device.clone_into(&mut copy.device);
    }
    if let Some(class) = copy.attrs.get_mut("_class") {
        let rename = |class: &Attr| match class.as_text().and_then(|at| at.strip_prefix("loc:@")) {
            Some(group) => Attr::Text(format!("loc:@{}", name(group))),
            None => class.clone(),
        };
        *class = Attr::List(class.items().iter().map(rename).collect());
    }
    copy
}

/// The type and the size of a gradient, if the graph states them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    of: Option<ValueType>,
    pub(super) bytes: Option<i64>,
}

impl Value {
    pub(super) fn of(node: Option<&NodeDef>, output: usize) -> Value {
        let stated = node.and_then(|node| node.outputs.as_ref()?.get(output).copied());
        let attr = |name: &str| node.and_then(|node| node.attrs.get(name));
        let typed = || ["T", "dtype"].iter().find_map(|name| attr(name)?.as_type());
        let bytes = attr(BYTES).and_then(|bytes| bytes.items().get(output)?.as_int());
        Value { of: stated.or_else(typed), bytes: bytes.filter(|bytes| *bytes >= 0) }
    }

    /// Returns the size of a chunk of n.
    fn chunk(self, chunk: usize, count: usize) -> Option<i64> {
        let (bytes, count) = (self.bytes?, count as i64);
        Some(bytes / count + i64::from((chunk as i64) < bytes % count))
    }
}

/// Inserts the nodes of one reduction after the other.
struct Steps<'a> {
    how: &'a Replicas,
    nodes: Vec<NodeDef>,
    prefix: String,
}

impl Steps<'_> {
    /// Reduces a value and returns the result of each replica.
    fn reduce(&mut self, value: &str, of: Value) -> Vec<String> {
        let count = self.how.devices.len();
        let own = (0..count).map(|at| format!("replica_{at}/{value}")).collect();
        let summed = match self.how.reduction {
            _ if count == 1 => own,
            Reduction::Ring => self.ring(own, of),
            Reduction::Tree => self.tree(own, of),
        };
        if !self.how.mean || count == 1 {
            return summed;
        }
        let factor = ("factor", Attr::Float(1.0 / count as f64));
        let scale = |(at, sum): (usize, String)| {
            self.node(at, "scale", SCALE, vec![sum], [of.bytes], of, [factor.clone()])
        };
        summed.into_iter().enumerate().map(scale).collect()
    }

    fn ring(&mut self, own: Vec<String>, of: Value) -> Vec<String> {
        let count = own.len();
        let number = || ("N", Attr::Int(count as i64));
        let mut chunks: Vec<Vec<String>> = Vec::with_capacity(count);
        for (at, value) in own.iter().enumerate() {
            let sizes = (0..count).map(|chunk| of.chunk(chunk, count));
            let split = self.node(at, "split", SPLIT, vec![value.clone()], sizes, of, [number()]);
            chunks.push((0..count).map(|chunk| format!("{split}:{chunk}")).collect());
        }
        // In each step, every device sends one chunk to the next: first the sums so far, then the
        // complete ones.
        for step in 0..2 * (count - 1) {
            let adds = step < count - 1;
            for from in 0..count {
                let to = (from + 1) % count;
                let chunk = (from + 2 * count - step) % count;
                let size = of.chunk(chunk, count);
                let sent = vec![chunks[from][chunk].clone()];
                let mut value = self.node(to, &format!("copy_{step}"), COPY, sent, [size], of, []);
                if adds {
                    let both = vec![value, chunks[to][chunk].clone()];
                    value = self.node(to, &format!("add_{step}"), ADD, both, [size], of, []);
                }
                chunks[to][chunk] = value;
            }
        }
        let join = |((at, own), chunks): ((usize, String), Vec<String>)| {
            let inputs = std::iter::once(own).chain(chunks).collect();
            self.node(at, "join", JOIN, inputs, [of.bytes], of, [number()])
        };
        own.into_iter().enumerate().zip(chunks).map(join).collect()
    }

    fn tree(&mut self, mut values: Vec<String>, of: Value) -> Vec<String> {
        let edges = tree_edges(values.len());
        for (from, to, step) in &edges {
            let sent = vec![values[*from].clone()];
            let copy = self.node(*to, &format!("copy_{step}"), COPY, sent, [of.bytes], of, []);
            let both = vec![copy, values[*to].clone()];
            values[*to] = self.node(*to, &format!("add_{step}"), ADD, both, [of.bytes], of, []);
        }
        for (to, from, _) in edges.iter().rev() {
            let sent = vec![values[*from].clone()];
            values[*to] = self.node(*to, "result", COPY, sent, [of.bytes], of, []);
        }
        values
    }

    /// Adds a node on the device of a replica and returns its name.
    #[expect(clippy::too_many_arguments, reason = "the parts of a node, each needed")]
    fn node(
        &mut self,
        replica: usize,
        name: &str,
        op: &str,
        inputs: Vec<String>,
        sizes: impl IntoIterator<Item = Option<i64>>,
        of: Value,
        attrs: impl IntoIterator<Item = (&'static str, Attr)>,
    ) -> String {
        let name = format!("{}/replica_{replica}/{name}", self.prefix);
        let sizes: Vec<_> = sizes.into_iter().collect();
        let mut attrs: BTreeMap<String, Attr> =
            attrs.into_iter().map(|(name, attr)| (name.to_owned(), attr)).collect();
        let outputs = of.of.map(|of| {
            attrs.insert("T".to_owned(), Attr::Type(of));
            vec![of; sizes.len()]
        });
        if let Some(sizes) = sizes.into_iter().map(|size| size.map(Attr::Int)).collect() {
            attrs.insert(BYTES.to_owned(), Attr::List(sizes));
        }
        let device = self.how.devices.get(replica).cloned().unwrap_or_default();
        let op = op.to_owned();
        self.nodes.push(NodeDef { name: name.clone(), op, inputs, device, attrs, outputs });
        name
    }
}

#[cfg(test)]
mod tests {
    use super::super::gradient::gradients;
    use super::*;
    use std::collections::HashSet;

    const SIZE: usize = 12;

    fn node(name: &str, op: &str, inputs: &[&str]) -> NodeDef {
        NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            ..NodeDef::default()
        }
    }

    fn training() -> GraphDef {
        let mut gradient = node("grad", "Gradient", &["weights", "^read"]);
        gradient.attrs.insert(BYTES.to_owned(), Attr::Int(SIZE as i64 * 4));
        gradient.attrs.insert("T".to_owned(), Attr::Type(ValueType::named("float").unwrap()));
        let mut read = node("read", "Read", &[]);
        read.device = "/cpu:0".to_owned();
        let mut rate = node("rate", "Const", &[]);
        let class = Attr::List(vec![Attr::Text("loc:@weights".to_owned())]);
        rate.attrs.insert("_class".to_owned(), class);
        let update = node("update", "ApplyGradientDescent", &["weights", "rate", "grad:0"]);
        let nodes = vec![node("weights", "Variable", &[]), read, rate, gradient, update];
        GraphDef { nodes, functions: Vec::new() }
    }

    fn replicas(count: usize, reduction: Reduction) -> Replicas {
        let devices = (0..count).map(|at| format!("/device:GPU:{at}")).collect();
        Replicas { devices, gradients: gradients(&training()), reduction, mean: false }
    }

    /// Computes a value; the gradient of replica r is (r + 1) · element.
    fn value(graph: &GraphDef, input: &str) -> Vec<f64> {
        let (name, output) = input.split_once(':').unwrap_or((input, "0"));
        let node = graph.nodes.iter().find(|node| node.name == name).unwrap();
        let of = |at: usize| value(graph, &node.inputs[at]);
        match node.op.as_str() {
            "Gradient" => {
                let (replica, _) = name["replica_".len()..].split_once('/').unwrap();
                let factor = replica.parse::<f64>().unwrap() + 1.0;
                (0..SIZE).map(|at| factor * at as f64).collect()
            }
            SPLIT => {
                let count = node.attrs["N"].as_int().unwrap() as usize;
                let (value, output) = (of(0), output.parse::<usize>().unwrap());
                let start = |chunk: usize| chunk * (SIZE / count) + chunk.min(SIZE % count);
                value[start(output)..start(output + 1)].to_vec()
            }
            COPY => of(0),
            ADD => of(0).iter().zip(of(1)).map(|(a, b)| a + b).collect(),
            JOIN => (1..node.inputs.len()).flat_map(of).collect(),
            SCALE => {
                let Attr::Float(factor) = node.attrs["factor"] else { panic!() };
                of(0).iter().map(|a| a * factor).collect()
            }
            op => panic!("{op}"),
        }
    }

    fn applied(graph: &GraphDef, replica: usize) -> String {
        let name = format!("replica_{replica}/update");
        graph.nodes.iter().find(|node| node.name == name).unwrap().inputs[2].clone()
    }

    #[test]
    fn every_replica_applies_the_sum_of_all_gradients() {
        for reduction in [Reduction::Ring, Reduction::Tree] {
            for count in 1..7 {
                for mean in [false, true] {
                    let how = Replicas { mean, ..replicas(count, reduction) };
                    let graph = data_parallel(&training(), &how).unwrap();
                    let sum = (count * (count + 1) / 2) as f64;
                    let factor = if mean { sum / count as f64 } else { sum };
                    for replica in 0..count {
                        let found = value(&graph, &applied(&graph, replica));
                        for (at, found) in found.iter().enumerate() {
                            assert!((found - factor * at as f64).abs() < 1e-9, "{how:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_inputs_exist() {
        for reduction in [Reduction::Ring, Reduction::Tree] {
            let graph = data_parallel(&training(), &replicas(5, reduction)).unwrap();
            let names: HashSet<&str> = graph.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(names.len(), graph.nodes.len());
            for input in graph.nodes.iter().flat_map(|node| &node.inputs) {
                let bare = input.strip_prefix('^').unwrap_or(input);
                let bare = bare.split_once(':').map_or(bare, |(name, _)| name);
                assert!(names.contains(bare), "{input}");
            }
        }
    }

    #[test]
    fn every_node_is_on_the_device_of_its_replica() {
        for reduction in [Reduction::Ring, Reduction::Tree] {
            let graph = data_parallel(&training(), &replicas(4, reduction)).unwrap();
            for node in &graph.nodes {
                let (_, rest) = node.name.split_once("replica_").unwrap();
                let (replica, name) = rest.split_once('/').unwrap();
                let device = format!("/device:GPU:{replica}");
                let expected = if name == "read" { "/cpu:0" } else { device.as_str() };
                assert_eq!(node.device, expected, "{}", node.name);
            }
            let rate = graph.nodes.iter().find(|node| node.name == "replica_3/rate").unwrap();
            assert_eq!(rate.attrs["_class"].items()[0].as_text(), Some("loc:@replica_3/weights"));
        }
    }

    #[test]
    fn ring_takes_2n_minus_2_steps_and_sends_the_least_bytes() {
        for count in [2, 3, 4, 6] {
            let graph = data_parallel(&training(), &replicas(count, Reduction::Ring)).unwrap();
            let of_device = |op: &str, replica: usize| {
                let device = format!("/device:GPU:{replica}");
                let nodes = graph.nodes.iter();
                nodes.filter(|node| node.op == op && node.device == device).collect::<Vec<_>>()
            };
            for replica in 0..count {
                let copies = of_device(COPY, replica);
                assert_eq!(copies.len(), 2 * (count - 1));
                assert_eq!(of_device(ADD, replica).len(), count - 1);
                let bytes = copies.iter().map(|node| node.attrs[BYTES].items()[0].as_int());
                let bytes: i64 = bytes.map(Option::unwrap).sum();
                assert_eq!(bytes as usize, 2 * (count - 1) * SIZE * 4 / count);
                // It receives from the previous device only.
                let previous = format!("replica_{}/", (replica + count - 1) % count);
                assert!(copies.iter().all(|node| node.inputs[0].contains(&previous)));
            }
        }
    }

    #[test]
    fn unreplicable_graph_is_an_error() {
        let of = |how: Replicas| data_parallel(&training(), &how).unwrap_err().to_string();
        let good = replicas(2, Reduction::Ring);
        let gradient = |update: &str, input| vec![Gradient { update: update.to_owned(), input }];
        let devices = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            of(Replicas { devices: Vec::new(), ..good.clone() }),
            "0 devices for replicas (1 to 64 are possible)"
        );
        assert_eq!(
            of(Replicas { devices: devices(&["/gpu:0", "/gpu:0"]), ..good.clone() }),
            "the device '/gpu:0' of a replica is malformed or occurs twice"
        );
        assert_eq!(
            of(Replicas { devices: devices(&["/gpu:0", "/device:GPU:0"]), ..good.clone() }),
            "the device '/device:GPU:0' of a replica is malformed or occurs twice"
        );
        for wrong in [gradient("update", 3), gradient("nothing", 2), gradient("grad", 1)] {
            let text = of(Replicas { gradients: wrong, ..good.clone() });
            assert!(text.contains("that is a gradient"), "{text}");
        }
    }

    #[test]
    fn gradient_of_two_updates_is_reduced_once() {
        let mut graph = training();
        graph.nodes.push(node("momentum", "ApplyMomentum", &["w", "a", "r", "grad", "m"]));
        let how = Replicas { gradients: gradients(&graph), ..replicas(2, Reduction::Tree) };
        assert_eq!(how.gradients.len(), 2);
        let parallel = data_parallel(&graph, &how).unwrap();
        assert_eq!(parallel.nodes.iter().filter(|node| node.op == ADD).count(), 1);
    }
}
