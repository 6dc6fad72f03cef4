//! The holders of files, from `fuser` and `lsof`.

use crate::document::{Document, Holder as Row, Kind};
use crate::lsof::device_numbers;
use gpu_core::{
    Absent, Access, DeviceFile, DeviceKey, DeviceState, Fault, FileId, FileRole, HeldFile, Holder,
    KernelDriver, Pid, ProcessKey,
};
use gpu_nvidia_driver::{MAJOR, NvidiaDriver, device_file};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of descriptors kept per file.
const MAX_DESCRIPTORS: usize = 64;

/// The minor numbers of the two files of NVIDIA's driver that belong to no device.
const CONTROL: u32 = 255;
const MODESET: u32 = 254;

/// Returns the files that the texts name and their holders. Text without minor numbers goes by the
/// index of a device.
pub(super) fn read(
    documents: &[Document],
    devices: &[DeviceState],
) -> (Vec<DeviceFile>, Result<Vec<Holder>, Fault>) {
    let mut asked = false;
    let mut files: BTreeMap<Arc<str>, DeviceFile> = BTreeMap::new();
    let mut held: BTreeMap<Pid, BTreeMap<Arc<str>, HeldFile>> = BTreeMap::new();
    for document in documents.iter().filter(|document| lists_holders(document)) {
        asked = true;
        for row in &document.holders {
            let Some(mut file) = file(document.kind, row) else { continue };
            by_index(&mut file, devices);
            let path = file.path.clone();
            let known = files.entry(path.clone()).or_insert_with(|| file.clone());
            known.id = known.id.or(file.id);
            let Some(pid) = row.pid else { continue };
            let new = || HeldFile::of(&file, Access::default(), Vec::new());
            let held = held.entry(Pid(pid)).or_default().entry(path.clone()).or_insert_with(new);
            let (access, descriptor) = access(document.kind, row);
            held.access |= access;
            held.descriptors.extend(descriptor);
        }
    }
    let files = files.into_values().collect();
    if !asked {
        let text = "find output of fuser or lsof in the text".to_owned();
        return (files, Err(Fault { kind: Absent::NotRecorded.into(), text }));
    }
    let holder = |(pid, held): (Pid, BTreeMap<Arc<str>, HeldFile>)| {
        let mut held: Vec<HeldFile> = held.into_values().map(sorted).collect();
        NvidiaDriver.find_memory_use(&mut held, &|_| None);
        Holder { process: ProcessKey { pid, start: None }, held, through_thread: None }
    };
    (files, Ok(held.into_iter().map(holder).collect()))
}

/// Attributes the file of a device to the index that its number is, unless a device has the number.
fn by_index(file: &mut DeviceFile, devices: &[DeviceState]) {
    if let Some(key @ DeviceKey::Node(FileId::Device { minor, .. })) = file.device
        && !devices.iter().any(|device| device.id().owns(key))
        && devices.iter().any(|device| device.id().index == minor && device.id().node.is_err())
    {
        file.device = Some(DeviceKey::Index(minor));
    }
}

fn sorted(mut held: HeldFile) -> HeldFile {
    held.descriptors.sort_unstable();
    held.descriptors.dedup();
    held.descriptors.truncate(MAX_DESCRIPTORS);
    held
}

/// The short process names from the tools.
pub(super) fn commands(documents: &[Document]) -> Vec<(Pid, String)> {
    rows(documents).filter_map(|row| Some((Pid(row.pid?), row.command.clone()?))).collect()
}

/// The users from the tools.
pub(super) fn users(documents: &[Document]) -> BTreeMap<Pid, String> {
    rows(documents).filter_map(|row| Some((Pid(row.pid?), row.user.clone()?))).collect()
}

fn rows(documents: &[Document]) -> impl Iterator<Item = &Row> {
    documents.iter().filter(|document| lists_holders(document)).flat_map(|d| &d.holders)
}

/// Returns whether a text lists holders of files.
pub(super) fn lists_holders(document: &Document) -> bool {
    matches!(document.kind, Kind::Fuser | Kind::Lsof)
}

/// Returns the file of a row.
fn file(tool: Kind, row: &Row) -> Option<DeviceFile> {
    if tool == Kind::Fuser {
        let path: Arc<str> = row.device.as_deref()?.into();
        return Some(device_file(&path, Err(Absent::NotRecorded)));
    }
    let numbers = row.device.as_deref().and_then(device_numbers);
    // A name may have a remark, such as `(deleted)`; in a container it may be arbitrary.
    let name = row.name.as_deref().unwrap_or_default();
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let path: Arc<str> = match numbers {
        Some((MAJOR, CONTROL)) => "/dev/nvidiactl".into(),
        Some((MAJOR, MODESET)) => "/dev/nvidia-modeset".into(),
        Some((MAJOR, minor)) => format!("/dev/nvidia{minor}").into(),
        _ if name.starts_with('/') => name.into(),
        _ => return None,
    };
    let file = device_file(&path, Err(Absent::NotRecorded));
    // For a regular file, the numbers identify its file system.
    let id = match numbers.filter(|_| file.role != FileRole::Other) {
        Some((major, minor)) => Ok(FileId::Device { major, minor }),
        None => Err(Absent::NotRecorded),
    };
    Some(DeviceFile { id, ..file })
}

/// Returns how a row's process accesses its file, and the descriptor.
fn access(tool: Kind, row: &Row) -> (Access, Option<u32>) {
    if tool == Kind::Fuser {
        // The plain form has no letter for a file that is merely open.
        let letters = row.access.as_deref().unwrap_or("f");
        return (Access::from_letters(letters).unwrap_or_default(), None);
    }
    let fd = row.fd.as_deref().unwrap_or_default();
    let mode = fd.trim_start_matches(|c: char| c.is_ascii_digit());
    let access = match fd {
        "mem" | "mmap" | "DEL" => Access::MAPPED,
        "txt" => Access::EXECUTABLE,
        "cwd" => Access::CURRENT_DIRECTORY,
        "rtd" => Access::ROOT,
        _ if mode.starts_with(['u', 'w']) => Access::OPEN | Access::OPEN_FOR_WRITING,
        _ if mode.len() < fd.len() => Access::OPEN,
        _ => Access::default(),
    };
    (access, fd.strip_suffix(mode).and_then(|digits| digits.parse().ok()))
}
