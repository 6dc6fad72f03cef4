//! `gpuws topo --json`.

use super::{Device, Head};
use gpu_core::{Link, PeerAccess, Snapshot, Topology};
use serde::Serialize;

/// How the GPUs are connected. Rows and columns of each matrix are in the order of the indexes.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Topo<'a> {
    /// The source of the data.
    #[serde(flatten)]
    pub head: Head,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// Links between GPUs, in the words of nvidia-smi topo -m: X, NV4, PIX, PXB, PHB, NODE, SYS; a
    /// question mark if unknown.
    pub links: Vec<Vec<String>>,
    /// Links between GPUs without NVLink, in the same words. Null if unknown.
    pub paths: Option<Vec<Vec<String>>>,
    /// Whether the GPU of the row can access the memory of the GPU of the column. Null if unknown.
    pub peer_access: Option<&'a [Vec<PeerAccess>]>,
    /// Score of each pair of GPUs in the choice of GPUs for a claim: higher is better connected.
    pub scores: Vec<Vec<u32>>,
}

/// A GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// Identifiers of the GPU.
    #[serde(flatten)]
    pub device: Device,
    /// Product name. Null if unknown.
    pub name: Option<String>,
    /// Nearest NUMA node of the host. Null if unknown.
    pub numa_node_id: Option<u32>,
}

impl<'a> Topo<'a> {
    /// Returns the object for a machine and how its devices are connected.
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
