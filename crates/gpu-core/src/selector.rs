//! Devices as users name them.

use crate::id::{DeviceId, DeviceUuid, PciBusId};
use crate::snapshot::DeviceState;
use crate::visible::cuda::{Numbering, VisibleList};
use std::fmt;
use std::str::FromStr;

/// One or several devices, by index, UUID or PCI address, as `nvidia-smi -i` takes them. A MIG
/// device can only be named by UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The index on this machine.
    Index(u32),
    /// The UUID, or a beginning of it that no other device has.
    Uuid(String),
    /// The PCI address.
    Bus(PciBusId),
    /// The indexes from the first to the last, both included: `0-3`.
    Range(u32, u32),
    /// Every device: `all`.
    All,
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Ok(index) = text.parse() {
            return Ok(Selector::Index(index));
        }
        if text == "all" {
            return Ok(Selector::All);
        }
        if let Some((first, last)) = text.split_once('-')
            && let (Ok(first), Ok(last)) = (first.parse(), last.parse())
        {
            return if first <= last {
                Ok(Selector::Range(first, last))
            } else {
                Err(format!("a range starts with its lower index: {last}-{first}"))
            };
        }
        if text.starts_with("GPU-") || text.starts_with("MIG-") {
            return Ok(Selector::Uuid(text.to_owned()));
        }
        let bus = text.parse().map(Selector::Bus);
        bus.map_err(|_| {
            "expected an index, a range (0-3), all, a UUID (GPU-…) or a PCI bus ID (04:00.0)".into()
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Index(index) => write!(f, "{index}"),
            Selector::Uuid(uuid) => f.write_str(uuid),
            Selector::Bus(bus) => write!(f, "{bus}"),
            Selector::Range(first, last) => write!(f, "{first}-{last}"),
            Selector::All => f.write_str("all"),
        }
    }
}

impl Selector {
    /// Parses the name of a single device.
    ///
    /// # Errors
    /// If the text is not a name, or names several devices.
    pub fn single(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(single) if !matches!(single, Selector::Range(..) | Selector::All) => Ok(single),
            _ => Err("expected one GPU: an index, a UUID (GPU-…) or a PCI bus ID (04:00.0)".into()),
        }
    }

    /// Returns whether this is a beginning of the device's UUID.
    fn begins(&self, id: &DeviceId) -> bool {
        match (self, &id.uuid) {
            (Selector::Uuid(part), Ok(known)) => known.0.starts_with(part.as_str()),
            _ => false,
        }
    }

    /// Returns whether this names the device.
    pub fn names(&self, id: &DeviceId) -> bool {
        match self {
            Selector::Index(index) => id.index == *index,
            Selector::Uuid(uuid) => id.uuid.as_ref().is_ok_and(|known| known.0 == *uuid),
            Selector::Bus(bus) => id.bus == Ok(*bus),
            Selector::Range(first, last) => (*first..=*last).contains(&id.index),
            Selector::All => true,
        }
    }
}

/// Why a name does not select devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No device has this name.
    #[error("find GPU {name} on this machine")]
    NotFound {
        /// As it was named.
        name: Selector,
        /// The indexes of those that exist.
        known: Vec<u32>,
    },
    /// Several devices have a UUID that begins with this text.
    #[error("find GPU {name} on this machine")]
    Ambiguous {
        /// As it was named.
        name: Selector,
        /// Their indexes.
        matches: Vec<u32>,
    },
    /// Several MIG devices have a UUID that begins with this text.
    #[error("find MIG device {name} on this machine")]
    AmbiguousPart {
        /// As it was named.
        name: Selector,
        /// The number of those MIG devices.
        matches: usize,
    },
}

/// Returns the named devices, in the machine's order; all devices if `asked` is empty.
///
/// # Errors
/// When a named device does not exist (with the indexes of those that do), or when several have a
/// UUID that begins with the text.
pub fn select(
    devices: Vec<DeviceState>,
    asked: &[Selector],
) -> Result<Vec<DeviceState>, SelectError> {
    let indexes = indexes(&devices, asked)?;
    let is_asked = |device: &DeviceState| asked.is_empty() || indexes.contains(&device.id().index);
    Ok(devices.into_iter().filter(is_asked).collect())
}

/// Returns the indexes of the named devices, each once, in the order of the names.
///
/// # Errors
/// As [`select`].
pub fn indexes(devices: &[DeviceState], asked: &[Selector]) -> Result<Vec<u32>, SelectError> {
    let mut indexes = Vec::new();
    for selector in asked {
        let named = match selector {
            Selector::All => devices.iter().map(|device| device.id().index).collect(),
            Selector::Range(first, last) => {
                let each = (*first..=*last).map(|index| index_of(devices, &Selector::Index(index)));
                each.collect::<Result<Vec<_>, _>>()?
            }
            single => vec![index_of(devices, single)?],
        };
        for index in named {
            if !indexes.contains(&index) {
                indexes.push(index);
            }
        }
    }
    Ok(indexes)
}

/// Returns the index of the single device with this name.
fn index_of(devices: &[DeviceState], one: &Selector) -> Result<u32, SelectError> {
    let all = || devices.iter().map(DeviceState::id);
    if let Some(id) = all().find(|id| one.names(id)) {
        return Ok(id.index);
    }
    let matches: Vec<u32> = all().filter(|id| one.begins(id)).map(|id| id.index).collect();
    let (name, known) = (one.clone(), || all().map(|id| id.index).collect());
    match matches[..] {
        [index] => Ok(index),
        [] => Err(SelectError::NotFound { name, known: known() }),
        _ => Err(SelectError::Ambiguous { name, matches }),
    }
}

