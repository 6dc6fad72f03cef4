//! The variables of a program.

use super::Input;
use crate::graph::NodeIx;
use crate::operation::{Operation, Update, declared_shape};
use crate::tensor::Tensor;
use gpu_graph::{Attr, Dtype, Graph, NodeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The variables, and what the tasks read.
#[derive(Debug, Default)]
pub(super) struct Variables {
    all: Vec<Variable>,
    /// Which variable an output is a handle of.
    handles: HashMap<(NodeId, u32), usize>,
    /// For each task and then for the fetches: the outputs that it reads.
    pub(super) reads: Vec<Vec<(NodeIx, u32)>>,
}

#[derive(Debug)]
struct Variable {
    name: String,
    declared: Option<Vec<usize>>,
    /// The node that gives it its first value.
    initializer: Option<NodeId>,
}

impl Variables {
    /// Finds the variables of a graph, given its order and the operations of its nodes. Nodes with
    /// the same `shared_name` are one variable.
    pub(super) fn find(graph: &Graph, order: &[NodeId], operations: &[Option<Operation>]) -> Self {
        let mut found = Variables::default();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for id in order {
            let node = graph.node(*id);
            let first = node.inputs.first();
            let first =
                first.and_then(|from| found.handles.get(&(from.node, from.output)).copied());
            let of = match operations[id.index()] {
                Some(Operation::Variable) => {
                    let shared = node.attrs.get("shared_name").and_then(Attr::as_text);
                    let name = shared.filter(|name| !name.is_empty()).unwrap_or(&node.name);
                    let next = found.all.len();
                    let of = *by_name.entry(name).or_insert(next);
                    if of == next {
                        let declared = declared_shape(node);
                        let name = node.name.to_string();
                        found.all.push(Variable { name, declared, initializer: None });
                    }
                    Some(of)
                }
                Some(Operation::Assign(update)) => {
                    if let (Update::Replace, Some(of)) = (update, first) {
                        found.offer(graph, of, *id);
                    }
                    first
                }
                Some(Operation::Identity) => first.filter(|_| is_handle(graph, *id)),
                _ => None,
            };
            if let Some(of) = of {
                let outputs = 0..node.outputs.len() as u32;
                found.handles.extend(outputs.map(|output| ((*id, output), of)));
            }
        }
        found
    }

    /// Makes a node the initializer of a variable, if it is better than the one so far.
    fn offer(&mut self, graph: &Graph, of: usize, id: NodeId) {
        let variable = &mut self.all[of];
        let is_named = |id: NodeId| {
            let name = graph.node(id).name.strip_suffix("/Assign");
            name == Some(variable.name.as_str())
        };
        let is_better = |known: NodeId| (is_named(id), known.0) > (is_named(known), id.0);
        if variable.initializer.is_none_or(is_better) {
            variable.initializer = Some(id);
        }
    }

    /// Returns the variable that an output is a handle of.
    pub(super) fn of(&self, node: NodeId, output: u32) -> Option<usize> {
        self.handles.get(&(node, output)).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn initializer(&self, of: usize) -> Option<NodeId> {
        self.all.get(of)?.initializer
    }

    pub(super) fn name(&self, of: usize) -> &str {
        self.all.get(of).map_or("", |of| &of.name)
    }

    pub(super) fn declared(&self, of: usize) -> Option<&[usize]> {
        self.all.get(of)?.declared.as_deref()
    }

    /// Returns a place for the value of each variable.
    pub(super) fn state(&self) -> Vec<Mutex<Option<Arc<Tensor>>>> {
        self.all.iter().map(|_| Mutex::default()).collect()
    }

    /// Returns the inputs of a node, and the outputs that they read in `reads`.
    pub(super) fn inputs(
        &self,
        graph: &Graph,
        id: NodeId,
        mut read: impl FnMut(NodeId, u32) -> usize,
    ) -> Vec<Input> {
        let sources = graph.node(id).inputs.iter();
        let input = |from: &gpu_graph::Source| match self.of(from.node, from.output) {
            Some(of) => Input::Variable(of),
            None => Input::Value(read(from.node, from.output)),
        };
        sources.map(input).collect()
    }
}

/// Returns whether a node passes on the handle of a variable and not its value.
pub(super) fn is_handle(graph: &Graph, id: NodeId) -> bool {
    let outputs = &graph.node(id).outputs;
    outputs.first().is_some_and(|of| of.reference || of.dtype == Dtype::RESOURCE)
}
