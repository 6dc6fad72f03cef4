//! A snapshot of a machine, as plain data.

use crate::absent::{Absent, Reading};
use crate::clock::Timestamp;
use crate::details::DeviceDetails;
use crate::device::{
    DeviceInfo, DeviceProcess, DeviceProcessKind, DeviceSample, Driver, MemoryInfo, Partition,
    PidNamespace,
};
use crate::driver_error::{DriverError, DriverErrorCode};
use crate::driver_message::DriverMessage;
use crate::error::{ErrorKind, Fault};
use crate::file::DeviceFile;
use crate::holder::{Holder, UnreadProcess, Unreadable};
use crate::id::{DeviceId, Pid};
use crate::kernel_driver::KernelDriver;
use crate::memory_source::MemorySource;
use crate::process::ProcessInfo;
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The source of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Origin {
    /// The machine this program runs on.
    Live,
    /// A simulated machine, by name.
    Simulated(String),
    /// Text that other tools printed on some machine; no action is possible there.
    Pasted,
    /// A history of a machine: its name and the time, as text for users. No action is possible
    /// there.
    Recorded(String),
    /// The files of a machine below this directory, usually a copy from another machine. No action
    /// is possible there.
    Copied(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Live => f.write_str("this machine"),
            Origin::Simulated(name) => write!(f, "simulated machine {name}"),
            Origin::Pasted => f.write_str("pasted text"),
            Origin::Recorded(what) => write!(f, "recording of {what}"),
            Origin::Copied(tree) => write!(f, "copied tree {tree}"),
        }
    }
}

impl Origin {
    /// Returns whether processes can be ended and devices reset there.
    pub fn permits_actions(&self) -> bool {
        matches!(self, Origin::Live | Origin::Simulated(_))
    }
}

/// The most memory that a driver uses on an idle device beyond what it reports separately: 25 MiB
/// on a P100 with driver 418, 11 MiB on a K80, and nothing from driver 510 on. The smallest CUDA
/// context takes about 100 MiB.
pub const DRIVER_OVERHEAD: Bytes = Bytes::from_mib(64);

/// Returns how far the used memory of a device may normally exceed that of the listed processes.
///
/// [`DRIVER_OVERHEAD`] and 0.5 % of the memory. If a display is drawn, there are also frame buffers
/// that no list shows: 512 MiB more.
pub fn driver_reserve(total: Bytes, graphics: bool) -> Bytes {
    let display = if graphics { Bytes::from_mib(512) } else { Bytes(0) };
    DRIVER_OVERHEAD + Bytes(total.0 / 200) + display
}

/// The state of one device at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceState {
    /// Its identity.
    pub info: DeviceInfo,
    /// Its state, or why it could not be read.
    pub sample: Result<DeviceSample, Fault>,
    /// The processes that the driver lists on it, or why they could not be read. Empty is not absent.
    pub processes: Result<Vec<DeviceProcess>, Fault>,
    /// Its partitions, none if it is not divided, or why they could not be read.
    #[cfg_attr(feature = "serde", serde(rename = "mig"))]
    pub partitions: Result<Vec<Partition>, Fault>,
    /// The requested groups of details, or why they could not be read.
    #[cfg_attr(feature = "serde", serde(default = "no_details", skip_serializing_if = "is_empty"))]
    pub details: Result<DeviceDetails, Fault>,
}

#[cfg(feature = "serde")]
fn no_details() -> Result<DeviceDetails, Fault> {
    Ok(DeviceDetails::default())
}

#[cfg(feature = "serde")]
fn is_empty(details: &Result<DeviceDetails, Fault>) -> bool {
    details.as_ref().is_ok_and(DeviceDetails::is_empty)
}

impl DeviceState {
    /// Returns the identifiers of the device.
    pub fn id(&self) -> &DeviceId {
        &self.info.id
    }

    /// Returns its partitions as separate devices: each with its identifiers, its memory and the
    /// processes that are or may be in it; all else is that of the whole device.
    ///
    /// If several compute instances share memory, the use by processes that are certainly in another
    /// instance is left out: it is neither used by this one nor free.
    pub fn partitions_as_devices(&self) -> impl Iterator<Item = DeviceState> {
        self.partitions.iter().flatten().map(|instance| self.as_device(instance))
    }

