//! Groups of nodes that must be on one device: a union–find over the nodes.

use super::kinds::{KindList, Kinds};
use super::name::{Incompatible, Name};

/// The known properties of a node, and of its group if it is the root.
///
/// Each of the three names restricts what the previous one restricts, and maybe more: a node of an
/// earlier placement is `assigned`; a node that makes a resource and requests a device has a
/// `resource` device, which moves only if there is no other way; every other request is only
/// `requested`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) parent: u32,
    pub(super) rank: u32,
    pub(super) assigned: Name,
    pub(super) resource: Name,
    pub(super) requested: Name,
    pub(super) kinds: KindList,
    /// The node that the request or device in `requested` comes from, if known.
    pub(super) requested_by: Option<u32>,
    /// The device assigned to a node of the group, and the first node that it was assigned to.
    pub(super) placed: Option<(u32, u32)>,
}

/// Why two groups cannot be united.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Their devices differ.
    Devices(Incompatible),
    /// No type of device supports all nodes.
    Kinds,
}

/// The groups of the nodes of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    members: Vec<Member>,
}

impl Groups {
    pub(super) fn new(members: Vec<Member>) -> Groups {
        Groups { members }
    }

    /// Returns the root of the group of a node.
    pub(super) fn root(&mut self, node: u32) -> u32 {
        let mut root = node;
        while self.members[root as usize].parent != root {
            root = self.members[root as usize].parent;
        }
        let mut at = node;
        while at != root {
            at = std::mem::replace(&mut self.members[at as usize].parent, root);
        }
        root
    }

    /// Returns a root's properties of its group.
    pub(super) fn get(&self, root: u32) -> &Member {
        &self.members[root as usize]
    }

    pub(super) fn get_mut(&mut self, root: u32) -> &mut Member {
        &mut self.members[root as usize]
    }

    /// Unites two groups. The shallower tree is attached to the deeper one; with equal depths, the
    /// second to the first.
    ///
    /// As in TensorFlow, a union that fails for lack of a common type leaves its merged names
    /// behind.
    pub(super) fn unite(
        &mut self,
        a: u32,
        b: u32,
        soft: bool,
        kinds: &mut Kinds<'_>,
    ) -> Result<(), Conflict> {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return Ok(());
        }
        let (a_rank, b_rank) = (self.get(a).rank, self.get(b).rank);
        let (new, old) = if a_rank < b_rank { (b, a) } else { (a, b) };
        let other = *self.get(old);
        let member = self.get_mut(new);
        member.take_names(&other, soft).map_err(Conflict::Devices)?;
        let both = kinds.merge(member.kinds, other.kinds).ok_or(Conflict::Kinds)?;
        member.kinds = both;
        if a_rank == b_rank {
            member.rank += 1;
        }
        self.get_mut(old).parent = new;
        Ok(())
    }
}

impl Member {
    /// Merges the names of another group; on an error, nothing changes.
    fn take_names(&mut self, other: &Member, soft: bool) -> Result<(), Incompatible> {
        let assigned = self.assigned.merged(&other.assigned, false)?;
        let resource = self.resource.merged(&other.resource, false)?;
        let requested = self.requested.merged(&other.requested, soft)?;
        self.assigned = assigned;
        self.resource = resource;
        self.requested = requested.specified(&assigned).specified(&resource);
        self.requested_by = self.requested_by.or(other.requested_by);
        Ok(())
    }

    /// Restricts the group to the device assigned to one of its nodes.
    pub(super) fn assign(
        &mut self,
        device: u32,
        name: &Name,
        node: u32,
    ) -> Result<(), Incompatible> {
        match self.placed {
            Some((placed, _)) if placed == device => return Ok(()),
            Some((_, first)) => self.placed = Some((device, first)),
            None => self.placed = Some((device, node)),
        }
        self.assigned = self.assigned.merged(name, false)?;
        self.resource = self.resource.overridden(name)?;
        self.requested = self.requested.overridden(name)?;
        Ok(())
    }

    /// Returns the request without the type and index, unless an assignment requires them, or a
    /// resource with `keep_resource`.
    pub(super) fn soft_name(&self, keep_resource: bool) -> Name {
        let resource = if keep_resource { self.resource } else { Name::default() };
        let kept = self.assigned.specified(&resource);
        Name {
            kind: kept.kind.and(self.requested.kind),
            index: kept.index.and(self.requested.index),
            ..self.requested
        }
    }
}
