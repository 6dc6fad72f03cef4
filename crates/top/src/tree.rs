//! The rows as a tree of processes.
//!
//! A process is below its nearest ancestor that has a row. An ancestor that uses no device has a
//! row if it joins several branches, such as a launcher of workers; process 1 joins everything and
//! adds no information, so it has none.

use crate::frame::Frame;
use crate::rows::{Row, Subject, ancestry};
use gpu_core::{Pid, ProcessKey};
use std::collections::{BTreeMap, BTreeSet};

/// The levels that are indented; deeper ones are not indented further.
const LEVELS: usize = 12;

/// A row of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The index of the row in the frame.
    pub(crate) index: usize,
    /// The tree lines before the command.
    pub(crate) lines: String,
}

/// A process in the tree.
#[derive(Default)]
struct Node {
    /// Its rows, in order.
    rows: Vec<usize>,
    /// The first position of its rows and of those below it.
    rank: usize,
    children: Vec<Pid>,
}

/// Arranges rows, given in their order, as a tree. Siblings keep the order of their first rows.
/// Rows below a process in `folded` are hidden.
pub(crate) fn arrange(
    frame: &Frame,
    order: &[usize],
    folded: &BTreeSet<ProcessKey>,
) -> Vec<Branch> {
    let joins = joins(frame, order);
    let mut nodes: BTreeMap<Pid, Node> = BTreeMap::new();
    // Rows without a process above them: processes, and memory without a listed process.
    let mut roots: Vec<(usize, Result<Pid, usize>)> = Vec::new();
    for (rank, index) in order.iter().copied().enumerate() {
        let Some(pid) = frame.row(index).and_then(Row::pid) else {
            roots.push((rank, Err(index)));
            continue;
        };
        if let Some(known) = nodes.get_mut(&pid) {
            known.rows.push(index);
            continue;
        }
        nodes.insert(pid, Node { rows: vec![index], rank, children: Vec::new() });
    }
    let users: Vec<Pid> = nodes.keys().copied().collect();
    for (index, row) in frame.parents.iter().enumerate() {
        if let Some(pid) = row.pid().filter(|pid| joins.contains(pid) && !nodes.contains_key(pid)) {
            let rows = vec![frame.rows.len() + index];
            nodes.insert(pid, Node { rows, rank: usize::MAX, children: Vec::new() });
        }
    }
    let mut placed = BTreeSet::new();
    for user in users {
        let rank = nodes[&user].rank;
        let mut child = user;
        for above in ancestry(&frame.snapshot, user).skip(1).map(|info| info.key.pid) {
            let Some(node) = nodes.get_mut(&above) else { continue };
            node.rank = node.rank.min(rank);
            if placed.insert(child) {
                node.children.push(child);
            }
            child = above;
        }
        if placed.insert(child) {
            roots.push((0, Ok(child)));
        }
    }
    for (rank, root) in &mut roots {
        if let Ok(pid) = root {
            *rank = nodes[pid].rank;
        }
    }
    roots.sort_unstable();
    drawn(frame, &nodes, &roots, folded)
}

/// Returns the rows that exist only in the tree: ancestors at which branches meet.
pub(crate) fn launchers(frame: &Frame) -> BTreeMap<Pid, &Row> {
    let joins = joins(frame, &(0..frame.rows.len()).collect::<Vec<_>>());
    let parents = frame.parents.iter().filter_map(|row| Some((row.pid()?, row)));
    parents.filter(|(pid, _)| joins.contains(pid)).collect()
}

/// Returns the ancestors at which the branches of these rows meet.
fn joins(frame: &Frame, order: &[usize]) -> BTreeSet<Pid> {
    let mut below: BTreeMap<Pid, Pid> = BTreeMap::new();
    let mut joins = BTreeSet::new();
    for pid in order.iter().filter_map(|index| frame.row(*index)?.pid()) {
        let mut child = pid;
        for above in ancestry(&frame.snapshot, pid).skip(1).map(|info| info.key.pid) {
            match below.insert(above, child) {
                Some(other) if other != child && above.0 > 1 => {
                    joins.insert(above);
                }
                Some(_) | None => {}
            }
            child = above;
        }
    }
    joins
}

fn drawn(
    frame: &Frame,
    nodes: &BTreeMap<Pid, Node>,
    roots: &[(usize, Result<Pid, usize>)],
    folded: &BTreeSet<ProcessKey>,
) -> Vec<Branch> {
    let mut branches = Vec::new();
    // Each with the lines above its children, and its own.
    let mut left: Vec<(Result<Pid, usize>, String, String)> =
        roots.iter().rev().map(|(_, root)| (*root, String::new(), String::new())).collect();
    while let Some((item, below, own)) = left.pop() {
        let pid = match item {
            Ok(pid) => pid,
            Err(index) => {
                branches.push(Branch { index, lines: own });
                continue;
            }
        };
        let node = &nodes[&pid];
        let key = node.rows.first().and_then(|index| frame.row(*index)?.process());
        let is_folded = key.is_some_and(|key| folded.contains(&key)) && !node.children.is_empty();
        for (position, index) in node.rows.iter().enumerate() {
            let mut lines = if position == 0 { own.clone() } else { below.clone() };
            if is_folded && position == 0 {
                lines.push_str(&format!("[+{}] ", descendants(nodes, pid)));
            }
            branches.push(Branch { index: *index, lines });
        }
        if is_folded {
            continue;
        }
        let mut children = node.children.clone();
        children.sort_unstable_by_key(|child| (nodes[child].rank, *child));
        let deep = below.chars().count() >= 3 * LEVELS;
        for (position, child) in children.into_iter().rev().enumerate() {
            let is_last = position == 0;
            let (line, more) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let lines = |end: &str| if deep { below.clone() } else { format!("{below}{end}") };
            left.push((Ok(child), lines(more), lines(line)));
        }
    }
    branches
}

fn descendants(nodes: &BTreeMap<Pid, Node>, pid: Pid) -> usize {
    let (mut count, mut left) = (0, vec![pid]);
    while let Some(pid) = left.pop() {
        count += nodes[&pid].children.len();
        left.extend(&nodes[&pid].children);
    }
    count
}

impl Frame {
    /// Returns a row: first those that use a device, then their ancestors.
    pub(crate) fn row(&self, index: usize) -> Option<&Row> {
        self.rows.get(index).or_else(|| self.parents.get(index - self.rows.len()))
    }

    /// Adds the rows of the ancestors that use no device, unless they were already added.
    pub(crate) fn add_parents(&mut self) {
        if !self.parents.is_empty() {
            return;
        }
        let mut known: BTreeSet<Pid> = self.rows.iter().filter_map(Row::pid).collect();
        let users: Vec<Pid> = known.iter().copied().collect();
        let mut parents = Vec::new();
        for user in users {
            for info in ancestry(&self.snapshot, user).skip(1) {
                // All ancestors of a known process are known.
                if !known.insert(info.key.pid) {
                    break;
                }
                parents.push(Row::of_ancestor(info, &self.snapshot));
            }
        }
        self.parents = parents;
    }
}

impl Row {
    /// Returns the identity of its process; `None` for memory without a visible process.
    pub fn process(&self) -> Option<ProcessKey> {
        match self.key.subject {
            Subject::Process(key) => Some(key),
            Subject::Foreign(_) | Subject::Unlisted => None,
        }
    }
}
