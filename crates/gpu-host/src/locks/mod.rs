//! Leases as locked files: the port [`LeaseStore`] on the kernel.

mod dir;
mod history;
mod kept_fd;
mod listings;
mod living;
mod location;
mod names;
pub(crate) mod ofd;
mod publish;
mod read;
mod record_format;
mod safe_gpu;
mod user_dir;
mod watch;

use crate::fault;
use crate::roots::Roots;
use crate::timer;
use crate::trusted_dir::overflow_user;
use dir::Dir;
use gpu_core::{
    DeviceUuid, EntryKind, Error, ErrorKind, LeaseEntry, LeaseGuard, LeaseId, LeaseStore,
    QueuePlace, Result, SafeGpuGuard, SafeGpuHolder, Timestamp, Waiter,
};
use history::LastLeased;
use living::Known;
use names::PLACE;
use publish::{InQueue, Published};
use read::Fifo;
use rustix::rand::{GetRandomFlags, getrandom};
use safe_gpu::SafeGpu;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use user_dir::{QUEUE_NAMES, UserDir};
use watch::Watch;

pub use location::LeaseLocation;
pub use safe_gpu::SafeGpuFiles;

/// The longest wait for a change without a notification.
const POLL_INTERVAL_WITHOUT_INOTIFY: Duration = Duration::from_millis(250);

/// How many files of one user and kind a reader opens, the first ones by name. The rest contains no
/// entry of gpuws: it grants no user more than 256 leases, and removes the dead entries of a user
/// who has [`MANY`] before it publishes another.
const OPENED_PER_USER: usize = 256 + MANY;

/// From this number of entries of one kind on, gpuws removes the dead ones of its user.
const MANY: usize = 32;

/// A claim publishes no attempt if its user has this many. Concurrent claims may exceed it; readers
/// open [`OPENED_PER_USER`].
const MAX_ATTEMPTS: usize = 128;

/// Leases as files in a directory for each user, alive while the kernel holds them locked.
///
/// It follows no link and writes no other user's file. Nothing that another user creates, writes,
/// links or renames can create, end or hide a lease of this user.
pub struct FileLeaseStore {
    location: LeaseLocation,
    safe_gpu: SafeGpu,
    watch: Mutex<Option<Watch>>,
    known: Mutex<Known>,
    queue: Mutex<QueueDirs>,
}

/// The locations of the places in the last listing of the queue.
#[derive(Default)]
struct QueueDirs {
    shared: Vec<Dir>,
    /// The owner of each user's directory, the index of the shared directory that contains it, and
    /// its name.
    users: Vec<(u32, usize, String)>,
}

impl FileLeaseStore {
    /// Returns the locks of a location. Nothing is opened yet.
    ///
    /// `roots` is used to find processes that wait for safe-gpu's files.
    pub fn new(location: LeaseLocation, safe_gpu: SafeGpuFiles, roots: Roots) -> Self {
        let safe_gpu = SafeGpu::new(safe_gpu, roots.proc);
        FileLeaseStore {
            location,
            safe_gpu,
            watch: Mutex::default(),
            known: Mutex::default(),
            queue: Mutex::default(),
        }
    }

    /// Creates the directory of this machine's leases if the caller is root and it is missing, as the
    /// first claim of root does.
    ///
    /// # Errors
    /// `Io` when it cannot be created.
    pub fn prepare(&self) -> Result<()> {
        self.location.prepare()
    }

    /// Returns for each of these leases the files that a process that keeps it alive has open, one
    /// or both; none if it has ended.
    ///
    /// # Errors
    /// Those of [`entries`](LeaseStore::entries).
    pub fn files(&self, leases: &[LeaseEntry]) -> Result<Vec<Vec<PathBuf>>> {
        let living = self.entries(EntryKind::Lease)?;
        let living: HashSet<_> = living.iter().map(|entry| (&entry.id, entry.owner)).collect();
        let mut files = vec![Vec::new(); leases.len()];
        self.each(&mut |user| {
            for (lease, files) in leases.iter().zip(&mut files) {
                let is_here = lease.owner == user.owner && files.is_empty();
                if is_here && living.contains(&(&lease.id, lease.owner)) {
                    *files = read::files(user, lease);
                }
            }
            Ok(())
        })?;
        Ok(files)
    }

