//! A graph in the form that executors traverse.

use gpu_graph::Graph;
use std::sync::Arc;

/// The index of a node in a [`TaskGraph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIx(pub u32);

impl NodeIx {
    /// Returns the index as a `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why a graph cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Some nodes wait for each other.
    #[error("order the nodes of the cycle {}", cycle_text(.nodes))]
    Cycle {
        /// The names of the nodes in one cycle; each runs before the next, and the last before the
        /// first.
        nodes: Vec<String>,
    },
    /// An end of an edge does not exist.
    #[error("connect node {from} to node {to} in a graph of {nodes} nodes")]
    UnknownNode {
        /// The source of the edge.
        from: u32,
        /// The target of the edge.
        to: u32,
        /// The number of nodes.
        nodes: usize,
    },
    /// There are more nodes or edges than a graph can have.
    #[error("build a graph of {nodes} nodes and {edges} edges: at most {MAX_NODES} of each")]
    TooLarge {
        /// The number of nodes.
        nodes: usize,
        /// The number of edges.
        edges: usize,
    },
}

/// The maximum number of nodes and of edges.
pub const MAX_NODES: usize = SOLE as usize - 1;

/// How many names of a cycle the message shows.
const MAX_NAMES_SHOWN: usize = 12;

fn cycle_text(nodes: &[String]) -> String {
    let shown: Vec<&str> = nodes.iter().take(MAX_NAMES_SHOWN).map(String::as_str).collect();
    let more = if nodes.len() > MAX_NAMES_SHOWN { " → …" } else { "" };
    format!("{}{more}", shown.join(" → "))
}

/// The bit of a successor without other inputs, which is ready without checking its count.
const SOLE: u32 = 1 << 31;

/// The successors of each node, stored contiguously, and the number of inputs that each node waits
/// for.
///
/// The successors of a node are in the order in which they should run: by priority, then by index.
/// When several become ready together, an executor continues with the first. Its data is the most
/// likely to be in the cache if the graph was built in its natural order.
#[derive(Clone, Debug, Default)]
pub struct TaskGraph {
    offsets: Vec<u32>,
    /// Indices, with [`SOLE`] set for successors without another input.
    successors: Vec<u32>,
    pending: Vec<u32>,
    sources: Vec<u32>,
    priorities: Vec<i64>,
    names: Vec<Arc<str>>,
}

