//! How fast data passes between devices.

use crate::topology::{Link, PeerAccess, Topology};

/// The route of data from one device to another, or between a device and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route {
    /// The time before the first byte arrives, in nanoseconds.
    pub latency_nanos: u64,
    /// How many bytes arrive per second after that; 0 if there is no limit.
    pub bytes_per_second: u64,
}

impl Route {
    /// Returns the time that a value takes, in nanoseconds, rounded up.
    pub fn nanos(self, bytes: u64) -> u64 {
        const SECOND: u128 = 1_000_000_000;
        let rate = u128::from(self.bytes_per_second);
        let carried = match rate {
            0 => 0,
            _ => (u128::from(bytes) * SECOND).div_ceil(rate),
        };
        self.latency_nanos.saturating_add(u64::try_from(carried).unwrap_or(u64::MAX))
    }

    /// Returns the route of a value that is copied twice, to the host and from there.
    pub fn then(self, next: Route) -> Route {
        let (a, b) = (u128::from(self.bytes_per_second), u128::from(next.bytes_per_second));
        let rate = match (a, b) {
            (0, rate) | (rate, 0) => rate,
            _ => a * b / (a + b),
        };
        Route {
            latency_nanos: self.latency_nanos.saturating_add(next.latency_nanos),
            bytes_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
        }
    }
}

/// The rate of each kind of connection, in one direction.
///
/// The defaults are published figures of common machines; figures measured on the machine are
/// better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// One NVLink, in bytes per second. Default: 25 GB/s, that of NVLink 2, 3 and 4 (NVIDIA V100,
    /// A100 and H100 white papers: 300, 600 and 900 GB/s for 6, 12 and 18 links in both directions).
    /// NVLink 1 has 20 GB/s, NVLink 5 has 50 GB/s.
    pub nvlink: u64,
    /// A device and its PCIe bridge, in bytes per second. Default: PCIe 3.0 × 16 with 8 GT/s and
    /// 128b/130b (15.75 GB/s, PCI Express Base Specification 3.0), of which transfers between
    /// devices reach about seven eighths (CUDA's `p2pBandwidthLatencyTest`).
    pub pcie: u64,
    /// How many percent of the PCIe rate remain between NUMA nodes (`SYS`). Default: 80;
    /// `p2pBandwidthLatencyTest` shows 72 to 93 on machines with two sockets.
    pub across_nodes_percent: u64,
    /// The latency of a copy between devices, in nanoseconds. Default: 10 µs, a copy with
    /// `cudaMemcpyPeerAsync` and its launch.
    pub copy_nanos: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates {
            nvlink: 25_000_000_000,
            pcie: 13_780_000_000,
            across_nodes_percent: 80,
            copy_nanos: 10_000,
        }
    }
}

impl Rates {
    /// Returns the route over a link; `None` if the link is unknown.
    pub fn route(&self, link: Link) -> Option<Route> {
        let bytes_per_second = match link {
            Link::Itself => return Some(Route::default()),
            // 50 GB/s in both directions together, as an NVLink (KFD's topology of an MI210).
            Link::Xgmi => self.nvlink,
            Link::NvLink(lanes) => self.nvlink.saturating_mul(u64::from(lanes)),
            Link::Pix | Link::Pxb | Link::Phb | Link::Node => self.pcie,
            Link::Sys => self.pcie / 100 * self.across_nodes_percent.min(100),
            Link::Unknown => return None,
        };
        Some(Route { latency_nanos: self.copy_nanos, bytes_per_second })
    }

    /// Returns the route between a device and the host.
    pub fn host(&self) -> Route {
        Route { latency_nanos: self.copy_nanos, bytes_per_second: self.pcie }
    }

    /// Returns the route between two devices that cannot access each other: two copies.
    pub fn through_host(&self) -> Route {
        self.host().then(self.host())
    }

    /// Returns the route between two devices of a machine.
    ///
    /// It is the link if it is an NVLink or if one device can access the memory of the other, and
    /// two copies through the host otherwise. If the topology does not show access, PCIe links
    /// count as accessible, except between NUMA nodes, because CUDA supports no peer access over
    /// most of those.
    pub fn between(&self, topology: &Topology, from: usize, to: usize) -> Route {
        if from == to {
            return Route::default();
        }
        let link = link(topology, from, to);
        let direct = if is_direct(topology, from, to) { self.route(link) } else { None };
        direct.unwrap_or_else(|| self.through_host())
    }
}

fn link(topology: &Topology, from: usize, to: usize) -> Link {
    let row = topology.links.get(from);
    row.and_then(|row| row.get(to)).copied().unwrap_or(Link::Unknown)
}

fn is_direct(topology: &Topology, from: usize, to: usize) -> bool {
    let peer = topology.peers.get(from).and_then(|row| row.get(to));
    match (link(topology, from, to), peer) {
        (Link::NvLink(lanes), _) => lanes > 0,
        (_, Some(peer)) => *peer == PeerAccess::Ok,
        (Link::Pix | Link::Pxb | Link::Phb | Link::Node, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(link: Link, peer: Option<PeerAccess>) -> Topology {
        let square = |cell| vec![vec![Link::Itself, cell], vec![cell, Link::Itself]];
        let peers = |cell| vec![vec![PeerAccess::Itself, cell], vec![cell, PeerAccess::Itself]];
        Topology {
            links: square(link),
            peers: peer.map(peers).unwrap_or_default(),
            ..Topology::default()
        }
    }

    #[test]
    fn transfer_time_is_latency_plus_size_over_rate_rounded_up() {
        let route = Route { latency_nanos: 10, bytes_per_second: 2_000_000_000 };
        assert_eq!((route.nanos(0), route.nanos(1), route.nanos(4)), (10, 11, 12));
        assert_eq!(Route::default().nanos(u64::MAX), 0);
        let slow = Route { latency_nanos: 1, bytes_per_second: 1 };
        assert_eq!(slow.nanos(u64::MAX), u64::MAX);
    }

    #[test]
    fn nvlinks_add_up() {
        let rates = Rates::default();
        let route = rates.between(&pair(Link::NvLink(12), None), 0, 1);
        assert_eq!(route.bytes_per_second, 300_000_000_000);
    }

    #[test]
    fn devices_without_peer_access_copy_through_host() {
        let rates = Rates::default();
        let direct = rates.between(&pair(Link::Phb, Some(PeerAccess::Ok)), 0, 1);
        let twice = rates.between(&pair(Link::Phb, Some(PeerAccess::ChipsetNotSupported)), 0, 1);
        assert_eq!(direct.bytes_per_second, rates.pcie);
        assert_eq!(twice, rates.through_host());
        assert_eq!(twice.bytes_per_second, rates.pcie / 2);
        assert_eq!(twice.latency_nanos, 2 * rates.copy_nanos);
        assert_eq!(rates.between(&pair(Link::Sys, None), 0, 1), twice);
        assert_eq!(rates.between(&pair(Link::Unknown, Some(PeerAccess::Ok)), 0, 1), twice);
        assert_eq!(rates.between(&Topology::default(), 0, 7), twice);
    }
}
