//! The files that a walk searches for.

use crate::file_stat::FileStat;
use crate::proc_dir::identify;
use gpu_core::{Access, DeviceFile, FileId, HeldFile, KernelDriver};
use rustix::fs::{CWD, FileType};
use std::sync::Arc;

/// The most descriptors listed per file.
const DESCRIPTORS: usize = 64;

/// Returns the identity of a file: of a character device its number, because a container's own node
/// for it is another inode; of all else file system and inode.
pub(crate) fn file_id(stat: &FileStat) -> FileId {
    if stat.file_type() == FileType::CharacterDevice {
        FileId::Device { major: stat.device.0, minor: stat.device.1 }
    } else {
        FileId::Inode { dev: stat.file_system, ino: stat.inode }
    }
}

/// The files to search for, indexed.
pub(crate) struct Targets<'a> {
    files: &'a [DeviceFile],
    /// The identities of `files`, sorted, without duplicates.
    ids: Vec<FileId>,
    /// One of them may be a directory.
    pub(crate) dirs: bool,
    /// One of them may be a plain file, and so an executable.
    pub(crate) plain: bool,
}

impl<'a> Targets<'a> {
    pub(crate) fn new(files: &'a [DeviceFile]) -> Self {
        let mut ids: Vec<_> = files.iter().filter_map(|file| file.id.ok()).collect();
        ids.sort_unstable();
        ids.dedup();
        let may_be = |wanted| files.iter().any(|file| may_be(file, wanted));
        let (dirs, plain) = (may_be(FileType::Directory), may_be(FileType::RegularFile));
        Targets { files, ids, dirs, plain }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns their identities.
    pub(crate) fn ids(&self) -> &[FileId] {
        &self.ids
    }

    /// Returns whether this file is one of them.
    pub(crate) fn contains(&self, id: FileId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }
}

/// Returns whether a file can be of a type. The target of its path counts only while it is still
/// the same file.
fn may_be(file: &DeviceFile, wanted: FileType) -> bool {
    let Ok(id @ FileId::Inode { .. }) = file.id else { return false };
    let found = identify(CWD, &*file.path);
    found.map_or(true, |stat| file_id(&stat) != id || stat.file_type() == wanted)
}

/// The searched files that one process has, by identity.
#[derive(Default)]
pub(crate) struct Findings(Vec<Finding>);

struct Finding {
    id: FileId,
    access: Access,
    descriptors: Vec<u32>,
}

impl Findings {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that it has the file in this way.
    pub(crate) fn note(&mut self, id: FileId, access: Access) {
        self.finding(id).access |= access;
    }

    /// Records that it has the file mapped. As with fuser, a running executable is only `e`,
    /// although it is mapped to run.
    pub(crate) fn note_mapped(&mut self, id: FileId) {
        let finding = self.finding(id);
        if !finding.access.contains(Access::EXECUTABLE) {
            finding.access |= Access::MAPPED;
        }
    }

    /// Records that it has the file open as this descriptor.
    pub(crate) fn note_open(&mut self, id: FileId, access: Access, descriptor: u32) {
        let finding = self.finding(id);
        finding.access |= access;
        if let Err(place) = finding.descriptors.binary_search(&descriptor) {
            finding.descriptors.insert(place, descriptor);
            finding.descriptors.truncate(DESCRIPTORS);
        }
    }

    fn finding(&mut self, id: FileId) -> &mut Finding {
        let at = self.0.iter().position(|finding| finding.id == id).unwrap_or_else(|| {
            self.0.push(Finding { id, access: Access::default(), descriptors: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Returns an entry for each file found, in the order of the request, with the evidence of
    /// memory use from these drivers.
    pub(crate) fn into_held(
        self,
        targets: &Targets<'_>,
        drivers: &[Arc<dyn KernelDriver>],
        fdinfo: &dyn Fn(u32) -> Option<String>,
    ) -> Vec<HeldFile> {
        let row = |file: &DeviceFile| {
            let id = file.id.ok()?;
            let finding = self.0.iter().find(|finding| finding.id == id)?;
            Some(HeldFile::of(file, finding.access, finding.descriptors.clone()))
        };
        let mut held: Vec<HeldFile> = targets.files.iter().filter_map(row).collect();
        for driver in drivers {
            driver.find_memory_use(&mut held, fdinfo);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Absent;

    fn file(path: &str, id: Option<FileId>) -> DeviceFile {
        DeviceFile::any(path.into(), id.ok_or(Absent::NotRecorded))
    }

    #[test]
    fn duplicate_files_are_both_found_and_files_without_id_never() {
        let id = FileId::Device { major: 195, minor: 0 };
        let files = [
            file("/dev/nvidia0", Some(id)),
            file("/dev/nvidia1", None),
            file("/container/nvidia0", Some(id)),
        ];
        let targets = Targets::new(&files);
        let mut findings = Findings::default();
        findings.note_open(id, Access::OPEN, 7);
        findings.note_mapped(id);
        let held = findings.into_held(&targets, &[], &|_| None);
        let paths: Vec<_> = held.iter().map(|held| &*held.path).collect();
        assert_eq!(paths, ["/dev/nvidia0", "/container/nvidia0"]);
        assert_eq!(held[0].access.to_string(), "f...m");
        assert_eq!(held[0].descriptors, [7]);
    }

    #[test]
    fn missing_file_may_have_been_dir_or_executable() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("nvidia0");
        std::fs::write(&plain, "").unwrap();
        let sought = |files: &[DeviceFile]| {
            let targets = Targets::new(files);
            (targets.dirs, targets.plain)
        };
        let plain_file = [crate::resolve(&plain).unwrap()];
        assert_eq!(sought(&plain_file), (false, true));
        assert_eq!(sought(&[crate::resolve(dir.path()).unwrap()]), (true, false));
        assert_eq!(sought(&[crate::resolve("/dev/null").unwrap()]), (false, false));
        std::fs::rename(&plain, dir.path().join("elsewhere")).unwrap();
        assert_eq!(sought(&plain_file), (true, true));
        std::fs::create_dir(&plain).unwrap();
        assert_eq!(sought(&plain_file), (true, true), "another file has the name");
        assert_eq!(sought(&[file("/named/by/text", None)]), (false, false));
    }

    #[test]
    fn lowest_64_descriptors_are_listed_in_order() {
        let id = FileId::Inode { dev: 1, ino: 2 };
        let files = [file("/tmp/stand-in", Some(id))];
        let mut findings = Findings::default();
        for descriptor in (0..100).rev().chain(0..3) {
            findings.note_open(id, Access::OPEN, descriptor);
        }
        let held = findings.into_held(&Targets::new(&files), &[], &|_| None);
        assert_eq!(held[0].descriptors, (0..64).collect::<Vec<_>>());
    }
}
