//! Reads records of versions that knew only NVIDIA's device files.
//!
//! They identify a device file by its kind, and the file of a device by N of `/dev/nvidiaN`. Memory
//! use followed from a rule and is now recorded as evidence: a mapping of the device proves it, and
//! open unified memory makes it possible.

use crate::absent::{Absent, Reading};
use crate::access::Access;
use crate::file::{DeviceFile, FileRole};
use crate::holder::{Client, HeldFile, MemoryUse};
use crate::id::{DeviceId, DeviceKey, DeviceUuid, FileId, PciBusId, Pid, ProcessKey};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Gpu(u32),
    Control,
    Uvm,
    UvmTools,
    Modeset,
    Capability,
    Render,
    Other,
}

/// `/dev/nvidiaN` (Linux `devices.txt`).
fn nvidia(number: u32) -> FileId {
    FileId::Device { major: 195, minor: number }
}

impl Kind {
    fn described(self) -> (FileRole, Option<DeviceKey>) {
        let role = match self {
            Kind::Gpu(number) => {
                return (FileRole::Compute, Some(DeviceKey::Node(nvidia(number))));
            }
            Kind::Control => FileRole::Control,
            Kind::Uvm => FileRole::Memory,
            Kind::UvmTools => FileRole::Tools,
            Kind::Modeset => FileRole::Display,
            Kind::Capability => FileRole::Capability,
            Kind::Render => FileRole::Render,
            Kind::Other => FileRole::Other,
        };
        (role, None)
    }
}

/// A [`DeviceFile`] of any version.
#[derive(Deserialize)]
pub(crate) struct File {
    path: Arc<str>,
    role: Option<FileRole>,
    device: Option<DeviceKey>,
    kind: Option<Kind>,
    #[serde(with = "crate::reading")]
    id: Reading<FileId>,
}

impl From<File> for DeviceFile {
    fn from(file: File) -> Self {
        let File { path, role, device, kind, id } = file;
        let (role, device) = match kind {
            Some(kind) => kind.described(),
            None => (role.unwrap_or(FileRole::Other), device),
        };
        DeviceFile { path, role, device, id }
    }
}

/// A [`crate::Holder`] of any version.
#[derive(Deserialize)]
pub(crate) struct Holder {
    process: ProcessKey,
    held: Vec<Held>,
    through_thread: Option<Pid>,
}

#[derive(Deserialize)]
struct Held {
    path: Arc<str>,
    role: Option<FileRole>,
    device: Option<DeviceKey>,
    memory: Option<MemoryUse>,
    kind: Option<Kind>,
    access: Access,
    descriptors: Vec<u32>,
    #[serde(default)]
    clients: Vec<Client>,
}

impl From<Holder> for crate::Holder {
    fn from(holder: Holder) -> Self {
        let shares_memory = holder.held.iter().any(|held| matches!(held.kind, Some(Kind::Uvm)));
        let whole = |held: Held| {
            let Held { path, role, device, memory, kind, access, descriptors, clients } = held;
            let (role, device, memory) = match kind {
                None => (role.unwrap_or(FileRole::Other), device, memory.unwrap_or_default()),
                Some(kind) => {
                    let (role, device) = kind.described();
                    let memory = match device {
                        Some(_) if access.contains(Access::MAPPED) => MemoryUse::Certain(None),
                        Some(_) if shares_memory => MemoryUse::Possible,
                        _ => MemoryUse::None,
                    };
                    (role, device, memory)
                }
            };
            HeldFile { path, role, device, memory, access, descriptors, clients }
        };
        let Holder { process, held, through_thread } = holder;
        crate::Holder { process, held: held.into_iter().map(whole).collect(), through_thread }
    }
}

/// A [`DeviceId`] of any version.
#[derive(Deserialize)]
pub(crate) struct Id {
    #[serde(with = "crate::reading")]
    uuid: Reading<DeviceUuid>,
    index: u32,
    #[serde(with = "crate::reading", default = "not_recorded")]
    node: Reading<FileId>,
    #[serde(with = "crate::reading", default = "not_recorded")]
    minor: Reading<u32>,
    #[serde(with = "crate::reading")]
    bus: Reading<PciBusId>,
}

fn not_recorded<T>() -> Reading<T> {
    Err(Absent::NotRecorded)
}

impl From<Id> for DeviceId {
    fn from(id: Id) -> Self {
        let Id { uuid, index, node, minor, bus } = id;
        let node = match node {
            Err(Absent::NotRecorded) => minor.map(nvidia),
            node => node,
        };
        DeviceId { uuid, index, node, bus }
    }
}
