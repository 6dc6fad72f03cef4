//! Resolves values by name to outputs of nodes.

use super::elements::{Element, prescribed};
use super::{Info, Raw, RawNode, Tensor};
use crate::def::{Attr, GraphDef, NodeDef};
use crate::dtype::{Dtype, ValueType};
use crate::read::error::{ReadError, Reason};
use crate::read::message::Message;
use crate::read::wire::Wire;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The producer of each value by name: the indices of a node and of its output.
type Producers = HashMap<String, (usize, usize)>;

/// Resolves the names of values, and returns the number of outputs with an assumed type.
pub(super) fn resolve(raw: Raw, m: &mut Wire<'_>) -> Result<(GraphDef, u64), ReadError> {
    let Raw { nodes, initializers, inputs, values, .. } = raw;
    let mut names = Names::default();
    let mut graph = GraphDef::default();
    let mut producers = Producers::new();
    let stored: HashSet<&str> = initializers.iter().map(|tensor| tensor.name.as_str()).collect();
    for name in inputs.iter().filter(|name| !stored.contains(name.as_str())) {
        let info = values.get(name);
        let shape = info.and_then(|info| info.shape.as_deref()).unwrap_or_default();
        m.charge(|budget| budget.charge(size_of_val(shape)))?;
        let info = info.cloned().unwrap_or_default();
        produce(&mut producers, name, (graph.nodes.len(), 0), m)?;
        m.charge(|budget| budget.attribute("_output_shapes", 0))?;
        graph.nodes.push(input(names.unique(name, "Input", graph.nodes.len()), info));
    }
    drop(stored);
    for tensor in initializers {
        produce(&mut producers, &tensor.name, (graph.nodes.len(), 0), m)?;
        let name = names.unique(&tensor.name, "Initializer", graph.nodes.len());
        m.charge(|budget| budget.attribute("_output_shapes", 0))?;
        graph.nodes.push(initializer(name, tensor));
    }
    // Name the outputs before resolving the inputs, because nodes may come in any order.
    let first = graph.nodes.len();
    for (index, node) in nodes.iter().enumerate() {
        for (output, value) in node.outputs.iter().enumerate() {
            if !value.is_empty() {
                produce(&mut producers, value, (first + index, output), m)?;
            }
        }
        let name = names.unique(&node.name, &node.op, first + index);
        m.charge(|budget| budget.item(&name))?;
        graph.nodes.push(NodeDef { name, ..NodeDef::default() });
    }
    let mut assumed = 0;
    for (index, node) in nodes.into_iter().enumerate() {
        let resolved = inputs_of(&node, &graph, &producers, m)?;
        let (outputs, shapes, unknown) = outputs_of(&node, &resolved, &graph, &values);
        assumed += unknown;
        let RawNode { op, domain, mut attrs, .. } = node;
        if shapes.iter().any(Option::is_some) {
            m.charge(|budget| budget.values(shapes.len()))?;
            let sizes = shapes.iter().flatten().map(|shape| size_of_val(shape.as_slice()));
            m.charge(|budget| budget.charge(sizes.sum()))?;
            let shapes = shapes.into_iter().map(|shape| Attr::Shape(shape.cloned()));
            attrs.insert("_output_shapes".to_owned(), Attr::List(shapes.collect()));
        }
        let mut inputs = Vec::with_capacity(resolved.len());
        for (producer, output) in resolved {
            let Some(producer) = graph.nodes.get(producer) else { continue };
            let input = match output {
                0 => producer.name.clone(),
                _ => format!("{}:{output}", producer.name),
            };
            m.charge(|budget| budget.item(&input))?;
            inputs.push(input);
        }
        if let Some(node) = graph.nodes.get_mut(first + index) {
            node.op = match domain.as_str() {
                "" | "ai.onnx" => op,
                _ => format!("{domain}.{op}"),
            };
            node.inputs = inputs;
            node.attrs = attrs;
            node.outputs = Some(outputs);
        }
    }
    Ok((graph, assumed))
}

fn produce(
    producers: &mut Producers,
    value: &str,
    producer: (usize, usize),
    m: &mut Wire<'_>,
) -> Result<(), ReadError> {
    // An entry of the table, and one of the names.
    m.charge(|budget| budget.charge(3 * size_of::<(String, (usize, usize))>()))?;
    m.charge(|budget| budget.item(value))?;
    match producers.insert(value.to_owned(), producer) {
        None => Ok(()),
        Some(_) => Err(m.error(Reason::malformed(format!("two nodes produce '{value}'")))),
    }
}

