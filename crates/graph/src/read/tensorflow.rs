//! TensorFlow's messages: graphs, lists of operations and lists of kernels.
//!
//! The numbers and names of fields are those of `graph.proto`, `node_def.proto`, `attr_value.proto`,
//! `function.proto`, `op_def.proto`, `kernel_def.proto`, `saved_model.proto` and `meta_graph.proto`.

use super::error::{ReadError, Reason};
use super::message::Kind::{Fixed32, Fixed64, Length, Repeated, Varint};
use super::message::{Fields, Message};
use crate::def::{Attr, Content, FunctionDef, GraphDef, NodeDef};
use crate::dtype::Dtype;
use std::collections::BTreeMap;

mod operation;

pub(super) use operation::{kernels, ops};

const SAVED_MODEL: Fields =
    &[(1, "saved_model_schema_version", Varint), (2, "meta_graphs", Length)];
const META_GRAPH: Fields = &[
    (1, "meta_info_def", Length),
    (2, "graph_def", Length),
    (3, "saver_def", Length),
    (4, "collection_def", Length),
    (5, "signature_def", Length),
    (6, "asset_file_def", Length),
    (7, "object_graph_def", Length),
];
const GRAPH: Fields = &[
    (1, "node", Length),
    (2, "library", Length),
    (3, "version", Varint),
    (4, "versions", Length),
    (5, "debug_info", Length),
];
const NODE: Fields = &[
    (1, "name", Length),
    (2, "op", Length),
    (3, "input", Length),
    (4, "device", Length),
    (5, "attr", Length),
    (6, "experimental_debug_info", Length),
    (7, "experimental_type", Length),
];
const LIBRARY: Fields =
    &[(1, "function", Length), (2, "gradient", Length), (3, "registered_gradients", Length)];
const FUNCTION: Fields = &[
    (1, "signature", Length),
    (3, "node_def", Length),
    (4, "ret", Length),
    (5, "attr", Length),
    (6, "control_ret", Length),
    (7, "arg_attr", Length),
    (8, "resource_arg_unique_id", Length),
];
const NAMED: Fields = &[(1, "key", Length), (2, "value", Length)];
const VALUE: Fields = &[
    (1, "list", Length),
    (2, "s", Length),
    (3, "i", Varint),
    (4, "f", Fixed32),
    (5, "b", Varint),
    (6, "type", Varint),
    (7, "shape", Length),
    (8, "tensor", Length),
    (9, "placeholder", Length),
    (10, "func", Length),
];
const LIST: Fields = &[
    (2, "s", Length),
    (3, "i", Repeated(&Varint)),
    (4, "f", Repeated(&Fixed32)),
    (5, "b", Repeated(&Varint)),
    (6, "type", Repeated(&Varint)),
    (7, "shape", Length),
    (8, "tensor", Length),
    (9, "func", Length),
];
const CALLED: Fields = &[(1, "name", Length), (2, "attr", Length)];
const SHAPE: Fields = &[(2, "dim", Length), (3, "unknown_rank", Varint)];
const DIM: Fields = &[(1, "size", Varint), (2, "name", Length)];
const TENSOR: Fields = &[
    (1, "dtype", Varint),
    (2, "tensor_shape", Length),
    (3, "version_number", Varint),
    (4, "tensor_content", Length),
    (5, "float_val", Repeated(&Fixed32)),
    (6, "double_val", Repeated(&Fixed64)),
    (7, "int_val", Repeated(&Varint)),
    (8, "string_val", Length),
    (9, "scomplex_val", Repeated(&Fixed32)),
    (10, "int64_val", Repeated(&Varint)),
    (11, "bool_val", Repeated(&Varint)),
    (12, "dcomplex_val", Repeated(&Fixed64)),
    (13, "half_val", Repeated(&Varint)),
    (14, "resource_handle_val", Length),
    (15, "variant_val", Length),
    (16, "uint32_val", Repeated(&Varint)),
    (17, "uint64_val", Repeated(&Varint)),
    (18, "float8_val", Length),
];

