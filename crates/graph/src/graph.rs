//! A graph with its names resolved.

use crate::build;
use crate::def::{Attr, FunctionDef};
use crate::dtype::ValueType;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The position of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the position as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The node.
    pub node: NodeId,
    /// Which of its outputs.
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
    /// The nodes that must have run before, without a value from them.
    pub controls: Vec<NodeId>,
    /// The types of its outputs.
    pub outputs: Vec<ValueType>,
    /// The device that the user requests, as written; empty for none.
    pub requested: String,
    /// The device that it was placed on before, as written.
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

/// A graph of operations: inputs exist, names are unique, and only loops that `NextIteration`
/// closes are cycles.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) by_name: HashMap<Arc<str>, NodeId>,
    pub(crate) functions: BTreeMap<String, FunctionDef>,
}

impl Graph {
    /// Returns the nodes, in the order of the file.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes to change their devices or attributes.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Returns a node.
    ///
    /// # Panics
    /// If the node is of a larger graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Returns the node with a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// Returns the positions of all nodes.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Returns the nodes such that each follows its inputs, but for those that close a loop: of the
    /// nodes whose inputs were returned, the earliest in the file is next.
    ///
    /// TensorFlow numbers and places nodes in this order.
    pub fn order(&self) -> Vec<NodeId> {
        build::cycle::order(&self.nodes).into_iter().map(NodeId).collect()
    }

    /// Returns a function.
    pub fn function(&self, name: &str) -> Option<&FunctionDef> {
        self.functions.get(name)
    }
}
