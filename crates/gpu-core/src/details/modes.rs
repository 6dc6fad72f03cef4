//! The configuration of a device.

use super::readings::groups;

groups! {
    /// The configuration of the device.
    Modes {
        /// Which processes may create a CUDA context.
        compute_mode: ComputeMode,
        /// A display can be connected (`display_mode`).
        display_attached: bool,
        /// ECC is enabled, until the next reset.
        ecc: bool,
        /// ECC is enabled from the next reset on.
        ecc_pending: bool,
        /// MIG from the next reset on.
        mig_pending: bool,
        /// The device records accounting data of processes.
        accounting: bool,
        /// How the device accesses memory that programs allocated on the host.
        addressing: AddressingMode,
    }

    /// The GPU operation mode.
    OperationModes {
        /// Until the next reset.
        current: OperationMode,
        /// From the next reset on.
        pending: OperationMode,
    }
}

/// Which processes may create a CUDA context on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ComputeMode {
    /// Any process.
    Default,
    /// One thread of one process.
    ExclusiveThread,
    /// No process.
    Prohibited,
    /// One process.
    ExclusiveProcess,
}

/// How a device accesses memory that programs allocated on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum AddressingMode {
    /// Not at all: only memory that was allocated for the device.
    None,
    /// Heterogeneous memory management: by a mirror of the page tables of the host.
    Hmm,
    /// Address translation services: by the page tables of the host.
    Ats,
}

/// GPU operation mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum OperationMode {
    /// All features are on.
    AllOn,
    /// Compute only: graphics are off.
    Compute,
    /// Graphics without high double-precision performance.
    LowDoublePrecision,
}
