//! What a device reports by itself.

/// Something that a device reported by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceEvent {
    /// NVML's index of the device; `None` where the driver did not say which.
    pub device: Option<u32>,
    /// What.
    pub kind: DeviceEventKind,
}

/// What a device reports by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", tag = "kind", content = "xid"))]
pub enum DeviceEventKind {
    /// A critical error, by its number in NVIDIA's list of XIDs.
    Xid(u64),
    /// A corrected error of memory.
    SingleBitEcc,
    /// An uncorrected error of memory.
    DoubleBitEcc,
}
