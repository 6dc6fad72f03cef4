//! The nodes and edges that are placed together: a graph, or the body of a function.
//!
//! Calls of functions that return resources are isolated first: each of their inputs and outputs
//! gets its own identity, as TensorFlow's `placer_inspection_required_ops_utils.cc` does, so that
//! the devices of the inner resources bind the identities and not the call.

use super::error::{PlaceError, PlaceErrorKind};
use crate::build::BuildError;
use crate::build::budget::{Budget, length};
use crate::def::Attr;
use crate::dtype::ValueType;
use crate::node::{Node, NodeId, Source};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A value passed from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) output: u32,
    pub(super) to: u32,
    pub(super) input: u32,
}

/// Nodes, their placement order, and their edges in the order in which TensorFlow would have added
/// them.
#[derive(Clone, Debug)]
pub(super) struct Body<'g> {
    pub(super) nodes: Cow<'g, [Node]>,
    pub(super) order: Vec<u32>,
    pub(super) edges: Vec<Edge>,
    /// For each node, whether it is a call to inspect.
    pub(super) inspected: Vec<bool>,
    /// The number of original nodes; the others are identities.
    pub(super) given: usize,
}

impl<'g> Body<'g> {
    /// Returns the body with the nodes of a graph. The calls in `inspected` are isolated if
    /// `isolate`; the identities, with their names, count against the budget.
    ///
    /// # Errors
    /// If the budget does not suffice.
    pub(super) fn new(
        nodes: &'g [Node],
        order: Vec<u32>,
        inspected: Vec<bool>,
        isolate: bool,
        budget: &mut Budget,
    ) -> Result<Body<'g>, PlaceError> {
        let mut edges = Vec::with_capacity(nodes.len());
        for to in &order {
            for (input, source) in nodes[*to as usize].inputs.iter().enumerate() {
                let (from, output) = (source.node.0, source.output);
                edges.push(Edge { from, output, to: *to, input: input as u32 });
            }
        }
        let mut body =
            Body { nodes: Cow::Borrowed(nodes), order, edges, inspected, given: nodes.len() };
        if isolate && body.inspected.contains(&true) {
            body = Isolation::new(body).run(budget).map_err(|_| {
                let message = "There are too many identities around function calls".to_owned();
                PlaceError::new(PlaceErrorKind::Function, message)
            })?;
        }
        Ok(body)
    }

    /// Returns the node.
    pub(super) fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }
}

/// The insertion of identities.
struct Isolation {
    nodes: Vec<Node>,
    order: Vec<u32>,
    /// Edges that were removed are `None`.
    edges: Vec<Option<Edge>>,
    /// The indices of the edges from each node.
    outgoing: Vec<Vec<usize>>,
    /// The index of the edge to each input of each node.
    incoming: Vec<Vec<usize>>,
    names: HashSet<Arc<str>>,
    /// For each name that was already taken when an identity requested it, the first number to try
    /// as its suffix. Lower numbers are taken.
    suffixes: HashMap<Arc<str>, u64>,
    calls: Vec<bool>,
    given: usize,
}

impl Isolation {
    fn new(body: Body<'_>) -> Isolation {
        let mut isolation = Isolation {
            outgoing: vec![Vec::new(); body.nodes.len()],
            incoming: body.nodes.iter().map(|node| vec![0; node.inputs.len()]).collect(),
            names: body.nodes.iter().map(|node| node.name.clone()).collect(),
            suffixes: HashMap::new(),
            nodes: body.nodes.into_owned(),
            order: body.order,
            edges: Vec::with_capacity(body.edges.len()),
            calls: body.inspected,
            given: body.given,
        };
        for edge in body.edges {
            isolation.connect(edge);
        }
        isolation
    }

    fn run<'g>(mut self, budget: &mut Budget) -> Result<Body<'g>, BuildError> {
        for at in self.order.clone() {
            if self.calls[at as usize] {
                self.isolate_inputs(at, budget)?;
                self.isolate_outputs(at, budget)?;
            }
        }
        Ok(Body {
            nodes: Cow::Owned(self.nodes),
            order: self.order,
            edges: self.edges.into_iter().flatten().collect(),
            inspected: self.calls,
            given: self.given,
        })
    }

