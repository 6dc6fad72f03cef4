//! TensorFlow's messages for prost, which is independent of the readers.

use crate::def::{ArgDef, ArgKind, Attr, FunctionDef, GraphDef, NodeDef, OpDef};
use prost::{Message, Oneof};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) node: Vec<Node>,
    #[prost(message, optional, tag = "2")]
    pub(super) library: Option<Library>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetaGraph {
    #[prost(message, optional, tag = "2")]
    pub(super) graph_def: Option<Graph>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SavedModel {
    #[prost(int64, tag = "1")]
    pub(super) saved_model_schema_version: i64,
    #[prost(message, repeated, tag = "2")]
    pub(super) meta_graphs: Vec<MetaGraph>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Library {
    #[prost(message, repeated, tag = "1")]
    function: Vec<Function>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) op: String,
    #[prost(string, repeated, tag = "3")]
    input: Vec<String>,
    #[prost(string, tag = "4")]
    device: String,
    #[prost(btree_map = "string, message", tag = "5")]
    attr: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(message, optional, tag = "1")]
    signature: Option<Op>,
    #[prost(message, repeated, tag = "3")]
    node_def: Vec<Node>,
    #[prost(btree_map = "string, string", tag = "4")]
    ret: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Op {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    input_arg: Vec<Arg>,
    #[prost(message, repeated, tag = "3")]
    output_arg: Vec<Arg>,
    #[prost(message, repeated, tag = "4")]
    attr: Vec<OpAttr>,
    #[prost(bool, tag = "17")]
    is_stateful: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Arg {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    dtype: i32,
    #[prost(string, tag = "4")]
    type_attr: String,
    #[prost(string, tag = "5")]
    number_attr: String,
    #[prost(string, tag = "6")]
    type_list_attr: String,
    #[prost(bool, tag = "16")]
    is_ref: bool,
}

#[derive(Clone, PartialEq, Message)]
struct OpAttr {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "3")]
    default_value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(oneof = "Of", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")]
    of: Option<Of>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Of {
    #[prost(message, tag = "1")]
    List(List),
    #[prost(bytes = "vec", tag = "2")]
    S(Vec<u8>),
    #[prost(int64, tag = "3")]
    I(i64),
    #[prost(float, tag = "4")]
    F(f32),
    #[prost(bool, tag = "5")]
    B(bool),
    #[prost(int32, tag = "6")]
    Type(i32),
    #[prost(message, tag = "7")]
    Shape(Shape),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
    #[prost(string, tag = "9")]
    Placeholder(String),
    #[prost(message, tag = "10")]
    Func(Called),
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(bytes = "vec", repeated, tag = "2")]
    s: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "3")]
    i: Vec<i64>,
    #[prost(float, repeated, tag = "4")]
    f: Vec<f32>,
    #[prost(bool, repeated, packed = "false", tag = "5")]
    b: Vec<bool>,
    #[prost(int32, repeated, tag = "6")]
    of: Vec<i32>,
    #[prost(message, repeated, tag = "7")]
    shape: Vec<Shape>,
    #[prost(message, repeated, tag = "8")]
    tensor: Vec<Tensor>,
    #[prost(message, repeated, tag = "9")]
    func: Vec<Called>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(message, repeated, tag = "2")]
    dim: Vec<Dim>,
    #[prost(bool, tag = "3")]
    unknown_rank: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Dim {
    #[prost(int64, tag = "1")]
    size: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    tensor_shape: Option<Shape>,
    #[prost(bytes = "vec", tag = "4")]
    tensor_content: Vec<u8>,
    #[prost(float, repeated, tag = "5")]
    float_val: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct Called {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(btree_map = "string, message", tag = "2")]
    attr: BTreeMap<String, Value>,
}

/// Returns the message of a graph.
pub(super) fn graph(def: &GraphDef) -> Graph {
    let functions: Vec<_> = def.functions.iter().map(function).collect();
    let library = Some(Library { function: functions }).filter(|of| !of.function.is_empty());
    Graph { node: def.nodes.iter().map(node).collect(), library }
}

