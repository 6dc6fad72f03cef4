//! Which operations a program runs, and in which order.

use super::variables::{Variables, is_handle};
use super::{Fetch, Input, Program, ProgramError, Task};
use crate::graph::{NodeIx, TaskGraph};
use crate::operation::Operation;
use gpu_graph::{Graph, Node, NodeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What a fetch names: a node, and one of its outputs if it has any.
type Wanted = (String, NodeId, Option<u32>);

pub(super) fn prepare<'a>(
    graph: &'a Graph,
    fetches: &[String],
) -> Result<Program<'a>, ProgramError> {
    let operations: Vec<Option<Operation>> =
        graph.nodes().iter().map(|node| of(graph, node)).collect();
    let order = graph.order();
    let mut variables = Variables::find(graph, &order, &operations);
    let wanted = match fetches {
        [] => unused(graph, &order, &variables),
        names => names.iter().map(|name| find(graph, name)).collect::<Result<_, _>>()?,
    };
    let main = needed(graph, wanted.iter().map(|(_, id, _)| *id), &mut BTreeSet::new());
    let first = initializers(graph, &main, &variables);
    let mut unsupported = BTreeMap::new();
    for id in main.union(&first).filter(|id| operations[id.index()].is_none()) {
        *unsupported.entry(graph.node(*id).op.to_string()).or_insert(0) += 1;
    }
    if !unsupported.is_empty() {
        return Err(ProgramError::Unsupported(unsupported));
    }
    let mut build = Build {
        graph,
        operations,
        variables: &variables,
        tasks: Vec::new(),
        at: HashMap::new(),
        edges: Vec::new(),
        reads: Vec::new(),
        accesses: vec![(None, Vec::new()); variables.len()],
    };
    build.phase(&initial_order(graph, &order, &first, &variables)?);
    let main: Vec<NodeId> = order.into_iter().filter(|id| main.contains(id)).collect();
    build.phase(&main);
    let fetches = build.fetches(wanted);
    let Build { tasks, edges, reads, .. } = build;
    let names = tasks.iter().map(|task| Arc::clone(&graph.node(task.node).name));
    let names = names.chain([Arc::from("fetch")]).collect();
    let order = TaskGraph::with_names(tasks.len() + 1, edges, names)?;
    variables.reads = reads;
    Ok(Program { graph, tasks, variables, order, fetches })
}

fn of(graph: &Graph, node: &Node) -> Option<Operation> {
    let types = node.inputs.iter().filter_map(|from| {
        let outputs = &graph.node(from.node).outputs;
        outputs.get(from.output as usize).map(|of| of.dtype)
    });
    Operation::of(node, types)
}

/// Finds what a name stands for: `c:0`, or `c` for the first output.
fn find(graph: &Graph, name: &str) -> Result<Wanted, ProgramError> {
    let (node, output) = match name.rsplit_once(':') {
        Some((node, output)) => (node, Some(output)),
        None => (name, None),
    };
    let id = graph.find(node).ok_or_else(|| ProgramError::UnknownNode(name.to_owned()))?;
    let outputs = graph.node(id).outputs.len();
    match output.map(str::parse::<u32>) {
        None if outputs == 0 => Ok((node.to_owned(), id, None)),
        None => Ok((format!("{node}:0"), id, Some(0))),
        Some(Ok(output)) if (output as usize) < outputs => Ok((name.to_owned(), id, Some(output))),
        _ => Err(ProgramError::UnknownOutput { name: name.to_owned(), outputs }),
    }
}

/// Returns the outputs of the nodes that no other node uses, except for initializers and the nodes
/// that group them.
fn unused(graph: &Graph, order: &[NodeId], variables: &Variables) -> Vec<Wanted> {
    let mut is_used = vec![false; graph.nodes().len()];
    for node in graph.nodes() {
        let inputs = node.inputs.iter().map(|from| from.node);
        inputs.chain(node.controls.iter().copied()).for_each(|id| is_used[id.index()] = true);
    }
    let initializers = (0..variables.len()).filter_map(|of| variables.initializer(of));
    let mut initializes: BTreeSet<NodeId> = initializers.collect();
    for id in order {
        let node = graph.node(*id);
        let is_group = &*node.op == "NoOp" && !node.controls.is_empty();
        if is_group && node.controls.iter().all(|control| initializes.contains(control)) {
            initializes.insert(*id);
        }
    }
    let of = |id: NodeId| {
        let node = graph.node(id);
        let outputs = 0..node.outputs.len() as u32;
        let value = move |output| (format!("{}:{output}", node.name), id, Some(output));
        let effect = node.outputs.is_empty().then(|| (node.name.to_string(), id, None));
        outputs.map(value).chain(effect)
    };
    let roots = graph.ids().filter(|id| !is_used[id.index()] && !initializes.contains(id));
    roots.flat_map(of).collect()
}

