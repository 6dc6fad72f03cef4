//! How a device is set up.

use super::readings::groups;

groups! {
    /// How the device is set up.
    Modes {
        /// Who may make a CUDA context.
        compute_mode: ComputeMode,
        /// A display can be connected (`display_mode`).
        display_attached: bool,
        /// Errors in memory are corrected, from the last reset on.
        ecc: bool,
        /// The same, from the next reset on.
        ecc_pending: bool,
        /// MIG from the next reset on.
        mig_pending: bool,
        /// The device records what processes use over their life.
        accounting: bool,
        /// How the device reaches memory that the host's programs allocated.
        addressing: AddressingMode,
    }

    /// What the device was set up to be good at.
    OperationModes {
        /// From the last reset on.
        current: OperationMode,
        /// From the next reset on.
        pending: OperationMode,
    }
}

/// Who may make a CUDA context on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ComputeMode {
    /// Everybody.
    Default,
    /// One thread of one process; no longer made by drivers of today.
    ExclusiveThread,
    /// Nobody.
    Prohibited,
    /// One process.
    ExclusiveProcess,
}

/// How a device reaches memory that programs allocated on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum AddressingMode {
    /// Only where it was allocated for that.
    None,
    /// By a mirror of the host's page tables (heterogeneous memory management).
    Hmm,
    /// By the host's own page tables (address translation services).
    Ats,
}

/// What a device is set up to be good at (GPU operation mode), on the few that can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum OperationMode {
    /// Everything.
    AllOn,
    /// Computing: graphics are off.
    Compute,
    /// Graphics, which need little double precision.
    LowDoublePrecision,
}
