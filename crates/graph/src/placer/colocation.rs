//! The groups of nodes that must be on one device, and their constraints: requests, kernels,
//! references, resources and `_class`.
//!
//! The rules and their order are those of TensorFlow's `colocation_graph.cc`.

use super::body::{Body, Edge};
use super::context::Context;
use super::error::{PlaceError, PlaceErrorKind};
use super::kinds;
use super::member::{Conflict, Groups, Member};
use super::message;
use super::name::Name;
use super::placement::Warning;
use crate::dtype::Dtype;
use crate::node::{Node, NodeId};
use std::collections::HashMap;

/// Operations that use a resource without being on its device: they pass it on.
const FREE_USERS: &[&str] = &[
    "DeleteMultiDeviceIterator",
    "ExperimentalGroupByReducerDataset",
    "ExperimentalGroupByWindowDataset",
    "ExperimentalMapAndBatchDataset",
    "ExperimentalParallelInterleaveDataset",
    "ExperimentalScanDataset",
    "ExperimentalTakeWhileDataset",
    "FilterDataset",
    "FlatMapDataset",
    "GeneratorDataset",
    "GroupByReducerDataset",
    "GroupByWindowDataset",
    "IdentityN",
    "InterleaveDataset",
    "LegacyParallelInterleaveDatasetV2",
    "MapAndBatchDataset",
    "MapDataset",
    "ParallelFilterDataset",
    "ParallelInterleaveDataset",
    "ParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV3",
    "ParallelInterleaveDatasetV4",
    "ParallelMapDataset",
    "ParallelMapDatasetV2",
    "PartitionedCall",
    "ReduceDataset",
    "RpcServerRegister",
    "ScanDataset",
    "StatefulPartitionedCall",
    "TakeWhileDataset",
];

/// Returns whether a node makes a reference or a resource: its request is not overridden.
fn makes_resource(node: &Node) -> bool {
    let [output] = node.outputs.as_slice() else { return false };
    node.inputs.is_empty() && output.binds()
}

/// Returns whether a node makes a data set.
fn makes_dataset(node: &Node) -> bool {
    let [output] = node.outputs.as_slice() else { return false };
    let unversioned = node.op.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_versioned = unversioned.len() < node.op.len() && unversioned.ends_with("DatasetV");
    output.dtype == Dtype::VARIANT
        && (&*node.op == "DatasetFromGraph" || node.op.ends_with("Dataset") || is_versioned)
}

/// The groups of a body, and their known properties.
#[derive(Debug)]
pub(super) struct Colocation<'g> {
    pub(super) body: Body<'g>,
    pub(super) groups: Groups,
    pub(super) warnings: Vec<Warning>,
    /// The number of each device in debugging information, assigned at the first use.
    pub(super) device_numbers: HashMap<u32, usize>,
}

impl<'g> Colocation<'g> {
    pub(super) fn add_members(&mut self, cx: &mut Context<'_>) -> Result<(), PlaceError> {
        let mut members = vec![None; self.body.nodes.len()];
        for at in &self.body.order {
            let node = self.body.node(*at);
            let member = member(node, *at, cx).map_err(|error| error.at(&node.name))?;
            members[*at as usize] = Some(member);
        }
        self.groups = Groups::new(members.into_iter().flatten().collect());
        Ok(())
    }

