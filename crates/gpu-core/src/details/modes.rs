//! The configuration of a device.

use super::readings::groups;

groups! {
    /// Configuration of the GPU.
    Modes {
        /// Which processes may create a CUDA context.
        compute_mode: ComputeMode,
        /// Whether a display can be connected.
        display_attached: bool,
        /// Whether ECC is enabled now.
        ecc: bool,
        /// Whether ECC will be enabled after the next reset.
        ecc_pending: bool,
        /// Whether MIG mode will be enabled after the next reset.
        mig_pending: bool,
        /// Whether the driver keeps accounting data of processes.
        accounting: bool,
        /// How the GPU accesses memory that programs allocated on the host.
        addressing: AddressingMode,
    }

    /// Modes that few GPUs have.
    RareModes {
        /// Whether the GPU is connected to its CPU with NVLink-C2C.
        c2c: bool,
        /// Whether the device memory is encrypted now.
        memory_encryption: bool,
        /// Whether the device memory will be encrypted after the next reboot.
        memory_encryption_pending: bool,
    }

    /// GPU operation mode.
    OperationModes {
        /// Mode until the next reset.
        current: OperationMode,
        /// Mode after the next reset.
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