/// Returns the MIG device with this name: its UUID, a beginning of it that no other MIG device has,
/// or its parts, as drivers up to R460 name it (`MIG-GPU-…/6/0`).
///
/// # Errors
/// When several have a UUID that begins with the text.
pub fn part(devices: &[DeviceState], asked: &Selector) -> Result<Option<DeviceUuid>, SelectError> {
    let Selector::Uuid(name) = asked else { return Ok(None) };
    if !name.starts_with("MIG-") {
        return Ok(None);
    }
    let listed = VisibleList::parse(Some(name)).resolve(devices, Numbering::ByAddress);
    if let Some(uuid) = listed.ok().and_then(|listed| listed.uuids().into_iter().next()) {
        return Ok(Some(uuid));
    }
    let parts = devices.iter().flat_map(|device| device.partitions.iter().flatten());
    let uuids = parts.filter_map(|part| part.uuid.as_ref().ok());
    let begun: Vec<&DeviceUuid> = uuids.filter(|uuid| uuid.0.starts_with(name)).collect();
    match begun[..] {
        [] => Ok(None),
        [uuid] => Ok(Some(uuid.clone())),
        _ => Err(SelectError::AmbiguousPart { name: asked.clone(), matches: begun.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_selected_by_index_uuid_or_bus_id() {
        let mut id = DeviceId::from_index(3);
        id.uuid = Ok(DeviceUuid("GPU-8ae3".into()));
        id.bus = "00000000:3B:00.0".parse().map_err(|_| crate::Absent::Failed);
        for name in ["3", " 3 ", "GPU-8ae3", "3b:00.0", "0000:3B:00.0", "00000000:3b:00.0"] {
            assert!(name.parse::<Selector>().unwrap().names(&id), "{name}");
        }
        assert!(!"MIG-8ae3".parse::<Selector>().unwrap().names(&id));
        for name in ["2", "GPU-8ae", "GPU-8AE3", "3c:00.0"] {
            assert!(!name.parse::<Selector>().unwrap().names(&id), "{name}");
        }
        for (part, begins) in [("GPU-8", true), ("GPU-8ae3", true), ("GPU-9", false), ("3", false)]
        {
            assert_eq!(part.parse::<Selector>().unwrap().begins(&id), begins, "{part}");
        }
        for wrong in ["", "x", "-1", "gpu-8ae3", "4294967296", "3-1", "1-", "-", "0-1-2", "All"] {
            assert!(wrong.parse::<Selector>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_and_all_select_several_devices_each_once() {
        let fault = crate::Fault { kind: crate::ErrorKind::TimedOut, text: String::new() };
        let device = |index| {
            let info = crate::DeviceInfo::unknown(DeviceId::from_index(index));
            DeviceState::unanswered(info, crate::Groups::NONE, &fault)
        };
        let devices = [device(0), device(1), device(2), device(4)];
        let indexes = |text: &str| {
            let asked: Vec<Selector> = text.split(',').map(|one| one.parse().unwrap()).collect();
            super::indexes(&devices, &asked).map_err(|error| error.to_string())
        };
        assert_eq!(indexes("all"), Ok(vec![0, 1, 2, 4]));
        assert_eq!(indexes("2,0-2"), Ok(vec![2, 0, 1]));
        assert_eq!(indexes("4-4,all,1"), Ok(vec![4, 0, 1, 2]));
        assert_eq!(indexes("1-4294967295"), Err("find GPU 3 on this machine".into()));
        assert_eq!("0-2".parse::<Selector>().unwrap().to_string(), "0-2");
        assert_eq!("all".parse::<Selector>().unwrap().to_string(), "all");
        assert_eq!(Selector::single("3"), Ok(Selector::Index(3)));
        assert!(Selector::single("0-2").is_err() && Selector::single("all").is_err());
    }

    #[test]
    fn mig_device_is_selected_by_uuid_prefix_or_legacy_name() {
        let mut info = crate::DeviceInfo::unknown(DeviceId::from_index(0));
        info.id.uuid = Ok(DeviceUuid("GPU-8ae3".into()));
        let fault = crate::Fault { kind: crate::ErrorKind::TimedOut, text: String::new() };
        let mut device = DeviceState::unanswered(info, crate::Groups::NONE, &fault);
        let absent = Err(crate::Absent::NotRecorded);
        let mig = |uuid: &str, gpu_instance| crate::Partition {
            index: gpu_instance,
            uuid: Ok(DeviceUuid(uuid.into())),
            profile: Err(crate::Absent::NotRecorded),
            gpu_instance: Some(gpu_instance),
            compute_instance: Some(0),
            memory: crate::MemoryInfo { total: absent, used: absent, reserved: absent },
        };
        device.partitions = Ok(vec![mig("MIG-41a7-b2", 6), mig("MIG-41a7", 7), mig("MIG-41b8", 8)]);
        let part = |name: &str| {
            let found = super::part(std::slice::from_ref(&device), &name.parse().unwrap());
            found.map(|found| found.map(|uuid| uuid.0))
        };
        for (name, uuid) in [
            ("MIG-41a7-b2", Some("MIG-41a7-b2")),
            ("MIG-41a7", Some("MIG-41a7")),
            ("MIG-41a7-", Some("MIG-41a7-b2")),
            ("MIG-41b", Some("MIG-41b8")),
            ("MIG-GPU-8ae3/8/0", Some("MIG-41b8")),
            ("MIG-GPU-8ae3/8/1", None),
            ("MIG-5", None),
            ("GPU-8ae3", None),
            ("0", None),
        ] {
            assert_eq!(part(name).unwrap().as_deref(), uuid, "{name}");
        }
        assert!(part("MIG-41a").unwrap_err().to_string().contains("MIG-41a"));
    }
}