/// Reads a `SavedModel`: its first graph.
pub(super) fn saved_model<M: Message>(m: &mut M) -> Result<GraphDef, ReadError> {
    let mut found = None;
    while let Some(field) = m.next(SAVED_MODEL)? {
        match field {
            2 if found.is_none() => {
                m.enter()?;
                found = Some(meta_graph(m)?);
            }
            _ => m.skip()?,
        }
    }
    found.ok_or_else(|| m.error(Reason::malformed("the model has no graph")))
}

/// Reads a `MetaGraphDef`: its graph.
pub(super) fn meta_graph<M: Message>(m: &mut M) -> Result<GraphDef, ReadError> {
    let mut found = GraphDef::default();
    while let Some(field) = m.next(META_GRAPH)? {
        match field {
            2 => {
                m.enter()?;
                found = graph(m)?;
            }
            _ => m.skip()?,
        }
    }
    Ok(found)
}

/// Reads a `GraphDef`.
pub(super) fn graph<M: Message>(m: &mut M) -> Result<GraphDef, ReadError> {
    let mut graph = GraphDef::default();
    while let Some(field) = m.next(GRAPH)? {
        match field {
            1 => graph.nodes.push(node(m)?),
            2 => {
                m.enter()?;
                while let Some(field) = m.next(LIBRARY)? {
                    match field {
                        1 => graph.functions.push(function(m)?),
                        _ => m.skip()?,
                    }
                }
            }
            _ => m.skip()?,
        }
    }
    Ok(graph)
}

fn node<M: Message>(m: &mut M) -> Result<NodeDef, ReadError> {
    m.charge(|budget| budget.node())?;
    m.enter()?;
    let mut node = NodeDef::default();
    while let Some(field) = m.next(NODE)? {
        match field {
            1 => node.name = text(m)?,
            2 => node.op = text(m)?,
            3 => node.inputs.push(item(m)?),
            4 => node.device = text(m)?,
            5 => attribute(m, &mut node.attrs)?,
            _ => m.skip()?,
        }
    }
    if node.name.is_empty() {
        return Err(m.error(Reason::malformed("a node has no name")));
    }
    if node.op.is_empty() {
        return Err(m.error(Reason::malformed(format!("node '{}' has no operation", node.name))));
    }
    Ok(node)
}

fn function<M: Message>(m: &mut M) -> Result<FunctionDef, ReadError> {
    // A function has the size of an operation with two more fields.
    m.charge(|budget| budget.op().and_then(|()| budget.op()))?;
    m.enter()?;
    let mut function = FunctionDef::default();
    while let Some(field) = m.next(FUNCTION)? {
        match field {
            1 => {
                m.enter()?;
                function.signature = operation::op(m)?;
            }
            3 => function.nodes.push(node(m)?),
            4 => {
                m.enter()?;
                let (mut name, mut value) = (String::new(), String::new());
                while let Some(field) = m.next(NAMED)? {
                    match field {
                        1 => name = text(m)?,
                        _ => value = text(m)?,
                    }
                }
                let before = function.returns.len();
                m.charge(|budget| budget.attribute("", before))?;
                function.returns.insert(name, value);
            }
            _ => m.skip()?,
        }
    }
    if function.signature.name.is_empty() {
        return Err(m.error(Reason::malformed("a function has no name")));
    }
    Ok(function)
}

/// Reads an attribute into a map; a later one with the same name replaces it, as in protobuf.
fn attribute<M: Message>(m: &mut M, attrs: &mut BTreeMap<String, Attr>) -> Result<(), ReadError> {
    m.enter()?;
    let (mut name, mut found) = (String::new(), None);
    while let Some(field) = m.next(NAMED)? {
        match field {
            1 => name = text(m)?,
            _ => found = value(m)?,
        }
    }
    if let Some(value) = found {
        m.charge(|budget| budget.attribute(&name, attrs.len()))?;
        attrs.insert(name, value);
    }
    Ok(())
}

/// Reads an `AttrValue`; `None` if it has no value.
fn value<M: Message>(m: &mut M) -> Result<Option<Attr>, ReadError> {
    m.enter()?;
    let mut found = None;
    while let Some(field) = m.next(VALUE)? {
        found = Some(match field {
            1 => {
                m.enter()?;
                let mut items = Vec::new();
                while let Some(field) = m.next(LIST)? {
                    m.charge(|budget| budget.values(1))?;
                    // The numbers are those of a single value, except for functions.
                    items.push(single(m, if field == 9 { 10 } else { field })?);
                }
                Attr::List(items)
            }
            9 => Attr::Placeholder(text(m)?),
            _ => single(m, field)?,
        });
    }
    Ok(found)
}