fn node(def: &NodeDef) -> Node {
    Node {
        name: def.name.clone(),
        op: def.op.clone(),
        input: def.inputs.clone(),
        device: def.device.clone(),
        attr: attrs(&def.attrs),
    }
}

fn function(def: &FunctionDef) -> Function {
    Function {
        signature: Some(op(&def.signature)),
        node_def: def.nodes.iter().map(node).collect(),
        ret: def.returns.clone(),
    }
}

fn op(def: &OpDef) -> Op {
    let attr = def.attrs.iter().map(|(name, default)| OpAttr {
        name: name.clone(),
        default_value: default.as_ref().map(value),
    });
    Op {
        name: def.name.clone(),
        input_arg: def.inputs.iter().map(arg).collect(),
        output_arg: def.outputs.iter().map(arg).collect(),
        attr: attr.collect(),
        is_stateful: def.stateful,
    }
}

fn arg(def: &ArgDef) -> Arg {
    let mut arg = Arg { name: def.name.clone(), is_ref: def.reference, ..Arg::default() };
    let kind = match &def.kind {
        ArgKind::Repeated(count, of) => {
            arg.number_attr.clone_from(count);
            of
        }
        single => single,
    };
    match kind {
        ArgKind::Type(dtype) => arg.dtype = dtype.number() as i32,
        ArgKind::TypeAttr(name) => arg.type_attr.clone_from(name),
        ArgKind::TypeListAttr(name) => arg.type_list_attr.clone_from(name),
        ArgKind::Repeated(..) => unreachable!("a count of counts"),
    }
    arg
}

fn attrs(def: &BTreeMap<String, Attr>) -> BTreeMap<String, Value> {
    def.iter().map(|(name, attr)| (name.clone(), value(attr))).collect()
}

fn value(attr: &Attr) -> Value {
    let of = match attr {
        Attr::Int(number) => Of::I(*number),
        Attr::Float(number) => Of::F(*number as f32),
        Attr::Bool(flag) => Of::B(*flag),
        Attr::Text(text) => Of::S(text.clone().into_bytes()),
        Attr::Type(of) => Of::Type(number(of.dtype.number(), of.reference)),
        Attr::Shape(dims) => Of::Shape(shape(dims.as_deref())),
        Attr::Tensor { dtype, shape: dims, .. } => Of::Tensor(Tensor {
            dtype: dtype.map_or(0, |of| of.number() as i32),
            tensor_shape: Some(shape(dims.as_deref())),
            tensor_content: vec![0; 3],
            float_val: vec![1.0, 2.0],
        }),
        Attr::Function(name, of) => Of::Func(Called { name: name.clone(), attr: attrs(of) }),
        Attr::Placeholder(name) => Of::Placeholder(name.clone()),
        Attr::List(items) => Of::List(list(items)),
    };
    Value { of: Some(of) }
}

fn list(items: &[Attr]) -> List {
    let mut list = List::default();
    for item in items {
        match value(item).of {
            Some(Of::S(item)) => list.s.push(item),
            Some(Of::I(item)) => list.i.push(item),
            Some(Of::F(item)) => list.f.push(item),
            Some(Of::B(item)) => list.b.push(item),
            Some(Of::Type(item)) => list.of.push(item),
            Some(Of::Shape(item)) => list.shape.push(item),
            Some(Of::Tensor(item)) => list.tensor.push(item),
            Some(Of::Func(item)) => list.func.push(item),
            Some(Of::List(_) | Of::Placeholder(_)) | None => unreachable!("not in lists"),
        }
    }
    list
}

fn number(number: u32, reference: bool) -> i32 {
    number as i32 + if reference { 100 } else { 0 }
}

fn shape(dims: Option<&[i64]>) -> Shape {
    let dim = dims.unwrap_or_default().iter().map(|size| Dim { size: *size });
    Shape { dim: dim.collect(), unknown_rank: dims.is_none() }
}
