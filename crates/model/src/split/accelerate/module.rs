//! The module tree of a model, as in PyTorch.

use crate::tensor::Tensor;
use gpu_core::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The class of a block in a tree built from names.
pub const BLOCK: &str = "Block";

/// The maximum nesting depth built from names; deeper parts stay in one name.
const DEPTH: usize = 32;

/// A module with its own parameters, children and buffers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// The class, such as `LlamaDecoderLayer`.
    pub class: String,
    /// Its own parameters: name and bytes.
    pub parameters: Vec<(String, Bytes)>,
    /// Its children: name and module.
    pub children: Vec<(String, Module)>,
    /// Its own buffers: name and bytes.
    pub buffers: Vec<(String, Bytes)>,
}

impl Module {
    /// Returns the tree implied by tensor names, in which every tensor is a parameter. Names do not
    /// state classes; an element of a list of blocks becomes a [`BLOCK`], which should not be
    /// split.
    pub fn of(tensors: &[Tensor]) -> Module {
        let mut root = Module::default();
        let mut children = BTreeMap::new();
        for tensor in tensors {
            let mut path: Vec<&str> = tensor.name.splitn(DEPTH, '.').collect();
            let name = path.pop().unwrap_or_default();
            root.insert(&path, name, tensor.bytes, &mut children, String::new());
        }
        root
    }

    /// Adds a parameter; `indices` are those of children by path.
    fn insert(
        &mut self,
        path: &[&str],
        name: &str,
        bytes: Bytes,
        indices: &mut BTreeMap<String, usize>,
        before: String,
    ) {
        let Some((child, rest)) = path.split_first() else {
            self.parameters.push((name.to_owned(), bytes));
            return;
        };
        let before = format!("{before}{child}.");
        let index = *indices.entry(before.clone()).or_insert_with(|| {
            let number = child.bytes().all(|byte| byte.is_ascii_digit()) && !child.is_empty();
            let class = if number { BLOCK } else { "Module" }.to_owned();
            self.children.push(((*child).to_owned(), Module { class, ..Module::default() }));
            self.children.len() - 1
        });
        if let Some((_, module)) = self.children.get_mut(index) {
            module.insert(rest, name, bytes, indices, before);
        }
    }
}

/// A module in a flat tree.
pub(super) struct Node {
    /// The full name.
    pub(super) name: String,
    pub(super) class: String,
    pub(super) parameters: Vec<Leaf>,
    pub(super) children: Vec<usize>,
    pub(super) buffers: Vec<Leaf>,
    /// The bytes of all descendants, with tied parameters counted once.
    pub(super) size: Bytes,
}

/// A parameter or a buffer.
#[derive(Clone)]
pub(super) struct Leaf {
    /// The full name.
    pub(super) name: String,
    /// Its bytes; none if they are counted under another name of a tied parameter.
    pub(super) size: Bytes,
}

/// The flattened tree of a model, starting with the root.
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
}

impl Tree {
    /// Returns the tree of a model with groups of tied parameters. Their bytes are counted for the
    /// first of a group.
    pub(super) fn new(root: &Module, tied: &[Vec<String>]) -> Tree {
        let copies: BTreeSet<&str> =
            tied.iter().flat_map(|group| group.iter().skip(1)).map(String::as_str).collect();
        let mut tree = Tree { nodes: Vec::new() };
        tree.add(root, String::new(), &copies);
        tree
    }

    fn add(&mut self, module: &Module, name: String, copies: &BTreeSet<&str>) -> usize {
        let full =
            |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        let leaf = |(part, size): &(String, Bytes)| {
            let name = full(part);
            let size = if copies.contains(name.as_str()) { Bytes(0) } else { *size };
            Leaf { name, size }
        };
        let parameters: Vec<Leaf> = module.parameters.iter().map(leaf).collect();
        let buffers: Vec<Leaf> = module.buffers.iter().map(leaf).collect();
        let own: Bytes = parameters.iter().chain(&buffers).map(|leaf| leaf.size).sum();
        let index = self.nodes.len();
        let class = module.class.clone();
        let children: Vec<(String, &Module)> =
            module.children.iter().map(|(part, child)| (full(part), child)).collect();
        self.nodes.push(Node { name, class, parameters, children: Vec::new(), buffers, size: own });
        for (name, child) in children {
            let child = self.add(child, name, copies);
            let size = self.nodes[child].size;
            self.nodes[index].children.push(child);
            self.nodes[index].size += size;
        }
        index
    }

    /// Returns whether a module is never divided.
    pub(super) fn is_whole(&self, node: usize, no_split: &[&str]) -> bool {
        let node = &self.nodes[node];
        node.children.is_empty() || no_split.contains(&node.class.as_str())
    }
}
