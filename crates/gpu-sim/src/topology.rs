//! The topology of a machine, and values derived from it.

use crate::file::MachineFile;
use crate::machine::{Device, Machine};
use crate::toml_source::TomlSource;
use gpu_core::{Absent, Link, NvLink, PciBusId, PeerAccess, Reading, Result, Topology};
use std::iter::repeat_n;

/// Reads the topology of a `machine.toml`, if it has one.
///
/// # Errors
/// `Invalid` if it is not a square matrix with a row per device, or if its paths contradict its
/// links.
pub(crate) fn read(
    source: TomlSource<'_>,
    file: &MachineFile,
    devices: usize,
) -> Result<Option<Topology>> {
    let Some(rows) = &file.topology else {
        return match (&file.peers, &file.paths) {
            (Some(_), _) => Err(source.error(None, "'peers' requires 'topology'")),
            (_, Some(_)) => Err(source.error(None, "'paths' requires 'topology'")),
            (None, None) => Ok(None),
        };
    };
    let what =
        "topology must be a square matrix of cells such as 'X NV2 PIX SYS', a row for each GPU";
    let links = square(rows, devices, link).ok_or_else(|| source.error(None, what))?;
    let peers = match &file.peers {
        Some(rows) => {
            let what =
                "peers must be a square matrix of cells such as 'X OK CNS', a row for each GPU";
            square(rows, devices, peer).ok_or_else(|| source.error(None, what))?
        }
        None => Vec::new(),
    };
    let paths = match &file.paths {
        Some(rows) => {
            let what = "paths must be a square matrix of cells such as 'X PIX SYS', a row for \
                        each GPU, equal to 'topology' except for its NVLinks";
            let paths = square(rows, devices, link).filter(|paths| fit(&links, paths));
            paths.ok_or_else(|| source.error(None, what))?
        }
        None => Vec::new(),
    };
    Ok(Some(Topology { links, peers, paths }))
}

/// Returns whether paths are consistent with these links.
fn fit(links: &[Vec<Link>], paths: &[Vec<Link>]) -> bool {
    let mut pairs = links.iter().flatten().zip(paths.iter().flatten());
    pairs.all(|(link, path)| match (link, path) {
        (_, Link::NvLink(_) | Link::Xgmi) => false,
        (Link::NvLink(_) | Link::Xgmi, path) => *path != Link::Itself,
        (link, path) => link == path,
    })
}

fn square<T>(rows: &[String], size: usize, cell: fn(&str) -> Option<T>) -> Option<Vec<Vec<T>>> {
    let row = |row: &String| row.split_whitespace().map(cell).collect::<Option<Vec<_>>>();
    let cells: Vec<Vec<T>> = rows.iter().map(row).collect::<Option<_>>()?;
    (cells.len() == size && cells.iter().all(|row| row.len() == size)).then_some(cells)
}

fn link(cell: &str) -> Option<Link> {
    Some(match cell {
        "X" => Link::Itself,
        "XGMI" => Link::Xgmi,
        "PIX" => Link::Pix,
        "PXB" => Link::Pxb,
        "PHB" => Link::Phb,
        "NODE" => Link::Node,
        "SYS" => Link::Sys,
        _ => Link::NvLink(cell.strip_prefix("NV")?.parse().ok()?),
    })
}

fn peer(cell: &str) -> Option<PeerAccess> {
    Some(match cell {
        "X" => PeerAccess::Itself,
        "OK" => PeerAccess::Ok,
        "CNS" => PeerAccess::ChipsetNotSupported,
        "GNS" => PeerAccess::DeviceNotSupported,
        "TNS" => PeerAccess::TopologyNotSupported,
        "DR" => PeerAccess::Disabled,
        "NS" => PeerAccess::NotSupported,
        "U" => PeerAccess::Unknown,
        _ => return None,
    })
}

