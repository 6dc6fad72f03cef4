//! Leases as locked files: the port [`Locks`] on the kernel.

mod entry;
mod folder;
pub(crate) mod ofd;
mod past;
mod place;
mod safe_gpu;
mod table;
mod watch;

use crate::fault;
use crate::host::Roots;
use crate::timer;
use entry::{Known, Published};
use gpu_core::{
    DeviceUuid, Entry, EntryKind, Error, ErrorKind, Held, HeldBack, LeaseId, Locks, Result,
    Timestamp,
};
use rustix::rand::{GetRandomFlags, getrandom};
use safe_gpu::SafeGpu;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use watch::Watch;

pub use place::Place;
pub use safe_gpu::SafeGpuFiles;

/// So long at most is a change waited for where nothing tells of it.
const WITHOUT_WATCH: Duration = Duration::from_millis(250);

/// Leases as files in a folder, alive while the kernel holds them locked.
///
/// No link is followed, no other user's file is written, and nothing that another user writes can
/// end a lease or hide one.
pub struct FileLocks {
    place: Place,
    roots: Roots,
    safe_gpu: SafeGpu,
    watch: Mutex<Option<Watch>>,
    /// For the first folder and the second.
    known: Mutex<[Known; 2]>,
}

impl FileLocks {
    /// Returns the locks of a place. Nothing is opened yet.
    ///
    /// `roots` tell who has a table open, and who waits for safe-gpu's files.
    pub fn new(place: Place, safe_gpu: SafeGpuFiles, roots: Roots) -> Self {
        let safe_gpu = SafeGpu::new(safe_gpu, roots.proc.clone());
        FileLocks { place, roots, safe_gpu, watch: Mutex::new(None), known: Mutex::default() }
    }

    /// Returns for each of these leases the files that whoever keeps it alive has open, one or
    /// both; none where it has ended. Only files of the lease's own user count.
    ///
    /// # Errors
    /// Those of [`entries`](Locks::entries).
    pub fn files(&self, leases: &[Entry]) -> Result<Vec<Vec<PathBuf>>> {
        let mut files = vec![Vec::new(); leases.len()];
        for folder in self.place.folders()? {
            let living = Known::default().living(&folder, EntryKind::Lease)?;
            let living: HashSet<_> = living.iter().map(|entry| (&entry.id, entry.owner)).collect();
            for (lease, files) in leases.iter().zip(&mut files) {
                if files.is_empty() && living.contains(&(&lease.id, lease.owner)) {
                    *files = entry::files(&folder, lease);
                }
            }
        }
        Ok(files)
    }
}

impl Locks for FileLocks {
    fn table(&self, patience: Duration) -> Result<Box<dyn Held>> {
        self.place.prepare()?;
        Ok(Box::new(table::Table::lock(&self.place.first()?, patience, &self.roots)?))
    }

    fn entries(&self, kind: EntryKind) -> Result<Vec<Entry>> {
        let folders = self.place.folders()?;
        if let Some(watch) = &*self.watch.lock().unwrap_or_else(PoisonError::into_inner) {
            watch.forget();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = Vec::new();
        for (known, folder) in known.iter_mut().zip(&folders) {
            entries.extend(known.living(folder, kind)?);
        }
        Ok(entries)
    }

    fn publish(&self, kind: EntryKind, entry: &Entry) -> Result<Box<dyn Held>> {
        let chance = chance()?;
        Ok(Box::new(Published::new(self.place.first()?, kind, entry, &chance)?))
    }

    fn owner(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn new_id(&self) -> Result<LeaseId> {
        let id = chance()?;
        LeaseId::parse(&id).ok_or_else(|| Error::new(ErrorKind::Io, "make an id of a lease"))
    }

    /// The time since boot: one clock for everybody, that nobody can set.
    fn ticket(&self) -> Result<u64> {
        Ok(u64::try_from(timer::since_boot().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wait(&self, at_most: Duration) -> Result<bool> {
        let failed = |errno| fault::file("wait for a change of leases", errno);
        let folders = self.place.folders()?;
        let prefix = folders.last().map_or("", |folder| folder.prefix);
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = false;
        if watch.is_none() {
            *watch = Watch::new().ok();
        }
        // What came before the watch was not told: it is to be looked for.
        let followed = watch.as_mut().map(|watch| watch.follow(&folders));
        match followed {
            Some(Ok(is_new)) => new = is_new,
            // A user may have a limited number of them; then time alone has to do.
            Some(Err(_)) | None => *watch = None,
        }
        if new {
            return Ok(true);
        }
        match &*watch {
            Some(watch) => watch.wait(at_most, prefix).map_err(failed),
            None => {
                timer::sleep(at_most.min(WITHOUT_WATCH));
                Ok(true)
            }
        }
    }

    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        self.place.folders().map(|folders| past::last_leased(&folders)).unwrap_or_default()
    }

    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn HeldBack>> {
        Ok(Box::new(self.safe_gpu.hold(patience)?))
    }
}

/// Returns 12 hexadecimal digits by chance.
fn chance() -> Result<String> {
    let mut bytes = [0; 6];
    let filled = getrandom(&mut bytes[..], GetRandomFlags::empty());
    match filled.map_err(|errno| fault::file("read the kernel's source of chance", errno))? {
        6 => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => Err(Error::new(ErrorKind::Io, "read the kernel's source of chance")),
    }
}
