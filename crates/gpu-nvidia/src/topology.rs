//! The topology of the devices.
//!
//! It takes n² queries for n devices, one per pair, so it is not part of a snapshot.

use crate::call::{Answer, Failure, reading};
use crate::details::{Remote, remotes};
use crate::device::Device;
use crate::session::{Opened, affects_all};
use gpu_core::{
    Absent, Error, Link, PciBusId, PeerAccess, PeerCapability, Reading, Result, Topology,
};
use nvml_wrapper::enum_wrappers::device::P2pCapabilitiesIndex;

const WHAT: &str = "query the topology";
const PEERS: &str = "query the peer-to-peer status";

impl<'a> Opened<'a> {
    /// Returns the topology. For each pair it has the number of NVLinks or, without NVLinks, the
    /// nearest common ancestor in the PCI tree; the ancestor is also available for all pairs. An
    /// unresponsive device has unknown links. A device that does not report the remote ends of its
    /// NVLinks has only the links that other devices report.
    ///
    /// # Errors
    /// `Machine` if the driver does not respond; `Field` if no pair is reported.
    pub(crate) fn topology(self) -> Result<Topology> {
        let devices = self.every_device()?;
        let mut buses = Vec::new();
        for device in &devices {
            let bus = device.map_or(Ok(Err(Absent::DeviceLost)), |device| self.bus(device));
            buses.push(lenient(bus)?);
        }
        let addresses: Vec<PciBusId> = buses.iter().filter_map(|bus| bus.ok()).collect();
        let mut ends = Vec::new();
        for device in &devices {
            let lost = || Ok(Err(Absent::DeviceLost));
            let found = device.map_or_else(lost, |device| remotes(device, &addresses));
            ends.push(lenient(found)?);
        }
        let levels = pairs(&devices, Link::Itself, |from, to| {
            let name = "nvmlDeviceGetTopologyCommonAncestor";
            let level = from.query(name, "for its topology", |device| {
                device.topology_common_ancestor(to.wrapped())
            });
            // An unknown level is not an error.
            level.map(|level| link(level.as_c())).or_else(unknown(Link::Unknown))
        })?;
        let peers = peers(&devices, PeerCapability::Read)?;
        let mut paths = known(&levels, Link::Itself, Link::Unknown);
        for (number, row) in paths.iter_mut().enumerate() {
            row[number] = Link::Itself; // Even for an unresponsive device.
        }
        let seen = |from: usize, to: usize| lanes(&ends[from], &ends[to], buses[to]);
        let links = joined(levels, |from, to| either(seen(from, to), seen(to, from)))
            .map_err(|absent| Error::new(absent, WHAT))?;
        let peers = known(&peers, PeerAccess::Itself, PeerAccess::Unknown);
        Ok(Topology { links, peers, paths })
    }

    /// Returns whether each device has this kind of access to every other one.
    ///
    /// # Errors
    /// `Machine` if the driver does not respond; `Field` if no pair is reported.
    pub(crate) fn peer_access(self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        let cells = peers(&self.every_device()?, capability)?;
        let absent = cells.iter().flatten().find_map(|cell| cell.err());
        let known = known(&cells, PeerAccess::Itself, PeerAccess::Unknown);
        match absent {
            Some(absent) if known.is_empty() => Err(Error::new(absent, PEERS)),
            _ => Ok(known),
        }
    }

    /// Returns every device by index; `None` for an unresponsive device.
    fn every_device(self) -> Result<Vec<Option<Device<'a>>>> {
        let mut devices = Vec::new();
        for index in self.indices() {
            devices.push(match self.device(index) {
                Err(error) if affects_all(&error) => return Err(error),
                device => device.ok(),
            });
        }
        Ok(devices)
    }
}

