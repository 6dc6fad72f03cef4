//! The order of nodes in which each node follows its inputs.

use crate::node::Node;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns whether an input closes a loop: a `Merge` does not wait for a `NextIteration`.
fn closes_loop(node: &Node, from: &Node) -> bool {
    matches!(&*node.op, "Merge" | "RefMerge")
        && matches!(&*from.op, "NextIteration" | "RefNextIteration")
}

/// Returns the indices of the inputs and controls that a node waits for.
pub(crate) fn waits_for<'a>(nodes: &'a [Node], node: &'a Node) -> impl Iterator<Item = usize> + 'a {
    let inputs = node.inputs.iter().map(|source| source.node.index());
    let inputs = inputs.filter(|from| !closes_loop(node, &nodes[*from]));
    inputs.chain(node.controls.iter().map(|from| from.index()))
}

/// The order in which TensorFlow's `graph_constructor.cc` numbers the nodes of a graph: among the
/// nodes with all inputs numbered, the earliest in the file is next. Nodes of a cycle, and those
/// that depend on them, are left out.
pub(crate) fn order(nodes: &[Node]) -> Vec<u32> {
    let mut waiting = vec![0_u32; nodes.len()];
    let mut starts = vec![0_u32; nodes.len() + 1];
    for (at, node) in nodes.iter().enumerate() {
        for from in waits_for(nodes, node) {
            waiting[at] += 1;
            starts[from + 1] += 1;
        }
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut free = starts.clone();
    let mut users = vec![0_u32; *starts.last().unwrap_or(&0) as usize];
    for (at, node) in nodes.iter().enumerate() {
        for from in waits_for(nodes, node) {
            users[free[from] as usize] = at as u32;
            free[from] += 1;
        }
    }
    let mut ready: BinaryHeap<Reverse<u32>> =
        (0..nodes.len() as u32).filter(|at| waiting[*at as usize] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        let range = starts[at as usize] as usize..starts[at as usize + 1] as usize;
        for user in &users[range] {
            let waiting = &mut waiting[*user as usize];
            *waiting -= 1;
            if *waiting == 0 {
                ready.push(Reverse(*user));
            }
        }
    }
    order
}
