//! Identifiers of devices and processes that stay valid while the machine changes.

use crate::absent::{Absent, Reading};
use std::fmt;
use std::str::FromStr;

/// The UUID of a device as its driver prints it (NVML: `GPU-` or `MIG-` and 36 characters). In leases
/// and claims, the [key](DeviceId::lease_key) of the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "String"))]
pub struct DeviceUuid(pub String);

impl From<String> for DeviceUuid {
    fn from(text: String) -> Self {
        DeviceUuid::named(&text)
    }
}

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A PCI address: domain, bus, device, function.
///
/// Tools print it with four or eight digits of domain and in either case; different spellings of
/// one address compare equal here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct PciBusId {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, at most 31.
    pub device: u8,
    /// Function number, at most 7.
    pub function: u8,
}

/// The text is not a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a PCI bus ID, e.g. 00000000:04:00.0")]
pub struct NoPciBusId(String);

impl FromStr for PciBusId {
    type Err = NoPciBusId;

    /// Parses `DOMAIN:BUS:DEVICE.FUNCTION` or, as old drivers print, `BUS:DEVICE.FUNCTION`.
    fn from_str(text: &str) -> Result<Self, NoPciBusId> {
        let read = || {
            let (address, function) = text.rsplit_once('.')?;
            let mut parts = address.rsplit(':');
            let hex = |part: &str, most: usize| {
                let digits = part.len() <= most && part.bytes().all(|b| b.is_ascii_hexdigit());
                u32::from_str_radix(part, 16).ok().filter(|_| digits)
            };
            let device = hex(parts.next()?, 2)?;
            let bus = hex(parts.next()?, 2)?;
            let domain = parts.next().map_or(Some(0), |part| hex(part, 8))?;
            if parts.next().is_some() {
                return None;
            }
            Some(PciBusId {
                domain,
                bus: u8::try_from(bus).ok()?,
                device: u8::try_from(device).ok().filter(|d| *d < 32)?,
                function: u8::try_from(hex(function, 1)?).ok().filter(|f| *f < 8)?,
            })
        };
        read().ok_or_else(|| NoPciBusId(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for PciBusId {
    type Error = NoPciBusId;
    fn try_from(text: String) -> Result<Self, NoPciBusId> {
        text.parse()
    }
}

impl From<PciBusId> for String {
    fn from(id: PciBusId) -> String {
        id.to_string()
    }
}

impl fmt::Display for PciBusId {
    /// Writes NVML's current form, `00000000:04:00.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}:{:02X}:{:02X}.{:X}", self.domain, self.bus, self.device, self.function)
    }
}

/// The UIDs of a process (credentials(7)): the real UID, of the user who started it; the effective
/// UID, which gives it its rights; and the saved UID, which it can take again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // As above.
pub struct Uids {
    pub real: u32,
    pub effective: u32,
    pub saved: u32,
}

impl Uids {
    /// Returns whether the kernel lets this user, without further rights, signal the process
    /// (kill(2)). A setuid program belongs to the user who started it; a program of root that has
    /// only lowered its rights still belongs to root.
    pub fn may_be_signalled_by(self, user: u32) -> bool {
        self.real == user || self.saved == user
    }
}

/// The identity of an open file.
///
/// A container runtime can create its own node for a device: the same device, another inode. So a
/// device is identified by its number, and every other file by file system and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FileId {
    /// A character device, by `st_rdev`.
    Device {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Any other file, by `st_dev` and `st_ino`.
    Inode {
        /// File system, as the kernel encodes it.
        dev: u64,
        /// Inode.
        ino: u64,
    },
}

/// Identifies the device that a file belongs to, as far as the file shows it.
///
/// [`DeviceId::owns`](crate::DeviceId::owns) compares it with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DeviceKey {
    /// The PCI address, which sysfs shows for the files of most drivers.
    Pci(PciBusId),
    /// The file itself: its driver reports the number of the file as
    /// [`DeviceId::node`](crate::DeviceId::node).
    Node(FileId),
    /// The index, in pasted text that has neither.
    Index(u32),
}

/// Identifies one device: by UUID if known, and with its other identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "crate::recorded::Id"))]
pub struct DeviceId {
    /// The UUID; the only identifier that survives a reboot and a moved card.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub uuid: Reading<DeviceUuid>,
    /// The index on this machine. With one driver it is the driver's own: for NVML the order of PCI
    /// addresses, which is not CUDA's default order.
    pub index: u32,
    /// The device file through which programs compute on it, such as `/dev/nvidiaN`: its minor
    /// number is often, not always, the index.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub node: Reading<FileId>,
    /// The PCI address.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub bus: Reading<PciBusId>,
}

impl DeviceId {
    /// Returns an ID with only an index, as from a pasted table.
    pub fn from_index(index: u32) -> Self {
        DeviceId {
            uuid: Err(Absent::NotRecorded),
            index,
            node: Err(Absent::NotRecorded),
            bus: Err(Absent::NotRecorded),
        }
    }

    /// Returns the minor number of its file.
    pub fn minor(&self) -> Reading<u32> {
        match self.node? {
            FileId::Device { minor, .. } => Ok(minor),
            FileId::Inode { .. } => Err(Absent::NotFound),
        }
    }

    /// Returns every way in which a file may identify this device, the best first.
    pub fn keys(&self) -> impl Iterator<Item = DeviceKey> {
        let (bus, node) = (self.bus.ok().map(DeviceKey::Pci), self.node.ok().map(DeviceKey::Node));
        bus.into_iter().chain(node).chain([DeviceKey::Index(self.index)])
    }

    /// Returns whether a file that identifies its device in this way belongs to this device.
    pub fn owns(&self, key: DeviceKey) -> bool {
        match key {
            DeviceKey::Pci(bus) => self.bus == Ok(bus),
            DeviceKey::Node(file) => self.node == Ok(file),
            DeviceKey::Index(index) => self.index == index,
        }
    }

    /// Returns whether both identify the same device: by the strongest identifier that both have,
    /// UUID, then PCI address, then index.
    pub fn same_device(&self, other: &Self) -> bool {
        if let (Ok(a), Ok(b)) = (&self.uuid, &other.uuid) {
            return a == b;
        }
        if let (Ok(a), Ok(b)) = (self.bus, other.bus) {
            return a == b;
        }
        self.index == other.index
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}", self.index)
    }
}

/// A PID, in the namespace of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// When a process started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct StartTime(pub u64);

/// A process, also if its PID is reused later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessKey {
    /// Process ID.
    pub pid: Pid,
    /// Start time, in clock ticks since boot (field 22 of /proc/PID/stat). Null if unknown.
    #[cfg_attr(feature = "serde", serde(rename = "start_ticks"))]
    pub start: Option<StartTime>,
}

