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
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ComputeMode {
    /// Any.
    Default,
    /// One thread of one process; current drivers no longer support this.
    ExclusiveThread,
    /// None.
    Prohibited,
    /// One process.
    ExclusiveProcess,
}

/// How a device accesses memory that programs allocated on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum AddressingMode {
    /// Only memory that was allocated for it.
    None,
    /// Through a mirror of the host's page tables (heterogeneous memory management).
    Hmm,
    /// Through the host's own page tables (address translation services).
    Ats,
}

/// The purpose that a device is optimised for (GPU operation mode), on the few that support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum OperationMode {
    /// Everything.
    AllOn,
    /// Compute: graphics are off.
    Compute,
    /// Graphics without high double-precision performance.
    LowDoublePrecision,
}
