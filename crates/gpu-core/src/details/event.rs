//! Events that a device reports.

/// An event that a device reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceEvent {
    /// The index of the device; `None` if the driver did not report it.
    pub device: Option<u32>,
    /// The event.
    pub kind: DeviceEventKind,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", content = "xid"))]
pub enum DeviceEventKind {
    /// A critical error, by its number in the vendor's list (NVIDIA: Xids).
    #[cfg_attr(feature = "serde", serde(rename = "xid"))]
    Error(u64),
    /// A corrected memory error.
    #[cfg_attr(feature = "serde", serde(rename = "single-bit-ecc"))]
    CorrectedMemoryError,
    /// An uncorrected memory error.
    #[cfg_attr(feature = "serde", serde(rename = "double-bit-ecc"))]
    UncorrectedMemoryError,
}
