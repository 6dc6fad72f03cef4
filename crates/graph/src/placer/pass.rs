//! The two passes that choose a device for each node.

use super::colocation::Colocation;
use super::context::Context;
use super::error::{PlaceError, PlaceErrorKind};
use super::message;
use super::name::{Incompatible, Name};
use super::placement::{Placement, Reason, Warning};
use crate::node::{Node, NodeId};
use std::borrow::Cow;
use std::rc::Rc;

/// Returns whether a node only generates a value: it goes where the value is used.
fn is_generator(node: &Node) -> bool {
    let [output] = node.outputs.as_slice() else { return false };
    node.inputs.is_empty() && !output.reference
}

/// Returns whether a node reads only the shape of its input.
fn reads_metadata(node: &Node) -> bool {
    matches!(&*node.op, "Shape" | "Size" | "Rank")
}

/// Returns the node that determines the device of a node: its first input. TensorFlow takes the
/// first of a set of edges, and if an identity was inserted before a node, the last control edge is
/// first in that set. `given` is the index of the first identity.
fn first_edge(node: &Node, given: usize) -> Option<NodeId> {
    let input = node.inputs.first()?.node;
    let order = node.controls.last().filter(|_| input.index() >= given);
    Some(*order.unwrap_or(&input))
}

/// The edges that leave a node: data edges and control edges.
#[derive(Clone, Copy, Debug, Default)]
struct Leaving {
    count: u32,
    /// The destination of one of them.
    to: Option<u32>,
}

/// The devices that a node may be placed on, best first.
struct Candidates {
    devices: Rc<[u32]>,
    /// The unsatisfied request, if soft placement found them.
    instead_of: Option<String>,
}

struct Pass<'g, 'c, 'a> {
    colocation: Colocation<'g>,
    cx: &'c mut Context<'a>,
    devices: Vec<Option<u32>>,
    reasons: Vec<Option<Reason>>,
    order: Vec<NodeId>,
    leaving: Vec<Leaving>,
}

/// Counts the edges that leave each node.
fn leaving(nodes: &[Node]) -> Vec<Leaving> {
    let mut leaving = vec![Leaving::default(); nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let inputs = node.inputs.iter().map(|source| source.node);
        for from in inputs.chain(node.controls.iter().copied()) {
            let leaving = &mut leaving[from.index()];
            leaving.count += 1;
            leaving.to = Some(at as u32);
        }
    }
    leaving
}

/// Places all nodes of a body; those of the graph come first.
pub(super) fn run(
    colocation: Colocation<'_>,
    cx: &mut Context<'_>,
) -> Result<Placement, PlaceError> {
    let count = colocation.body.nodes.len();
    let mut pass = Pass {
        leaving: leaving(&colocation.body.nodes),
        colocation,
        cx,
        devices: vec![None; count],
        reasons: vec![None; count],
        order: Vec::with_capacity(count),
    };
    let generators = pass.first()?;
    pass.second(&generators)?;
    let Colocation { body, warnings, .. } = pass.colocation;
    let inserted = match body.nodes {
        Cow::Borrowed(_) => Vec::new(),
        Cow::Owned(mut nodes) => nodes.split_off(body.given),
    };
    Ok(Placement {
        devices: pass.devices.into_iter().flatten().collect(),
        reasons: pass.reasons.into_iter().flatten().collect(),
        order: pass.order,
        inserted,
        warnings,
    })
}