impl TaskGraph {
    /// Builds a graph from edges: pairs of a node and a node that runs after it. Equal edges count
    /// once.
    ///
    /// # Errors
    /// [`GraphError`] for a cycle, for an unknown node and for a graph that is too large.
    pub fn from_edges(
        nodes: usize,
        edges: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<Self, GraphError> {
        Self::with_names(nodes, edges, Vec::new())
    }

    /// Builds a graph with node names; a node without a name is named by its index.
    ///
    /// # Errors
    /// Like [`TaskGraph::from_edges`].
    pub fn with_names(
        nodes: usize,
        edges: impl IntoIterator<Item = (u32, u32)>,
        names: Vec<Arc<str>>,
    ) -> Result<Self, GraphError> {
        let edges: Vec<(u32, u32)> = edges.into_iter().collect();
        if nodes > MAX_NODES || edges.len() > MAX_NODES {
            return Err(GraphError::TooLarge { nodes, edges: edges.len() });
        }
        let mut counts = vec![0u32; nodes + 1];
        for (from, to) in &edges {
            let (from, to) = (*from, *to);
            if from as usize >= nodes || to as usize >= nodes {
                return Err(GraphError::UnknownNode { from, to, nodes });
            }
            counts[from as usize + 1] += 1;
        }
        for at in 0..nodes {
            counts[at + 1] += counts[at];
        }
        let mut targets = vec![0u32; edges.len()];
        let mut next = counts.clone();
        for (from, to) in edges {
            let slot = &mut next[from as usize];
            targets[*slot as usize] = to;
            *slot += 1;
        }
        let mut graph = Self {
            offsets: Vec::with_capacity(nodes + 1),
            successors: Vec::with_capacity(targets.len()),
            pending: vec![0; nodes],
            sources: Vec::new(),
            priorities: Vec::new(),
            names,
        };
        graph.offsets.push(0);
        for ends in counts.windows(2) {
            let list = &mut targets[ends[0] as usize..ends[1] as usize];
            list.sort_unstable();
            let before = graph.successors.len();
            for to in list {
                if graph.successors.len() == before || graph.successors.last() != Some(to) {
                    graph.successors.push(*to);
                    graph.pending[*to as usize] += 1;
                }
            }
            graph.offsets.push(graph.successors.len() as u32);
        }
        for successor in &mut graph.successors {
            if graph.pending[*successor as usize] == 1 {
                *successor |= SOLE;
            }
        }
        graph.sources = (0..nodes as u32).filter(|at| graph.pending[*at as usize] == 0).collect();
        graph.check_order()?;
        Ok(graph)
    }

    /// Builds a graph from a graph of operations. Values and control edges both order nodes.
    ///
    /// # Errors
    /// Like [`TaskGraph::from_edges`]; a loop closed by `NextIteration` is a cycle.
    pub fn of(graph: &Graph) -> Result<Self, GraphError> {
        let nodes = graph.nodes();
        let edges = nodes.iter().enumerate().flat_map(|(to, node)| {
            let values = node.inputs.iter().map(|source| source.node);
            values.chain(node.controls.iter().copied()).map(move |from| (from.0, to as u32))
        });
        let names = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        Self::with_names(nodes.len(), edges, names)
    }

    /// Orders the sources, and the successors of each node, by priority, highest first. Nodes with
    /// equal priority stay in index order; a missing priority is 0.
    ///
    /// Priorities order nodes that become ready together. [`Virtual`](crate::Virtual) follows them
    /// strictly; among threads they are a hint, because each thread has its own list of ready
    /// nodes.
    #[must_use]
    pub fn prioritized(mut self, priorities: Vec<i64>) -> Self {
        let key = |node: &u32| {
            let node = node & !SOLE;
            (std::cmp::Reverse(priorities.get(node as usize).copied().unwrap_or(0)), node)
        };
        for ends in self.offsets.windows(2) {
            self.successors[ends[0] as usize..ends[1] as usize].sort_unstable_by_key(key);
        }
        self.sources.sort_unstable_by_key(key);
        self.priorities = priorities;
        self
    }

    /// Orders by the longest path from each node to an end, like the critical path method.
    ///
    /// The duration of each node is in nanoseconds; a missing one is 0.
    #[must_use]
    pub fn prioritized_by_path(self, durations_nanos: &[u64]) -> Self {
        let mut paths = vec![0i64; self.len()];
        for node in self.order().into_iter().rev() {
            let after = self.successors(node).map(|next| paths[next.index()]).max().unwrap_or(0);
            let own = durations_nanos.get(node.index()).copied().unwrap_or(0);
            paths[node.index()] = after.saturating_add(i64::try_from(own).unwrap_or(i64::MAX));
        }
        self.prioritized(paths)
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns whether the graph has no nodes.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the number of edges.
    pub fn edges(&self) -> usize {
        self.successors.len()
    }

    /// Returns the nodes without inputs, in the order in which they should run.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = NodeIx> + '_ {
        self.sources.iter().copied().map(NodeIx)
    }

    /// Returns the successors of a node in the order in which they should run.
    pub fn successors(&self, node: NodeIx) -> impl DoubleEndedIterator<Item = NodeIx> + '_ {
        self.links(node.0).iter().map(|link| NodeIx(link & !SOLE))
    }

    /// Returns the number of inputs that a node waits for.
    pub fn pending(&self, node: NodeIx) -> u32 {
        self.pending.get(node.index()).copied().unwrap_or(0)
    }

    /// Returns the priority of a node.
    pub fn priority(&self, node: NodeIx) -> i64 {
        self.priorities.get(node.index()).copied().unwrap_or(0)
    }

    /// Returns the name of a node, or one derived from its index.
    pub fn name(&self, node: NodeIx) -> String {
        match self.names.get(node.index()) {
            Some(name) => name.to_string(),
            None => format!("node {}", node.0),
        }
    }

