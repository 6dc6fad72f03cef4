//! Ring or tree: methods to sum gradients over devices.

use gpu_core::{Bytes, PeerAccess, Rates, Route, Topology};

/// The largest number of devices for which a ring is searched.
const MAX_RING: usize = 16;

/// The method to sum a value over all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// In chunks around a ring: n − 1 steps that add, n − 1 that pass the sums on. Each device
    /// sends 2(n − 1)/n of the value, which is the least possible (Patarasuk and Yuan, 2009).
    Ring,
    /// Whole values up a binomial tree and back: 2⌈log₂ n⌉ steps (Thakur, Rabenseifner and Gropp,
    /// 2005: reduce and broadcast).
    Tree,
}

/// A reduction chosen for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// Ring or tree.
    pub(super) reduction: Reduction,
    /// The devices, by index in the topology, in the order of the ring or of the tree.
    pub(super) order: Vec<usize>,
    /// The time of a ring, in nanoseconds; `None` if there is no cycle of direct links.
    pub(super) ring_nanos: Option<u64>,
    /// The time of a tree, in nanoseconds.
    pub(super) tree_nanos: u64,
}

/// Chooses the reduction of a value of this size on devices, by index in the topology.
///
/// A ring needs a Hamiltonian cycle of direct links: NVLinks, or PCIe links with peer access. Of the
/// cycles, it takes one whose slowest link is fastest. Where there is one, the reduction that takes
/// less time by the alpha–beta model is chosen (a tree for small values); elsewhere a tree, whose
/// steps may go through the host. Above 16 devices no ring is searched.
pub(super) fn choose(
    topology: &Topology,
    devices: &[usize],
    bytes: Bytes,
    rates: &Rates,
) -> Selection {
    let count = devices.len();
    let slowest = |pairs: &mut dyn Iterator<Item = (usize, usize)>| {
        let routes = pairs.map(|(from, to)| rates.between(topology, from, to));
        routes.max_by_key(|route| route.nanos(bytes.0)).unwrap_or_default()
    };
    let cycle = ring(topology, devices, rates);
    let ring_nanos = cycle.as_ref().map(|cycle| {
        let next = |at: usize| cycle[(at + 1) % count];
        let mut pairs = (0..count).map(|at| (cycle[at], next(at)));
        ring_nanos(count, bytes, slowest(&mut pairs))
    });
    let mut edges = tree_edges(count).into_iter().map(|(from, to, _)| (devices[from], devices[to]));
    let tree_nanos = tree_nanos(count, bytes, slowest(&mut edges));
    match (cycle, ring_nanos) {
        (Some(order), Some(nanos)) if nanos <= tree_nanos => {
            Selection { reduction: Reduction::Ring, order, ring_nanos, tree_nanos }
        }
        _ => Selection {
            reduction: Reduction::Tree,
            order: devices.to_vec(),
            ring_nanos,
            tree_nanos,
        },
    }
}

/// Returns the time of a ring of n devices over equal routes, in nanoseconds:
/// 2(n − 1)(α + m/n · β), without the additions.
fn ring_nanos(devices: usize, bytes: Bytes, route: Route) -> u64 {
    let steps = 2 * (devices.max(1) as u64 - 1);
    steps.saturating_mul(route.nanos(bytes.0.div_ceil(devices.max(1) as u64)))
}

/// Returns the time of a binomial tree of n devices over equal routes, in nanoseconds:
/// 2⌈log₂ n⌉(α + mβ), without the additions.
fn tree_nanos(devices: usize, bytes: Bytes, route: Route) -> u64 {
    let levels = u64::from(devices.max(1).next_power_of_two().trailing_zeros());
    (2 * levels).saturating_mul(route.nanos(bytes.0))
}

/// Returns the edges of a binomial tree towards position 0, with the step of each.
pub(super) fn tree_edges(count: usize) -> Vec<(usize, usize, usize)> {
    let mut edges = Vec::new();
    let (mut step, mut distance) = (0, 1);
    while distance < count {
        let receivers = (0..count).step_by(2 * distance);
        let sends = receivers.filter(|to| to + distance < count);
        edges.extend(sends.map(|to| (to + distance, to, step)));
        (step, distance) = (step + 1, 2 * distance);
    }
    edges
}

/// Finds a cycle of direct links through all devices with the fastest slowest link.
fn ring(topology: &Topology, devices: &[usize], rates: &Rates) -> Option<Vec<usize>> {
    let count = devices.len();
    if !(2..=MAX_RING).contains(&count) {
        return None;
    }
    let rate = |from: usize, to: usize| {
        let (from, to) = (devices[from], devices[to]);
        let both = is_direct(topology, from, to) && is_direct(topology, to, from);
        both.then(|| rates.between(topology, from, to).bytes_per_second)
    };
    let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    let mut levels: Vec<u64> =
        pairs.filter(|(from, to)| from != to).filter_map(|(from, to)| rate(from, to)).collect();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.dedup();
    let neighbours = |least: u64| {
        let of = |from: usize| {
            let each = (0..count).filter(|to| *to != from);
            each.filter(|to| rate(from, *to).is_some_and(|rate| rate >= least))
                .fold(0_u32, |set, to| set | 1 << to)
        };
        (0..count).map(of).collect::<Vec<_>>()
    };
    let cycle = levels.into_iter().find_map(|least| hamiltonian(&neighbours(least)))?;
    Some(cycle.into_iter().map(|at| devices[at]).collect())
}

