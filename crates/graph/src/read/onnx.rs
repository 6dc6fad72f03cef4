//! ONNX models.
//!
//! A value of an ONNX graph has a name; here it is an output of the node that produces it. Graph
//! inputs and initializers have no node in ONNX, so they become nodes `Input` and `Initializer`.
//! The fields are those of `onnx.proto`.

mod elements;
mod resolve;

use super::error::{ReadError, Reason};
use super::message::Kind::{Fixed32, Length, Repeated, Varint};
use super::message::{Fields, Message};
use super::wire::Wire;
use super::{Document, Form, Limits};
use crate::def::Attr;
use elements::Element;
use std::collections::{BTreeMap, HashMap};

const MODEL: Fields = &[(7, "graph", Length), (25, "functions", Length)];
const GRAPH: Fields = &[
    (1, "node", Length),
    (5, "initializer", Length),
    (11, "input", Length),
    (12, "output", Length),
    (13, "value_info", Length),
    (15, "sparse_initializer", Length),
];
const NODE: Fields = &[
    (1, "input", Length),
    (2, "output", Length),
    (3, "name", Length),
    (4, "op_type", Length),
    (5, "attribute", Length),
    (7, "domain", Length),
];
const ATTRIBUTE: Fields = &[
    (1, "name", Length),
    (2, "f", Fixed32),
    (3, "i", Varint),
    (4, "s", Length),
    (5, "t", Length),
    (6, "g", Length),
    (7, "floats", Repeated(&Fixed32)),
    (8, "ints", Repeated(&Varint)),
    (9, "strings", Length),
    (10, "tensors", Length),
    (11, "graphs", Length),
    (20, "type", Varint),
];
const SUBGRAPH: Fields = &[(1, "node", Length)];
const TENSOR: Fields = &[
    (1, "dims", Repeated(&Varint)),
    (2, "data_type", Varint),
    (8, "name", Length),
    (13, "external_data", Length),
];
const SPARSE: Fields = &[(1, "values", Length)];
const ENTRY: Fields = &[(1, "key", Length), (2, "value", Length)];
const VALUE: Fields = &[(1, "name", Length), (2, "type", Length)];
const TYPE: Fields = &[
    (1, "tensor_type", Length),
    (4, "sequence_type", Length),
    (5, "map_type", Length),
    (7, "opaque_type", Length),
    (8, "sparse_tensor_type", Length),
    (9, "optional_type", Length),
];
const TENSOR_TYPE: Fields = &[(1, "elem_type", Varint), (2, "shape", Length)];
const SHAPE: Fields = &[(1, "dim", Length)];
const DIM: Fields = &[(1, "dim_value", Varint), (2, "dim_param", Length)];

/// A graph as in the file: values by name.
#[derive(Default)]
struct Raw {
    nodes: Vec<RawNode>,
    initializers: Vec<Tensor>,
    inputs: Vec<String>,
    /// The information about values, by name.
    values: HashMap<String, Info>,
    subgraphs: u64,
    sparse: u64,
}

#[derive(Default)]
struct RawNode {
    name: String,
    op: String,
    domain: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    attrs: BTreeMap<String, Attr>,
}

/// A tensor without its content.
#[derive(Default)]
struct Tensor {
    name: String,
    element: Element,
    dims: Vec<i64>,
    external: Option<String>,
}

/// The type of a value.
#[derive(Clone, Default)]
struct Info {
    element: Element,
    /// `None` if even the number of dimensions is unknown; −1 for a variable one.
    shape: Option<Vec<i64>>,
}

/// Reads a model.
pub(super) fn read(file: &[u8], limits: &Limits) -> Result<Document, ReadError> {
    let m = &mut Wire::new(file, Form::Onnx, limits)?;
    let (mut raw, mut functions) = (None, 0u64);
    while let Some(field) = m.next(MODEL)? {
        match field {
            7 => {
                m.enter()?;
                raw = Some(graph(m)?);
            }
            _ => functions += 1,
        }
    }
    let raw = raw.ok_or_else(|| m.error(Reason::malformed("the model has no graph")))?;
    let mut notes = Vec::new();
    let mut note = |count: u64, text: &str| {
        if count > 0 {
            notes.push(format!("{count} {text}"));
        }
    };
    note(functions, "the model's functions are ignored: their calls are operations");
    note(raw.subgraphs, "subgraphs of attributes and the values they use are counted but not read");
    note(raw.sparse, "sparse initializers count only the values that they store");
    let (graph, assumed) = resolve::resolve(raw, m)?;
    note(assumed, "outputs have no type in the file: each gets the type of its node's first input");
    Ok(Document { notes, ..Document::of(Form::Onnx, graph) })
}

fn graph(m: &mut Wire<'_>) -> Result<Raw, ReadError> {
    let mut raw = Raw::default();
    while let Some(field) = m.next(GRAPH)? {
        match field {
            1 => {
                let node = node(m, &mut raw.subgraphs)?;
                raw.nodes.push(node);
            }
            5 => {
                m.charge(|budget| budget.node())?;
                let initializer = tensor(m)?;
                raw.initializers.push(initializer);
            }
            11 => {
                m.charge(|budget| budget.node())?;
                let (name, info) = value(m)?;
                raw.inputs.push(name.clone());
                raw.values.insert(name, info);
            }
            12 | 13 => {
                let (name, info) = value(m)?;
                raw.values.insert(name, info);
            }
            _ => {
                m.enter()?;
                while m.next(SPARSE)?.is_some() {
                    m.charge(|budget| budget.node())?;
                    raw.sparse += 1;
                    let values = tensor(m)?;
                    raw.initializers.push(values);
                }
            }
        }
    }
    Ok(raw)
}

