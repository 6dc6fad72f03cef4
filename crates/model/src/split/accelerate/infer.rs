//! Assigns modules to devices, one after another (`infer_auto_device_map`).

use super::module::{Leaf, Tree};
use super::{Device, Memory, Module};
use gpu_core::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// The device of each module by name; the whole model has the empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMap {
    /// The devices by module name, in order of name.
    pub devices: BTreeMap<String, Device>,
}

impl DeviceMap {
    /// Returns the map in accelerate's form: a JSON object from names to indices, `"cpu"` or
    /// `"disk"`.
    pub fn json(&self) -> serde_json::Value {
        let value = |device: &Device| match device {
            Device::Gpu(index) => serde_json::Value::from(*index),
            other => serde_json::Value::from(other.to_string()),
        };
        self.devices.iter().map(|(name, device)| (name.clone(), value(device))).collect()
    }

    /// Returns the device of a module or parameter: its own, or that of the nearest enclosing
    /// module.
    pub fn device(&self, name: &str) -> Option<Device> {
        let mut name = name;
        loop {
            if let Some(device) = self.devices.get(name) {
                return Some(*device);
            }
            name = match name.rsplit_once('.') {
                Some((around, _)) => around,
                None if name.is_empty() => return None,
                None => "",
            };
        }
    }

    /// Replaces modules whose parts are all on one device by a single entry.
    pub(super) fn merged(self, tree: &Tree) -> DeviceMap {
        let mut devices = self.devices;
        // Children come after their parents.
        for node in tree.nodes.iter().rev() {
            let within = |name: &str| match node.name.as_str() {
                "" => true,
                around => name.strip_prefix(around).is_some_and(|rest| rest.starts_with('.')),
            };
            let start = match node.name.as_str() {
                "" => String::new(),
                around => format!("{around}."),
            };
            let parts = devices.range(start..).take_while(|(name, _)| within(name));
            let parts: Vec<(String, Device)> =
                parts.map(|(name, device)| (name.clone(), *device)).collect();
            let Some((_, first)) = parts.first() else { continue };
            if parts.len() > 1 && parts.iter().all(|(_, device)| device == first) {
                let first = *first;
                for (name, _) in &parts {
                    devices.remove(name);
                }
                devices.insert(node.name.clone(), first);
            }
        }
        DeviceMap { devices }
    }
}

/// Returns the device of each module, given the memory of the devices; modules that fit nowhere go
/// to the disk.
///
/// Modules of the classes in `no_split` stay whole. `tied` are groups of names for the same
/// parameter, starting with its owner; modules with tied parameters go to the same device.
pub fn infer(
    model: &Module,
    memory: &Memory,
    no_split: &[&str],
    tied: &[Vec<String>],
) -> DeviceMap {
    let tree = Tree::new(model, tied);
    let mut devices: Vec<(Device, Option<Bytes>)> = memory
        .iter()
        .filter(|(device, _)| **device != Device::Disk)
        .map(|(device, size)| (*device, Some(*size)))
        .collect();
    devices.push((Device::Disk, None));
    let mut filling = Filling {
        tree: &tree,
        no_split,
        tied,
        devices,
        current: 0,
        used: Bytes(0),
        left: VecDeque::new(),
        largest: (Bytes(0), Vec::new()),
        map: DeviceMap::default(),
    };
    if let Some(root) = tree.nodes.first() {
        filling.left = filling.parts(0).into();
        filling.left.extend(root.buffers.iter().cloned().map(Item::Leaf));
    }
    filling.measure_largest();
    while let Some(item) = filling.left.pop_front() {
        filling.place(item);
    }
    filling.map.merged(&tree)
}

#[derive(Clone)]
enum Item {
    Module(usize),
    Leaf(Leaf),
}

struct Filling<'a> {
    tree: &'a Tree,
    no_split: &'a [&'a str],
    tied: &'a [Vec<String>],
    devices: Vec<(Device, Option<Bytes>)>,
    current: usize,
    used: Bytes,
    left: VecDeque<Item>,
    /// The size of the largest layer not yet placed, and the names of the layers of that size.
    largest: (Bytes, Vec<String>),
    map: DeviceMap,
}

