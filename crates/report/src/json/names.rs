//! Names of JSON for what the libraries have in another form.

use serde::Serialize;

/// Where the data comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// This machine.
    Live,
    /// A simulated machine, or a recording that is replayed as one.
    Simulated,
    /// Pasted output of other tools.
    Pasted,
    /// A history.
    Recorded,
    /// A copied tree.
    Copied,
}

impl From<&gpu_core::Origin> for Origin {
    fn from(known: &gpu_core::Origin) -> Self {
        match known {
            gpu_core::Origin::Live => Origin::Live,
            gpu_core::Origin::Simulated(_) => Origin::Simulated,
            gpu_core::Origin::Pasted => Origin::Pasted,
            gpu_core::Origin::Recorded(_) => Origin::Recorded,
            gpu_core::Origin::Copied(_) => Origin::Copied,
        }
    }
}

/// Outcome of the search of all processes for holders of the device files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HolderSearch {
    /// All processes were searched.
    Done,
    /// Listed processes account for the memory of every GPU, so nothing was searched. The option
    /// --holders searches anyway.
    NotNeeded,
    /// The search failed.
    Failed,
}

impl From<&gpu_core::Snapshot> for HolderSearch {
    fn from(snapshot: &gpu_core::Snapshot) -> Self {
        match &snapshot.holders {
            Ok(_) => HolderSearch::Done,
            Err(fault) if fault.kind == gpu_core::ErrorKind::NotRequested => {
                HolderSearch::NotNeeded
            }
            Err(_) => HolderSearch::Failed,
        }
    }
}

/// Kind of a file: for the file of a GPU an object with its minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// The file of one GPU (/dev/nvidiaN), with its minor number.
    Gpu(u32),
    /// Control file of the driver (/dev/nvidiactl).
    Control,
    /// Unified memory (/dev/nvidia-uvm), opened by CUDA contexts.
    Uvm,
    /// Tools for unified memory (/dev/nvidia-uvm-tools), such as debuggers and profilers.
    UvmTools,
    /// Mode setting (/dev/nvidia-modeset), opened by display servers.
    Modeset,
    /// Capabilities for MIG and monitoring (/dev/nvidia-caps).
    Capability,
    /// Graphics (/dev/dri).
    Render,
    /// Any other file.
    Other,
}

impl FileKind {
    pub(super) fn of(file: &gpu_core::DeviceFile) -> Self {
        use gpu_core::{DeviceKey, FileId, FileRole};
        match (file.role, file.device) {
            (FileRole::Compute, Some(DeviceKey::Node(FileId::Device { minor, .. }))) => {
                FileKind::Gpu(minor)
            }
            (FileRole::Compute, Some(_)) => FileKind::Gpu(gpu_core::file_number(&file.path)),
            (FileRole::Control, _) => FileKind::Control,
            (FileRole::Memory, _) => FileKind::Uvm,
            (FileRole::Tools, _) => FileKind::UvmTools,
            (FileRole::Display, _) => FileKind::Modeset,
            (FileRole::Capability, _) => FileKind::Capability,
            (FileRole::Render, _) => FileKind::Render,
            (FileRole::Compute | FileRole::Other, _) => FileKind::Other,
        }
    }
}
