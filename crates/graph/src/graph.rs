//! A graph with its names resolved.

use crate::def::FunctionDef;
use crate::node::{Node, NodeId};
use crate::order::order;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A graph of operations: inputs exist, names are unique, and all cycles are loops closed by
/// `NextIteration`.
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

    /// Returns the nodes, mutably, to change their devices or attributes.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Returns a node.
    ///
    /// # Panics
    /// If the node belongs to a larger graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Returns the node with a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// Returns the IDs of all nodes.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Returns the nodes in an order in which each follows its inputs, except for those that close
    /// a loop: among the nodes with all inputs returned, the earliest in the file is next.
    ///
    /// TensorFlow numbers and places nodes in this order.
    pub fn order(&self) -> Vec<NodeId> {
        order(&self.nodes).into_iter().map(NodeId).collect()
    }

    /// Returns a function.
    pub fn function(&self, name: &str) -> Option<&FunctionDef> {
        self.functions.get(name)
    }
}