fn inputs_of(
    node: &RawNode,
    graph: &GraphDef,
    producers: &Producers,
    m: &Wire<'_>,
) -> Result<Vec<(usize, usize)>, ReadError> {
    // An input without a name is an omitted optional input.
    let named = node.inputs.iter().filter(|value| !value.is_empty());
    let found = named.map(|value| {
        let producer = producers.get(value).copied();
        producer.filter(|(at, _)| *at < graph.nodes.len()).ok_or_else(|| {
            let reason = format!("nothing produces '{value}', an input of a node {}", node.op);
            m.error(Reason::malformed(reason))
        })
    });
    found.collect()
}

/// Returns the types and shapes of the outputs, and how many of the types were assumed.
fn outputs_of<'a>(
    node: &RawNode,
    inputs: &[(usize, usize)],
    graph: &GraphDef,
    values: &'a HashMap<String, Info>,
) -> (Vec<ValueType>, Vec<Option<&'a Vec<i64>>>, u64) {
    let of_input = inputs.first().and_then(|(producer, output)| {
        let types = graph.nodes.get(*producer)?.outputs.as_ref()?;
        types.get(*output).map(|of| of.dtype)
    });
    let of_attribute = match (node.op.as_str(), node.attrs.get("to"), node.attrs.get("value")) {
        ("Cast", Some(Attr::Int(to)), _) => Element(*to).dtype(),
        ("Constant" | "ConstantOfShape", _, Some(Attr::Tensor { dtype, .. })) => *dtype,
        _ => None,
    };
    let (mut types, mut shapes, mut assumed) = (Vec::new(), Vec::new(), 0);
    for (index, value) in node.outputs.iter().enumerate() {
        // An output without a name is an omitted optional output.
        let info = values.get(value).filter(|_| !value.is_empty());
        let stated = info.and_then(|info| info.element.dtype()).or(of_attribute);
        let dtype = stated.or_else(|| prescribed(&node.op, index)).unwrap_or_else(|| {
            assumed += 1;
            of_input.unwrap_or(Dtype::FLOAT)
        });
        types.push(ValueType::of(dtype));
        shapes.push(info.and_then(|info| info.shape.as_ref()));
    }
    (types, shapes, assumed)
}

fn input(name: String, info: Info) -> NodeDef {
    let of = ValueType::of(info.element.dtype().unwrap_or(Dtype::FLOAT));
    let shape = info
        .shape
        .map(|shape| ("_output_shapes".to_owned(), Attr::List(vec![Attr::Shape(Some(shape))])));
    NodeDef {
        name,
        op: "Input".to_owned(),
        attrs: shape.into_iter().collect(),
        outputs: Some(vec![of]),
        ..NodeDef::default()
    }
}

fn initializer(name: String, tensor: Tensor) -> NodeDef {
    let Tensor { element, dims, external, .. } = tensor;
    let mut attrs = BTreeMap::new();
    let mut set = |name: &str, value| attrs.insert(name.to_owned(), value);
    if let Some(bytes) = element.bytes(&dims).and_then(|bytes| i64::try_from(bytes).ok()) {
        set("_output_bytes", Attr::List(vec![Attr::Int(bytes)]));
    }
    if let Some(file) = external {
        set("location", Attr::Text(file));
    }
    set("_output_shapes", Attr::List(vec![Attr::Shape(Some(dims))]));
    let of = ValueType::of(element.dtype().unwrap_or(Dtype::FLOAT));
    let op = "Initializer".to_owned();
    NodeDef { name, op, attrs, outputs: Some(vec![of]), ..NodeDef::default() }
}

/// The names of nodes: unique, and with the characters that TensorFlow allows in names.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    fn unique(&mut self, name: &str, op: &str, index: usize) -> String {
        let allowed = |char: char| char.is_ascii_alphanumeric() || "._\\/>-".contains(char);
        let name = if name.is_empty() { format!("{op}_{index}") } else { name.to_owned() };
        let mut name = name.replace(|char| !allowed(char), "_");
        if name.starts_with(['\\', '/', '>', '-']) {
            name.insert(0, '_');
        }
        while !self.0.insert(name.clone()) {
            name = format!("{name}_{index}");
        }
        name
    }
}