    /// Visits the directories of all users.
    fn each(&self, visit: &mut dyn FnMut(&UserDir) -> Result<()>) -> Result<()> {
        let shared = self.location.dirs()?;
        shared.iter().try_for_each(|shared| UserDir::each(shared, &mut |user| visit(&user)))
    }

    /// If the caller has many entries, removes those of killed processes: readers open only the
    /// first ones.
    ///
    /// # Errors
    /// `Again` if the caller has too many attempts at this moment. `Io` if a directory cannot be
    /// listed.
    fn make_room(&self, kind: EntryKind) -> Result<()> {
        let each_own = |visit: &mut dyn FnMut(&UserDir) -> Result<()>| {
            self.each(&mut |user| if user.owner == self.owner() { visit(user) } else { Ok(()) })
        };
        let count = |kind| {
            let mut count = 0;
            each_own(&mut |user| {
                count += lock(&self.known).count(user, kind)?;
                Ok(())
            })?;
            Ok(count)
        };
        if count(EntryKind::Attempt)? < MANY && count(EntryKind::Lease)? < MANY {
            return Ok(());
        }
        each_own(&mut |user| {
            history::clear(user);
            Ok(())
        })?;
        if kind == EntryKind::Attempt && count(kind)? >= MAX_ATTEMPTS {
            let what = format!("publish another attempt: this user already has {MAX_ATTEMPTS}");
            return Err(Error::new(ErrorKind::Again, what));
        }
        Ok(())
    }