    /// Returns the partition of a GPU instance and a compute instance, or the only one of the GPU
    /// instance if the compute instance is unknown.
    pub fn partition(&self, gpu: Option<u32>, compute: Option<u32>) -> Option<&Partition> {
        let is_it = |part: &&Partition| {
            part.gpu_instance == gpu && (compute.is_none() || part.compute_instance == compute)
        };
        let mut found = self.partitions.iter().flatten().filter(|_| gpu.is_some()).filter(is_it);
        found.next().filter(|_| found.next().is_none())
    }

    fn as_device(&self, instance: &Partition) -> DeviceState {
        let listed = self.processes.iter().flatten();
        let others = listed.filter(|process| {
            let is_in =
                process.gpu_instance.is_some() && process.gpu_instance == instance.gpu_instance;
            is_in && !instance.may_have(process)
        });
        let others: Bytes = others.filter_map(|process| process.memory.ok()).sum();
        let less = |memory: Reading<Bytes>| memory.map(|memory| memory.saturating_sub(others));
        let MemoryInfo { total, used, reserved } = instance.memory;
        let memory = MemoryInfo { total: less(total), used: less(used), reserved };
        let sample = self.sample.as_ref().map(|sample| {
            let source = MemorySource::of(sample.source.kind);
            DeviceSample { memory, source, ..sample.clone() }
        });
        let processes = self.processes.as_ref().map(|listed| {
            listed.iter().filter(|process| instance.may_have(process)).cloned().collect()
        });
        let id = DeviceId { uuid: instance.uuid.clone(), ..self.info.id.clone() };
        DeviceState {
            info: DeviceInfo { id, partitioned: Ok(false), ..self.info.clone() },
            sample: sample.map_err(Clone::clone),
            processes: processes.map_err(Clone::clone),
            partitions: Ok(Vec::new()),
            details: self.details.clone(),
        }
    }

    /// Returns the memory that the listed processes use together; `None` if one of them has no
    /// reading, or the list itself is absent.
    pub fn memory_listed(&self) -> Option<Bytes> {
        self.processes.as_ref().ok()?.iter().map(|process| process.memory.ok()).sum()
    }

    /// Returns whether its processes were found by the device's clients in `/proc`, because the driver
    /// has no list. Such a list lacks the processes that the caller may not inspect, and memory that
    /// belongs to no client: exported buffers, pictures on a display, imports by other hardware.
    pub fn lists_clients(&self) -> bool {
        self.info.pid_namespace == PidNamespace::Caller
    }

    /// Returns the most memory that the driver and displays may use on it in addition to the listed
    /// processes ([`driver_reserve`]); `None` if its size is unknown.
    pub fn driver_reserve(&self) -> Option<Bytes> {
        let draws = |process: &DeviceProcess| {
            use DeviceProcessKind::{ComputeAndGraphics, Graphics};
            matches!(process.kind, Graphics | ComputeAndGraphics)
        };
        let graphics =
            self.info.display_active == Ok(true) || self.processes.iter().flatten().any(draws);
        Some(driver_reserve(self.memory_total().ok()?, graphics))
    }
}

/// A snapshot of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The time at which it was taken.
    #[cfg_attr(feature = "serde", serde(rename = "taken_at_unix_ms"))]
    pub taken_at: Timestamp,
    /// Its source.
    pub origin: Origin,
    /// The hostname.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub hostname: Reading<String>,
    /// The driver, or why it cannot be queried.
    pub driver: Result<Driver, Fault>,
    /// The devices by index; none when the driver does not answer.
    pub devices: Vec<DeviceState>,
    /// The devices that the kernel module lists, if the driver reports none.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub unasked: Vec<DeviceInfo>,
    /// The GPU device files; empty if there are none.
    pub files: Vec<DeviceFile>,
    /// Their holders, or why they are unknown.
    pub holders: Result<Vec<Holder>, Fault>,
    /// Processes whose files were not visible.
    pub unreadable: Unreadable,
    /// The first of these by PID, with what could be read of them.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub unread: Vec<UnreadProcess>,
    /// Every process that a device lists or that holds a file, their parents, and the leaders of
    /// their groups and sessions; `NotFound` for a process that is named and does not exist.
    pub processes: BTreeMap<Pid, Process>,
    /// Whether the PIDs in the devices' process lists are valid here: the lists are made from
    /// `/proc`, or the caller is in the initial PID namespace.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub sees_host_pids: Reading<bool>,
    /// Whether the caller was root.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", default = "not_recorded"))]
    pub is_root: Reading<bool>,
    /// The driver's error messages in the kernel log, oldest first, or why they could not be read.
    #[cfg_attr(
        feature = "serde",
        serde(default = "no_messages", skip_serializing_if = "is_not_requested")
    )]
    pub driver_messages: Result<Vec<DriverMessage>, Fault>,
}

