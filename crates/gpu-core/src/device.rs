//! A device: its identity, its current state, and the processes that its driver lists.

use crate::absent::{Absent, Reading};
use crate::id::{DeviceId, DeviceUuid, Pid};
use crate::memory_source::MemorySource;
use crate::units::{Bytes, Celsius, Milliwatts, Percent};
use crate::visible::Visibility;

/// The driver of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Driver {
    /// Version of the kernel module, such as `535.261.03`.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub version: Reading<String>,
    /// The highest CUDA version that the driver supports, such as `12.2`.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub cuda: Reading<String>,
}

/// The PID namespace of the PIDs in a device's process list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PidNamespace {
    /// The initial one, as for NVML: in a container its PIDs name other processes or do not exist.
    #[default]
    Initial,
    /// The caller's: the list was made from `/proc`.
    Caller,
}

/// Properties that do not change while a device works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceInfo {
    /// Its identifiers.
    pub id: DeviceId,
    /// The product name, as the source prints it (a table truncates it with `...`).
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub name: Reading<String>,
    /// Persistence mode: the driver stays initialised while no process uses the device.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub persistence: Reading<bool>,
    /// A display is initialised on the device.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub display_active: Reading<bool>,
    /// The device is divided into partitions, as in MIG mode.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "mig_enabled"))]
    pub partitioned: Reading<bool>,
    /// The namespace of the PIDs in its process list.
    #[cfg_attr(feature = "serde", serde(default))]
    pub pid_namespace: PidNamespace,
    /// How programs see it. A serialized device does not contain it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub visibility: Visibility,
}

impl DeviceInfo {
    /// Returns whether nothing is known except that the device exists.
    pub fn is_unknown(&self) -> bool {
        let visibility = self.visibility;
        let unknown = DeviceInfo::unknown(DeviceId::from_index(self.id.index));
        *self == DeviceInfo { visibility, ..unknown }
    }

    /// Returns a device with only its identifiers.
    pub fn unknown(id: DeviceId) -> Self {
        DeviceInfo {
            id,
            name: Err(Absent::NotRecorded),
            persistence: Err(Absent::NotRecorded),
            display_active: Err(Absent::NotRecorded),
            partitioned: Err(Absent::NotRecorded),
            pid_namespace: PidNamespace::Initial,
            visibility: Visibility::default(),
        }
    }
}

/// Memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryInfo {
    /// All of it.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "total_bytes"))]
    pub total: Reading<Bytes>,
    /// Used, by processes and (NVML's version 1) by the driver itself.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "used_bytes"))]
    pub used: Reading<Bytes>,
    /// Reserved by driver and firmware, if reported separately (NVML's version 2).
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "reserved_bytes"))]
    pub reserved: Reading<Bytes>,
}

/// The state of a device at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceSample {
    /// Device memory, as the driver reports it.
    pub memory: MemoryInfo,
    /// Where that memory is.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "MemorySource::is_default")
    )]
    pub source: MemorySource,
    /// Share of the driver's sample window (1/6 s to 1 s) in which a kernel ran.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "utilization_percent"))]
    pub utilization: Reading<Percent>,
    /// GPU temperature.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "temperature_c"))]
    pub temperature: Reading<Celsius>,
    /// Current power draw.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "power_draw_mw"))]
    pub power_draw: Reading<Milliwatts>,
    /// Enforced power limit.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "power_limit_mw"))]
    pub power_limit: Reading<Milliwatts>,
}

impl DeviceSample {
    /// Returns a sample in which every value is absent for `reason`.
    pub fn absent(reason: Absent) -> Self {
        DeviceSample {
            memory: MemoryInfo { total: Err(reason), used: Err(reason), reserved: Err(reason) },
            source: MemorySource::default(),
            utilization: Err(reason),
            temperature: Err(reason),
            power_draw: Err(reason),
            power_limit: Err(reason),
        }
    }
}