    /// Calls a function with the queue directory of a place; returns `None` if the directory does
    /// not exist.
    fn at_place<T>(
        &self,
        place: &QueuePlace,
        mut act: impl FnMut(&UserDir) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let dirs = lock(&self.queue);
        for (_, shared, name) in dirs.users.iter().filter(|user| user.0 == place.owner) {
            let user = dirs.shared.get(*shared).map(|shared| UserDir::open(shared, name));
            let user = user.transpose()?.flatten().filter(|user| user.owner == place.owner);
            if let Some(user) = user
                && let Some(queue) = user.queue()?
                && let Some(result) = act(&queue)?
            {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LeaseStore for FileLeaseStore {
    fn entries(&self, kind: EntryKind) -> Result<Vec<LeaseEntry>> {
        if kind == EntryKind::Waiter {
            let places = self.queue()?;
            let waiters = places.iter().map(|place| Ok(self.waiter(place)?.map(|w| w.entry)));
            return waiters.filter_map(Result::transpose).collect();
        }
        // Attempts are read before leases: record entries that end in between.
        if kind == EntryKind::Attempt
            && let Some(watch) = &*lock(&self.watch)
        {
            watch.forget();
        }
        lock(&self.known).living(kind, |read| self.each(read))
    }

    fn queue(&self) -> Result<Vec<QueuePlace>> {
        let mut dirs = QueueDirs { shared: self.location.dirs()?, users: Vec::new() };
        let (mut places, overflow) = (Vec::new(), overflow_user());
        // The limit applies to a user, who may have many directories.
        let mut left: HashMap<u32, usize> = HashMap::new();
        for (number, shared) in dirs.shared.iter().enumerate() {
            UserDir::each(shared, &mut |user| {
                let left = left.entry(user.owner).or_insert(QUEUE_NAMES);
                if *left == 0 {
                    return Ok(());
                }
                let Some(queue) = user.queue()? else { return Ok(()) };
                let names = queue.places(*left)?;
                // The overflow user stands for all users without a mapping.
                if user.owner != overflow {
                    *left -= names.len().min(*left);
                }
                let place = |name: &String| names::place(user.owner, name.strip_prefix(PLACE)?);
                let of_user: Vec<QueuePlace> = names.iter().filter_map(place).collect();
                // A place has two names. Any other number belongs to a claim that is arriving or
                // leaving, or was killed.
                if user.owner == self.owner() && names.len() > 2 * of_user.len() {
                    history::clear_queue(&queue, &names, &of_user);
                }
                if !of_user.is_empty() {
                    places.extend(of_user);
                    dirs.users.push((user.owner, number, user.name));
                }
                Ok(())
            })?;
        }
        places.sort_unstable();
        *lock(&self.queue) = dirs;
        Ok(places)
    }

    fn waiter(&self, place: &QueuePlace) -> Result<Option<Waiter>> {
        let waiter = self.at_place(place, |queue| read::waiter(queue, place))?;
        if waiter.is_none() && place.owner == self.owner() {
            self.at_place(place, |queue| {
                history::clear_place(queue, place);
                Ok(None::<()>)
            })?;
        }
        Ok(waiter)
    }

    fn publish(&self, kind: EntryKind, entry: &LeaseEntry) -> Result<Box<dyn LeaseGuard>> {
        self.location.prepare()?;
        let publish = || -> Result<Box<dyn LeaseGuard>> {
            let user = UserDir::own(&self.location.first()?)?;
            let random = random_hex()?;
            Ok(match kind {
                EntryKind::Waiter => Box::new(InQueue::new(&user, entry, &random)?),
                EntryKind::Attempt | EntryKind::Lease => {
                    self.make_room(kind)?;
                    Box::new(Published::new(user, kind, entry, &random)?)
                }
            })
        };
        // A cleaner of old files may have removed an empty directory just after it was opened.
        publish().or_else(|error| match error.kind() {
            ErrorKind::Io => publish(),
            _ => Err(error),
        })
    }

    fn owner(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn new_id(&self) -> Result<LeaseId> {
        let id = random_hex()?;
        LeaseId::parse(&id).ok_or_else(|| Error::new(ErrorKind::Io, "generate a lease ID"))
    }

    /// The time since boot: one clock for all processes, which no user can set.
    fn ticket(&self) -> Result<u64> {
        Ok(u64::try_from(timer::since_boot().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wait(&self, at_most: Duration) -> Result<bool> {
        let failed = |errno| fault::file("wait for lease changes", errno);
        let shared = self.location.dirs()?;
        let prefix = shared.last().map_or("", |dir| dir.prefix);
        let mut watch = lock(&self.watch);
        if watch.as_ref().is_none_or(Watch::has_lost_watch) {
            *watch = Watch::new().ok();
        }
        match watch.as_mut().map(|watch| watch.follow(&shared)) {
            // Changes before the watch were not reported: check for them.
            Some(Ok(true)) => return Ok(true),
            Some(Ok(false)) => {}
            // The number of watches per user may be limited; then a timeout has to suffice.
            Some(Err(_)) | None => *watch = None,
        }
        match &*watch {
            Some(watch) => watch.wait(at_most, prefix).map_err(failed),
            None => {
                timer::sleep(at_most.min(POLL_INTERVAL_WITHOUT_INOTIFY));
                Ok(true)
            }
        }
    }

    fn wait_for(&self, place: &QueuePlace, at_most: Duration) -> Result<bool> {
        let fifo = self.at_place(place, |queue| {
            Fifo::open(queue, place)
                .map_err(|errno| fault::file(format!("wait for claim '{}'", place.id), errno))
        })?;
        let Some(fifo) = fifo else { return Ok(true) };
        let failed = |errno| fault::file(format!("wait for claim '{}'", place.id), errno);
        // A hang-up before the FIFO was opened is not reported (poll(2), on FIFOs).
        if !fifo.has_writer().map_err(failed)? {
            return Ok(true);
        }
        fifo.wait(at_most).map_err(failed)
    }

    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        let mut last = LastLeased::default();
        // A hint: skip what cannot be read.
        let _ = self.each(&mut |user| {
            last.add(user);
            Ok(())
        });
        last.devices
    }

    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn SafeGpuGuard>> {
        Ok(Box::new(self.safe_gpu.hold(patience)?))
    }

    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder> {
        self.safe_gpu.holder()
    }
}

/// Returns 12 random hexadecimal digits.
fn random_hex() -> Result<String> {
    let mut bytes = [0; 6];
    let filled = getrandom(&mut bytes[..], GetRandomFlags::empty());
    match filled.map_err(|errno| fault::file("read random bytes from the kernel", errno))? {
        6 => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => Err(Error::new(ErrorKind::Io, "read random bytes from the kernel")),
    }
}
