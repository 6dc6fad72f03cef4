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
    /// `XGMI`: AMD's link, direct or over other devices.
    Xgmi,
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
            Link::Xgmi => "XGMI",
            Link::Pix => "PIX",
            Link::Pxb => "PXB",
            Link::Phb => "PHB",
            Link::Node => "NODE",
            Link::Sys => "SYS",
            Link::Unknown => "?",
        })
    }
}

/// Whether a device can access the memory of another, as nvidia-smi topo -p2p reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PeerAccess {
    /// Both are the same device (X).
    Itself,
    /// It can (OK).
    Ok,
    /// The chipset does not support it (CNS).
    ChipsetNotSupported,
    /// The device does not support it (GNS).
    DeviceNotSupported,
    /// The path between the devices does not support it (TNS).
    TopologyNotSupported,
    /// A registry key disables it (DR).
    Disabled,
    /// Not supported (NS).
    NotSupported,
    /// The driver reported anything else (U).
    Unknown,
}

impl fmt::Display for PeerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PeerAccess::Itself => "X",
            PeerAccess::Ok => "OK",
            PeerAccess::ChipsetNotSupported => "CNS",
            PeerAccess::DeviceNotSupported => "GNS",
            PeerAccess::TopologyNotSupported => "TNS",
            PeerAccess::Disabled => "DR",
            PeerAccess::NotSupported => "NS",
            PeerAccess::Unknown => "U",
        })
    }
}

/// A kind of access to the memory of another device, by the letters of `nvidia-smi topo -p2p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PeerCapability {
    /// `r`: reads.
    Read,
    /// `w`: writes.
    Write,
    /// `n`: over NVLink.
    NvLink,
    /// `a`: atomic operations.
    Atomics,
    /// `p`: over PCIe, as the driver supports it (`NVML_P2P_CAPS_INDEX_PROP`).
    Prop,
}

/// How the devices are connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Topology {
    /// `links[i][j]`: from device i to device j, by index; square.
    pub links: Vec<Vec<Link>>,
    /// `peers[i][j]`: whether device i can read the memory of device j, by index; square, or empty
    /// if unknown.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub peers: Vec<Vec<PeerAccess>>,
    /// `paths[i][j]`: how they are connected without NVLinks (`nvidia-smi topo -mp`), by index;
    /// square, or empty if unknown.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub paths: Vec<Vec<Link>>,
}

impl Topology {
    /// Returns the score of the connection between two devices: the sum over all links between
    /// them, 0 if unknown.
    ///
    /// The scores are those of NVIDIA's go-gpuallocator: SYS 10, NODE 20, PHB 30, PXB 40, PIX 50,
    /// each NVLink 100, and so XGMI here. (go-gpuallocator gives 60 to two devices on one board, which is not
    /// distinguished from PIX here.)
    pub fn score(&self, from: usize, to: usize) -> u32 {
        let cell = |table: &[Vec<Link>]| Some(*table.get(from)?.get(to)?);
        let link = cell(&self.links).unwrap_or(Link::Unknown);
        match cell(&self.paths) {
            Some(path) if path != link => link.score() + path.score(),
            _ => link.score(),
        }
    }
}

impl Link {
    /// Returns whether it is a link between devices alone, apart from PCI Express.
    pub fn bypasses_pci(self) -> bool {
        matches!(self, Link::NvLink(1..) | Link::Xgmi)
    }

    fn score(self) -> u32 {
        match self {
            Link::Itself | Link::Unknown => 0,
            Link::NvLink(lanes) => 100 * u32::from(lanes),
            Link::Xgmi => 100,
            Link::Pix => 50,
            Link::Pxb => 40,
            Link::Phb => 30,
            Link::Node => 20,
            Link::Sys => 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_sums_all_links_of_pair() {
        let square = |link| vec![vec![Link::Itself, link], vec![link, Link::Itself]];
        let of = |link, paths| Topology { links: square(link), peers: Vec::new(), paths };
        assert_eq!(of(Link::NvLink(2), square(Link::Pix)).score(0, 1), 250);
        assert_eq!(of(Link::NvLink(2), Vec::new()).score(0, 1), 200);
        assert_eq!(of(Link::Phb, square(Link::Phb)).score(1, 0), 30);
        assert_eq!(of(Link::Phb, Vec::new()).score(0, 0), 0);
        assert_eq!(of(Link::Phb, Vec::new()).score(0, 7), 0);
    }
}
