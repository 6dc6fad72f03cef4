//! Which devices are reset together.

use gpu_core::{Absent, DeviceState, Link, Reading, Topology};
use std::collections::BTreeSet;

/// The devices that are reset together with one: those that have NVLinks to it, directly or through
/// others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Linked {
    /// Those that are known, by index.
    pub(crate) peers: Vec<u32>,
    /// Surely there are no others.
    pub(crate) whole: bool,
}

impl Linked {
    /// Returns what is reset together with the device `index` of all `devices`.
    ///
    /// Only a machine that does not support the question has no links, where all of its devices
    /// answer. Whatever else keeps the answer away leaves it open.
    pub(crate) fn of(topology: &Reading<Topology>, devices: &[DeviceState], index: u32) -> Self {
        let seen: BTreeSet<u32> = devices.iter().map(|device| device.id().index).collect();
        let links = match topology {
            Ok(topology) => &topology.links,
            Err(reason) => {
                let alone = seen.iter().all(|other| *other == index);
                let answer = devices.iter().all(|device| device.sample.is_ok());
                let whole = alone || (*reason == Absent::NotSupported && answer);
                return Linked { peers: Vec::new(), whole };
            }
        };
        let all: BTreeSet<u32> =
            (0u32..).zip(links).map(|(row, _)| row).chain(seen.clone()).collect();
        let (mut reached, mut open, mut whole) = (BTreeSet::from([index]), vec![index], true);
        while let Some(from) = open.pop() {
            for to in all.iter().copied().filter(|to| *to != from) {
                let cell = links.get(from as usize).and_then(|row| row.get(to as usize));
                match cell {
                    Some(Link::NvLink(_)) if reached.insert(to) => open.push(to),
                    Some(Link::Unknown) | None => whole = false,
                    Some(_) => {}
                }
            }
        }
        whole &= reached.is_subset(&seen);
        reached.remove(&index);
        Linked { peers: reached.into_iter().collect(), whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_sim::Simulation;

    fn devices_of(machine: &str) -> Vec<DeviceState> {
        let simulation = Simulation::named(std::path::Path::new(machine)).unwrap();
        gpu_core::observe(&simulation, &simulation, &simulation).devices
    }

    fn alone() -> Linked {
        Linked { peers: vec![], whole: true }
    }

    #[test]
    fn nvlink_peers_are_transitive() {
        let (nv, sys, own) = (Link::NvLink(4), Link::Sys, Link::Itself);
        let topology = Topology {
            links: vec![
                vec![own, nv, sys, sys],
                vec![nv, own, nv, sys],
                vec![sys, nv, own, sys],
                vec![sys, sys, sys, own],
            ],
            ..Topology::default()
        };
        let devices = devices_of("labbox");
        let of = |topology: &Topology, devices: &[DeviceState], index| {
            Linked::of(&Ok(topology.clone()), devices, index)
        };
        assert_eq!(of(&topology, &devices, 0), Linked { peers: vec![1, 2], whole: true });
        assert_eq!(of(&topology, &devices, 3), alone());

        let mut silent = topology.clone();
        silent.links[2][3] = Link::Unknown;
        assert_eq!(of(&silent, &devices, 0), Linked { peers: vec![1, 2], whole: false });
        assert_eq!(of(&silent, &devices, 3), alone(), "nothing of its own is unknown");
        assert!(!of(&Topology::default(), &devices, 0).whole, "it speaks of no device");
        assert!(!of(&topology, &devices[..2], 0).whole, "2 is reset too and was not looked at");
    }

    #[test]
    fn only_not_supported_counts_as_no_link() {
        let devices = devices_of("labbox");
        for reason in [
            Absent::NotPermitted,
            Absent::NotFound,
            Absent::TooOld,
            Absent::Deprecated,
            Absent::Failed,
            Absent::NoAnswer,
            Absent::DeviceLost,
            Absent::NotRecorded,
            Absent::Implausible,
        ] {
            assert!(!Linked::of(&Err(reason), &devices, 0).whole, "{reason}");
            assert!(Linked::of(&Err(reason), &devices[..1], 0).whole, "a lone device: {reason}");
        }
        assert_eq!(Linked::of(&Err(Absent::NotSupported), &devices, 0), alone());
        let lost = devices_of("lost-gpu");
        assert!(!Linked::of(&Err(Absent::NotSupported), &lost, 0).whole, "one is silent");
    }
}