fn single<M: Message>(m: &mut M, field: u32) -> Result<Attr, ReadError> {
    Ok(match field {
        2 => {
            let text = String::from_utf8_lossy(&m.bytes()?).into_owned();
            m.charge(|budget| budget.text(&text))?;
            Attr::Text(text)
        }
        3 => Attr::Int(m.int()?),
        4 => Attr::Float(m.float()?),
        5 => Attr::Bool(m.flag()?),
        6 => m.dtype()?.map_or_else(Attr::Int, Attr::Type),
        7 => Attr::Shape(shape(m)?),
        8 => tensor(m)?,
        _ => {
            m.enter()?;
            let (mut name, mut attrs) = (String::new(), BTreeMap::new());
            while let Some(field) = m.next(CALLED)? {
                match field {
                    1 => name = text(m)?,
                    _ => attribute(m, &mut attrs)?,
                }
            }
            Attr::Function(name, attrs)
        }
    })
}

fn shape<M: Message>(m: &mut M) -> Result<Option<Vec<i64>>, ReadError> {
    m.enter()?;
    let (mut sizes, mut unknown) = (Vec::new(), false);
    while let Some(field) = m.next(SHAPE)? {
        match field {
            2 => {
                m.charge(|budget| budget.values(1))?;
                m.enter()?;
                let mut size = 0;
                while let Some(field) = m.next(DIM)? {
                    match field {
                        1 => size = m.int()?,
                        _ => m.skip()?,
                    }
                }
                sizes.push(size);
            }
            _ => unknown = m.flag()?,
        }
    }
    Ok(Some(sizes).filter(|_| !unknown))
}

fn tensor<M: Message>(m: &mut M) -> Result<Attr, ReadError> {
    m.enter()?;
    let keeps = m.budget().keeps_contents();
    let (mut dtype, mut dims, mut whole) = (None, None, Vec::new());
    let mut lists = LISTS.map(|(of, field)| (of, field, Vec::new()));
    while let Some(field) = m.next(TENSOR)? {
        let list = lists.iter_mut().find(|(_, known, _)| *known == field);
        match (field, list) {
            (1, _) => dtype = m.dtype()?.ok().map(|of| of.dtype),
            (2, _) => dims = shape(m)?,
            (4, _) if keeps => {
                whole = m.bytes()?;
                m.charge(|budget| budget.elements(whole.len()))?;
            }
            (_, Some((of, _, bytes))) if keeps => {
                m.charge(|budget| budget.elements(size_of::<f64>()))?;
                match *of {
                    Dtype::FLOAT => bytes.extend((m.float()? as f32).to_le_bytes()),
                    Dtype::DOUBLE => bytes.extend(m.double()?.to_le_bytes()),
                    // Like protobuf, it keeps the low 32 bits.
                    Dtype::INT32 => bytes.extend((m.int()? as i32).to_le_bytes()),
                    _ => bytes.extend(m.int()?.to_le_bytes()),
                }
            }
            _ => m.skip()?,
        }
    }
    let list = lists.into_iter().find(|(of, ..)| Some(*of) == dtype);
    let content = list.filter(|_| keeps).map(|(_, _, list)| {
        let is_list = whole.is_empty();
        Box::new(Content { bytes: if is_list { list } else { whole }, is_list })
    });
    Ok(Attr::Tensor { dtype, shape: dims, content })
}

/// The element types of tensors with a value, and the field with the list of elements.
const LISTS: [(Dtype, u32); 4] =
    [(Dtype::FLOAT, 5), (Dtype::DOUBLE, 6), (Dtype::INT32, 7), (Dtype::INT64, 10)];

fn text<M: Message>(m: &mut M) -> Result<String, ReadError> {
    let text = m.text()?;
    m.charge(|budget| budget.text(&text))?;
    Ok(text)
}

fn item<M: Message>(m: &mut M) -> Result<String, ReadError> {
    let text = m.text()?;
    m.charge(|budget| budget.item(&text))?;
    Ok(text)
}
