//! What only the tools of AMD and Intel print.

use serde::Serialize;

/// A program that prints a text of the kind `other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// AMD's `rocm-smi`.
    RocmSmi,
    /// AMD's `amd-smi`.
    AmdSmi,
    /// Intel's `xpu-smi`.
    XpuSmi,
    /// `intel_gpu_top -J`.
    IntelGpuTop,
    /// `radeontop -d`.
    Radeontop,
    /// `amdgpu_top -J`.
    AmdgpuTop,
}

/// How a chip of AMD is divided into devices, and which of them one is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartitionMode {
    /// Compute partition: SPX for a chip that is one device, DPX, TPX, QPX or CPX. Null if the text
    /// does not contain it.
    pub compute: Option<String>,
    /// Memory partition, such as NPS1. Null if the text does not contain it.
    pub memory: Option<String>,
    /// Number among the partitions of the chip. Null if the text does not contain it.
    pub id: Option<u32>,
}