/// Queries the peer access of each pair.
fn peers(
    devices: &[Option<Device<'_>>],
    capability: PeerCapability,
) -> Result<Vec<Vec<Reading<PeerAccess>>>> {
    let index = || match capability {
        PeerCapability::Read => P2pCapabilitiesIndex::Read,
        PeerCapability::Write => P2pCapabilitiesIndex::Write,
        PeerCapability::NvLink => P2pCapabilitiesIndex::NvLink,
        PeerCapability::Atomics => P2pCapabilitiesIndex::Atomics,
        PeerCapability::Prop => P2pCapabilitiesIndex::Prop,
    };
    pairs(devices, PeerAccess::Itself, |from, to| {
        let name = "nvmlDeviceGetP2PStatus";
        let status = from.query(name, "for its peer-to-peer status", |device| {
            device.p2p_status(&to.wrapped(), index())
        });
        let access = status.map(|status| peer_access(status.as_c()));
        access.or_else(unknown(PeerAccess::Unknown))
    })
}

/// Returns the values, with `unknown` for absent ones; empty if no pair has a value.
fn known<T: Copy + PartialEq>(reported: &[Vec<Reading<T>>], itself: T, unknown: T) -> Vec<Vec<T>> {
    let mut pairs = reported.iter().flatten().filter(|cell| **cell != Ok(itself)).peekable();
    if pairs.peek().is_some() && pairs.all(|cell| cell.is_err()) {
        return Vec::new();
    }
    let row = |row: &Vec<Reading<T>>| row.iter().map(|cell| cell.unwrap_or(unknown)).collect();
    reported.iter().map(row).collect()
}

/// Converts a value unknown to nvml-wrapper to `value`.
fn unknown<T>(value: T) -> impl FnOnce(Failure) -> Answer<T> {
    |failure| if failure.is_unknown_value() { Ok(value) } else { Err(failure) }
}

/// Converts a failure of one device to an absent value.
fn lenient<T>(answer: Result<Reading<T>>) -> Result<Reading<T>> {
    answer.or_else(
        |error| if affects_all(&error) { Err(error) } else { Ok(Err(error.kind().absent())) },
    )
}

/// Queries each pair of devices.
fn pairs<T: Copy>(
    devices: &[Option<Device<'_>>],
    itself: T,
    query: impl Fn(Device<'_>, Device<'_>) -> Answer<T>,
) -> Result<Vec<Vec<Reading<T>>>> {
    let pair = |from: &Option<Device<'_>>, to: &Option<Device<'_>>| match (from, to) {
        (Some(from), Some(to)) if from.index == to.index => Ok(Ok(itself)),
        (Some(from), Some(to)) => lenient(reading(query(*from, *to))),
        _ => Ok(Err(Absent::DeviceLost)),
    };
    let row = |from| devices.iter().map(|to| pair(from, to)).collect();
    devices.iter().map(row).collect()
}

/// Replaces the PCI paths of pairs with NVLinks.
///
/// # Errors
/// If no pair is known: the reason why the links are unknown, otherwise the first reason.
fn joined(
    levels: Vec<Vec<Reading<Link>>>,
    lanes: impl Fn(usize, usize) -> Reading<u8>,
) -> Result<Vec<Vec<Link>>, Absent> {
    let (mut any, mut unreported, mut failed) = (false, None, None);
    let mut links = Vec::new();
    for (from, row) in levels.into_iter().enumerate() {
        let mut cells = Vec::new();
        for (to, level) in row.into_iter().enumerate() {
            let lanes = lanes(from, to);
            let cell = match (lanes, level) {
                _ if from == to => Ok(Link::Itself),
                (Ok(0), level) => level,
                (Ok(lanes), _) => Ok(Link::NvLink(lanes)),
                // The PCI path would imply that there are no NVLinks.
                (Err(reason), _) => Err(reason),
            };
            any |= from != to && cell.is_ok();
            unreported = unreported.or(cell.err());
            // A lost device counts as lost, whatever the others support.
            let lost = level == Err(Absent::DeviceLost);
            failed = failed.or(lanes.err().filter(|_| from != to && !lost));
            cells.push(cell.unwrap_or(Link::Unknown));
        }
        links.push(cells);
    }
    match failed.or(unreported) {
        Some(reason) if !any => Err(reason),
        _ => Ok(links),
    }
}

/// Counts the active NVLinks from one device to another, as reported by the first: the links that
/// end at the other device or, if both are connected to switches, the smaller of their numbers of
/// switch links.
fn lanes(
    from: &Reading<Vec<Remote>>,
    to: &Reading<Vec<Remote>>,
    address: Reading<PciBusId>,
) -> Reading<u8> {
    let from = from.as_ref().map_err(|reason| *reason)?;
    let switched = |ends: &[Remote]| ends.iter().filter(|end| **end == Remote::Switch).count();
    let mut lanes = 0;
    if from.iter().any(|end| matches!(end, Remote::At(_))) {
        let there = Remote::At(address?);
        lanes += from.iter().filter(|end| **end == there).count();
    }
    if switched(from) > 0 {
        lanes += switched(from).min(switched(to.as_ref().map_err(|reason| *reason)?));
    }
    Ok(u8::try_from(lanes).unwrap_or(u8::MAX))
}

/// Combines the numbers of NVLinks reported by both ends: one end can confirm a link, but both must
/// report its absence.
fn either(one: Reading<u8>, other: Reading<u8>) -> Reading<u8> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (Ok(lanes), Err(_)) | (Err(_), Ok(lanes)) if lanes > 0 => Ok(lanes),
        (Err(reason), _) | (_, Err(reason)) => Err(reason),
    }
}