/// How a process uses a device, according to the driver's list that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DeviceProcessKind {
    /// `C`: a CUDA context.
    Compute,
    /// `G`: a graphics context.
    Graphics,
    /// `C+G`: both.
    ComputeAndGraphics,
    /// `M+C`: a client of the multi-process service.
    Mps,
    /// The source does not say.
    Unknown,
}

impl DeviceProcessKind {
    /// Returns the kind of a process with two uses.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        use DeviceProcessKind::{Compute, ComputeAndGraphics, Graphics, Mps, Unknown};
        match (self, other) {
            (one, two) if one == two => one,
            (Unknown, known) | (known, Unknown) => known,
            (Mps, _) | (_, Mps) => Mps,
            (Compute | Graphics | ComputeAndGraphics, _) => ComputeAndGraphics,
        }
    }

    /// Returns nvidia-smi's letters; `None` if the source does not say.
    pub fn letters(self) -> Option<&'static str> {
        match self {
            DeviceProcessKind::Compute => Some("C"),
            DeviceProcessKind::Graphics => Some("G"),
            DeviceProcessKind::ComputeAndGraphics => Some("C+G"),
            DeviceProcessKind::Mps => Some("M+C"),
            DeviceProcessKind::Unknown => None,
        }
    }
}

/// A process that the driver lists on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceProcess {
    /// The PID in the *host's* namespace: the driver knows no other.
    pub pid: Pid,
    /// The kind of use.
    pub kind: DeviceProcessKind,
    /// Device memory that it uses; absent under WDDM and without permission.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "memory_bytes"))]
    pub memory: Reading<Bytes>,
    /// Share of the driver's sample window (NVML: about 1 s to 10 s) in which its kernels ran.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "utilization_percent"))]
    pub utilization: Reading<Percent>,
    /// The name as the source prints it: nvidia-smi truncates it on the left.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub name: Reading<String>,
    /// MIG GPU instance it runs in.
    pub gpu_instance: Option<u32>,
    /// MIG compute instance it runs in.
    pub compute_instance: Option<u32>,
}

/// A partition of a device, which programs use like a device: a MIG device (a compute instance of a
/// device in MIG mode), an XCP of AMD or a tile of Intel. Its whole device lists it
/// ([`DeviceState::partitions`](crate::DeviceState::partitions)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Partition {
    /// Its index among the partitions of its device.
    pub index: u32,
    /// Its UUID. That of a MIG device is `MIG-` and 36 characters, or its parts with drivers up to
    /// R460.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub uuid: Reading<DeviceUuid>,
    /// The profile of a MIG device, which names its share of the device: `1g.5gb`, `1c.3g.20gb`,
    /// `1g.5gb+me`.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", default = "not_recorded"))]
    pub profile: Reading<String>,
    /// The GPU instance of a MIG device.
    pub gpu_instance: Option<u32>,
    /// The compute instance of a MIG device.
    pub compute_instance: Option<u32>,
    /// Its memory; that of a MIG device belongs to its GPU instance, and all compute instances in it
    /// share it.
    pub memory: MemoryInfo,
}

impl Partition {
    /// Returns whether it is a MIG device: it has a profile, or a UUID or compute instance of its
    /// own. Partitions of AMD's GPUs have none of them.
    pub fn is_mig(&self) -> bool {
        self.profile.is_ok()
            || self.compute_instance.is_some()
            || self.uuid != Err(Absent::NotSupported)
    }
}

/// The value of a field in a recording that predates the field.
#[cfg(feature = "serde")]
fn not_recorded<T>() -> Reading<T> {
    Err(Absent::NotRecorded)
}

impl Partition {
    /// Returns whether a process is in it, or may be: a process with an unknown instance may be in
    /// any.
    pub fn may_have(&self, process: &DeviceProcess) -> bool {
        let may_be = |own: Option<u32>, of: Option<u32>| own.is_none() || of.is_none() || own == of;
        may_be(self.gpu_instance, process.gpu_instance)
            && may_be(self.compute_instance, process.compute_instance)
    }
}