    fn connect(&mut self, edge: Edge) {
        let at = self.edges.len();
        self.edges.push(Some(edge));
        self.outgoing[edge.from as usize].push(at);
        self.incoming[edge.to as usize][edge.input as usize] = at;
        let source = Source { node: NodeId(edge.from), output: edge.output };
        self.nodes[edge.to as usize].inputs[edge.input as usize] = source;
    }

    fn isolate_inputs(&mut self, call: u32, budget: &mut Budget) -> Result<(), BuildError> {
        for at in self.incoming[call as usize].clone() {
            if let Some(edge) = self.edges[at] {
                self.insert_between(at, edge, budget)?;
            }
        }
        Ok(())
    }

    fn isolate_outputs(&mut self, call: u32, budget: &mut Budget) -> Result<(), BuildError> {
        let outputs = self.nodes[call as usize].outputs.len();
        let mut is_used = vec![false; outputs];
        for at in self.outgoing[call as usize].clone() {
            if let Some(edge) = self.edges[at] {
                is_used[edge.output as usize] = true;
                self.insert_between(at, edge, budget)?;
            }
        }
        let unused = is_used.iter().enumerate().filter(|(_, used)| !**used);
        for (output, _) in unused {
            let name = self.nodes[call as usize].name.to_string();
            self.insert(name, call, output as u32, budget)?;
        }
        Ok(())
    }

    /// Replaces an edge by an identity with an incoming and an outgoing edge.
    fn insert_between(
        &mut self,
        at: usize,
        edge: Edge,
        budget: &mut Budget,
    ) -> Result<(), BuildError> {
        let name = |at: u32| &self.nodes[at as usize].name;
        let name = format!("{}_{}", name(edge.from), name(edge.to));
        let identity = self.insert(name, edge.from, edge.output, budget)?;
        self.edges[at] = None;
        self.connect(Edge { from: identity, output: 0, ..edge });
        Ok(())
    }

    /// Returns a name with the first suffix that makes it unique, if one is needed.
    fn unique(&mut self, name: Arc<str>) -> Arc<str> {
        if self.names.insert(name.clone()) {
            return name;
        }
        let suffix = self.suffixes.entry(name.clone()).or_insert(0);
        loop {
            let unique: Arc<str> = format!("{name}_{suffix}").into();
            *suffix += 1;
            if self.names.insert(unique.clone()) {
                return unique;
            }
        }
    }

    /// Adds an identity for an output.
    fn insert(
        &mut self,
        name: String,
        from: u32,
        output: u32,
        budget: &mut Budget,
    ) -> Result<u32, BuildError> {
        budget.take(1 + length(&name))?;
        let at = self.nodes.len() as u32;
        let of = self.nodes[from as usize].outputs[output as usize];
        let of = ValueType::of(of.dtype);
        let unique = self.unique(name.into());
        self.nodes.push(Node {
            name: unique,
            op: "Identity".into(),
            inputs: vec![Source { node: NodeId(from), output }],
            controls: Vec::new(),
            outputs: vec![of],
            requested: String::new(),
            assigned: None,
            attrs: BTreeMap::from([("T".to_owned(), Attr::Type(of))]),
        });
        self.order.push(at);
        self.outgoing.push(Vec::new());
        self.incoming.push(vec![0]);
        self.calls.push(false);
        self.connect(Edge { from, output, to: at, input: 0 });
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    #[test]
    fn identities_count_against_the_budget_with_their_names() {
        let node = |name: &str, inputs| Node {
            name: name.into(),
            op: "Call".into(),
            inputs,
            controls: Vec::new(),
            outputs: vec![ValueType::of(Dtype::RESOURCE)],
            requested: String::new(),
            assigned: None,
            attrs: BTreeMap::new(),
        };
        let source = Source { node: NodeId(0), output: 0 };
        let nodes = [node("a", Vec::new()), node(&"c".repeat(640), vec![source; 3])];
        let mut budget = Budget::new(100);
        let mut identities = || {
            let body = Body::new(&nodes, vec![0, 1], vec![false, true], true, &mut budget);
            body.map(|body| body.nodes.len() - body.given).map_err(|error| error.kind)
        };
        // Three for the inputs and one for the output; each counts as eleven values.
        assert_eq!([identities(), identities()], [Ok(4), Ok(4)]);
        assert_eq!(identities(), Err(PlaceErrorKind::Function));
    }
}
