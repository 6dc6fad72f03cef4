//! Where layers may go, and how fast data passes between.

use crate::need::Layer;
use gpu_core::{Bytes, Link, PeerAccess, Topology};

/// The kind of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoomKind {
    /// The memory of a GPU.
    Gpu,
    /// The memory of the CPU, where layers are computed slowly.
    Cpu,
    /// A disk, from which layers are read each time.
    Disk,
}

/// A place for layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// A name for people.
    pub name: String,
    /// Its kind.
    pub kind: RoomKind,
    /// The bytes that may be used.
    pub capacity: Bytes,
    /// How fast weights are read, in bytes a second.
    pub bytes_per_second: u64,
    /// How fast it computes, in operations a second.
    pub operations_per_second: u64,
}

impl Room {
    /// Returns a GPU that reads 1 TB and computes 100 trillion operations a second.
    pub fn gpu(name: impl Into<String>, capacity: Bytes) -> Room {
        let (bytes_per_second, operations_per_second) = (1_000_000_000_000, 100_000_000_000_000);
        let kind = RoomKind::Gpu;
        Room { name: name.into(), kind, capacity, bytes_per_second, operations_per_second }
    }

    /// Returns a CPU that reads 50 GB and computes 1 trillion operations a second.
    pub fn cpu(capacity: Bytes) -> Room {
        let (bytes_per_second, operations_per_second) = (50_000_000_000, 1_000_000_000_000);
        let kind = RoomKind::Cpu;
        Room { name: "cpu".to_owned(), kind, capacity, bytes_per_second, operations_per_second }
    }

    /// Returns a disk that reads 2 GB a second, without limit, in front of a CPU.
    pub fn disk() -> Room {
        Room {
            name: "disk".to_owned(),
            kind: RoomKind::Disk,
            capacity: Bytes(u64::MAX),
            bytes_per_second: 2_000_000_000,
            operations_per_second: 1_000_000_000_000,
        }
    }

    /// Returns the time that a layer takes for a token, in nanoseconds: its bytes are read, then it
    /// is computed.
    pub fn layer_nanos(&self, layer: &Layer) -> u64 {
        nanos(layer.reads.0, self.bytes_per_second)
            .saturating_add(nanos(layer.operations, self.operations_per_second))
    }
}

/// Returns the time of an amount at a rate, in nanoseconds; of nothing known, none.
fn nanos(amount: u64, per_second: u64) -> u64 {
    let product = u128::from(amount) * 1_000_000_000;
    let nanos = product.checked_div(u128::from(per_second)).unwrap_or(0);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// A link between two rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    /// How fast data passes, in bytes a second.
    pub bytes_per_second: u64,
    /// How long it takes at least, in nanoseconds.
    pub latency_nanos: u64,
}

/// PCIe 4.0 with 16 lanes, through the memory of the host.
pub const PCIE: Wire = Wire { bytes_per_second: 25_000_000_000, latency_nanos: 10_000 };

impl Wire {
    /// Returns the link between two GPUs of a machine, by their indexes.
    ///
    /// An NVLink passes 25 GB/s in each direction (NVLink 2 to 4, NVIDIA's datasheets of V100, A100
    /// and H100). PCIe 4.0 with 16 lanes passes 31.5 GB/s, of which copies reach about 25; across
    /// sockets it is about half. Without peer access, data passes through the memory of the host.
    pub fn between(topology: &Topology, from: usize, to: usize) -> Wire {
        let cell = |rows: &[Vec<Link>]| rows.get(from).and_then(|row| row.get(to)).copied();
        let link = cell(&topology.links).unwrap_or(Link::Unknown);
        let peer = topology.peers.get(from).and_then(|row| row.get(to));
        let direct = !matches!(peer, Some(access) if *access != PeerAccess::Ok);
        let (gigabytes, latency_nanos) = match link {
            Link::Itself => return Wire { bytes_per_second: u64::MAX, latency_nanos: 0 },
            Link::NvLink(lanes) => (25 * u64::from(lanes.max(1)), 2_000),
            Link::Pix | Link::Pxb | Link::Phb if direct => (25, 5_000),
            Link::Node if direct => (20, 5_000),
            Link::Sys => (12, 10_000),
            _ => return PCIE,
        };
        Wire { bytes_per_second: gigabytes * 1_000_000_000, latency_nanos }
    }
}

/// The rooms, and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    /// The rooms, in the order of the caller.
    pub rooms: Vec<Room>,
    /// The link from each room to each; what is absent is [`PCIE`].
    pub links: Vec<Vec<Wire>>,
}

impl Rooms {
    /// Returns rooms that are all linked by [`PCIE`].
    pub fn new(rooms: Vec<Room>) -> Rooms {
        Rooms { rooms, links: Vec::new() }
    }

    /// Returns the link from a room to another.
    pub fn link(&self, from: usize, to: usize) -> Wire {
        self.links.get(from).and_then(|row| row.get(to)).copied().unwrap_or(PCIE)
    }

    /// Returns the time that bytes take from a room to another, in nanoseconds.
    pub fn transfer_nanos(&self, from: usize, to: usize, bytes: Bytes) -> u64 {
        let link = self.link(from, to);
        nanos(bytes.0, link.bytes_per_second).saturating_add(link.latency_nanos)
    }

    /// Returns the first room of a kind.
    pub fn first(&self, kind: RoomKind) -> Option<usize> {
        self.rooms.iter().position(|room| room.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_links_are_faster() {
        let row = vec![
            Link::Itself,
            Link::NvLink(4),
            Link::NvLink(1),
            Link::Pix,
            Link::Node,
            Link::Sys,
            Link::Unknown,
        ];
        let topology = Topology { links: vec![row], ..Topology::default() };
        let rate = |to: usize| Wire::between(&topology, 0, to).bytes_per_second;
        let rates: Vec<u64> = (0..6).map(rate).collect();
        assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
        assert_eq!(rate(1), 4 * rate(2));
        assert_eq!(Wire::between(&topology, 0, 6), PCIE);
        assert_eq!(Wire::between(&topology, 9, 9), PCIE);
        let peers = vec![vec![PeerAccess::NotSupported; 7]];
        let apart = Topology { peers, ..topology };
        assert_eq!(Wire::between(&apart, 0, 4), PCIE);
    }
}