impl Filling<'_> {
    fn name<'b>(&'b self, item: &'b Item) -> &'b str {
        match item {
            Item::Module(node) => &self.tree.nodes[*node].name,
            Item::Leaf(leaf) => &leaf.name,
        }
    }

    fn size(&self, item: &Item) -> Bytes {
        match item {
            Item::Module(node) => self.tree.nodes[*node].size,
            Item::Leaf(leaf) => leaf.size,
        }
    }

    /// Returns the own parameters and children of a module.
    fn parts(&self, node: usize) -> Vec<Item> {
        let node = &self.tree.nodes[node];
        let parameters = node.parameters.iter().cloned().map(Item::Leaf);
        parameters.chain(node.children.iter().copied().map(Item::Module)).collect()
    }

    /// Returns the parts of a module, if it may be divided.
    fn divided(&self, item: &Item) -> Option<Vec<Item>> {
        match item {
            Item::Module(node) if !self.tree.is_whole(*node, self.no_split) => {
                Some(self.parts(*node))
            }
            _ => None,
        }
    }

    fn measure_largest(&mut self) {
        let mut largest = (Bytes(0), Vec::new());
        let modules = self.left.iter().rev().filter_map(|item| match item {
            Item::Module(node) => Some(*node),
            Item::Leaf(_) => None,
        });
        let mut stack: Vec<usize> = modules.collect();
        while let Some(index) = stack.pop() {
            let node = &self.tree.nodes[index];
            if !self.tree.is_whole(index, self.no_split) {
                stack.extend(node.children.iter().rev());
            } else if node.size > largest.0 {
                largest = (node.size, vec![node.name.clone()]);
            } else if node.size == largest.0 {
                largest.1.push(node.name.clone());
            }
        }
        self.largest = largest;
    }

    /// Returns the names of parameters outside a module that are tied to one inside.
    fn ties(&self, name: &str) -> Vec<&str> {
        let inside = |parameter: &String| is_within(parameter, name);
        let crossing = self.tied.iter().filter(|group| group.iter().any(inside));
        crossing.flatten().filter(|other| !inside(other)).map(String::as_str).collect()
    }

    /// Returns the positions in the list of the items that hold these parameters, and how many
    /// bytes they add.
    fn tied_items(&self, ties: &[&str]) -> (Vec<usize>, Bytes) {
        let mut indices = Vec::new();
        for parameter in ties {
            let holds = |item: &Item| is_within(parameter, self.name(item));
            let index = self.left.iter().position(holds);
            indices.extend(index.filter(|index| !indices.contains(index)));
        }
        let sizes = indices.iter().filter_map(|index| self.left.get(*index));
        let added: Bytes = sizes.map(|item| self.size(item)).sum();
        (indices, added)
    }

    fn place(&mut self, item: Item) {
        let name = self.name(&item).to_owned();
        let mut names = std::mem::take(&mut self.largest.1);
        names.retain(|other| !is_within(other, &name));
        self.largest.1 = names;
        if self.largest.1.is_empty() {
            self.measure_largest();
        }
        let Some((device, size)) = self.devices.get(self.current).copied() else { return };
        let first_gpu = matches!(device, Device::Gpu(_)) && self.current == 0;
        let reserves = first_gpu || device == Device::Cpu;
        let reserved = if reserves { self.largest.0 } else { Bytes(0) };
        // The reserve may exceed the device.
        let limit = size.map(|size| size.0.checked_sub(reserved.0));
        let fits = |used: Bytes| limit.is_none_or(|limit| limit.is_some_and(|most| used.0 <= most));
        let own = self.size(&item);
        let ties = self.ties(&name);
        let (mut indices, added) = self.tied_items(&ties);
        if fits(self.used + own + added) {
            self.used += own + added;
            self.map.devices.insert(name, device);
            indices.sort_unstable();
            for index in indices.into_iter().rev() {
                if let Some(tied) = self.left.remove(index) {
                    self.map.devices.insert(self.name(&tied).to_owned(), device);
                }
            }
            return;
        }
        if !ties.is_empty() && fits(self.used + own) {
            for index in indices {
                let parts = self.left.get(index).and_then(|tied| self.divided(tied));
                if let Some(parts) = parts {
                    self.replace(index, parts);
                    self.left.push_front(item);
                    self.measure_largest();
                    return;
                }
            }
        }
        let is_less = limit.is_none_or(|limit| limit.is_some_and(|m| (self.used + own).0 < m));
        if !is_less && let Some(parts) = self.divided(&item) {
            for part in parts.into_iter().rev() {
                self.left.push_front(part);
            }
            self.measure_largest();
            return;
        }
        self.current += 1;
        self.used = Bytes(0);
        self.left.push_front(item);
    }

    fn replace(&mut self, index: usize, parts: Vec<Item>) {
        let mut after = self.left.split_off(index);
        after.pop_front();
        self.left.extend(parts);
        self.left.append(&mut after);
    }
}

/// Returns whether a name is that of a module or of a part of it.
fn is_within(name: &str, module: &str) -> bool {
    name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
