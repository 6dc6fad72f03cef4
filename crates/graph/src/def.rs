//! Graphs as files describe them: nodes that name their inputs, functions, and operations.
//!
//! All readers produce a [`GraphDef`]; [`Graph::build`](crate::Graph::build) resolves the names.

use crate::dtype::{Dtype, ValueType};
use std::collections::BTreeMap;

/// A graph before its names are resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphDef {
    /// The nodes, in the order of the file.
    pub nodes: Vec<NodeDef>,
    /// The functions that nodes may call.
    pub functions: Vec<FunctionDef>,
}

/// A node as a file describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeDef {
    /// Its name, unique in the graph.
    pub name: String,
    /// The operation, such as `MatMul`.
    pub op: String,
    /// Its inputs: `node`, `node:1` for another output than the first, `^node` for order only.
    pub inputs: Vec<String>,
    /// The device that the user requests; empty for none.
    pub device: String,
    /// The attributes.
    pub attrs: BTreeMap<String, Attr>,
    /// The types of its outputs, if the file states them; otherwise the operation's definition
    /// does.
    pub outputs: Option<Vec<ValueType>>,
}

/// A function: a graph with arguments and results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionDef {
    /// Its name, arguments, results and attributes.
    pub signature: OpDef,
    /// The nodes. Inputs are `argument`, `argument:0`, `node:output:0` or `^node`.
    pub nodes: Vec<NodeDef>,
    /// For each result of the signature by name, the input form of the value: `node:output:0`.
    pub returns: BTreeMap<String, String>,
}

/// The definition of an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpDef {
    /// Its name, such as `MatMul`.
    pub name: String,
    /// The arguments.
    pub inputs: Vec<ArgDef>,
    /// The results.
    pub outputs: Vec<ArgDef>,
    /// The attributes and their default values.
    pub attrs: BTreeMap<String, Option<Attr>>,
    /// Whether it has state or side effects.
    pub stateful: bool,
}

/// An argument or a result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgDef {
    /// Its name.
    pub name: String,
    /// Its type or types.
    pub kind: ArgKind,
    /// Whether it is a reference to a value.
    pub reference: bool,
}

/// The type of an argument, or the attribute that contains it.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgKind {
    /// Always this type.
    Type(Dtype),
    /// The type in this attribute (`type_attr`).
    TypeAttr(String),
    /// One value for each type in this attribute (`type_list_attr`).
    TypeListAttr(String),
    /// As many values as the first attribute states (`number_attr`), all of the type of the other.
    Repeated(String, Box<ArgKind>),
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// A number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text or bytes; bytes that are not UTF-8 are replaced.
    Text(String),
    /// An element type.
    Type(ValueType),
    /// A shape; `None` if the number of dimensions is unknown, −1 for an unknown dimension.
    Shape(Option<Vec<i64>>),
    /// A tensor.
    Tensor {
        /// The element type, if the file states a known one.
        dtype: Option<Dtype>,
        /// Its shape.
        shape: Option<Vec<i64>>,
        /// Its elements, if the reader keeps them and knows the type (`float`, `double`, `int32`,
        /// `int64`).
        content: Option<Box<Content>>,
    },
    /// A function and the values of its attributes.
    Function(String, BTreeMap<String, Attr>),
    /// A reference to an attribute of the enclosing function.
    Placeholder(String),
    /// A list.
    List(Vec<Attr>),
}

/// The elements of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The elements in the order of the indices, each in little-endian byte order.
    pub bytes: Vec<u8>,
    /// Whether the last element stands for all that are missing, and 0 if there is none, as in the
    /// lists of `TensorProto` (`float_val`). Otherwise there must be as many as the shape has.
    pub is_list: bool,
}

impl Attr {
    /// Returns the element type, if it is one.
    pub fn as_type(&self) -> Option<ValueType> {
        match self {
            Attr::Type(of) => Some(*of),
            _ => None,
        }
    }

    /// Returns the number, if it is a whole one.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Attr::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Attr::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the items of a list; a single value is a list of one.
    pub fn items(&self) -> &[Attr] {
        match self {
            Attr::List(items) => items,
            single => std::slice::from_ref(single),
        }
    }
}