impl Pass<'_, '_, '_> {
    /// Places all nodes except generators, which it returns.
    fn first(&mut self) -> Result<Vec<u32>, PlaceError> {
        let order = self.colocation.body.order.clone();
        for at in &order {
            let assigned = self.colocation.body.node(*at).assigned.as_deref();
            self.devices[*at as usize] = assigned.and_then(|name| self.cx.position(name));
            self.number(self.devices[*at as usize]);
        }
        let mut generators = Vec::new();
        for at in order {
            if let Some(device) = self.devices[at as usize] {
                self.assign(at, device, Reason::Assigned)?;
                continue;
            }
            let node = self.colocation.body.node(at);
            if is_generator(node) {
                generators.push(at);
                continue;
            }
            let is_follower = reads_metadata(node) || self.is_plain_identity(at);
            let input = first_edge(node, self.colocation.body.given).filter(|_| is_follower);
            let candidates = self.candidates(at)?;
            let follows = input.and_then(|input| {
                let device = self.devices[input.index()]?;
                candidates
                    .devices
                    .contains(&device)
                    .then_some((device, Reason::FollowsInput(input)))
            });
            self.choose(at, &candidates, follows)?;
        }
        Ok(generators)
    }

    /// Returns whether a node is an identity that need not copy from one device to another: it has
    /// one user and no request, and the nodes before and after it have the same request.
    fn is_plain_identity(&self, at: u32) -> bool {
        let body = &self.colocation.body;
        let node = body.node(at);
        let [input] = node.inputs.as_slice() else { return false };
        let leaving = self.leaving[at as usize];
        // The sink follows a node of the graph whose value is not used.
        let is_followed = leaving.count == 1 || leaving.count == 0 && (at as usize) < body.given;
        let after = leaving.to.map_or("", |to| &body.node(to).requested);
        matches!(&*node.op, "Identity" | "RefIdentity")
            && node.controls.is_empty()
            && is_followed
            && node.requested.is_empty()
            && body.node(input.node.0).requested == after
    }

    /// Places generators where all their consumers are, if those agree.
    fn second(&mut self, generators: &[u32]) -> Result<(), PlaceError> {
        let consumers = self.consumers(generators);
        for (at, consumers) in generators.iter().zip(consumers) {
            let candidates = self.candidates(*at)?;
            let follows = consumers.first().and_then(|first| {
                let device = self.devices[*first as usize]?;
                let agree = consumers.iter().all(|at| self.devices[*at as usize] == Some(device));
                let reason = Reason::FollowsConsumers(NodeId(*first));
                (agree && candidates.devices.contains(&device)).then_some((device, reason))
            });
            self.choose(*at, &candidates, follows)?;
        }
        Ok(())
    }

    /// Returns the nodes that use the value of each generator, or wait for it.
    fn consumers(&self, generators: &[u32]) -> Vec<Vec<u32>> {
        let body = &self.colocation.body;
        let mut numbers = vec![None; body.nodes.len()];
        for (number, at) in generators.iter().enumerate() {
            numbers[*at as usize] = Some(number);
        }
        let mut consumers = vec![Vec::new(); generators.len()];
        for (at, node) in body.nodes.iter().enumerate() {
            let inputs = node.inputs.iter().map(|source| source.node);
            for from in inputs.chain(node.controls.iter().copied()) {
                if let Some(number) = numbers[from.index()] {
                    consumers[number].push(at as u32);
                }
            }
        }
        consumers
    }

    /// Places a node where it follows others, or else on the best device.
    fn choose(
        &mut self,
        at: u32,
        candidates: &Candidates,
        follows: Option<(u32, Reason)>,
    ) -> Result<(), PlaceError> {
        // There is a candidate; otherwise an error was returned.
        let best = candidates.devices.first().copied().unwrap_or_default();
        let (device, follows) = match follows {
            Some((device, reason)) => (device, Some(reason)),
            None => (best, None),
        };
        let reason = self.reason(at, device, candidates, follows);
        self.assign(at, device, reason)
    }

    fn reason(
        &mut self,
        at: u32,
        device: u32,
        candidates: &Candidates,
        follows: Option<Reason>,
    ) -> Reason {
        let root = self.colocation.groups.root(at);
        let group = *self.colocation.groups.get(root);
        if let Some((_, first)) = group.placed {
            return Reason::Colocated(NodeId(first));
        }
        if let Some(from) = &candidates.instead_of {
            return Reason::SoftFallback { from: from.clone() };
        }
        if let Some(reason) = follows {
            return reason;
        }
        if group.requested.is_some() {
            let own = self.cx.names.parse(&self.colocation.body.node(at).requested);
            let own = own.unwrap_or_default();
            match group.requested_by.filter(|by| *by != at) {
                _ if own.is_some() && own.matches(&self.cx.device_names[device as usize]) => {
                    return Reason::Requested;
                }
                Some(by) => return Reason::Colocated(NodeId(by)),
                None => {}
            }
        }
        match candidates.devices.len() {
            _ if self.cx.registry.is_assumed() => Reason::FirstDevice,
            1 => Reason::OnlyWithKernel,
            _ => Reason::FirstWithKernel,
        }
    }

    fn assign(&mut self, at: u32, device: u32, reason: Reason) -> Result<(), PlaceError> {
        let name = self.cx.device_names[device as usize];
        let root = self.colocation.groups.root(at);
        self.number(Some(device));
        let before = *self.colocation.groups.get(root);
        let assigned = self.colocation.groups.get_mut(root).assign(device, &name, at);
        assigned.map_err(|names| self.contradiction(at, &before.assigned, &name, &names))?;
        self.devices[at as usize] = Some(device);
        self.reasons[at as usize] = Some(reason);
        self.order.push(NodeId(at));
        Ok(())
    }

    fn contradiction(
        &self,
        at: u32,
        group: &Name,
        device: &Name,
        names: &Incompatible,
    ) -> PlaceError {
        let node = self.colocation.body.node(at);
        let message = format!(
            "Constraining by assigned device should not cause an error. Original root's assigned \
             device name: {} node's assigned device name \"{}\". Error: {}",
            self.cx.names.show(group),
            self.cx.names.show(device),
            self.cx.incompatible(names)
        );
        PlaceError {
            node: Some(node.name.to_string()),
            ..PlaceError::new(PlaceErrorKind::CannotColocate, message)
        }
    }

    /// Assigns the next number in debugging information to a device.
    fn number(&mut self, device: Option<u32>) {
        if let Some(device) = device {
            let next = self.colocation.device_numbers.len() + 1;
            self.colocation.device_numbers.entry(device).or_insert(next);
        }
    }

    /// Returns the devices that a node may be placed on.
    fn candidates(&mut self, at: u32) -> Result<Candidates, PlaceError> {
        let root = self.colocation.groups.root(at);
        let group = *self.colocation.groups.get(root);
        let devices = self.cx.candidates(&group.requested, group.kinds);
        if !devices.is_empty() {
            return Ok(Candidates { devices, instead_of: None });
        }
        if self.cx.soft && group.requested.is_some() {
            for keep_resource in [true, false] {
                let devices = self.cx.candidates(&group.soft_name(keep_resource), group.kinds);
                let Some(device) = devices.first().map(|device| *device as usize) else {
                    continue;
                };
                let requested = self.cx.names.show(&group.requested);
                let (node, instead_of) = (NodeId(at), Some(requested.clone()));
                self.colocation.warnings.push(match keep_resource {
                    true => Warning::Fallback { node, requested, device },
                    false => Warning::ResourceMoved { node, requested, device },
                });
                return Ok(Candidates { devices, instead_of });
            }
        }
        let text = self.unsatisfiable(at, root, &group.requested);
        let name = self.colocation.body.node(at).name.clone();
        let message = format!("Cannot assign a device for operation {name}: {text}");
        Err(PlaceError::new(PlaceErrorKind::Unsatisfiable, message).at(&name))
    }

    /// Describes why no device is possible.
    fn unsatisfiable(&mut self, at: u32, root: u32, requested: &Name) -> String {
        let debug = self.colocation.debug(root, self.cx);
        let body = &self.colocation.body;
        let node = body.node(at);
        if !requested.is_some() {
            return format!(
                "Node had no OpKernel registered to support this operation: Operation was {} and \
                 inputs were [{}].\n{debug}",
                node.op,
                message::input_types(&body.nodes, node)
            );
        }
        let own = self.cx.names.parse(&node.requested).filter(|own| own == requested);
        let Some(own) = own else {
            return format!(
                "Could not satisfy explicit device specification '{}' because the node {} was \
                 colocated with a group of nodes that required incompatible device '{}'. All \
                 available devices [{}]. {debug}",
                node.requested,
                message::colocated(node),
                self.cx.names.show(requested),
                self.cx.all_devices()
            );
        };
        if !self.cx.is_there(&own) {
            let mut names = Vec::from_iter(self.cx.devices.names());
            names.sort_unstable();
            let kind = own.kind.map_or("", |kind| self.cx.names.text(kind));
            let is_gpu = kind.eq_ignore_ascii_case("gpu");
            let has_gpu = self.cx.devices.kinds().contains(&"GPU");
            let hint = if is_gpu && !has_gpu {
                " The requested device appears to be a GPU, but CUDA is not enabled."
            } else {
                ""
            };
            return format!(
                "{{{{node {}}}}} was explicitly assigned to {} but available devices are [ {} ]. \
                 Make sure the device specification refers to a valid device.{hint}",
                node.name,
                node.requested,
                message::join(names, ", ")
            );
        }
        let Some(kind) = own.kind else {
            return format!(
                "Could not satisfy explicit device specification '{}'{debug}",
                node.requested
            );
        };
        format!(
            "Could not satisfy explicit device specification '{}' because no supported kernel for \
             {} devices is available.{debug}\nOp: {}\nNode attrs: {}\nRegistered kernels:\n{}",
            node.requested,
            self.cx.names.text(kind),
            node.op,
            message::attrs(&node.attrs),
            message::kernels(self.cx.registry, &node.op)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Source;
    use std::collections::BTreeMap;

    fn node(inputs: &[u32], controls: &[u32]) -> Node {
        let input = |at: &u32| Source { node: NodeId(*at), output: 0 };
        Node {
            name: "n".into(),
            op: "Identity".into(),
            inputs: inputs.iter().map(input).collect(),
            controls: controls.iter().copied().map(NodeId).collect(),
            outputs: Vec::new(),
            requested: String::new(),
            assigned: None,
            attrs: BTreeMap::new(),
        }
    }

    #[test]
    fn first_input_is_the_first_edge_unless_an_identity_was_inserted() {
        // The nodes from 5 on are inserted identities.
        for (inputs, controls, expected) in [
            (&[3, 4][..], &[1, 2][..], Some(3)),
            (&[5, 4], &[1, 2], Some(2)),
            (&[6], &[1], Some(1)),
            (&[6, 3], &[], Some(6)),
            (&[], &[1, 2], None),
        ] {
            let first = first_edge(&node(inputs, controls), 5);
            assert_eq!(first, expected.map(NodeId), "{inputs:?} {controls:?}");
        }
    }
}