impl ProcessKey {
    /// Returns whether both certainly identify the same process: a key without a start time never
    /// does.
    pub fn definitely_same(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start.is_some() && self.start == other.start
    }
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pid.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_bus_id_parses_every_spelling() {
        let address: PciBusId = "00000000:04:00.0".parse().unwrap();
        for spelling in ["0000:04:00.0", "04:00.0", "0000:04:00.0", "00000000:04:00.0"] {
            assert_eq!(spelling.parse(), Ok(address), "{spelling}");
        }
        assert_eq!("0009:01:1e.0".parse::<PciBusId>().unwrap().to_string(), "00000009:01:1E.0");
        for wrong in [
            "",
            "04:00",
            "1:2:3:4.0",
            "0000:04:20.0",
            "0000:04:00.8",
            "xx:00.0",
            "+4:+0.0",
            "0000:04:00a.0",
            "0000:004:00.0",
            "0000:04:00.00",
            "000000000:04:00.0",
        ] {
            assert!(wrong.parse::<PciBusId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn process_key_without_start_time_never_definitely_matches() {
        let pid = Pid(7);
        let known = ProcessKey { pid, start: Some(StartTime(3)) };
        let reused = ProcessKey { pid, start: Some(StartTime(4)) };
        let unknown = ProcessKey { pid, start: None };
        assert!(known.definitely_same(&known));
        assert!(!known.definitely_same(&reused));
        assert!(!unknown.definitely_same(&unknown));
    }

    #[test]
    fn devices_compare_by_strongest_common_id() {
        let mut a = DeviceId::from_index(0);
        let mut b = DeviceId::from_index(1);
        assert!(!a.same_device(&b));
        a.bus = "04:00.0".parse().map_err(|_| Absent::Failed);
        b.bus = a.bus;
        assert!(a.same_device(&b));
        a.uuid = Ok(DeviceUuid("GPU-a".into()));
        b.uuid = Ok(DeviceUuid("GPU-b".into()));
        assert!(!a.same_device(&b));
    }
}