    /// Returns all nodes in an order in which each comes after its inputs.
    pub fn order(&self) -> Vec<NodeIx> {
        let mut pending = self.pending.clone();
        let mut ready: Vec<u32> = self.sources.iter().rev().copied().collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(node) = ready.pop() {
            order.push(NodeIx(node));
            for link in self.links(node).iter().rev() {
                let next = link & !SOLE;
                pending[next as usize] -= 1;
                if pending[next as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        order
    }

    pub(crate) fn source(&self, at: usize) -> Option<u32> {
        self.sources.get(at).copied()
    }

    pub(crate) fn counts(&self) -> &[u32] {
        &self.pending
    }

    /// Returns the successors of a node, encoded as [`sole`] decodes them.
    pub(crate) fn links(&self, node: u32) -> &[u32] {
        match self.offsets.get(node as usize..).and_then(<[u32]>::first_chunk) {
            Some([from, to]) => &self.successors[*from as usize..*to as usize],
            None => &[],
        }
    }

    fn check_order(&self) -> Result<(), GraphError> {
        let order = self.order();
        if order.len() == self.len() {
            return Ok(());
        }
        let mut is_left = vec![true; self.len()];
        for node in order {
            is_left[node.index()] = false;
        }
        // Each remaining node waits for a remaining node, so following edges backwards leads into a
        // cycle.
        let mut before = vec![None; self.len()];
        for from in (0..self.len() as u32).filter(|from| is_left[*from as usize]) {
            for next in self.successors(NodeIx(from)) {
                before[next.index()] = Some(from);
            }
        }
        let first = is_left.iter().position(|left| *left).unwrap_or(0) as u32;
        let mut seen = vec![false; self.len()];
        let mut node = first;
        while !std::mem::replace(&mut seen[node as usize], true) {
            node = before[node as usize].unwrap_or(node);
        }
        let mut nodes = vec![self.name(NodeIx(node))];
        let mut at = before[node as usize].unwrap_or(node);
        while at != node {
            nodes.push(self.name(NodeIx(at)));
            at = before[at as usize].unwrap_or(node);
        }
        nodes.reverse();
        Err(GraphError::Cycle { nodes })
    }
}

/// Decodes a successor: its node, and whether the node has no other input.
pub(crate) const fn sole(link: u32) -> (u32, bool) {
    (link & !SOLE, link & SOLE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn cycle_error_names_its_nodes() {
        let edges = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)];
        let error =
            TaskGraph::with_names(5, edges, names(&["in", "a", "b", "c", "out"])).unwrap_err();
        let GraphError::Cycle { mut nodes } = error else { panic!("{error}") };
        let at = nodes.iter().position(|name| name == "a").expect("it is in the cycle");
        nodes.rotate_left(at);
        assert_eq!(nodes, ["a", "b", "c"]);
    }

    #[test]
    fn cycle_error_shows_twelve_names() {
        let text = |count: usize| {
            let nodes: Vec<String> = (0..count).map(|at| at.to_string()).collect();
            GraphError::Cycle { nodes }.to_string()
        };
        assert!(text(12).ends_with("10 → 11"), "{}", text(12));
        assert!(text(13).ends_with("10 → 11 → …"), "{}", text(13));
    }

    #[test]
    fn self_edge_is_a_cycle() {
        let error = TaskGraph::from_edges(2, [(1, 1)]).unwrap_err();
        assert_eq!(error, GraphError::Cycle { nodes: vec!["node 1".to_owned()] });
        assert_eq!(error.to_string(), "order the nodes of the cycle node 1");
    }

    #[test]
    fn rejects_graph_with_too_many_nodes() {
        for nodes in [MAX_NODES + 1, usize::MAX] {
            let error = TaskGraph::from_edges(nodes, []).unwrap_err();
            assert_eq!(error, GraphError::TooLarge { nodes, edges: 0 });
        }
    }

    #[test]
    fn unknown_node_is_an_error() {
        let error = TaskGraph::from_edges(2, [(0, 2)]).unwrap_err();
        assert_eq!(error, GraphError::UnknownNode { from: 0, to: 2, nodes: 2 });
    }

    #[test]
    fn equal_edges_count_once() {
        let graph = TaskGraph::from_edges(2, [(0, 1), (0, 1)]).expect("there is no cycle");
        assert_eq!((graph.edges(), graph.pending(NodeIx(1))), (1, 1));
        let graph = TaskGraph::from_edges(4, [(0, 1), (0, 2), (2, 1)]).expect("no cycle");
        assert_eq!((graph.edges(), graph.len(), graph.is_empty()), (3, 4, false));
    }

    #[test]
    fn priority_orders_successors_and_sources() {
        let graph = TaskGraph::from_edges(5, [(0, 2), (0, 3), (0, 4)]).expect("no cycle");
        let graph = graph.prioritized(vec![0, 1, 0, 5, 0]);
        assert_eq!(graph.successors(NodeIx(0)).map(|n| n.0).collect::<Vec<_>>(), [3, 2, 4]);
        assert_eq!(graph.sources().map(|n| n.0).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn longest_path_comes_first() {
        let graph = TaskGraph::from_edges(4, [(0, 1), (0, 2), (2, 3)]).expect("no cycle");
        let graph = graph.prioritized_by_path(&[1, 5, 3, 3]);
        assert_eq!(graph.priority(NodeIx(0)), 7);
        assert_eq!(graph.successors(NodeIx(0)).next(), Some(NodeIx(2)));
    }
}
