//! The inputs of a placement apart from the graph: devices, kernels and functions, with cached
//! results about them.

use super::error::{PlaceError, PlaceErrorKind};
use super::function;
use super::kinds::{KindList, Kinds};
use super::limits::Limits;
use super::name::{Incompatible, Name, Names, Symbol};
use super::{Options, message};
use crate::build::{self, budget::Budget};
use crate::def::{Attr, FunctionDef};
use crate::device::DeviceSet;
use crate::node::Node;
use crate::registry::Registry;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The parts of a placement that the graph and the bodies of its functions share.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) registry: &'a Registry,
    pub(super) devices: &'a DeviceSet,
    pub(super) functions: &'a BTreeMap<String, FunctionDef>,
    pub(super) soft: bool,
    pub(super) isolate: bool,
    pub(super) names: Names,
    pub(super) kinds: Kinds<'a>,
    pub(super) device_names: Vec<Name>,
    device_kinds: Vec<Option<Symbol>>,
    /// The rank of each device by the priority of its type, then by name.
    ranks: Vec<usize>,
    default_device: Option<u32>,
    /// The process that places.
    pub(super) local: Name,
    /// The devices that match a name and support a list of types, best first.
    found: HashMap<(Name, KindList), Rc<[u32]>>,
    /// The requirements of the bodies of functions, by name and attributes.
    pub(super) limits: HashMap<(String, String), Rc<Limits>>,
    /// The remaining number of values in the bodies of functions.
    pub(super) budget: Budget,
    /// The remaining number of identities to insert around calls.
    pub(super) identities: Budget,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        registry: &'a Registry,
        devices: &'a DeviceSet,
        functions: &'a BTreeMap<String, FunctionDef>,
        options: &Options,
    ) -> Context<'a> {
        let mut names = Names::default();
        let kinds = Kinds::new(registry, devices, &mut names);
        let of_device = |device: &crate::Device| (names.of(&device.name), device.is_local);
        let device_names: Vec<(Name, bool)> = devices.devices().iter().map(of_device).collect();
        let mut by_rank = Vec::from_iter(0..device_names.len());
        by_rank.sort_by_key(|at| {
            (Reverse(devices.priority(devices.devices()[*at].kind())), &devices.names()[*at])
        });
        let mut ranks = vec![0; by_rank.len()];
        for (rank, at) in by_rank.into_iter().enumerate() {
            ranks[at] = rank;
        }
        let default = options.default_device.as_deref();
        let default_name = default.and_then(|name| names.parse(name));
        // Without a default device, the process is known if some devices belong to others.
        let is_split = device_names.iter().any(|(_, is_local)| !is_local);
        let of_local = device_names.iter().find(|(_, is_local)| is_split && *is_local);
        let process = default_name.or(of_local.map(|(name, _)| *name)).unwrap_or_default();
        Context {
            registry,
            devices,
            functions,
            soft: options.soft,
            isolate: options.isolate_calls,
            names,
            kinds,
            device_kinds: device_names.iter().map(|(name, _)| name.kind).collect(),
            device_names: device_names.into_iter().map(|(name, _)| name).collect(),
            ranks,
            default_device: default.and_then(|name| devices.position(name)).map(|at| at as u32),
            local: Name { kind: None, index: None, ..process },
            found: HashMap::new(),
            limits: HashMap::new(),
            budget: Budget::new(function::MOST_VALUES),
            identities: Budget::new(build::MOST_VALUES),
        }
    }

    /// Returns the devices that match a name and are of a type in the list: the default device
    /// first, then by the priority of the kernel, of the type, and by name.
    pub(super) fn candidates(&mut self, name: &Name, list: KindList) -> Rc<[u32]> {
        if let Some(found) = self.found.get(&(*name, list)) {
            return found.clone();
        }
        let mut found = Vec::new();
        for (at, device) in self.device_names.iter().enumerate() {
            let kind = self.device_kinds[at];
            let supported = self.kinds.get(list).iter().find(|(of, _)| Some(*of) == kind);
            if let (Some((_, priority)), true) = (supported, name.matches(device)) {
                let is_default = self.default_device == Some(at as u32);
                found.push((!is_default, Reverse(*priority), self.ranks[at], at as u32));
            }
        }
        found.sort_unstable();
        let found: Rc<[u32]> = found.into_iter().map(|(.., at)| at).collect();
        self.found.insert((*name, list), found.clone());
        found
    }

    /// Returns whether any device matches a name.
    pub(super) fn is_there(&self, name: &Name) -> bool {
        self.device_names.iter().any(|device| name.matches(device))
    }

    /// Returns the index of the device with a full name, in any form.
    pub(super) fn position(&mut self, name: &str) -> Option<u32> {
        let exact = self.devices.position(name);
        let found = exact.or_else(|| {
            let canonical = self.names.parse(name)?;
            self.devices.position(&self.names.show(&canonical))
        });
        found.map(|at| at as u32)
    }

    /// Lists the names of the devices, in their order.
    pub(super) fn all_devices(&self) -> String {
        message::join(self.devices.names(), ", ")
    }

    /// Writes why two names cannot be merged.
    pub(super) fn incompatible(&self, names: &Incompatible) -> String {
        format!(
            "Cannot merge devices with incompatible {}: '{}' and '{}'",
            names.part,
            self.names.show(&names.target),
            self.names.show(&names.other)
        )
    }

    /// Returns the function that a node calls and its attributes.
    pub(super) fn called<'n>(
        &self,
        node: &'n Node,
    ) -> Result<(&'a FunctionDef, &'n BTreeMap<String, Attr>), PlaceError> {
        let fail = |message| PlaceError::new(PlaceErrorKind::Function, message).at(&node.name);
        let Some(Attr::Function(name, attrs)) = node.attrs.get("f") else {
            return Err(fail("No attr named 'f' in NodeDef:".to_owned()));
        };
        let found = self.functions.get(name);
        let missing = || fail(format!("Failed to find function \"{name}\" in function library"));
        Ok((found.ok_or_else(missing)?, attrs))
    }

    /// Returns for each input whether it takes a reference rather than only the referenced value.
    pub(super) fn takes_references(&self, node: &Node) -> Vec<bool> {
        let Some(of) = build::definition(&node.op, self.functions, self.registry) else {
            return vec![true; node.inputs.len()];
        };
        let mut budget = Budget::new(build::MOST_VALUES);
        let types = build::signature::types(&of.inputs, &node.attrs, &node.name, &mut budget);
        types.unwrap_or_default().iter().map(|of| of.reference).collect()
    }

    /// Returns for each node whether it calls a function that returns a resource.
    pub(super) fn inspected(&self, nodes: &[Node]) -> Result<Vec<bool>, PlaceError> {
        let is_inspected = |node: &Node| {
            if !matches!(&*node.op, "PartitionedCall" | "StatefulPartitionedCall") {
                return Ok(false);
            }
            let (function, attrs) = self.called(node)?;
            function::returns_resource(&function.signature, attrs).map_err(|error| {
                PlaceError::new(PlaceErrorKind::Function, error.to_string()).at(&node.name)
            })
        };
        nodes.iter().map(is_inspected).collect()
    }
}