fn node(m: &mut Wire<'_>, subgraphs: &mut u64) -> Result<RawNode, ReadError> {
    // Once for reading and once for the result.
    m.charge(|budget| budget.node())?;
    m.charge(|budget| budget.charge(3 * size_of::<RawNode>()))?;
    m.enter()?;
    let mut node = RawNode::default();
    while let Some(field) = m.next(NODE)? {
        match field {
            1 => node.inputs.push(text(m)?),
            2 => node.outputs.push(text(m)?),
            3 => node.name = text(m)?,
            4 => node.op = text(m)?,
            5 => {
                m.enter()?;
                if let Some((name, value)) = attribute(m, subgraphs)? {
                    m.charge(|budget| budget.attribute(&name, node.attrs.len()))?;
                    node.attrs.insert(name, value);
                }
            }
            _ => node.domain = text(m)?,
        }
    }
    if node.op.is_empty() {
        return Err(m.error(Reason::malformed(format!("node '{}' has no op_type", node.name))));
    }
    Ok(node)
}

/// Reads the rest of an attribute; `None` if it has no supported value.
fn attribute(m: &mut Wire<'_>, subgraphs: &mut u64) -> Result<Option<(String, Attr)>, ReadError> {
    let (mut name, mut single) = (String::new(), None);
    let mut list = None;
    while let Some(field) = m.next(ATTRIBUTE)? {
        let value = match field {
            1 => {
                name = m.text()?;
                continue;
            }
            2 | 7 => Attr::Float(m.float()?),
            3 | 8 => Attr::Int(m.int()?),
            4 | 9 => {
                let text = String::from_utf8_lossy(&m.bytes()?).into_owned();
                m.charge(|budget| budget.text(&text))?;
                Attr::Text(text)
            }
            5 | 10 => {
                let Tensor { element, dims, .. } = tensor(m)?;
                Attr::Tensor { dtype: element.dtype(), shape: Some(dims), content: None }
            }
            6 | 11 => {
                m.enter()?;
                *subgraphs += 1;
                let mut nodes = 0;
                while m.next(SUBGRAPH)?.is_some() {
                    nodes += 1;
                }
                Attr::Int(nodes)
            }
            _ => {
                // The kind of the attribute; the value also determines it, unless the list is
                // empty.
                if matches!(m.int()?, 6..=10) {
                    list.get_or_insert_with(Vec::new);
                }
                continue;
            }
        };
        m.charge(|budget| budget.values(1))?;
        match field {
            7..=11 => list.get_or_insert_with(Vec::new).push(value),
            _ => single = Some(value),
        }
    }
    let value = list.map(Attr::List).or(single);
    Ok(value.map(|value| (name, value)))
}

/// Reads a tensor and skips its content.
fn tensor(m: &mut Wire<'_>) -> Result<Tensor, ReadError> {
    m.enter()?;
    let mut tensor = Tensor::default();
    while let Some(field) = m.next(TENSOR)? {
        match field {
            1 => {
                m.charge(|budget| budget.values(1))?;
                let size = m.int()?;
                if size < 0 {
                    return Err(m.error(Reason::malformed("a tensor has a negative dimension")));
                }
                tensor.dims.push(size);
            }
            2 => tensor.element = Element(m.int()?),
            8 => tensor.name = text(m)?,
            _ => {
                m.enter()?;
                let (mut key, mut value) = (String::new(), String::new());
                while let Some(field) = m.next(ENTRY)? {
                    match field {
                        1 => key = m.text()?,
                        _ => value = text(m)?,
                    }
                }
                if key == "location" {
                    tensor.external = Some(value);
                }
            }
        }
    }
    Ok(tensor)
}

/// Reads a `ValueInfoProto`.
fn value(m: &mut Wire<'_>) -> Result<(String, Info), ReadError> {
    // An entry of the table of values.
    m.charge(|budget| budget.charge(3 * size_of::<(String, Info)>()))?;
    m.enter()?;
    let (mut name, mut info) = (String::new(), Info::default());
    while let Some(field) = m.next(VALUE)? {
        match field {
            1 => name = text(m)?,
            _ => {
                m.enter()?;
                while let Some(field) = m.next(TYPE)? {
                    match field {
                        1 | 8 => info = tensor_type(m)?,
                        // A sequence, a map or an optional value.
                        _ => info = Info { element: Element::CONTAINER, shape: None },
                    }
                }
            }
        }
    }
    Ok((name, info))
}

fn tensor_type(m: &mut Wire<'_>) -> Result<Info, ReadError> {
    m.enter()?;
    let mut info = Info::default();
    while let Some(field) = m.next(TENSOR_TYPE)? {
        match field {
            1 => info.element = Element(m.int()?),
            _ => {
                m.enter()?;
                let mut dims = Vec::new();
                while m.next(SHAPE)?.is_some() {
                    m.charge(|budget| budget.values(1))?;
                    m.enter()?;
                    let mut size = -1;
                    while let Some(field) = m.next(DIM)? {
                        if field == 1 {
                            size = m.int()?.max(-1);
                        }
                    }
                    dims.push(size);
                }
                info.shape = Some(dims);
            }
        }
    }
    Ok(info)
}

fn text(m: &mut Wire<'_>) -> Result<String, ReadError> {
    let text = m.text()?;
    m.charge(|budget| budget.item(&text))?;
    Ok(text)
}