/// Returns nodes and everything that they need, without what is known.
fn needed(
    graph: &Graph,
    roots: impl Iterator<Item = NodeId>,
    known: &mut BTreeSet<NodeId>,
) -> BTreeSet<NodeId> {
    let mut stack: Vec<NodeId> = roots.collect();
    let mut found = BTreeSet::new();
    while let Some(id) = stack.pop() {
        if known.insert(id) {
            found.insert(id);
            let node = graph.node(id);
            stack.extend(
                node.inputs.iter().map(|from| from.node).chain(node.controls.iter().copied()),
            );
        }
    }
    found
}

/// Returns the initializers of the variables that nodes use, and everything that these need.
fn initializers(graph: &Graph, main: &BTreeSet<NodeId>, variables: &Variables) -> BTreeSet<NodeId> {
    let mut known = BTreeSet::new();
    let mut users = main.clone();
    while !users.is_empty() {
        let used = users.iter().flat_map(|id| {
            let inputs = graph.node(*id).inputs.iter().map(|from| (from.node, from.output));
            inputs.chain([(*id, 0)]).filter_map(|(id, output)| variables.of(id, output))
        });
        let roots: BTreeSet<NodeId> = used.filter_map(|of| variables.initializer(of)).collect();
        users = needed(graph, roots.into_iter(), &mut known);
    }
    known
}

/// Orders the initializers such that a variable is read after it has its value.
fn initial_order(
    graph: &Graph,
    order: &[NodeId],
    first: &BTreeSet<NodeId>,
    variables: &Variables,
) -> Result<Vec<NodeId>, ProgramError> {
    let nodes: Vec<NodeId> = order.iter().copied().filter(|id| first.contains(id)).collect();
    let at: HashMap<NodeId, u32> = nodes.iter().copied().zip(0..).collect();
    let mut edges = Vec::new();
    for (id, to) in nodes.iter().zip(0..) {
        let node = graph.node(*id);
        for (index, from) in node.inputs.iter().enumerate() {
            edges.push((at[&from.node], to));
            let of = variables.of(from.node, from.output);
            if let Some(initializer) = of.and_then(|of| variables.initializer(of))
                && (initializer != *id || index > 0)
                && !(is_handle(graph, *id) && index == 0)
            {
                edges.push((at[&initializer], to));
            }
        }
        edges.extend(node.controls.iter().map(|from| (at[from], to)));
    }
    let names = nodes.iter().map(|id| Arc::clone(&graph.node(*id).name)).collect();
    let order = TaskGraph::with_names(nodes.len(), edges, names)?.order();
    Ok(order.into_iter().filter_map(|at| nodes.get(at.index()).copied()).collect())
}

/// A program while its tasks are added.
struct Build<'a> {
    graph: &'a Graph,
    operations: Vec<Option<Operation>>,
    variables: &'a Variables,
    tasks: Vec<Task>,
    /// The task of each node in this phase.
    at: HashMap<NodeId, u32>,
    edges: Vec<(u32, u32)>,
    reads: Vec<Vec<(NodeIx, u32)>>,
    /// For each variable, the last task that wrote it and those that have read it since.
    accesses: Vec<(Option<u32>, Vec<u32>)>,
}

