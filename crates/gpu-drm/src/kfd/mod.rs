//! KFD, the compute side of amdgpu: its topology and its processes.
//!
//! Sources: `kfd_topology.c`, `kfd_crat.c` and `kfd_process.c` of Linux.

mod processes;
mod topology;

pub use processes::{KfdProcess, KfdQueue, KfdUse, processes};
pub use topology::{KfdBank, KfdLink, KfdNode, KfdTopology, topology};

use crate::Tree;
use gpu_core::{Absent, Reading};

const KFD: &str = "sys/class/kfd/kfd";

/// The most nodes, and links or banks of a node. Eight GPUs of eight partitions are 64 nodes.
const MAX_NODES: usize = 512;

/// Returns the numbers among the names in a directory, sorted.
fn numbers(tree: &dyn Tree, dir: &str, most: usize) -> Reading<Vec<u32>> {
    bounded(tree.names(dir)?.iter().filter_map(|name| number(name)), most)
}

/// Returns sorted numbers; `Implausible` if there are more than the kernel has.
fn bounded(numbers: impl Iterator<Item = u32>, most: usize) -> Reading<Vec<u32>> {
    let mut numbers: Vec<u32> = numbers.take(most + 1).collect();
    numbers.sort_unstable();
    if numbers.len() > most { Err(Absent::Implausible) } else { Ok(numbers) }
}

/// Parses a number as the kernel writes it.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}
