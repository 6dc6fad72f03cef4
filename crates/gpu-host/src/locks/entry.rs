//! The file of an entry: what is in it, and how it comes and goes.

use super::folder::Folder;
use super::ofd::{self, Lock};
use super::table::set_inherited;
use crate::fault;
use gpu_core::{
    Claim, DeviceUuid, Entry, EntryKind, Error, ErrorKind, Held, LeaseId, Pid, ProcessKey, Result,
    Timestamp,
};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timestamps};
use rustix::io::Errno;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::PathBuf;

/// What others write is read up to here ...
const READ_LIMIT: usize = 64 << 10;
/// ... and nobody writes more.
const WRITE_LIMIT: usize = 16 << 10;
const DEVICES: usize = 4096;
/// A UUID of NVML is 40 bytes, an old name of a MIG device some more.
const DEVICE_NAME: usize = 128;
const COMMAND: usize = 256;
/// Leases within each other, one deeper than the other.
const DEPTH: usize = 64;

/// The format that is written; what has a higher number is read as far as it must be.
const SCHEMA: u32 = 1;

pub(super) const NEW: &str = "new-";
/// The files that others inherit, each beside the lease of the same id.
pub(super) const KEPT: &str = "kept-";
pub(super) const PAST: &str = "past-";
pub(super) const LEASE: &str = "lease-";

/// What the names of files of a kind begin with.
pub(super) fn beginning(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Lease => LEASE,
        EntryKind::Waiter => "queue-",
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    schema: u32,
    #[serde(flatten)]
    entry: Entry,
}

/// What every future format must say.
#[derive(Deserialize)]
struct Newer {
    schema: u32,
    id: LeaseId,
    #[serde(default)]
    ticket: u64,
    #[serde(default)]
    devices: Vec<DeviceUuid>,
}

/// What a future format may say otherwise: what cannot be read of it takes no device out of the
/// entry.
#[derive(Default, Deserialize)]
struct NewerWithin {
    within: Vec<LeaseId>,
}

/// Returns an entry as its file has it.
///
/// # Errors
/// `Invalid` when it is longer than anybody reads, or within too many others.
pub(super) fn write(entry: &Entry) -> Result<Vec<u8>> {
    let mut entry = entry.clone();
    truncate(&mut entry.command);
    let id = entry.id.clone();
    if entry.within.len() > DEPTH {
        let what = format!("write lease {id}, which is within more than {DEPTH} others");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mut text = serde_json::to_vec(&Text { schema: SCHEMA, entry }).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("write lease {id}")).with_source(error)
    })?;
    text.push(b'\n');
    if text.len() > WRITE_LIMIT {
        let what = format!("write lease {id} in {WRITE_LIMIT} bytes: it names too many devices");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(text)
}

/// Returns the entry that a file of this name and owner tells; `None` where it is none.
///
/// What a newer gpuws wrote counts as a lease on the whole of its devices, within those that it was
/// taken out of; within none where it says that in another way.
pub(super) fn parse(kind: EntryKind, name: &str, owner: u32, text: &[u8]) -> Option<Entry> {
    let mut entry = match serde_json::from_slice::<Text>(text) {
        Ok(text) if text.schema == SCHEMA => text.entry,
        _ => newer(text)?,
    };
    truncate(&mut entry.command);
    entry.owner = owner;
    let plain = |device: &DeviceUuid| {
        device.0.len() <= DEVICE_NAME && device.0.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let valid = entry.id.as_str() == name
        && entry.devices.len() <= DEVICES
        && entry.within.len() <= DEPTH
        && entry.devices.iter().all(plain)
        && entry.devices.is_empty() == (kind == EntryKind::Waiter);
    valid.then_some(entry)
}

fn newer(text: &[u8]) -> Option<Entry> {
    let newer: Newer = serde_json::from_slice(text).ok()?;
    let NewerWithin { mut within } = serde_json::from_slice(text).unwrap_or_default();
    if within.len() > DEPTH {
        within.clear();
    }
    let count = u32::try_from(newer.devices.len()).ok()?;
    (newer.schema > SCHEMA).then(|| Entry {
        id: newer.id,
        ticket: newer.ticket,
        owner: 0,
        root: ProcessKey { pid: Pid(0), start: None },
        within,
        claim: Claim::whole(count),
        devices: newer.devices,
        parts_of: Vec::new(),
        command: "a newer gpuws".to_owned(),
        since: Timestamp(0),
    })
}

fn truncate(command: &mut String) {
    command.truncate(command.floor_char_boundary(COMMAND));
}

/// Entries that were read before, by name: nobody changes one that is published but to his own
/// harm.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<String, (FileStamp, Entry)>);

/// Tells a file from every other, and from itself before it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    owner: u32,
    modified: (i64, i64),
}

