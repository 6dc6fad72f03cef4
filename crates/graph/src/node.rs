//! The operations of a graph with its names resolved.

use crate::def::Attr;
use crate::dtype::ValueType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The index of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The source of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The node.
    pub node: NodeId,
    /// The index of its output.
    pub output: u32,
}

/// An operation in a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, unique in the graph.
    pub name: Arc<str>,
    /// The operation, such as `MatMul`.
    pub op: Arc<str>,
    /// Its inputs, in the order of the operation's arguments.
    pub inputs: Vec<Source>,
    /// The nodes that must have run before, without providing a value.
    pub controls: Vec<NodeId>,
    /// The types of its outputs.
    pub outputs: Vec<ValueType>,
    /// The device that the user requests, as written; empty for none.
    pub requested: String,
    /// The device of an earlier placement, as written.
    pub assigned: Option<String>,
    /// The attributes, with the defaults of the operation.
    pub attrs: BTreeMap<String, Attr>,
}

impl Node {
    /// Returns the groups of the attribute `_class`: the names in `loc:@name`.
    pub fn colocation(&self) -> impl Iterator<Item = &str> {
        let classes = match self.attrs.get("_class") {
            Some(Attr::List(classes)) => classes.as_slice(),
            // TensorFlow ignores a single text.
            _ => &[],
        };
        classes.iter().filter_map(|class| class.as_text()?.strip_prefix("loc:@"))
    }
}
