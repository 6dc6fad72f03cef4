//! `gpuws topo --json`.

use super::{Device, Head};
use gpu_core::{Link, PeerAccess, Snapshot, Topology};
use serde::Serialize;

/// How the devices are connected. Rows and columns are in the order of the indexes.
#[derive(Serialize)]
pub struct Topo<'a> {
    #[serde(flatten)]
    head: Head,
    gpus: Vec<Gpu>,
    /// In the words of `nvidia-smi topo -m`: `X`, `NV4`, `PIX`, … and `?`.
    links: Vec<Vec<String>>,
    /// The same without NVLinks; null where that is not told.
    paths: Option<Vec<Vec<String>>>,
    /// Whether the row's device reads the memory of the column's; null where that is not told.
    peer_access: Option<&'a [Vec<PeerAccess>]>,
    /// What each pair counts when devices are chosen.
    scores: Vec<Vec<u32>>,
}

#[derive(Serialize)]
struct Gpu {
    #[serde(flatten)]
    device: Device,
    name: Option<String>,
    numa_node_id: Option<u32>,
}

impl<'a> Topo<'a> {
    /// Returns what is told of a machine and how its devices are connected.
    pub fn of(now: &Snapshot, topology: &'a Topology) -> Self {
        let nodes = now.numa_nodes(topology.links.len());
        let words = |rows: &[Vec<Link>]| -> Vec<Vec<String>> {
            rows.iter().map(|row| row.iter().map(Link::to_string).collect()).collect()
        };
        let gpus = now.devices.iter().map(|device| Gpu {
            device: Device::of(device.id()),
            name: device.info.name.clone().ok(),
            numa_node_id: nodes.get(device.id().index as usize).copied().flatten(),
        });
        let count = topology.links.len();
        let score = |from| (0..count).map(|to| topology.score(from, to)).collect();
        Topo {
            head: Head::of(now),
            gpus: gpus.collect(),
            links: words(&topology.links),
            paths: (!topology.paths.is_empty()).then(|| words(&topology.paths)),
            peer_access: (!topology.peers.is_empty()).then_some(&topology.peers[..]),
            scores: (0..count).map(score).collect(),
        }
    }
}
