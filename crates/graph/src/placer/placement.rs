//! The device of each node of a graph, and the reason.

use crate::device::DeviceSet;
use crate::graph::Graph;
use crate::node::{Node, NodeId};
use std::fmt;

/// Why a node is on its device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// From an earlier placement.
    Assigned,
    /// It requests the device, or the device is the first that satisfies its request.
    Requested,
    /// It must be where this node is: references, resources or `_class` connect them.
    Colocated(NodeId),
    /// It reads only the shape of its input, which is there.
    FollowsInput(NodeId),
    /// It has no input, and all its users are there; this is the first.
    FollowsConsumers(NodeId),
    /// It is the first device with a kernel.
    FirstWithKernel,
    /// It is the first device; it is unknown which devices have a kernel.
    FirstDevice,
    /// It is the only device with a kernel.
    OnlyWithKernel,
    /// No device satisfies the request and has a kernel; this is the first one with a kernel.
    SoftFallback {
        /// The request of the node or its group.
        from: String,
    },
}

/// A request that was not satisfied, without being an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Soft placement dropped the type and the index of a request.
    Fallback {
        /// The node of the group that was placed first.
        node: NodeId,
        /// The request.
        requested: String,
        /// The index of the device used instead.
        device: usize,
    },
    /// Soft placement moved the device of a resource.
    ResourceMoved {
        /// The node of the group that was placed first.
        node: NodeId,
        /// The request.
        requested: String,
        /// The index of the device used instead.
        device: usize,
    },
    /// Soft placement ignored a request to colocate.
    ColocationIgnored {
        /// The node.
        node: NodeId,
        /// The group that it names.
        group: String,
        /// Why it cannot be colocated.
        reason: String,
    },
    /// Soft placement dropped conflicting requests of colocated nodes.
    RequestsDiffer {
        /// A node.
        node: NodeId,
        /// A node of the other group.
        other: NodeId,
        /// What the node's group requests.
        requested: String,
        /// What the other group requests.
        against: String,
    },
    /// A reference or resource overrides the request of the node that uses it.
    RequestOverridden {
        /// The node.
        node: NodeId,
        /// The source of the reference.
        by: NodeId,
        /// What the node's group requested.
        requested: String,
        /// What the source's group requests.
        instead: String,
    },
}

/// The placement of a graph: the answer to [`place`](super::place).
///
/// Indices of nodes count the nodes of the graph, and then those of [`Placement::inserted`].
/// Indices of devices are those of the [`DeviceSet`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    pub(super) devices: Vec<u32>,
    pub(super) reasons: Vec<Reason>,
    pub(super) order: Vec<NodeId>,
    pub(super) inserted: Vec<Node>,
    pub(super) warnings: Vec<Warning>,
}

impl Placement {
    /// Returns the index of the device of a node.
    ///
    /// # Panics
    /// If the node belongs to another graph.
    pub fn device(&self, node: NodeId) -> usize {
        self.devices[node.index()] as usize
    }

    /// Returns the indices of the devices of all nodes, in their order.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.devices.iter().map(|device| *device as usize)
    }

    /// Returns why a node is on its device.
    ///
    /// # Panics
    /// If the node belongs to another graph.
    pub fn reason(&self, node: NodeId) -> &Reason {
        &self.reasons[node.index()]
    }

    /// Returns the nodes in the order in which they were placed.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns the identities that were inserted around calls of functions that return resources.
    pub fn inserted(&self) -> &[Node] {
        &self.inserted
    }

    /// Returns the requests that were not satisfied.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the warnings as text, with the names of nodes and devices.
    pub fn warning_lines<'a>(
        &'a self,
        graph: &'a Graph,
        devices: &'a DeviceSet,
    ) -> impl Iterator<Item = String> + 'a {
        let name = |id: &NodeId| self.node(graph, *id).map_or("", |node| &node.name);
        let device = |at: &usize| devices.names().get(*at).map_or("", |name| name);
        self.warnings.iter().map(move |warning| match warning {
            Warning::Fallback { node, requested, device: at } => format!(
                "{}: no available device {requested} supports it; soft placement chose {}",
                name(node),
                device(at)
            ),
            Warning::ResourceMoved { node, requested, device: at } => format!(
                "{}: a resource was moved from {requested} to {}, because that device does not \
                 support the operations on it",
                name(node),
                device(at)
            ),
            Warning::ColocationIgnored { node, group, reason } => {
                format!("{}: not colocated with {group}: {reason}", name(node))
            }
            Warning::RequestsDiffer { node, other, requested, against } => format!(
                "{}: colocated with {}, but requests {requested} and {against} differ; the \
                 differing parts are ignored",
                name(node),
                name(other)
            ),
            Warning::RequestOverridden { node, by, requested, instead } => format!(
                "{}: request {requested} ignored for {instead}, the device of the reference or \
                 resource from {}",
                name(node),
                name(by)
            ),
        })
    }

    /// Returns a node of the graph or an inserted one.
    pub fn node<'a>(&'a self, graph: &'a Graph, id: NodeId) -> Option<&'a Node> {
        let nodes = graph.nodes();
        nodes.get(id.index()).or_else(|| self.inserted.get(id.index().checked_sub(nodes.len())?))
    }

    /// Returns the lines of the placement log, in the order in which nodes were placed:
    /// `name: (Op): /job:localhost/replica:0/task:0/device:GPU:0`.
    pub fn log<'a>(
        &'a self,
        graph: &'a Graph,
        devices: &'a DeviceSet,
    ) -> impl Iterator<Item = String> + 'a {
        self.order.iter().filter_map(move |id| {
            let node = self.node(graph, *id)?;
            let device = devices.names().get(self.device(*id))?;
            Some(format!("{}: ({}): {device}", node.name, node.op))
        })
    }

    /// Sets the device of each node of the graph, so that the next placement keeps it.
    pub fn apply(&self, graph: &mut Graph, devices: &DeviceSet) {
        for (node, device) in graph.nodes_mut().iter_mut().zip(self.devices()) {
            node.assigned = devices.names().get(device).cloned();
        }
    }

    /// Returns a reason as text, with the names of the nodes.
    pub fn explain<'a>(&'a self, graph: &'a Graph, id: NodeId) -> impl fmt::Display + 'a {
        Explained { placement: self, graph, id }
    }
}

struct Explained<'a> {
    placement: &'a Placement,
    graph: &'a Graph,
    id: NodeId,
}

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: &NodeId| self.placement.node(self.graph, *id).map_or("", |node| &node.name);
        match self.placement.reason(self.id) {
            Reason::Assigned => write!(f, "already placed there"),
            Reason::Requested => {
                let node = self.placement.node(self.graph, self.id);
                write!(f, "requests {}", node.map_or("", |node| &node.requested))
            }
            Reason::Colocated(with) => write!(f, "must be on the device of {}", name(with)),
            Reason::FollowsInput(input) => write!(f, "follows its input {}", name(input)),
            Reason::FollowsConsumers(first) => write!(f, "follows its consumer {}", name(first)),
            Reason::FirstWithKernel => write!(f, "first device with a kernel"),
            Reason::FirstDevice => write!(f, "first device; its kernels are unknown"),
            Reason::OnlyWithKernel => write!(f, "only device with a kernel"),
            Reason::SoftFallback { from } => {
                write!(f, "no device {from} supports it; first device that does")
            }
        }
    }
}