fn is_direct(topology: &Topology, from: usize, to: usize) -> bool {
    let link = topology.links.get(from).and_then(|row| row.get(to));
    let peer = topology.peers.get(from).and_then(|row| row.get(to));
    link.is_some_and(|link| link.bypasses_pci()) || peer == Some(&PeerAccess::Ok)
}

/// Finds a Hamiltonian cycle by dynamic programming over sets of nodes (Held and Karp, 1962): for
/// each set with node 0, the nodes at which a path from 0 through the set can end.
fn hamiltonian(neighbours: &[u32]) -> Option<Vec<usize>> {
    let count = neighbours.len();
    let full = (1_usize << count) - 1;
    let mut ends = vec![0_u32; full + 1];
    ends[1] = 1;
    for set in (1..=full).step_by(2) {
        for (last, near) in neighbours.iter().enumerate() {
            if ends[set] & 1 << last == 0 {
                continue;
            }
            for next in (0..count).filter(|next| near & 1 << next != 0 && set & 1 << next == 0) {
                ends[set | 1 << next] |= 1 << next;
            }
        }
    }
    let mut set = full;
    let mut candidates = ends[full] & neighbours[0];
    let mut path = Vec::with_capacity(count);
    while candidates != 0 {
        let last = candidates.trailing_zeros() as usize;
        path.push(last);
        set &= !(1 << last);
        candidates = ends[set] & neighbours[last];
    }
    path.reverse();
    (path.len() == count).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Link;

    fn topology(count: usize, link: impl Fn(usize, usize) -> Link) -> Topology {
        let cell = |from: usize, to: usize| {
            if from == to { Link::Itself } else { link(from.min(to), from.max(to)) }
        };
        let links = (0..count).map(|from| (0..count).map(|to| cell(from, to)).collect()).collect();
        Topology { links, ..Topology::default() }
    }

    const LARGE: Bytes = Bytes(100_000_000);

    #[test]
    fn ring_follows_the_fastest_cycle_of_nvlinks() {
        // A DGX-1 with V100: two links around 0-3-2-1-5-6-7-4-0, one or none elsewhere.
        let two = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)];
        let one = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)];
        let dgx1 = topology(8, |from, to| match (from, to) {
            pair if two.contains(&pair) => Link::NvLink(2),
            pair if one.contains(&pair) => Link::NvLink(1),
            _ => Link::Sys,
        });
        let devices: Vec<usize> = (0..8).collect();
        let chosen = choose(&dgx1, &devices, LARGE, &Rates::default());
        assert_eq!(chosen.reduction, Reduction::Ring);
        let route = Route { latency_nanos: 10_000, bytes_per_second: 50_000_000_000 };
        assert_eq!(chosen.ring_nanos, Some(14 * route.nanos(12_500_000)));
        for (at, from) in chosen.order.iter().enumerate() {
            let to = chosen.order[(at + 1) % 8];
            assert!(two.contains(&(*from.min(&to), *from.max(&to))), "{:?}", chosen.order);
        }
    }

    #[test]
    fn machine_without_a_cycle_of_direct_links_gets_a_tree() {
        let pairs = topology(4, |from, to| match (from, to) {
            (0, 3) | (1, 2) => Link::NvLink(2),
            _ => Link::Sys,
        });
        let chosen = choose(&pairs, &[0, 1, 2, 3], LARGE, &Rates::default());
        assert_eq!((chosen.reduction, chosen.ring_nanos), (Reduction::Tree, None));
        let rates = Rates::default();
        let host = rates.host().then(rates.host());
        assert_eq!(chosen.tree_nanos, 4 * host.nanos(LARGE.0));
    }

    #[test]
    fn small_values_take_the_tree_for_its_fewer_steps() {
        let switch = topology(8, |_, _| Link::NvLink(18));
        let devices: Vec<usize> = (0..8).collect();
        let of = |bytes| choose(&switch, &devices, bytes, &Rates::default());
        assert_eq!(of(Bytes(1024)).reduction, Reduction::Tree);
        assert_eq!(of(LARGE).reduction, Reduction::Ring);
        assert!(of(Bytes(1024)).ring_nanos.unwrap() > of(Bytes(1024)).tree_nanos);
    }

    #[test]
    fn every_device_but_the_first_sends_once_in_a_tree() {
        for count in 1..20 {
            let edges = tree_edges(count);
            let mut senders: Vec<_> = edges.iter().map(|(from, ..)| *from).collect();
            senders.sort_unstable();
            assert_eq!(senders, (1..count).collect::<Vec<_>>());
            let steps = edges.iter().map(|(.., step)| step + 1).max().unwrap_or(0);
            assert_eq!(steps, count.next_power_of_two().trailing_zeros() as usize);
        }
    }
}
