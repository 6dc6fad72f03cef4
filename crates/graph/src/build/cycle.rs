//! The cycles that prevent an order of nodes in which each node follows its inputs.

use super::BuildError;
use crate::node::Node;
use crate::order::{order, waits_for};

/// Returns an error with the names of a cycle, if there is one.
pub(crate) fn check(nodes: &[Node]) -> Result<(), BuildError> {
    let order = order(nodes);
    if order.len() == nodes.len() {
        return Ok(());
    }
    let mut ordered = vec![false; nodes.len()];
    for at in &order {
        ordered[*at as usize] = true;
    }
    // Each remaining node needs another remaining one, so a walk backwards reaches a visited node.
    let mut visited_at = vec![usize::MAX; nodes.len()];
    let mut path = Vec::new();
    let mut next = ordered.iter().position(|done| !done);
    while let Some(at) = next.filter(|at| visited_at[*at] == usize::MAX) {
        visited_at[at] = path.len();
        path.push(at);
        next = waits_for(nodes, &nodes[at]).find(|from| !ordered[*from]);
    }
    let start = next.map_or(0, |at| visited_at[at]);
    let cycle = path[start..].iter().rev().map(|at| nodes[*at].name.to_string()).collect();
    Err(BuildError::Cycle { waiting: nodes.len() - order.len(), cycle })
}
