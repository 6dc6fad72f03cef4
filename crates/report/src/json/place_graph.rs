//! `gpuws place graph --json`.

use super::Version;
use gpu_graph::placer::{Placement, Reason};
use gpu_graph::{DeviceSet, Graph};
use serde::Serialize;

/// A graph, and the device of each of its operations.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlacedGraph<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Path of the graph.
    pub file: &'a str,
    /// Name of the simulated machine whose GPUs are used. Null if the devices were named, or are
    /// those of a real machine.
    pub machine: Option<&'a str>,
    /// The devices, with the number of operations on each.
    pub devices: Vec<Device<'a>>,
    /// The operations, in the order in which they were placed.
    pub nodes: Vec<Node<'a>>,
    /// What was not done as requested.
    pub warnings: Vec<String>,
    /// Parts of the file that the graph omits.
    pub notes: &'a [String],
}

/// A device of a graph.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device<'a> {
    /// Full name, such as /job:localhost/replica:0/task:0/device:GPU:0.
    pub name: &'a str,
    /// Number of operations on it.
    pub node_count: usize,
}

/// A placed operation.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Its operation.
    pub op: &'a str,
    /// Full name of its device.
    pub device: &'a str,
    /// The device that the graph requests, as written. Null if it requests none.
    pub requested: Option<&'a str>,
    /// Why it is on this device.
    pub reason: ReasonCode,
    /// The reason, in words.
    pub explanation: String,
    /// Name of the node that it is colocated with or follows. Null for other reasons.
    pub because_of: Option<&'a str>,
}

/// Why a node is on its device.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReasonCode {
    /// It was already placed there.
    Assigned,
    /// It requests the device.
    Requested,
    /// It must be on the device of another node.
    Colocated,
    /// It reads only the shape of its input.
    FollowsInput,
    /// All users of its value are there.
    FollowsConsumers,
    /// The first device with a kernel.
    FirstWithKernel,
    /// The first device; which ones have a kernel is not known.
    FirstDevice,
    /// The only device with a kernel.
    OnlyWithKernel,
    /// No device is as requested and supports it.
    SoftFallback,
    /// A reason that this version does not name.
    Other,
}

impl<'a> PlacedGraph<'a> {
    /// Returns the object for a placement.
    pub fn of(
        file: &'a str,
        machine: Option<&'a str>,
        graph: &'a Graph,
        devices: &'a DeviceSet,
        placement: &'a Placement,
        notes: &'a [String],
    ) -> Self {
        let names = devices.names();
        let mut counts = vec![0; names.len()];
        for device in placement.devices() {
            if let Some(count) = counts.get_mut(device) {
                *count += 1;
            }
        }
        let name = |id| placement.node(graph, id).map(|node| &*node.name);
        let nodes = placement.order().iter().filter_map(|id| {
            let node = placement.node(graph, *id)?;
            let reason = placement.reason(*id);
            Some(Node {
                name: &node.name,
                op: &node.op,
                device: names.get(placement.device(*id))?,
                requested: (!node.requested.is_empty()).then_some(&*node.requested),
                reason: ReasonCode::of(reason),
                explanation: placement.explain(graph, *id).to_string(),
                because_of: match reason {
                    Reason::Colocated(with) => name(*with),
                    Reason::FollowsInput(input) => name(*input),
                    Reason::FollowsConsumers(user) => name(*user),
                    _ => None,
                },
            })
        });
        PlacedGraph {
            schema: Version,
            file,
            machine,
            nodes: nodes.collect(),
            devices: names
                .iter()
                .zip(counts)
                .map(|(name, node_count)| Device { name, node_count })
                .collect(),
            warnings: placement.warning_lines(graph, devices).collect(),
            notes,
        }
    }
}

impl ReasonCode {
    fn of(reason: &Reason) -> Self {
        match reason {
            Reason::Assigned => ReasonCode::Assigned,
            Reason::Requested => ReasonCode::Requested,
            Reason::Colocated(_) => ReasonCode::Colocated,
            Reason::FollowsInput(_) => ReasonCode::FollowsInput,
            Reason::FollowsConsumers(_) => ReasonCode::FollowsConsumers,
            Reason::FirstWithKernel => ReasonCode::FirstWithKernel,
            Reason::FirstDevice => ReasonCode::FirstDevice,
            Reason::OnlyWithKernel => ReasonCode::OnlyWithKernel,
            Reason::SoftFallback { .. } => ReasonCode::SoftFallback,
            _ => ReasonCode::Other,
        }
    }
}
