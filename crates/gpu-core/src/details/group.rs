//! Which values of a device to read.

/// A group of values that is read as a whole.
///
/// Each needs additional calls, and some are slow: a throughput is measured for 20 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// [`Product`](super::Product)
    Product,
    /// [`Modes`](super::Modes)
    Modes,
    /// [`Inforom`](super::Inforom)
    Inforom,
    /// [`GspFirmware`](super::GspFirmware)
    GspFirmware,
    /// [`VirtualGpus`](super::VirtualGpus)
    VirtualGpus,
    /// [`ResetStatus`](super::ResetStatus)
    ResetStatus,
    /// [`OperationModes`](super::OperationModes)
    OperationModes,
    /// [`RareModes`](super::RareModes)
    RareModes,
    /// [`Activity`](super::Activity)
    Activity,
    /// [`ThrottleTimes`](super::ThrottleTimes)
    ThrottleTimes,
    /// [`Engines`](super::Engines)
    Engines,
    /// [`Clocks`](super::Clocks)
    Clocks,
    /// [`ApplicationClocks`](super::ApplicationClocks)
    ApplicationClocks,
    /// [`SupportedClocks`](super::SupportedClocks)
    SupportedClocks,
    /// [`Power`](super::Power)
    Power,
    /// [`PowerReadings`](super::PowerReadings)
    PowerReadings,
    /// [`ModulePower`](super::ModulePower)
    ModulePower,
    /// [`Thermal`](super::Thermal)
    Thermal,
    /// [`Pcie`](super::Pcie)
    Pcie,
    /// [`PcieThroughput`](super::PcieThroughput)
    PcieThroughput,
    /// [`ProtectedMemory`](super::ProtectedMemory)
    ProtectedMemory,
    /// [`MemoryHealth`](super::MemoryHealth)
    MemoryHealth,
    /// [`MemoryErrors`](super::MemoryErrors)
    MemoryErrors,
    /// [`SramErrors`](super::SramErrors)
    SramErrors,
    /// [`NvLink`](super::NvLink)s
    NvLinks,
    /// [`Fabric`](super::Fabric)
    Fabric,
    /// [`Platform`](super::Platform)
    Platform,
    /// [`Accounting`](super::Accounting)
    Accounting,
}

impl Group {
    /// Every group, in the order of `nvidia-smi -q`.
    pub const ALL: [Group; 28] = [
        Group::Product,
        Group::Modes,
        Group::Inforom,
        Group::GspFirmware,
        Group::VirtualGpus,
        Group::ResetStatus,
        Group::OperationModes,
        Group::RareModes,
        Group::Activity,
        Group::ThrottleTimes,
        Group::Engines,
        Group::Clocks,
        Group::ApplicationClocks,
        Group::SupportedClocks,
        Group::Power,
        Group::PowerReadings,
        Group::ModulePower,
        Group::Thermal,
        Group::Pcie,
        Group::PcieThroughput,
        Group::ProtectedMemory,
        Group::MemoryHealth,
        Group::MemoryErrors,
        Group::SramErrors,
        Group::NvLinks,
        Group::Fabric,
        Group::Platform,
        Group::Accounting,
    ];
}

/// A set of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Groups(u32);

impl Groups {
    /// No group: the cost of the plain view.
    pub const NONE: Groups = Groups(0);

    /// The groups from which
    /// [`DeviceDetails::peak_memory_rate`](super::DeviceDetails::peak_memory_rate) and
    /// `peak_operations` are computed.
    pub const PEAKS: Groups = Groups(1 << Group::Product as u32 | 1 << Group::Clocks as u32);

    /// Returns every group.
    pub fn all() -> Self {
        Group::ALL.into_iter().collect()
    }

    /// Returns whether a group is in the set.
    pub const fn has(self, group: Group) -> bool {
        self.0 & (1 << group as u32) != 0
    }

    /// Returns the set with these groups as well.
    #[must_use]
    pub const fn and(self, other: Groups) -> Self {
        Groups(self.0 | other.0)
    }

    /// Returns whether no group is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Group> for Groups {
    fn from_iter<I: IntoIterator<Item = Group>>(groups: I) -> Self {
        Groups(groups.into_iter().fold(0, |set, group| set | (1 << group as u32)))
    }
}
