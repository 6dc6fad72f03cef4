//! How the GPUs are connected: XGMI, from KFD, and PCI, from the bridges above each card.

use crate::{Card, KfdLink, KfdTopology, Tree};
use gpu_core::{Link, PciBusId, PeerAccess, Topology};

/// The most bridges above a card: a bus number has 8 bits.
const MAX_BRIDGES: usize = 256;

/// Where a card is attached.
struct Place {
    /// The bridges above it, the root port first.
    bridges: Vec<PciBusId>,
    bus: PciBusId,
    node: Option<u32>,
}

/// Returns the connections between these cards.
pub(crate) fn topology(tree: &dyn Tree, cards: &[Card], kfd: Option<&KfdTopology>) -> Topology {
    let places: Vec<Place> = cards.iter().map(|card| place(tree, card)).collect();
    let xgmi = kfd.map(xgmi).unwrap_or_default();
    let table = |link: &dyn Fn(&Place, &Place) -> Link| {
        let row = |from: &Place| {
            let cell = |to: &Place| if from.bus == to.bus { Link::Itself } else { link(from, to) };
            places.iter().map(cell).collect()
        };
        places.iter().map(row).collect::<Vec<Vec<Link>>>()
    };
    let is_xgmi = |from: &Place, to: &Place| xgmi.contains(&(from.bus, to.bus));
    let best =
        |from: &Place, to: &Place| if is_xgmi(from, to) { Link::Xgmi } else { path(from, to) };
    let peer = |link: &Link| match link {
        Link::Itself => PeerAccess::Itself,
        Link::Xgmi => PeerAccess::Ok,
        _ => PeerAccess::Unknown,
    };
    let links = table(&best);
    Topology {
        peers: links.iter().map(|row| row.iter().map(peer).collect()).collect(),
        paths: table(&path),
        links,
    }
}

fn place(tree: &dyn Tree, card: &Card) -> Place {
    let mut bridges = Vec::new();
    let mut dir = card.dir.clone();
    while bridges.len() < MAX_BRIDGES {
        // The link `device` ends in the card's own directory; each `..` is the bridge above.
        dir.push_str("/..");
        let events = tree.text(&format!("{dir}/uevent")).unwrap_or_default();
        let slot = events.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
        match slot.and_then(|slot| slot.parse().ok()) {
            Some(bridge) => bridges.insert(0, bridge),
            None => break,
        }
    }
    let node = tree.number(&format!("{}/numa_node", card.dir)).ok();
    Place { bridges, bus: card.bus, node }
}

/// Returns the path over PCI. Two cards behind one switch have its upstream port in common, and a
/// port below it each.
fn path(from: &Place, to: &Place) -> Link {
    let common = from.bridges.iter().zip(&to.bridges).take_while(|(a, b)| a == b).count();
    let below = |place: &Place| place.bridges.len() - common;
    let root = |place: &Place| place.bridges.first().map_or(place.bus, |port| *port);
    let host = |place: &Place| (root(place).domain, root(place).bus);
    match (from.node, to.node) {
        _ if common > 0 && below(from).max(below(to)) <= 1 => Link::Pix,
        _ if common > 0 => Link::Pxb,
        _ if !from.bridges.is_empty() && host(from) == host(to) => Link::Phb,
        (Some(a), Some(b)) if a == b => Link::Node,
        (Some(_), Some(_)) => Link::Sys,
        _ => Link::Unknown,
    }
}

/// Returns the pairs of GPUs with a link over XGMI, by KFD.
fn xgmi(kfd: &KfdTopology) -> Vec<(PciBusId, PciBusId)> {
    let bus = |number: u32| kfd.nodes.iter().find(|node| node.number == number)?.bus.ok();
    let mut pairs = Vec::new();
    for (from, node) in kfd.nodes.iter().filter_map(|node| Some((node.bus.ok()?, node))) {
        let links = node.io_links.iter().flatten().filter(|link| link.kind == Ok(KfdLink::XGMI));
        pairs.extend(links.filter_map(|link| Some((from, bus(link.to.ok()?)?))));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}
