//! Where the memory of a device is, and what follows for its figures.
//!
//! On most devices the driver's figures count what processes and the driver use. Where the device
//! shares its memory with the host, or with another driver, they count more, less or nothing. An
//! adapter determines the [`MemoryKind`] once per sample. Decisions ask
//! [`DeviceState`](crate::DeviceState); formats of other tools, JSON and metrics have the driver's
//! figures.

use crate::absent::{Absent, Reading};
use crate::units::Bytes;

/// Where the memory of a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum MemoryKind {
    /// On the device, for its programs and its driver alone.
    #[default]
    Dedicated,
    /// The memory of the host; the driver reports no figures (GB10, Thor, Orin).
    Host,
    /// The memory of the host; the driver's figures cover only a part that it sets aside (N1X).
    CarveOut,
    /// On the device, and also managed by the kernel as this NUMA node: it may hold page cache and
    /// memory of other programs (GH200, GB200 and GB300 in NUMA mode). `None`: a text of another
    /// tool does not show whether it is a node, and which one.
    NumaNode(Option<u32>),
    /// Part of another machine's device: its driver may count memory of its own (vGPU).
    VirtualGpu,
    /// On the device, which Windows shares (WDDM): the driver reports no memory per process.
    Wddm,
}

/// Memory of the host that a device shares: all of it, or that of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostMemory {
    /// All of it.
    #[cfg_attr(feature = "serde", serde(rename = "total_bytes"))]
    pub total: Bytes,
    /// Not in use.
    #[cfg_attr(feature = "serde", serde(rename = "free_bytes"))]
    pub free: Bytes,
    /// What programs can get without swap: the free part and what the kernel gives up for it.
    #[cfg_attr(feature = "serde", serde(rename = "available_bytes"))]
    pub available: Bytes,
    /// What the kernel uses for itself and for programs of the host, page cache included. Absent if
    /// that cannot be distinguished from the memory of devices.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "host_use_bytes"))]
    pub host_use: Reading<Bytes>,
}

/// The kind of a device's memory, and the host memory that it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemorySource {
    /// Where the memory is.
    pub kind: MemoryKind,
    /// The host memory that the device shares; `NotSupported` if it shares none, and in the answers
    /// of a driver.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub host: Reading<HostMemory>,
}

impl Default for MemorySource {
    fn default() -> Self {
        MemorySource::of(MemoryKind::Dedicated)
    }
}

impl MemorySource {
    /// Returns a source without the host memory.
    pub const fn of(kind: MemoryKind) -> Self {
        MemorySource { kind, host: Err(Absent::NotSupported) }
    }

    /// Returns the memory that a device's programs and driver use, given the driver's figure
    /// `reported`.
    pub fn used(&self, reported: Reading<Bytes>) -> Reading<Bytes> {
        match self.kind {
            MemoryKind::Host | MemoryKind::CarveOut => Err(Absent::NotSupported),
            MemoryKind::NumaNode(_) => {
                let HostMemory { total, free, host_use, .. } = self.host?;
                // Both were read at different times, and a driver may or may not count page cache.
                Ok(total.saturating_sub(free + host_use?).min(reported?))
            }
            MemoryKind::Dedicated | MemoryKind::VirtualGpu | MemoryKind::Wddm => reported,
        }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_default(&self) -> bool {
        *self == MemorySource::default()
    }
}

impl MemoryKind {
    /// Returns its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryKind::Dedicated => "dedicated",
            MemoryKind::Host => "host",
            MemoryKind::CarveOut => "carve-out",
            MemoryKind::NumaNode(_) => "numa-node",
            MemoryKind::VirtualGpu => "virtual-gpu",
            MemoryKind::Wddm => "wddm",
        }
    }

    /// Returns the host memory that such a device shares: all of it (`Some(None)`), or that of a
    /// NUMA node.
    pub const fn host_node(self) -> Option<Option<u32>> {
        match self {
            MemoryKind::Host | MemoryKind::CarveOut => Some(None),
            MemoryKind::NumaNode(Some(node)) => Some(Some(node)),
            MemoryKind::NumaNode(None)
            | MemoryKind::Dedicated
            | MemoryKind::VirtualGpu
            | MemoryKind::Wddm => None,
        }
    }

    /// Returns whether other programs of the host can take the memory, whatever a lease reserves.
    pub const fn is_shared_with_host(self) -> bool {
        self.is_integrated() || matches!(self, MemoryKind::NumaNode(_))
    }

    /// Returns whether the device is part of the processor, without a link to it.
    pub const fn is_integrated(self) -> bool {
        matches!(self, MemoryKind::Host | MemoryKind::CarveOut)
    }

    /// Returns whether memory that no process accounts for is certainly lost or held by a process.
    pub const fn shows_leaks(self) -> bool {
        matches!(self, MemoryKind::Dedicated)
    }
}
