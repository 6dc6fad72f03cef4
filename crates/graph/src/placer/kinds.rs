//! The types of devices that have a kernel for an operation, in the order of preference.

use super::name::{Name, Names, Symbol};
use crate::device::DeviceSet;
use crate::node::Node;
use crate::registry::{Kernel, Registry};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A list of types of devices, identified by its number in [`Kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KindList(u32);

/// A type of device and the priority of its kernel.
type Prioritized = (Symbol, i32);

/// The lists of types of devices that occur, each stored once.
#[derive(Debug)]
pub(super) struct Kinds<'a> {
    registry: &'a Registry,
    /// The types of the devices, in the order of preference.
    all: Vec<(Symbol, &'a str)>,
    ranks: HashMap<Symbol, (Reverse<i32>, String)>,
    lists: Vec<Vec<Prioritized>>,
    numbers: HashMap<Vec<Prioritized>, KindList>,
    /// The lists of operations whose kernels have no constraint.
    plain: HashMap<String, KindList>,
    merged: HashMap<(KindList, KindList), Option<KindList>>,
}

/// Types of devices that the placer uses only if a request names them.
fn is_xla(kind: &str) -> bool {
    matches!(kind, "XLA_CPU_JIT" | "XLA_GPU_JIT" | "XLA_TPU_JIT" | "XLA_CPU" | "XLA_GPU" | "TPU")
}

/// Types of devices that represent compilation and have no kernels by default.
fn is_symbolic(kind: &str) -> bool {
    matches!(kind, "XLA_CPU_JIT" | "XLA_GPU_JIT" | "XLA_TPU_JIT")
}

impl<'a> Kinds<'a> {
    pub(super) fn new(registry: &'a Registry, devices: &'a DeviceSet, names: &mut Names) -> Self {
        let kinds = devices.kinds();
        let all: Vec<_> = kinds.into_iter().map(|kind| (names.symbol(kind), kind)).collect();
        let rank = |kind: &str| (Reverse(devices.priority(kind)), kind.to_owned());
        Kinds {
            registry,
            ranks: all.iter().map(|(symbol, kind)| (*symbol, rank(kind))).collect(),
            all,
            lists: Vec::new(),
            numbers: HashMap::new(),
            plain: HashMap::new(),
            merged: HashMap::new(),
        }
    }

    /// Returns the types and the priorities of their kernels.
    pub(super) fn get(&self, list: KindList) -> &[Prioritized] {
        &self.lists[list.0 as usize]
    }

    /// Returns the types of devices that support a node, which requests `requested`. `local` is the
    /// process that places; support by other processes is unknown.
    pub(super) fn supported(&mut self, node: &Node, requested: &Name, local: &Name) -> KindList {
        if let Some(list) = self.plain.get(&*node.op) {
            return *list;
        }
        let registry = self.registry;
        let kernels = registry.kernels(&node.op);
        if kernels.is_empty() && registry.op(&node.op).is_none() {
            // A function or an unknown operation excludes no device.
            let all = self.all.iter().map(|(kind, _)| (*kind, 0)).collect();
            return self.remember(&node.op, all);
        }
        let mut list: Vec<Prioritized> = Vec::new();
        for (symbol, kind) in &self.all {
            if let Some(kernel) = kernel(kernels, kind, node) {
                list.push((*symbol, kernel.priority));
            }
        }
        list.sort_by_key(|(_, priority)| Reverse(*priority));
        let of_kinds = |kernel: &Kernel| {
            kernel.device_type == "DEFAULT"
                || self.all.iter().any(|(_, k)| *k == kernel.device_type)
        };
        if list.is_empty() && !kernels.iter().any(of_kinds) && local.is_other_process(requested) {
            let all = self.all.iter().map(|(kind, _)| (*kind, 0));
            let list = requested.kind.map_or_else(|| all.collect(), |kind| vec![(kind, 0)]);
            return self.number(list);
        }
        if !list.is_empty() && kernels.iter().all(|kernel| kernel.constraints.is_empty()) {
            return self.remember(&node.op, list);
        }
        self.number(list)
    }

    fn remember(&mut self, op: &str, list: Vec<Prioritized>) -> KindList {
        let list = self.number(list);
        self.plain.insert(op.to_owned(), list);
        list
    }

    fn number(&mut self, list: Vec<Prioritized>) -> KindList {
        if let Some(number) = self.numbers.get(&list) {
            return *number;
        }
        let number = KindList(self.lists.len() as u32);
        self.lists.push(list.clone());
        self.numbers.insert(list, number);
        number
    }

    /// Returns the types that are in both lists; `None` if there is none.
    ///
    /// If only one list has priorities, its order is kept. If both have priorities but disagree on
    /// the order, neither counts.
    pub(super) fn merge(&mut self, a: KindList, b: KindList) -> Option<KindList> {
        if let Some(merged) = self.merged.get(&(a, b)) {
            return *merged;
        }
        let common = |of: KindList, with: KindList| {
            let other = self.get(with);
            let kept = self.get(of).iter().filter(|(kind, _)| other.iter().any(|(k, _)| k == kind));
            self.sorted(kept.copied().collect())
        };
        let (of_a, of_b) = (common(a, b), common(b, a));
        let has_priorities = |list: &[Prioritized]| list.iter().any(|(_, priority)| *priority != 0);
        let is_same_order = of_a.iter().zip(&of_b).all(|(a, b)| a.0 == b.0);
        let list = match (has_priorities(&of_a), has_priorities(&of_b)) {
            (false, true) => of_b,
            (true, true) if !is_same_order => {
                self.sorted(of_a.into_iter().map(|(kind, _)| (kind, 0)).collect())
            }
            _ => of_a,
        };
        let merged = if list.is_empty() { None } else { Some(self.number(list)) };
        self.merged.insert((a, b), merged);
        merged
    }

    /// Sorts by the priority of the kernel, then of the type, then by name.
    fn sorted(&self, mut list: Vec<Prioritized>) -> Vec<Prioritized> {
        list.sort_by_key(|(kind, priority)| {
            let rank = self.ranks.get(kind);
            (Reverse(*priority), rank.is_none(), rank)
        });
        list
    }

    /// Returns the list reduced to one type; `None` if it does not contain that type.
    pub(super) fn only(
        &mut self,
        list: KindList,
        kind: &str,
        names: &mut Names,
    ) -> Option<KindList> {
        let kind = names.symbol(kind);
        let kept = self.get(list).iter().find(|(of, _)| *of == kind).copied()?;
        Some(self.number(vec![kept]))
    }

    /// Returns the list without the types that require a request, unless only those are left.
    pub(super) fn without_xla(&mut self, list: KindList, names: &Names) -> KindList {
        let kept = self.get(list).iter().filter(|(kind, _)| !is_xla(names.text(*kind)));
        let kept: Vec<Prioritized> = kept.copied().collect();
        if kept.is_empty() || kept.len() == self.get(list).len() {
            return list;
        }
        self.number(kept)
    }
}

/// Returns whether the placer uses a type only if a request names it.
pub(super) fn is_named_only(kind: Symbol, names: &Names) -> bool {
    is_xla(names.text(kind))
}

/// Returns the kernel that runs a node on a type of device: among those that accept the attributes,
/// the one with the highest priority, or else the one for all types.
fn kernel<'k>(kernels: &'k [Kernel], kind: &str, node: &Node) -> Option<&'k Kernel> {
    let on = |kind: &str| {
        let of_kind = kernels.iter().filter(|kernel| kernel.device_type == kind);
        // The first of several equal ones.
        of_kind.rev().filter(|kernel| kernel.accepts(&node.attrs)).max_by_key(|k| k.priority)
    };
    on(kind).or_else(|| if is_symbolic(kind) { None } else { on("DEFAULT") })
}
