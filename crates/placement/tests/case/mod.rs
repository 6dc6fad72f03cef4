//! Machines to choose from.
#![allow(dead_code, unreachable_pub)] // Each test file uses some of it.

use gpu_core::{Bytes, Celsius, DeviceId, DeviceUuid, Link, Topology};
use gpu_placement::Offer;

pub const GIB: u64 = 1 << 30;

pub fn uuid(index: usize) -> DeviceUuid {
    DeviceUuid(format!("GPU-{index}"))
}

/// A device that nobody uses, like all others of its machine.
pub fn offer(index: usize) -> Offer {
    let id = DeviceId { uuid: Ok(uuid(index)), ..DeviceId::from_index(index as u32) };
    Offer {
        id,
        capacity: Ok(Bytes(16 * GIB)),
        free: Ok(Bytes(16 * GIB)),
        room: Ok(Bytes(16 * GIB)),
        compute_capability: Ok((7, 0)),
        display: false,
        temperature: Ok(Celsius(30)),
        last_leased: None,
        bar: None,
    }
}

pub fn offers(indexes: impl IntoIterator<Item = usize>) -> Vec<Offer> {
    indexes.into_iter().map(offer).collect()
}

/// Returns a topology by what `link` and `path` say of a pair, the lower number first.
pub fn topology(
    count: usize,
    link: impl Fn(usize, usize) -> Link,
    path: Option<&dyn Fn(usize, usize) -> Link>,
) -> Topology {
    let square = |cell: &dyn Fn(usize, usize) -> Link| {
        let cell = |from: usize, to: usize| match from == to {
            true => Link::Itself,
            false => cell(from.min(to), from.max(to)),
        };
        (0..count).map(|from| (0..count).map(|to| cell(from, to)).collect()).collect()
    };
    let paths = path.map(&square).unwrap_or_default();
    Topology { links: square(&link), peers: Vec::new(), paths }
}

/// Returns the topology of NVLinks (pairs, with how many) above a PCI tree.
pub fn linked(
    count: usize,
    lanes: &[(usize, usize, u8)],
    path: impl Fn(usize, usize) -> Link,
) -> Topology {
    let link = |from: usize, to: usize| {
        let found = lanes.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        found.map_or_else(|| path(from, to), |(_, _, lanes)| Link::NvLink(*lanes))
    };
    topology(count, link, Some(&path))
}

/// The PCI tree of a DGX-1: two quads, of which some pairs share a switch.
fn dgx1_path(switches: [(usize, usize); 4]) -> impl Fn(usize, usize) -> Link {
    move |from, to| match (from / 4 == to / 4, switches.contains(&(from, to))) {
        (true, true) => Link::Pix,
        (true, false) => Link::Phb,
        _ => Link::Sys,
    }
}

/// DGX-1 with P100.
pub fn dgx1_p100() -> Topology {
    let mut lanes: Vec<(usize, usize, u8)> = (0..4).map(|i| (i, i + 4, 1)).collect();
    for quad in [0, 4] {
        for from in quad..quad + 4 {
            lanes.extend((from + 1..quad + 4).map(|to| (from, to, 1)));
        }
    }
    linked(8, &lanes, dgx1_path([(0, 2), (1, 3), (4, 6), (5, 7)]))
}

/// DGX-1 with V100.
pub fn dgx1_v100() -> Topology {
    let two = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)];
    let one = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)];
    let two = two.into_iter().map(|(from, to)| (from, to, 2));
    let one = one.into_iter().map(|(from, to)| (from, to, 1));
    let lanes: Vec<_> = two.chain(one).collect();
    linked(8, &lanes, dgx1_path([(0, 1), (2, 3), (4, 5), (6, 7)]))
}

/// Four RTX 8000, in two pairs across the sockets.
pub fn rtx8000() -> Topology {
    let path = |from: usize, to: usize| if from / 2 == to / 2 { Link::Node } else { Link::Sys };
    linked(4, &[(0, 3, 2), (1, 2, 2)], path)
}

/// DGX-2 or HGX: all pairs alike over NVSwitch.
pub fn nvswitch(count: usize, lanes: u8) -> Topology {
    topology(count, |_, _| Link::NvLink(lanes), None)
}

/// Eight GTX 1080 Ti on two sockets.
pub fn gtx1080ti() -> Topology {
    let path = |from: usize, to: usize| if from / 4 == to / 4 { Link::Phb } else { Link::Sys };
    topology(8, path, Some(&path))
}
