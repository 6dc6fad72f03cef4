//! A device: its identity, its current state, and the processes that its driver lists.

use crate::absent::{Absent, Reading};
use crate::id::{DeviceId, DeviceUuid, Pid};
use crate::units::{Bytes, Celsius, Milliwatts, Percent};

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
    /// The device is in MIG mode.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub mig_enabled: Reading<bool>,
    /// The namespace of the PIDs in its process list.
    #[cfg_attr(feature = "serde", serde(default))]
    pub pid_namespace: PidNamespace,
}

impl DeviceInfo {
    /// Returns whether nothing is known except that the device exists.
    pub fn is_unknown(&self) -> bool {
        *self == DeviceInfo::unknown(DeviceId::from_index(self.id.index))
    }

    /// Returns a device with only its identifiers.
    pub fn unknown(id: DeviceId) -> Self {
        DeviceInfo {
            id,
            name: Err(Absent::NotRecorded),
            persistence: Err(Absent::NotRecorded),
            display_active: Err(Absent::NotRecorded),
            mig_enabled: Err(Absent::NotRecorded),
            pid_namespace: PidNamespace::Initial,
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
    /// Device memory.
    pub memory: MemoryInfo,
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

/// A MIG device: a compute instance of a device in MIG mode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MigInstance {
    /// Its index among the device's MIG devices.
    pub index: u32,
    /// Its UUID: `MIG-` and 36 characters, or its parts with drivers up to R460.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub uuid: Reading<DeviceUuid>,
    /// Its profile, which names its share of the device: `1g.5gb`, `1c.3g.20gb`, `1g.5gb+me`.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", default = "not_recorded"))]
    pub profile: Reading<String>,
    /// GPU instance.
    pub gpu_instance: Option<u32>,
    /// Compute instance.
    pub compute_instance: Option<u32>,
    /// The memory of its GPU instance, which all compute instances in it share.
    pub memory: MemoryInfo,
}

/// The value of a field in a recording that predates the field.
#[cfg(feature = "serde")]
fn not_recorded<T>() -> Reading<T> {
    Err(Absent::NotRecorded)
}

impl MigInstance {
    /// Returns whether a process is in it, or may be: a process with an unknown instance may be in
    /// any.
    pub fn may_have(&self, process: &DeviceProcess) -> bool {
        let may_be = |own: Option<u32>, of: Option<u32>| own.is_none() || of.is_none() || own == of;
        may_be(self.gpu_instance, process.gpu_instance)
            && may_be(self.compute_instance, process.compute_instance)
    }
}