impl Known {
    /// Returns the entries of one kind that are alive in a folder.
    ///
    /// # Errors
    /// Those of [`Folder::names`]; `Io` where the caller or the machine cannot ask whether an entry
    /// is alive, or read one that is: it must not pass for a dead one.
    pub(super) fn living(&mut self, folder: &Folder, kind: EntryKind) -> Result<Vec<Entry>> {
        let beginning = format!("{}{}", folder.prefix, beginning(kind));
        let ids = folder.names(self::beginning(kind))?;
        let mut found = HashMap::with_capacity(ids.len());
        for id in ids {
            let name = format!("{beginning}{id}");
            if let Some(entry) = self.read(folder, &name, kind, &id)? {
                found.insert(name, entry);
            }
        }
        let entries = found.values().map(|(_, entry)| entry.clone()).collect();
        self.0.retain(|name, _| !name.starts_with(&beginning));
        self.0.extend(found);
        Ok(entries)
    }

    fn read(
        &mut self,
        folder: &Folder,
        name: &str,
        kind: EntryKind,
        id: &str,
    ) -> Result<Option<(FileStamp, Entry)>> {
        let asked = || {
            let file = folder.open_file(name, OFlags::RDONLY)?;
            let stat = rustix::fs::fstat(&file)?;
            let alive = ofd::is_write_locked(&file)?
                || kind == EntryKind::Lease && is_kept(folder, id, &stat)?;
            Ok(alive.then_some((file, stat)))
        };
        let (file, stat) = match asked() {
            Ok(Some(alive)) => alive,
            Ok(None) => return Ok(None),
            Err(errno) if is_ours(errno) => {
                return Err(fault::file(format!("ask whether lease '{id}' is alive"), errno));
            }
            // Whatever lies there, it is no entry that somebody holds for others to see.
            Err(_) => return Ok(None),
        };
        // The widths of these differ between architectures.
        #[allow(clippy::unnecessary_cast)]
        let stamp = FileStamp {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            owner: stat.st_uid,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        };
        Ok(match self.0.remove(name).filter(|(known, _)| *known == stamp) {
            Some(known) => Some(known),
            None => read(&file, &stat, kind, id)
                .map_err(|errno| fault::file(format!("read lease '{id}'"), errno))?
                .map(|entry| (stamp, entry)),
        })
    }
}

/// Tells whether it is the one who asks, or the machine, that fails: with any other error a file
/// could be made to answer by its owner, who is not to keep others from looking (`EAGAIN` by a lease
/// of the kernel's kind, fcntl(2), `F_SETLEASE`).
fn is_ours(errno: Errno) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOLCK, Errno::IO].contains(&errno)
}

/// Tells whether those who inherited a lease from its maker keep it alive: by a lock on a file of
/// the same owner, in which nothing is read.
///
/// # Errors
/// Those of the kernel, but for a file that is not there or is nobody's lock.
pub(super) fn is_kept(folder: &Folder, id: &str, lease: &Stat) -> rustix::io::Result<bool> {
    let file = match folder.open_file(&format!("{}{KEPT}{id}", folder.prefix), OFlags::RDONLY) {
        Err(errno) if is_ours(errno) => return Err(errno),
        Err(_) => return Ok(false),
        Ok(file) => file,
    };
    Ok(rustix::fs::fstat(&file)?.st_uid == lease.st_uid && ofd::is_write_locked(&file)?)
}

/// Returns those files of a lease that are there and its owner's.
pub(super) fn files(folder: &Folder, lease: &Entry) -> Vec<PathBuf> {
    let is_own = |name: &String| {
        let stat = rustix::fs::statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| stat.st_uid == lease.owner)
    };
    let names = [LEASE, KEPT].map(|kind| format!("{}{kind}{}", folder.prefix, lease.id));
    names.into_iter().filter(is_own).map(|name| folder.path.join(name)).collect()
}

