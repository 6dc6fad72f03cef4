//! Operations and the kernels that implement them on types of devices.

mod table;

use crate::def::{Attr, GraphDef, OpDef};
use crate::dtype::{Dtype, ValueType};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use table::Table;

/// A kernel: the implementation of an operation on a type of device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// The operation.
    pub op: String,
    /// The type of device, such as `CPU`, `GPU` or `DEFAULT` (all types without their own kernel).
    pub device_type: String,
    /// The priority; higher is preferred.
    pub priority: i32,
    /// The types that an attribute may have; attributes without an entry may have any.
    pub constraints: BTreeMap<String, Vec<Dtype>>,
    /// The names of inputs and outputs in host memory.
    pub host_memory: Vec<String>,
    /// Its time, in nanoseconds, if known.
    pub nanos: Option<u64>,
}

/// The known operations and kernels.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    ops: HashMap<String, OpDef>,
    kernels: HashMap<String, Vec<Kernel>>,
    /// A table searched after the added operations and kernels.
    table: Option<&'static Table>,
    /// The kernels are assumed rather than listed.
    assumed: bool,
}

impl Registry {
    /// Returns the operations and kernels of TensorFlow 2.21 for CPUs and NVIDIA GPUs.
    ///
    /// The table comes with the crate; `data/export.py` writes it. It has no kernels with a label,
    /// and only the attributes with types and numbers of arguments. An operation is parsed at its
    /// first use.
    pub fn tensorflow() -> Registry {
        Registry { table: Some(table::tensorflow()), ..Registry::default() }
    }

    /// Returns assumed kernels for all operations of a graph on each of these types of devices, for
    /// graphs without suitable kernels in any framework, such as ONNX models.
    pub fn supporting(graph: &GraphDef, device_types: &[&str]) -> Registry {
        let mut registry = Registry::default();
        let in_functions = graph.functions.iter().flat_map(|function| &function.nodes);
        let ops = graph.nodes.iter().chain(in_functions).map(|node| node.op.as_str());
        for op in ops.collect::<BTreeSet<_>>() {
            for device_type in device_types {
                registry.add_kernel(Kernel {
                    op: op.to_owned(),
                    device_type: (*device_type).to_owned(),
                    ..Kernel::default()
                });
            }
        }
        registry.assumed = true;
        registry
    }

    /// Returns whether the kernels are assumed ([`Registry::supporting`]) rather than listed.
    pub fn is_assumed(&self) -> bool {
        self.assumed
    }

    /// Adds or replaces an operation.
    pub fn add_op(&mut self, op: OpDef) {
        self.ops.insert(op.name.clone(), op);
    }

    /// Adds a kernel.
    pub fn add_kernel(&mut self, kernel: Kernel) {
        let known = || self.table.map(|table| table.kernels(&kernel.op).to_vec());
        let kernels = self.kernels.entry(kernel.op.clone());
        kernels.or_insert_with(|| known().unwrap_or_default()).push(kernel);
    }

    /// Adds the operations and kernels of another registry. Its operations replace those of the
    /// same name; its kernels come after the existing ones.
    pub fn extend(&mut self, other: Registry) {
        other.ops.into_values().for_each(|op| self.add_op(op));
        other.kernels.into_values().flatten().for_each(|kernel| self.add_kernel(kernel));
        self.table = self.table.or(other.table);
    }

    /// Returns the definition of an operation.
    pub fn op(&self, name: &str) -> Option<&OpDef> {
        self.ops.get(name).or_else(|| self.table?.op(name))
    }

    /// Returns the kernels of an operation, in the order in which they were added.
    pub fn kernels(&self, op: &str) -> &[Kernel] {
        let added = self.kernels.get(op).map(Vec::as_slice);
        added.or_else(|| Some(self.table?.kernels(op))).unwrap_or_default()
    }
}

impl Kernel {
    /// Returns whether the attributes of a node satisfy the constraints.
    pub fn accepts(&self, attrs: &BTreeMap<String, Attr>) -> bool {
        self.constraints.iter().all(|(name, allowed)| {
            let allows = |of: ValueType| allowed.contains(&of.dtype);
            let items = attrs.get(name).map(Attr::items).unwrap_or_default();
            !items.is_empty() && items.iter().all(|item| item.as_type().is_some_and(allows))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::def::{FunctionDef, NodeDef};

    #[test]
    fn operations_of_graph_and_functions_have_kernels_on_each_type() {
        let node = |op: &str| NodeDef { op: op.to_owned(), ..NodeDef::default() };
        let function = FunctionDef { nodes: vec![node("C")], ..FunctionDef::default() };
        let nodes = vec![node("A"), node("B"), node("A")];
        let graph = GraphDef { nodes, functions: vec![function] };
        let registry = Registry::supporting(&graph, &["CPU", "GPU"]);
        for op in ["A", "B", "C"] {
            let kernels = registry.kernels(op).iter().map(|kernel| kernel.device_type.as_str());
            assert_eq!(kernels.collect::<Vec<_>>(), ["CPU", "GPU"], "{op}");
        }
        assert_eq!(registry.kernels("D"), []);
    }

    #[test]
    fn registry_is_extended_by_another() {
        let kernel = |device_type: &str| Kernel {
            op: "MatMul".to_owned(),
            device_type: device_type.to_owned(),
            ..Kernel::default()
        };
        let mut more = Registry::tensorflow();
        let known = more.kernels("MatMul").len();
        more.add_op(OpDef { name: "Mine".to_owned(), ..OpDef::default() });
        more.add_kernel(kernel("NPU"));
        let mut registry = Registry::default();
        registry.add_kernel(kernel("TPU"));
        registry.extend(more);
        let kernels = registry.kernels("MatMul");
        assert_eq!(kernels.len(), known + 2);
        assert_eq!((&*kernels[0].device_type, &*kernels[known + 1].device_type), ("TPU", "NPU"));
        assert!(registry.op("Mine").is_some() && registry.op("MatMul").is_some());
    }
}