/// Decodes `nvmlGpuTopologyLevel_t`.
fn link(level: u32) -> Link {
    match level {
        // Devices on one board share a bridge.
        0 | 10 => Link::Pix,
        20 => Link::Pxb,
        30 => Link::Phb,
        40 => Link::Node,
        50 => Link::Sys,
        _ => Link::Unknown,
    }
}

/// Decodes `nvmlGpuP2PStatus_t`.
fn peer_access(status: u32) -> PeerAccess {
    match status {
        0 => PeerAccess::Ok,
        1 => PeerAccess::ChipsetNotSupported,
        2 => PeerAccess::DeviceNotSupported,
        3 => PeerAccess::TopologyNotSupported,
        4 => PeerAccess::Disabled,
        5 => PeerAccess::NotSupported,
        _ => PeerAccess::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bus(number: u8) -> PciBusId {
        PciBusId { domain: 0, bus: number, device: 0, function: 0 }
    }

    #[test]
    fn nvlinks_are_counted_per_remote_end() {
        let ends = Ok(vec![Remote::At(bus(2)), Remote::At(bus(3)), Remote::At(bus(2))]);
        let none = Ok(vec![]);
        assert_eq!(lanes(&ends, &none, Ok(bus(2))), Ok(2));
        assert_eq!(lanes(&ends, &none, Ok(bus(4))), Ok(0));
        let (six, four) = (Ok(vec![Remote::Switch; 6]), Ok(vec![Remote::Switch; 4]));
        assert_eq!(lanes(&six, &four, Ok(bus(2))), Ok(4));
        assert_eq!(lanes(&six, &ends, Ok(bus(2))), Ok(0));
    }

    #[test]
    fn unreported_link_is_not_missing() {
        let (lost, failed) = (Absent::DeviceLost, Absent::Failed);
        let (none, switched) = (Ok(vec![]), Ok(vec![Remote::Switch]));
        let straight = Ok(vec![Remote::At(bus(2))]);
        assert_eq!(lanes(&Err(lost), &none, Ok(bus(2))), Err(lost));
        assert_eq!(lanes(&straight, &none, Err(failed)), Err(failed), "a link may end there");
        assert_eq!(lanes(&switched, &Err(lost), Ok(bus(2))), Err(lost));
        assert_eq!(lanes(&none, &Err(lost), Err(failed)), Ok(0), "no links");

        assert_eq!(either(Err(lost), Ok(4)), Ok(4), "one end is enough for a link");
        assert_eq!(either(Ok(4), Ok(0)), Ok(4));
        assert_eq!(either(Ok(0), Err(lost)), Err(lost), "one end is not enough for no link");
        assert_eq!(either(Ok(0), Ok(0)), Ok(0));
    }

    #[test]
    fn links_unknown_for_all_pairs_are_absent() {
        let (itself, unreported) = (Ok(Link::Itself), Err(Absent::NotSupported));
        let of = |rows: [[Reading<Link>; 2]; 2]| {
            known(&rows.map(Vec::from), Link::Itself, Link::Unknown)
        };
        assert!(of([[itself, unreported], [unreported, itself]]).is_empty());
        let half = of([[itself, Ok(Link::Pix)], [unreported, itself]]);
        assert_eq!(half, [[Link::Itself, Link::Pix], [Link::Unknown, Link::Itself]]);
        assert_eq!(known(&[vec![itself]], Link::Itself, Link::Unknown), [[Link::Itself]]);
    }

    #[test]
    fn nvlinks_override_pcie_paths() {
        let levels =
            vec![vec![Ok(Link::Itself), Ok(Link::Sys)], vec![Ok(Link::Sys), Ok(Link::Itself)]];
        let links = joined(levels.clone(), |from, to| Ok(if from < to { 4 } else { 0 })).unwrap();
        assert_eq!(links, [[Link::Itself, Link::NvLink(4)], [Link::Sys, Link::Itself]]);
        let half = |from, to| if from < to { Err(Absent::Failed) } else { Ok(0) };
        assert_eq!(joined(levels, half).unwrap()[0], [Link::Itself, Link::Unknown]);
    }

    #[test]
    fn fully_unreported_tree_is_absent() {
        let unreported = Err(Absent::NotSupported);
        let levels = vec![vec![Ok(Link::Itself), unreported], vec![unreported, Ok(Link::Itself)]];
        assert_eq!(joined(levels.clone(), |_, _| Ok(0)), Err(Absent::NotSupported));
        let half = |from, to| if from < to { Ok(0) } else { Err(Absent::DeviceLost) };
        assert_eq!(joined(levels.clone(), half), Err(Absent::DeviceLost), "links are unknown");
        let links = joined(levels, |from, to| Ok(if from < to { 1 } else { 0 })).unwrap();
        assert_eq!(links[1], [Link::Unknown, Link::Itself]);
        let lone = vec![vec![Ok(Link::Itself)]];
        assert_eq!(joined(lone, |_, _| Ok(0)), Ok(vec![vec![Link::Itself]]));
    }

    #[test]
    fn levels_and_peer_access_are_decoded() {
        let levels = [0, 10, 20, 30, 40, 50, 60].map(link);
        use Link::{Node, Phb, Pix, Pxb, Sys};
        assert_eq!(levels, [Pix, Pix, Pxb, Phb, Node, Sys, Link::Unknown]);
        let access = [0, 1, 2, 3, 4, 5, 6].map(peer_access);
        use PeerAccess::{
            ChipsetNotSupported, DeviceNotSupported, Disabled, NotSupported, TopologyNotSupported,
        };
        assert_eq!(
            access,
            [
                PeerAccess::Ok,
                ChipsetNotSupported,
                DeviceNotSupported,
                TopologyNotSupported,
                Disabled,
                NotSupported,
                PeerAccess::Unknown,
            ]
        );
    }

    #[test]
    fn only_failures_of_one_device_are_absent_values() {
        use gpu_core::{DeviceFault, MachineFault};
        assert_eq!(lenient(Ok(Ok(7))).unwrap(), Ok(7));
        let lost = Error::new(DeviceFault::Lost, WHAT);
        assert_eq!(lenient::<u8>(Err(lost)).unwrap(), Err(Absent::DeviceLost));
        let gone = MachineFault::DriverNotLoaded;
        assert_eq!(lenient::<u8>(Err(Error::new(gone, WHAT))).unwrap_err().kind(), gone.into());
    }
}