/// Reads the entry in a file, alive or not; `None` where there is none in it.
///
/// # Errors
/// The kernel's.
pub(super) fn read(
    file: &OwnedFd,
    stat: &Stat,
    kind: EntryKind,
    id: &str,
) -> rustix::io::Result<Option<Entry>> {
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if !regular || size > READ_LIMIT {
        return Ok(None);
    }
    let mut text = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match rustix::io::pread(file, &mut text[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(parse(kind, id, stat.st_uid, &text[..filled]))
}

/// An entry of the caller, alive until this is dropped.
///
/// Nobody inherits its file: a program that was started may be another user's, and what is in the
/// file is believed to be its owner's word. What is inherited is a second file, which is empty.
pub(super) struct Published {
    file: OwnedFd,
    stat: Stat,
    folder: Folder,
    kind: EntryKind,
    id: LeaseId,
    chance: String,
    kept: OnceCell<(OwnedFd, Stat)>,
    /// It is others' to end.
    left: bool,
}

impl Published {
    /// Publishes an entry: written and locked under a name that nobody reads, and only then given
    /// its own. Who sees it sees all of it; who sees it unlocked sees one that has ended.
    pub(super) fn new(
        folder: Folder,
        kind: EntryKind,
        entry: &Entry,
        chance: &str,
    ) -> Result<Self> {
        let text = write(entry)?;
        let name = format!("{}{}{}", folder.prefix, beginning(kind), entry.id);
        let kept = match kind {
            EntryKind::Lease => keepable(&folder, entry, chance)?,
            EntryKind::Waiter => OnceCell::new(),
        };
        let (file, stat) = match make_locked(&folder, &name, &text, chance) {
            Ok(made) => made,
            Err(error) => {
                if let Some((_, stat)) = kept.get() {
                    folder.remove(&format!("{}{KEPT}{}", folder.prefix, entry.id), stat);
                }
                return Err(error);
            }
        };
        let (id, chance) = (entry.id.clone(), chance.to_owned());
        Ok(Published { file, stat, folder, kind, id, chance, kept, left: false })
    }

    fn name(&self) -> String {
        format!("{}{}{}", self.folder.prefix, beginning(self.kind), self.id)
    }

    fn kept_name(&self) -> String {
        format!("{}{KEPT}{}", self.folder.prefix, self.id)
    }

    /// Returns the file that is inherited, and makes it where it is missing.
    fn kept(&self) -> Result<&OwnedFd> {
        if let Some((file, _)) = self.kept.get() {
            return Ok(file);
        }
        let made = make_locked(&self.folder, &self.kept_name(), &[], &self.chance)?;
        Ok(&self.kept.get_or_init(|| made).0)
    }

    fn touch(&self) -> rustix::io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        if let Some((kept, _)) = self.kept.get() {
            rustix::fs::futimens(kept, &times)?;
        }
        rustix::fs::futimens(&self.file, &times)
    }
}

/// Makes the file that others can inherit, before the lease tells everybody its name: anybody could
/// make it first from then on. The caller's own may be left from when the lease had its name before.
fn keepable(folder: &Folder, entry: &Entry, chance: &str) -> Result<OnceCell<(OwnedFd, Stat)>> {
    let name = format!("{}{KEPT}{}", folder.prefix, entry.id);
    let is_own = || {
        let stat = rustix::fs::statat(&folder.fd, &name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
    };
    match make_locked(folder, &name, &[], chance) {
        Ok(made) => Ok(OnceCell::from(made)),
        Err(_) if is_own() => Ok(OnceCell::new()),
        Err(error) => Err(error),
    }
}

/// Makes a file that is locked for writing, and whole, when it gets its name.
fn make_locked(folder: &Folder, name: &str, text: &[u8], chance: &str) -> Result<(OwnedFd, Stat)> {
    let new = format!("{}{NEW}{}-{chance}", folder.prefix, std::process::id());
    let failed = |errno| fault::file(format!("write lease '{}'", folder.show(name)), errno);
    let file = folder.make_file(&new).map_err(failed)?;
    let published = (|| {
        let mut rest = text;
        while !rest.is_empty() {
            match rustix::io::write(&file, rest) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if !ofd::try_lock(&file, Lock::Write)? {
            return Err(Errno::AGAIN);
        }
        // Whatever the umask: everybody is to read it, and only its owner to lock it.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        rustix::fs::renameat_with(&folder.fd, &new, &folder.fd, name, RenameFlags::NOREPLACE)
    })();
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if let Err(errno) = published {
        folder.remove(&new, &stat);
        return Err(failed(errno));
    }
    Ok((file, stat))
}

impl Held for Published {
    fn inherit(&self, yes: bool) -> Result<()> {
        match yes {
            true => set_inherited(self.kept()?, true),
            false => self.kept.get().map_or(Ok(()), |(kept, _)| set_inherited(kept, false)),
        }
    }

    fn renew(&self) -> Result<bool> {
        let name = self.name();
        let failed =
            |errno| fault::file(format!("renew lease '{}'", self.folder.show(&name)), errno);
        self.touch().map_err(failed)?;
        self.folder.is_at(&name, &self.stat).map_err(failed)
    }

    fn leave(mut self: Box<Self>) {
        self.left = true;
    }
}

impl Drop for Published {
    /// Ends it for everybody who has its descriptor, and clears up; unless it was left to them.
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // Closing alone would leave it to a program that got a copy. Nothing here can be repaired
        // if it fails, and nothing rests on what is left.
        let _ = self.touch();
        let _ = ofd::unlock(&self.file);
        if let Some((kept, stat)) = self.kept.get() {
            let _ = ofd::unlock(kept);
            self.folder.remove(&self.kept_name(), stat);
        }
        let name = self.name();
        if self.kind == EntryKind::Waiter {
            self.folder.remove(&name, &self.stat);
        } else {
            super::past::keep(&self.folder, &name, &self.id, &self.stat);
            super::past::clear(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, Share, StartTime};

    fn entry() -> Entry {
        let mut claim = Claim::whole(1);
        claim.share = Share::Memory(Bytes::from_mib(6144));
        Entry {
            id: LeaseId::parse("3f09c2").unwrap(),
            ticket: u64::MAX,
            owner: 1000,
            root: ProcessKey { pid: Pid(7), start: Some(StartTime(3)) },
            within: vec![LeaseId::parse("inner").unwrap(), LeaseId::parse("outer").unwrap()],
            claim,
            devices: vec![DeviceUuid("GPU-1".into())],
            parts_of: Vec::new(),
            command: "python".into(),
            since: Timestamp(1_795_223_083_000),
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_belongs_to_the_owner_of_its_file() {
        let text = write(&entry()).unwrap();
        let read = parse(EntryKind::Lease, "3f09c2", 1001, &text).unwrap();
        assert_eq!(read, Entry { owner: 1001, ..entry() });
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("{\"schema\":1,") && text.ends_with("}\n"), "{text}");
        assert!(!text.contains("1000"), "whose it is is not written: {text}");
    }

    #[test]
    fn what_is_no_entry_is_none() {
        let text = write(&entry()).unwrap();
        let lease = |id, text: &[u8]| parse(EntryKind::Lease, id, 0, text);
        assert_eq!(lease("other", &text), None, "an entry under another's name");
        assert_eq!(parse(EntryKind::Waiter, "3f09c2", 0, &text), None, "who waits has nothing");
        assert_eq!(lease("3f09c2", &text[..text.len() / 2]), None);
        for (from, to) in [
            ("GPU-1", "GPU\\u001b1"),
            ("\"schema\":1", "\"schema\":0"),
            ("[\"GPU-1\"]", "[]"),
            ("3f09c2", "../../x"),
        ] {
            let changed = String::from_utf8(text.clone()).unwrap().replace(from, to);
            assert_eq!(lease("3f09c2", changed.as_bytes()), None, "{changed}");
        }
        for text in ["", "{}", "[[[[", &"[".repeat(60_000)] {
            assert_eq!(lease("3f09c2", text.as_bytes()), None);
        }
    }

    #[test]
    fn what_a_newer_one_wrote_counts_for_all_of_its_devices() {
        let text = br#"{"schema":2,"id":"ab","devices":["GPU-1","GPU-2"],"claim":{"colour":1}}"#;
        let read = parse(EntryKind::Lease, "ab", 5, text).unwrap();
        assert_eq!((read.owner, read.claim), (5, Claim::whole(2)));
        assert_eq!((read.devices.len(), read.within), (2, Vec::new()));
        let text = br#"{"schema":2,"id":"ab","devices":["GPU-1"],"within":["cd"]}"#;
        let read = parse(EntryKind::Lease, "ab", 5, text).unwrap();
        assert_eq!(read.within, [LeaseId::parse("cd").unwrap()], "it has nothing of the others");
    }

    #[test]
    fn what_a_newer_one_wrote_counts_however_it_says_what_it_is_within() {
        let many = format!("[{}]", vec!["\"cd\""; DEPTH + 1].join(","));
        let deep = "[".repeat(300) + &"]".repeat(300);
        let objects = r#"[{"id":"cd"}]"#;
        let shapes = ["7", "null", "{}", objects, r#"["../x"]"#, r#"["cd",7]"#, &many, &deep];
        for within in shapes {
            let text = format!(
                r#"{{"schema":2,"id":"ab","within":{within},"devices":["GPU-1","GPU-2"]}}"#
            );
            let read = parse(EntryKind::Lease, "ab", 5, text.as_bytes());
            let read = read.unwrap_or_else(|| panic!("its devices are given away: {text}"));
            assert_eq!((read.claim, read.devices.len()), (Claim::whole(2), 2), "{text}");
            assert_eq!(read.within, [], "{text}");
        }
    }

    #[test]
    fn words_are_cut_and_long_lists_refused() {
        let long = Entry { command: "é".repeat(500), ..entry() };
        let read = parse(EntryKind::Lease, "3f09c2", 0, &write(&long).unwrap()).unwrap();
        assert_eq!(read.command, "é".repeat(COMMAND / 2));
        let many = Entry { devices: vec![DeviceUuid("GPU-1".into()); 3000], ..entry() };
        assert_eq!(write(&many).unwrap_err().kind(), ErrorKind::Invalid);
        let deep = Entry { within: vec![entry().id; DEPTH + 1], ..entry() };
        assert_eq!(write(&deep).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