/// Returns the fault for messages that were not requested.
fn no_messages() -> Result<Vec<DriverMessage>, Fault> {
    Err(not_requested("read the driver's messages in the kernel log"))
}

#[cfg(feature = "serde")]
fn is_not_requested(messages: &Result<Vec<DriverMessage>, Fault>) -> bool {
    *messages == no_messages()
}

#[cfg(feature = "serde")]
fn not_recorded<T>() -> Reading<T> {
    Err(Absent::NotRecorded)
}

fn not_requested(what: &str) -> Fault {
    Fault { kind: ErrorKind::NotRequested, text: what.to_owned() }
}

/// A process named in a snapshot, or why it is unknown. Snapshots with the same data share it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Process(
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))] pub Reading<Arc<ProcessInfo>>,
);

impl Process {
    /// Returns the data of a known process, to be changed in this snapshot alone.
    pub fn info_mut(&mut self) -> Option<&mut ProcessInfo> {
        self.0.as_mut().ok().map(Arc::make_mut)
    }
}

impl From<Reading<ProcessInfo>> for Process {
    fn from(known: Reading<ProcessInfo>) -> Self {
        Process(known.map(Arc::new))
    }
}

impl Snapshot {
    /// Returns a snapshot with only its origin and time, to be filled in.
    pub fn empty(origin: Origin, taken_at: Timestamp) -> Self {
        Snapshot {
            taken_at,
            origin,
            hostname: Err(Absent::NotRecorded),
            driver: Err(not_requested("query the driver")),
            devices: Vec::new(),
            unasked: Vec::new(),
            files: Vec::new(),
            holders: Err(not_requested("list device file holders")),
            unreadable: Unreadable::default(),
            unread: Vec::new(),
            processes: BTreeMap::new(),
            sees_host_pids: Err(Absent::NotRecorded),
            is_root: Err(Absent::NotRecorded),
            driver_messages: no_messages(),
        }
    }

    /// Explains the driver's messages of a snapshot that was read from a record. A code that no driver
    /// knows stands for itself.
    pub fn explain(&mut self, drivers: &[Arc<dyn KernelDriver>]) {
        for message in self.driver_messages.iter_mut().flatten() {
            let known = drivers.iter().find_map(|driver| driver.explain(message));
            message.error = known.unwrap_or_else(|| DriverError {
                code: message.code.clone(),
                name: message.code.to_string().chars().take(DriverErrorCode::MAX_NAME).collect(),
                ..DriverError::default()
            });
        }
    }

    /// Returns the data of a process.
    ///
    /// # Errors
    /// Why it is unknown: `NotFound` when it does not exist, `NotRecorded` when this snapshot does
    /// not cover it.
    pub fn process(&self, pid: Pid) -> Reading<&ProcessInfo> {
        let process = self.processes.get(&pid).ok_or(Absent::NotRecorded)?;
        process.0.as_deref().map_err(|absent| *absent)
    }

    /// Returns the nearest NUMA node of the first `count` devices by index; `None` where it is
    /// unknown.
    pub fn numa_nodes(&self, count: usize) -> Vec<Option<u32>> {
        let node = |index: usize| {
            let named = |device: &&DeviceState| device.id().index as usize == index;
            let details = self.devices.iter().find(named)?.details.as_ref().ok()?;
            details.product.as_ref()?.numa_node.ok()
        };
        (0..count).map(node).collect()
    }

    /// Returns the holders, none if they are unknown.
    pub fn holders(&self) -> &[Holder] {
        self.holders.as_deref().unwrap_or_default()
    }

    /// Returns whether the files of the device are known. On a live machine a guess would name
    /// those of another device; pasted text goes by the index, and no action is possible on its
    /// processes.
    pub fn knows_files_of(&self, device: &DeviceState) -> bool {
        let id = device.id();
        let is_pasted = self.origin == Origin::Pasted;
        id.node.is_ok() || is_pasted || self.files.iter().any(|file| file.opens(id))
    }

    /// Returns the device that `id` identifies; for a partition the whole device.
    pub fn device(&self, id: &DeviceId) -> Option<&DeviceState> {
        let is_part = |mig: &Partition| mig.uuid.is_ok() && mig.uuid == id.uuid;
        self.devices.iter().find(|device| {
            device.id().same_device(id) || device.partitions.iter().flatten().any(is_part)
        })
    }
}
