//! The devices that are reset together.

use gpu_core::{Absent, DeviceState, Link, Reading, Topology};
use std::collections::BTreeSet;

/// The devices that are reset with a device: those connected to it by NVLink or XGMI, directly or
/// through other devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The known devices, by index.
    pub peers: Vec<u32>,
    /// Whether there are certainly no others.
    pub whole: bool,
    /// They are connected by XGMI. AMD does not document whether a reset affects the others, so that
    /// they are reset together is an assumption.
    pub xgmi: bool,
}

impl Linked {
    /// Returns the devices that are reset with the device `index`.
    ///
    /// If the topology is absent, the device certainly has no links in two cases: it is the only
    /// device, or the driver does not support the query and all devices answer. In every other case
    /// more links may exist.
    pub fn of(topology: &Reading<Topology>, devices: &[DeviceState], index: u32) -> Self {
        let seen: BTreeSet<u32> = devices.iter().map(|device| device.id().index).collect();
        let links = match topology {
            Ok(topology) => &topology.links,
            Err(reason) => {
                let alone = seen.iter().all(|other| *other == index);
                let answer = devices.iter().all(|device| device.sample.is_ok());
                let whole = alone || (*reason == Absent::NotSupported && answer);
                return Linked { peers: Vec::new(), whole, xgmi: false };
            }
        };
        let all: BTreeSet<u32> =
            (0u32..).zip(links).map(|(row, _)| row).chain(seen.clone()).collect();
        // No link connects devices of different drivers.
        let driver = |index: u32| {
            let device = devices.iter().find(|device| device.id().index == index);
            device.map(|device| device.info.visibility)
        };
        let differ = |a: u32, b: u32| driver(a).zip(driver(b)).is_some_and(|(a, b)| a != b);
        let (mut reached, mut open, mut whole) = (BTreeSet::from([index]), vec![index], true);
        let mut xgmi = false;
        while let Some(from) = open.pop() {
            for to in all.iter().copied().filter(|to| *to != from) {
                let cell = links.get(from as usize).and_then(|row| row.get(to as usize));
                xgmi |= cell == Some(&Link::Xgmi);
                match cell {
                    _ if differ(from, to) => {}
                    Some(Link::NvLink(_) | Link::Xgmi) if reached.insert(to) => open.push(to),
                    Some(Link::Unknown) | None => whole = false,
                    Some(_) => {}
                }
            }
        }
        whole &= reached.is_subset(&seen);
        reached.remove(&index);
        Linked { peers: reached.into_iter().collect(), whole, xgmi }
    }
}
