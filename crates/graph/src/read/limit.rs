//! Limits on the work that a file may cause.

use super::error::Reason;
use crate::def::{ArgDef, Attr, NodeDef, OpDef};
use crate::registry::Kernel;
use std::mem::size_of;

/// Limits on the work that a file may cause. A file that exceeds one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of a file in bytes.
    pub bytes: u64,
    /// The number of nodes, including those of functions.
    pub nodes: u64,
    /// The maximum nesting depth of messages, lists and functions.
    pub depth: usize,
    /// The memory for the result, in bytes, counted generously; at most 128 times the file and
    /// 1 MiB.
    pub memory: u64,
    /// Whether the elements of tensors are kept.
    pub contents: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: 1 << 30, nodes: 4_000_000, depth: 100, memory: 4 << 30, contents: false }
    }
}

/// A growing vector holds its old and its new allocation for a moment.
const GROWTH: usize = 3;
/// The overhead of an allocation.
const ALLOCATION: usize = 32;
/// A leaf of a map of attributes, which has room for 11.
const LEAF: usize = 11 * (size_of::<String>() + size_of::<Attr>()) + 2 * ALLOCATION;

/// The remaining limits while a file is read.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    limits: Limits,
    nodes: u64,
    memory: u64,
}

impl Budget {
    /// Begins to read a file.
    ///
    /// # Errors
    /// If the file is too large.
    pub(super) fn new(file: &[u8], limits: &Limits) -> Result<Budget, Reason> {
        let size = file.len() as u64;
        if size > limits.bytes {
            return Err(Reason::Limit { what: "bytes", limit: limits.bytes });
        }
        let memory = limits.memory.min(size.saturating_mul(128).saturating_add(1 << 20));
        Ok(Budget { limits: *limits, nodes: limits.nodes, memory })
    }

    pub(super) fn keeps_contents(&self) -> bool {
        self.limits.contents
    }

    pub(super) fn depth(&self) -> usize {
        self.limits.depth
    }

    pub(super) fn node(&mut self) -> Result<(), Reason> {
        let over = Reason::Limit { what: "nodes", limit: self.limits.nodes };
        self.nodes = self.nodes.checked_sub(1).ok_or(over)?;
        self.charge(GROWTH * size_of::<NodeDef>())
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), Reason> {
        self.charge(text.len() + ALLOCATION)
    }

    /// Charges for a text that becomes an item of a list.
    pub(super) fn item(&mut self, text: &str) -> Result<(), Reason> {
        self.charge(GROWTH * size_of::<String>())?;
        self.text(text)
    }

    /// Charges for an attribute of a map that has `before` others.
    pub(super) fn attribute(&mut self, name: &str, before: usize) -> Result<(), Reason> {
        self.charge(if before == 0 { LEAF } else { LEAF / 4 })?;
        self.text(name)
    }

    pub(super) fn values(&mut self, number: usize) -> Result<(), Reason> {
        self.charge(number.saturating_mul(GROWTH * size_of::<Attr>()))
    }

    /// Elements of a tensor with so many bytes.
    pub(super) fn elements(&mut self, bytes: usize) -> Result<(), Reason> {
        self.charge(bytes.saturating_mul(GROWTH))
    }

    pub(super) fn op(&mut self) -> Result<(), Reason> {
        self.charge(GROWTH * size_of::<OpDef>())
    }

    pub(super) fn argument(&mut self) -> Result<(), Reason> {
        self.charge(GROWTH * size_of::<ArgDef>())
    }

    pub(super) fn kernel(&mut self) -> Result<(), Reason> {
        self.charge(GROWTH * size_of::<Kernel>())
    }

    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Reason> {
        let over = Reason::Limit { what: "bytes of memory", limit: self.limits.memory };
        self.memory = self.memory.checked_sub(bytes as u64).ok_or(over)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_read_data_counts_against_the_memory_limit() {
        let limits = Limits::default();
        let all = Budget::new(b"", &limits).unwrap();
        assert_eq!(all.memory, 1 << 20);
        assert_eq!(Budget::new(&[0; 100], &limits).unwrap().memory, (1 << 20) + 12_800);
        let charged = |charge: &dyn Fn(&mut Budget) -> Result<(), Reason>| {
            let mut budget = all.clone();
            charge(&mut budget).unwrap();
            (all.memory - budget.memory) as usize
        };
        assert!(charged(&|budget| budget.node()) > size_of::<NodeDef>());
        assert!(charged(&|budget| budget.op()) > size_of::<OpDef>());
        assert!(charged(&|budget| budget.argument()) > size_of::<ArgDef>());
        assert!(charged(&|budget| budget.kernel()) > size_of::<Kernel>());
        assert!(charged(&|budget| budget.values(10)) > 10 * size_of::<Attr>());
        // Every text is an allocation of its own.
        assert_eq!(charged(&|budget| budget.text("text")), 4 + ALLOCATION);
        assert!(charged(&|budget| budget.item("text")) > 4 + ALLOCATION + size_of::<String>());
        let (first, second) =
            (charged(&|b| b.attribute("T", 0)), charged(&|b| b.attribute("T", 1)));
        assert!(first > 11 * (size_of::<String>() + size_of::<Attr>()) && first > second);
        assert_eq!(charged(&|budget| budget.charge(7)), 7);
        assert!(all.clone().charge(1 << 21).is_err());
    }
}
