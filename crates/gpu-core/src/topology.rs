//! How devices are connected.

use std::fmt;

/// The best path between two devices, by nvidia-smi's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Link {
    /// `X`: the same device.
    Itself,
    /// `NV<n>`: n NVLinks.
    NvLink(u8),
    /// `PIX`: one PCIe bridge at most.
    Pix,
    /// `PXB`: several PCIe bridges, no host bridge.
    Pxb,
    /// `PHB`: a host bridge.
    Phb,
    /// `NODE`: between host bridges of one NUMA node.
    Node,
    /// `SYS`: between NUMA nodes.
    Sys,
    /// Any other cell.
    Unknown,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Link::Itself => "X",
            Link::NvLink(lanes) => return write!(f, "NV{lanes}"),
            Link::Pix => "PIX",
            Link::Pxb => "PXB",
            Link::Phb => "PHB",
            Link::Node => "NODE",
            Link::Sys => "SYS",
            Link::Unknown => "?",
        })
    }
}

/// Whether one device can reach the memory of another, by the letters of `nvidia-smi topo -p2p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PeerAccess {
    /// `X`: the same device.
    Itself,
    /// `OK`
    Ok,
    /// `CNS`: the chipset does not support it.
    ChipsetNotSupported,
    /// `GNS`: the device does not support it.
    DeviceNotSupported,
    /// `TNS`: not over this path.
    TopologyNotSupported,
    /// `DR`: switched off by a registry key.
    Disabled,
    /// `NS`: not supported.
    NotSupported,
    /// `U`, and any other answer.
    Unknown,
}

/// How the devices are connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Topology {
    /// `links[i][j]`: from device i to device j, by index; square.
    pub links: Vec<Vec<Link>>,
    /// `peers[i][j]`: whether device i can read the memory of device j, by index; square, or empty
    /// where that was not told.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub peers: Vec<Vec<PeerAccess>>,
}