    /// Colocates the ends of references and resources. Returns the calls to inspect, in order, each
    /// with its outgoing edges.
    pub(super) fn follow_edges(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Vec<(u32, Vec<Edge>)>, PlaceError> {
        let mut calls: Vec<(u32, Vec<Edge>)> = Vec::new();
        let mut positions: HashMap<u32, usize> = HashMap::new();
        // For the last node with references, because the edges to a node are consecutive.
        let mut takes_references: (Option<u32>, Vec<bool>) = (None, Vec::new());
        for at in 0..self.body.edges.len() {
            let edge = self.body.edges[at];
            let inspected = [edge.from, edge.to].into_iter().find(|end| self.is_inspected(*end));
            if let Some(call) = inspected {
                let position = *positions.entry(call).or_insert(calls.len());
                if position == calls.len() {
                    calls.push((call, Vec::new()));
                }
                if edge.from == call {
                    calls[position].1.push(edge);
                }
                continue;
            }
            let (from, to) = (self.body.node(edge.from), self.body.node(edge.to));
            let value = from.outputs[edge.output as usize];
            let binds = match value.reference {
                true => {
                    if takes_references.0 != Some(edge.to) {
                        takes_references = (Some(edge.to), cx.takes_references(to));
                    }
                    takes_references.1.get(edge.input as usize) == Some(&true)
                }
                false => value.dtype == Dtype::RESOURCE,
            };
            let is_bound = binds && !FREE_USERS.contains(&&*to.op);
            let is_dataset =
                value.dtype == Dtype::VARIANT && makes_dataset(from) && makes_dataset(to);
            if is_bound || is_dataset {
                self.bind(edge, cx)?;
            }
        }
        // TensorFlow keeps them in a hash set of addresses. If they are few, it visits the last
        // first.
        calls.reverse();
        Ok(calls)
    }

    fn is_inspected(&self, node: u32) -> bool {
        self.body.inspected[node as usize]
    }

    /// Colocates the ends of a reference or resource. If their requests differ, that of the source
    /// takes precedence.
    pub(super) fn bind(&mut self, edge: Edge, cx: &mut Context<'_>) -> Result<(), PlaceError> {
        let (from_root, to_root) = (self.groups.root(edge.from), self.groups.root(edge.to));
        let (from, to) = (self.body.node(edge.from), self.body.node(edge.to));
        let source = *self.groups.get(from_root);
        let target = self.groups.get_mut(to_root);
        let pairs = [
            ("assigned", source.assigned, target.assigned),
            ("resource", source.resource, target.resource),
        ];
        for (what, of_source, of_target) in pairs {
            if !of_source.is_compatible(&of_target) {
                let name = |node: &Node| format!("name='{}' (op='{}')", node.name, node.op);
                let message = format!(
                    "Cannot place the graph because a reference or resource edge connects \
                     colocation groups with incompatible {what} devices: {} vs {}. The edge src \
                     node is {}, and the dst node is {}.",
                    cx.names.show(&of_source),
                    cx.names.show(&of_target),
                    name(from),
                    name(to)
                );
                return Err(PlaceError {
                    node: Some(to.name.to_string()),
                    ..PlaceError::new(PlaceErrorKind::IncompatibleEdge, message)
                });
            }
        }
        if !source.requested.is_compatible(&target.requested) {
            self.warnings.push(Warning::RequestOverridden {
                node: NodeId(edge.to),
                by: NodeId(edge.from),
                requested: cx.names.show(&target.requested),
                instead: cx.names.show(&source.requested),
            });
            let requested = source.requested.specified(&target.assigned);
            target.requested = requested.specified(&target.resource);
            target.requested_by = source.requested_by;
        }
        self.unite(edge.from, edge.to, cx).map_err(|error| {
            let message = format!(
                "Nodes were connected by a reference or resource connection (requiring them to be \
                 on the same device), but the two nodes were assigned two different devices: {}",
                error.message
            );
            PlaceError { message, ..error }.at(&self.body.node(edge.to).name)
        })
    }

    /// Unites the groups of two nodes.
    pub(super) fn unite(&mut self, a: u32, b: u32, cx: &mut Context<'_>) -> Result<(), PlaceError> {
        self.try_unite(a, b, cx).map_err(|conflict| self.conflict(a, b, conflict, cx))
    }

    /// Unites the groups of two nodes. Builds the message about a conflict only if it is needed,
    /// because that takes a walk over all nodes.
    fn try_unite(&mut self, a: u32, b: u32, cx: &mut Context<'_>) -> Result<(), Conflict> {
        let (a_root, b_root) = (self.groups.root(a), self.groups.root(b));
        let (of_a, of_b) = (self.groups.get(a_root).requested, self.groups.get(b_root).requested);
        self.groups.unite(a, b, cx.soft, &mut cx.kinds)?;
        if a_root != b_root && !of_a.is_compatible(&of_b) {
            self.warnings.push(Warning::RequestsDiffer {
                node: NodeId(a),
                other: NodeId(b),
                requested: cx.names.show(&of_a),
                against: cx.names.show(&of_b),
            });
        }
        Ok(())
    }

    fn conflict(&mut self, a: u32, b: u32, conflict: Conflict, cx: &mut Context<'_>) -> PlaceError {
        let text = match conflict {
            Conflict::Devices(names) => format!(": {}", cx.incompatible(&names)),
            Conflict::Kinds => {
                let roots = [self.groups.root(a), self.groups.root(b)];
                let [of_a, of_b] = roots.map(|root| self.debug(root, cx));
                format!("{NO_COMMON_KIND}.{of_a}{of_b}")
            }
        };
        let [a, b] = [a, b].map(|at| message::colocated(self.body.node(at)));
        let message = format!("Cannot colocate nodes {a} and {b}{text}");
        PlaceError::new(PlaceErrorKind::CannotColocate, message)
    }

    /// Colocates the nodes that name each other, or the same name, in `_class`. Names without a
    /// node are groups, too.
    pub(super) fn follow_classes(&mut self, cx: &mut Context<'_>) -> Result<(), PlaceError> {
        if self.body.nodes.iter().all(|node| node.colocation().next().is_none()) {
            return Ok(());
        }
        let mut joins = Vec::new();
        let mut first: HashMap<&str, u32> = HashMap::with_capacity(self.body.nodes.len());
        for at in &self.body.order {
            let node = self.body.node(*at);
            for group in node.colocation().chain([&*node.name]) {
                let with = *first.entry(group).or_insert(*at);
                if with != *at {
                    joins.push((*at, with, (group != &*node.name).then(|| group.to_owned())));
                }
            }
        }
        for (at, with, group) in joins {
            let Err(conflict) = self.try_unite(at, with, cx) else { continue };
            let name = self.body.node(at).name.clone();
            if !cx.soft {
                return Err(self.conflict(at, with, conflict, cx).at(&name));
            }
            let reason = match conflict {
                Conflict::Devices(names) => cx.incompatible(&names),
                Conflict::Kinds => NO_COMMON_KIND.trim_start().to_owned(),
            };
            let group = group.unwrap_or_else(|| name.to_string());
            let node = NodeId(at);
            self.warnings.push(Warning::ColocationIgnored { node, group, reason });
        }
        Ok(())
    }

    /// Removes types of devices that require a request from groups without such a request.
    pub(super) fn drop_xla(&mut self, cx: &mut Context<'_>) {
        for at in 0..self.body.nodes.len() as u32 {
            let root = self.groups.root(at);
            let member = self.groups.get_mut(root);
            let names = [member.requested, member.assigned, member.resource];
            let mut kinds = names.iter().filter_map(|name: &Name| name.kind);
            if !kinds.any(|kind| kinds::is_named_only(kind, &cx.names)) {
                member.kinds = cx.kinds.without_xla(member.kinds, &cx.names);
            }
        }
    }

    /// Describes a group, for messages.
    pub(super) fn debug(&mut self, root: u32, cx: &mut Context<'_>) -> String {
        let order = self.body.order.iter().copied();
        let members: Vec<u32> = order.filter(|at| self.groups.root(*at) == root).collect();
        let group = *self.groups.get(root);
        let number = group.placed.and_then(|(device, _)| self.device_numbers.get(&device));
        let number = number.map_or(-1, |number| *number as i64);
        let kinds = cx.kinds.get(group.kinds).iter().map(|(kind, _)| cx.names.text(*kind));
        let mut text = format!(
            "\nColocation Debug Info:\nColocation group had the following types and supported \
             devices: \nRoot Member(assigned_device_name_index_={number} \
             requested_device_name_='{}' assigned_device_name_='{}' resource_device_name_='{}' \
             supported_device_types_=[{}] possible_devices_=[]",
            cx.names.show(&group.requested),
            cx.names.show(&group.assigned),
            cx.names.show(&group.resource),
            message::join(kinds, ", ")
        );
        let mut ops = Vec::new();
        for at in &members {
            let node = self.body.node(*at);
            if !ops.contains(&&*node.op) {
                ops.push(&*node.op);
                let requested = cx.names.parse(&node.requested).unwrap_or_default();
                let local = cx.local;
                let list = cx.kinds.supported(node, &requested, &local);
                text += &format!("\n{}: ", node.op);
                for (kind, _) in cx.kinds.get(list) {
                    text += &format!("{} ", cx.names.text(*kind));
                }
            }
        }
        text += "\n\nColocation members, user-requested devices, and framework assigned devices, if \
                 any:";
        for at in members {
            let node = self.body.node(at);
            text += &format!("\n  {} ({}) {}", node.name, node.op, node.requested);
            if let Some(assigned) = &node.assigned {
                text += &format!(" framework assigned device={assigned}");
            }
        }
        text.push('\n');
        text
    }
}

const NO_COMMON_KIND: &str =
    " because no device type supports both of those nodes and the other nodes colocated with them";

/// Returns the known properties of a single node.
fn member(node: &Node, at: u32, cx: &mut Context<'_>) -> Result<Member, PlaceError> {
    let request = cx.names.parse(&node.requested);
    let local = cx.local;
    let mut member = Member {
        parent: at,
        rank: 0,
        assigned: Name::default(),
        resource: Name::default(),
        requested: Name::default(),
        kinds: cx.kinds.supported(node, &request.unwrap_or_default(), &local),
        requested_by: None,
        placed: None,
    };
    let is_supported = !cx.kinds.get(member.kinds).is_empty();
    if let Some(assigned) = &node.assigned {
        member.assigned = assigned_name(node, assigned, &member, cx)?;
        member.requested = member.assigned;
        member.requested_by = Some(at);
        return Ok(member);
    }
    if !is_supported {
        let mut kinds = cx.devices.kinds();
        kinds.sort_unstable();
        let message = format!(
            "No OpKernel was registered to support Op '{}' used by {{{{node {}}}}} with these \
             attrs: [{}]\nRegistered devices: [{}]\nRegistered kernels:\n{}",
            node.op,
            node.name,
            message::attrs(&node.attrs),
            message::join(kinds, ", "),
            message::kernels(cx.registry, &node.op)
        );
        return Err(PlaceError::new(PlaceErrorKind::NoKernel, message));
    }
    let Some(request) = request else {
        let message = format!(
            "Malformed device specification '{}' in node: {{{{node {}}}}}",
            node.requested, node.name
        );
        return Err(PlaceError::new(PlaceErrorKind::MalformedRequest, message));
    };
    if makes_resource(node) {
        member.resource = request;
    }
    member.requested = request;
    member.requested_by = request.is_some().then_some(at);
    Ok(member)
}

/// Returns the device of an earlier placement of a node, if it exists and supports the node.
fn assigned_name(
    node: &Node,
    assigned: &str,
    member: &Member,
    cx: &mut Context<'_>,
) -> Result<Name, PlaceError> {
    let Some(name) = cx.names.parse(assigned) else {
        let message = format!("Malformed assigned device '{assigned}'");
        return Err(PlaceError::new(PlaceErrorKind::UnknownAssigned, message));
    };
    let Some(device) = cx.position(assigned) else {
        let message = format!(
            "Assigned device '{assigned}' does not match any device. The devices are: [{}]",
            cx.all_devices()
        );
        return Err(PlaceError::new(PlaceErrorKind::UnknownAssigned, message));
    };
    let kind = cx.device_names[device as usize].kind;
    if cx.kinds.get(member.kinds).iter().any(|(of, _)| Some(*of) == kind) {
        return Ok(name);
    }
    let message = format!(
        "Assigned device '{assigned}' does not have registered OpKernel support for {}",
        node.op
    );
    Err(PlaceError::new(PlaceErrorKind::AssignedWithoutKernel, message))
}
