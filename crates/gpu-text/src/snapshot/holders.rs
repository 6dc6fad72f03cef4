//! The holders of files, from `fuser` and `lsof`.

use crate::document::{Document, Holder as Row, Kind};
use crate::lsof::device_numbers;
use gpu_core::{
    Absent, Access, DeviceFile, DeviceFileKind, Fault, FileId, HeldFile, Holder, Pid, ProcessKey,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of descriptors kept per file.
const MAX_DESCRIPTORS: usize = 64;

/// The major number of the NVIDIA driver's character devices, and the minor numbers of its two
/// special ones.
const MAJOR: u32 = 195;
const CONTROL: u32 = 255;
const MODESET: u32 = 254;

/// Returns the files that the texts name and their holders.
pub(super) fn read(documents: &[Document]) -> (Vec<DeviceFile>, Result<Vec<Holder>, Fault>) {
    let mut asked = false;
    let mut files: BTreeMap<Arc<str>, DeviceFile> = BTreeMap::new();
    let mut held: BTreeMap<Pid, BTreeMap<Arc<str>, HeldFile>> = BTreeMap::new();
    for document in documents.iter().filter(|document| lists_holders(document)) {
        asked = true;
        for row in &document.holders {
            let Some(file) = file(document.kind, row) else { continue };
            let (path, kind) = (file.path.clone(), file.kind);
            let known = files.entry(path.clone()).or_insert_with(|| file.clone());
            known.id = known.id.or(file.id);
            let Some(pid) = row.pid else { continue };
            let new = || HeldFile {
                path: path.clone(),
                kind,
                access: Access::default(),
                descriptors: Vec::new(),
            };
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
    let holder = |(pid, held): (Pid, BTreeMap<Arc<str>, HeldFile>)| Holder {
        process: ProcessKey { pid, start: None },
        held: held.into_values().map(sorted).collect(),
        through_thread: None,
    };
    (files, Ok(held.into_iter().map(holder).collect()))
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
        let kind = DeviceFileKind::of_path(&path);
        return Some(DeviceFile { path, kind, id: Err(Absent::NotRecorded) });
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
    let kind = DeviceFileKind::of_path(&path);
    // For a regular file, the numbers identify its file system.
    let id = match numbers.filter(|_| kind != DeviceFileKind::Other) {
        Some((major, minor)) => Ok(FileId::Device { major, minor }),
        None => Err(Absent::NotRecorded),
    };
    Some(DeviceFile { path, kind, id })
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