impl Machine {
    /// Fills in connections that are not described: a single device is only connected to itself;
    /// peer access, positions in the PCI tree, and NVLinks are derived.
    pub(crate) fn connect(&mut self) {
        if self.topology == Err(Absent::NotRecorded) && self.devices.len() == 1 {
            let links = vec![vec![Link::Itself]];
            self.topology = Ok(Topology { links, ..Topology::default() });
        }
        let Ok(topology) = &mut self.topology else { return };
        if topology.peers.is_empty() {
            let reach = |row: &Vec<Link>| row.iter().map(|link| reach(*link)).collect();
            topology.peers = topology.links.iter().map(reach).collect();
        }
        if topology.paths.is_empty() {
            let path = |row: &Vec<Link>| row.iter().map(|link| path(*link)).collect();
            topology.paths = topology.links.iter().map(path).collect();
        }
        let buses: Vec<Reading<PciBusId>> = self.devices.iter().map(|d| d.info.id.bus).collect();
        for (device, row) in self.devices.iter_mut().zip(&topology.links) {
            if device.details.nvlinks.as_ref().is_none_or(Vec::is_empty) {
                device.details.nvlinks = Some(nvlinks(device, row, &buses));
            }
        }
    }
}

/// Returns the relative position of two devices in the PCI tree. An NVLink does not reveal it, so
/// the most distant position is assumed, which promises nothing.
fn path(link: Link) -> Link {
    match link {
        Link::NvLink(_) | Link::Xgmi => Link::Sys,
        link => link,
    }
}

/// Returns whether a device has peer access to another: over NVLink or below one host bridge.
/// Between host bridges it requires a platform that forwards such traffic, which is rare.
fn reach(link: Link) -> PeerAccess {
    match link {
        Link::Itself => PeerAccess::Itself,
        Link::NvLink(_) | Link::Xgmi | Link::Pix | Link::Pxb | Link::Phb => PeerAccess::Ok,
        Link::Node | Link::Sys => PeerAccess::TopologyNotSupported,
        Link::Unknown => PeerAccess::Unknown,
    }
}

/// The maximum number of NVLinks of a device (`NVML_NVLINK_MAX_LINKS`).
const MAX_LINKS: usize = 18;

/// The number of switches that the links are distributed over.
const SWITCHES: usize = 4;

/// Returns the links counted by a row of the topology, those to the first device first. If they
/// exceed the maximum of a device, they end at switches instead, and every link reaches every other
/// device.
fn nvlinks(device: &Device, row: &[Link], buses: &[Reading<PciBusId>]) -> Vec<NvLink> {
    let counts = row.iter().map(|link| match link {
        Link::NvLink(count) => usize::from(*count),
        _ => 0,
    });
    let most = counts.clone().max().unwrap_or_default().min(MAX_LINKS);
    let ends: Vec<Reading<PciBusId>> = if counts.clone().sum::<usize>() <= MAX_LINKS {
        counts.zip(buses).flat_map(|(count, bus)| repeat_n(*bus, count)).collect()
    } else {
        switches(buses).into_iter().map(Ok).cycle().take(most).collect()
    };
    let version = version(device);
    let link = |remote| NvLink {
        active: Ok(true),
        version,
        remote,
        replays: Ok(0),
        recoveries: Ok(0),
        crc_errors: Ok(0),
    };
    ends.into_iter().map(link).collect()
}

/// Returns synthetic addresses of switches, distinct from those of devices.
fn switches(devices: &[Reading<PciBusId>]) -> Vec<PciBusId> {
    let buses = (0..=u8::MAX).rev();
    let addresses = buses.map(|bus| PciBusId { domain: 0, bus, device: 0, function: 0 });
    addresses.filter(|address| !devices.contains(&Ok(*address))).take(SWITCHES).collect()
}

/// Returns the NVLink version of an architecture.
fn version(device: &Device) -> Reading<u32> {
    let product = device.details.product.as_ref();
    match product.and_then(|product| product.architecture.as_deref().ok()) {
        Some("Pascal") => Ok(1),
        Some("Volta" | "Turing") => Ok(2),
        Some("Ampere") => Ok(3),
        Some("Hopper") => Ok(4),
        Some("Blackwell") => Ok(5),
        _ => Err(Absent::NotSupported),
    }
}
