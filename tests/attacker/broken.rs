//! Readers with a broken rule. The attacker must defeat them, which proves that the attacks work.

use super::layout::Layout;
use gpu_core::{EntryKind, LeaseEntry, LeaseStore};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_WRLCK, flock};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the live entries according to a broken rule.
///
/// In addition to the entries that the library finds, `shared-directory` accepts a locked file in
/// the shared directory as an entry of the file's owner. `file-owner` does the same for a file in
/// any user's directory.
pub(crate) fn entries(rule: &str, layout: &Layout, kind: EntryKind) -> io::Result<Vec<LeaseEntry>> {
    let mut entries = Vec::new();
    if rule == "shared-directory" {
        let found = layout.locks().entries(kind);
        entries.extend(found.map_err(|error| io::Error::other(error.fault().text))?);
    }
    for (shared, prefix) in layout.shared() {
        let Ok(names) = fs::read_dir(&shared) else { continue };
        match rule {
            "shared-directory" => entries.extend(in_dir(&shared, prefix, kind)),
            "file-owner" => {
                for dir in names.flatten() {
                    let name = dir.file_name();
                    if name.to_string_lossy().starts_with(&format!("{prefix}u")) {
                        entries.extend(in_dir(&dir.path(), "", kind));
                    }
                }
            }
            other => return Err(io::Error::other(format!("'{other}' is no rule"))),
        }
    }
    Ok(entries)
}

fn in_dir(dir: &Path, prefix: &str, kind: EntryKind) -> Vec<LeaseEntry> {
    let beginning = match kind {
        EntryKind::Attempt => "try-",
        EntryKind::Lease => "lease-",
        // These rules concern only leases.
        EntryKind::Waiter => return Vec::new(),
    };
    let Ok(names) = fs::read_dir(dir) else { return Vec::new() };
    let names = names.flatten().filter_map(|file| file.file_name().into_string().ok());
    let ids = names
        .filter_map(|name| Some(name.strip_prefix(prefix)?.strip_prefix(beginning)?.to_owned()));
    ids.filter_map(|id| entry(&dir.join(format!("{prefix}{beginning}{id}")), &id)).collect()
}

fn entry(path: &Path, id: &str) -> Option<LeaseEntry> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let owner = file.metadata().ok().filter(|file| file.is_file())?.uid();
    let kind = i16::try_from(F_RDLCK).ok()?;
    let mut lock = flock { l_type: kind, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock)).ok()?;
    if i32::from(lock.l_type) != F_WRLCK {
        return None;
    }
    let mut text = Vec::new();
    Read::by_ref(&mut file).take(64 << 10).read_to_end(&mut text).ok()?;
    let entry: LeaseEntry = serde_json::from_slice(&text).ok()?;
    (entry.id.as_str() == id).then_some(LeaseEntry { owner, ..entry })
}