impl Build<'_> {
    /// Adds a task for each of these nodes, which are in an order in which they can run.
    fn phase(&mut self, nodes: &[NodeId]) {
        self.at.clear();
        for id in nodes {
            let Some(operation) = self.operations[id.index()] else { continue };
            let to = self.tasks.len() as u32;
            self.at.insert(*id, to);
            let node = self.graph.node(*id);
            let mut reads = Vec::new();
            let inputs = self.variables.inputs(self.graph, *id, |from, output| {
                reads.push((NodeIx(self.at[&from]), output));
                reads.len() - 1
            });
            let before =
                node.inputs.iter().map(|from| from.node).chain(node.controls.iter().copied());
            self.edges.extend(before.map(|from| (self.at[&from], to)));
            let is_handle = operation == Operation::Identity && self.variables.of(*id, 0).is_some();
            for input in inputs.iter().filter(|_| !is_handle) {
                if let Input::Variable(of) = input {
                    self.reads_variable(*of, to);
                }
            }
            if let (Operation::Assign(_), Some(Input::Variable(of))) = (operation, inputs.first()) {
                self.writes_variable(*of, to);
            }
            self.tasks.push(Task { node: *id, operation, inputs, is_handle });
            self.reads.push(reads);
        }
    }

    fn reads_variable(&mut self, of: usize, task: u32) {
        let (written, read) = &mut self.accesses[of];
        self.edges.extend(written.map(|from| (from, task)));
        read.push(task);
    }

    fn writes_variable(&mut self, of: usize, task: u32) {
        let (written, read) = &mut self.accesses[of];
        let before = std::mem::take(read).into_iter().chain(*written);
        self.edges.extend(before.filter(|from| *from != task).map(|from| (from, task)));
        *written = Some(task);
    }

    /// Adds the task that reads what was asked for, after all others.
    fn fetches(&mut self, wanted: Vec<Wanted>) -> Vec<Fetch> {
        let last = self.tasks.len() as u32;
        let mut reads = Vec::new();
        let fetch = |(name, id, output): Wanted| {
            let input = output.map(|output| match self.variables.of(id, output) {
                Some(of) => Input::Variable(of),
                None => {
                    reads.push((NodeIx(self.at[&id]), output));
                    Input::Value(reads.len() - 1)
                }
            });
            Fetch { name, input }
        };
        let fetches = wanted.into_iter().map(fetch).collect();
        self.reads.push(reads);
        self.edges.extend((0..last).map(|task| (task, last)));
        fetches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_graph::Registry;
    use gpu_graph::read::{self, Limits};

    /// Returns the edges between tasks, by name, without those to the fetches.
    fn edges(fetches: &[&str]) -> String {
        let node = |name: &str, op: &str, inputs: &str, attrs: &str| {
            format!(
                r#"{{"name": "{name}", "op": "{op}", "inputs": [{inputs}], "attrs": {{{attrs}}}}}"#
            )
        };
        let of = |key: &str| format!(r#""{key}": {{"type": "float"}}"#);
        let (float, shape) = (of("dtype"), r#""shape": {"shape": []}"#);
        let variable = format!("{float}, {shape}");
        let value = format!(
            r#"{float}, "value": {{"tensor": {{"dtype": "float", "shape": [], "values": [1]}}}}"#
        );
        let nodes = [
            node("v", "VariableV2", "", &variable),
            node("w", "VariableV2", "", &variable),
            node("one", "Const", "", &value),
            node("v/Assign", "Assign", r#""v", "one""#, &of("T")),
            node("w/Assign", "Assign", r#""w", "v""#, &of("T")),
            node("read", "Identity", r#""w""#, &of("T")),
            node("more", "AssignAdd", r#""w", "v""#, &of("T")),
            node("again", "Assign", r#""v", "w""#, &of("T")),
        ];
        let file = format!("{{\"nodes\": [{}]}}", nodes.join(","));
        let document = read::graph(file.as_bytes(), &Limits::default()).expect("it is well-formed");
        let graph = Graph::build(document.graph, &Registry::tensorflow()).expect("it can be built");
        let fetches: Vec<String> = fetches.iter().map(|name| (*name).to_owned()).collect();
        let program = prepare(&graph, &fetches).expect("it has kernels");
        let all = (0..program.order.len() as u32).map(NodeIx);
        let name = |at: NodeIx| program.order.name(at).to_string();
        let edges = all.flat_map(|from| program.order.successors(from).map(move |to| (from, to)));
        let edges = edges.map(|(from, to)| [name(from), name(to)]);
        let edges = edges.filter(|[_, to]| to != "fetch").map(|edge| edge.join(" "));
        edges.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn uses_of_a_variable_wait_for_each_other() {
        let expected = "v v/Assign, v w/Assign, w w/Assign, one v/Assign, v/Assign w/Assign, \
                        v/Assign more, v/Assign again, w/Assign read, w/Assign more, \
                        w/Assign again, v more, v again, w read, w more, w again, read more, \
                        more again";
        assert_eq!(edges(&["read", "more", "again"]), expected);
    }
}
