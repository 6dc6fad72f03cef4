//! The port to the storage of leases.

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{DeviceUuid, Pid};
use crate::lease::{LeaseEntry, LeaseId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// An attempt: a lease that its maker has not confirmed yet ([`LeaseGuard::confirm`]).
    Attempt,
    /// A confirmed lease.
    Lease,
    /// A place in the queue.
    Waiter,
}

/// A place in the queue, from its name alone; whether it is alive is not known yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePlace {
    /// Its position in the order of claims ([`LeaseEntry::ticket`]).
    pub ticket: u64,
    /// Its id.
    pub id: LeaseId,
    /// Its owner.
    pub owner: u32,
    /// Equal for all places of one user with the same request within the same lease.
    pub class: u64,
}

impl QueuePlace {
    /// Returns whether this is the place of an entry.
    pub fn is_of(&self, entry: &LeaseEntry) -> bool {
        self.id == entry.id && self.owner == entry.owner
    }
}

/// A live claim in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its request.
    pub entry: LeaseEntry,
    /// It has not renewed its place for longer than a running program would take: the program is
    /// stopped.
    pub is_stalled: bool,
}

/// The process that has locked a lock file of safe-gpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeGpuHolder {
    /// The index of the file among all of them.
    pub file: usize,
    /// The process; `None` if the kernel does not report it: a lock of an open file description, or
    /// a process of another PID namespace.
    pub process: Option<Pid>,
}

/// Storage of leases that all users of the machine share.
///
/// An entry is alive while the kernel holds it for a process: it ends with the last process that
/// has its descriptor, however that process dies, and a leftover file means nothing. Only root can
/// create, change, hide or end an entry of another user.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait LeaseStore: Send + Sync {
    /// Returns every live entry of a kind. It skips dead, malformed and unreadable entries, and
    /// anything but regular files.
    ///
    /// If an entry is confirmed between a call for [`EntryKind::Attempt`] and a later call for
    /// [`EntryKind::Lease`], the second call sees it at the latest.
    ///
    /// # Errors
    /// `Io` when the storage cannot be read.
    fn entries(&self, kind: EntryKind) -> Result<Vec<LeaseEntry>>;

    /// Returns all places in the queue in the order of their tickets, dead ones included. The cost
    /// of this listing does not depend on the content of the entries.
    ///
    /// # Errors
    /// `Io` when the storage cannot be read.
    fn queue(&self) -> Result<Vec<QueuePlace>>;

    /// Returns the claim at a place of the last [`queue`](LeaseStore::queue); `None` when it is
    /// dead.
    ///
    /// # Errors
    /// `Io` when its state cannot be read.
    fn waiter(&self, place: &QueuePlace) -> Result<Option<Waiter>>;

    /// Publishes an entry: complete, and alive from the first moment at which others see it.
    ///
    /// # Errors
    /// `Io` when it cannot be written, `Again` when the caller has too many attempts at this
    /// moment; in both cases it leaves no file.
    fn publish(&self, kind: EntryKind, entry: &LeaseEntry) -> Result<Box<dyn LeaseGuard>>;

    /// Returns the owner of the entries that are published here.
    fn owner(&self) -> u32;

    /// Returns a unique ID.
    ///
    /// # Errors
    /// `Io` when there is no source of randomness.
    fn new_id(&self) -> Result<LeaseId>;

    /// Returns a ticket that is later than every ticket drawn before on this machine, whatever
    /// others wrote into their entries: nanoseconds of a clock that no user can set.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn ticket(&self) -> Result<u64>;

    /// Returns true once a lease may have ended after the last call of
    /// [`entries`](LeaseStore::entries) for attempts, false after `at_most` or a signal.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn wait(&self, at_most: Duration) -> Result<bool>;

    /// Returns true once the claim at a place has left the queue, false after `at_most` or a
    /// signal. A claim that leaves wakes only the callers that wait for it.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn wait_for(&self, place: &QueuePlace, at_most: Duration) -> Result<bool>;

    /// Returns when each device was last leased, according to the remaining files.
    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp>;

    /// Holds back every safe-gpu until the guard is dropped, and waits at most `patience` for one
    /// that holds its lock.
    ///
    /// # Errors
    /// `TimedOut` when one of them keeps its lock; `Io` when a lock file cannot be opened.
    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn SafeGpuGuard>>;

    /// Returns which process blocks [`hold_back_safe_gpu`](LeaseStore::hold_back_safe_gpu) now;
    /// `None` if there is none, or it cannot be determined. It takes no lock and does not wait.
    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder>;
}

/// An entry that is held until it is dropped.
pub trait LeaseGuard: Send {
    /// Turns an attempt into a lease. A lease stays one.
    ///
    /// # Errors
    /// `Io` when others may not see it as a lease; it is then still an attempt.
    fn confirm(&mut self) -> Result<()>;

    /// Sets whether a program that is started now keeps it alive too.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn inherit(&self, yes: bool) -> Result<()>;

    /// Renews it, and returns whether others still see it; if not, publish it again. Call this
    /// about every hour for a lease, so that no cleaner removes it as an old file, and every
    /// [`QUEUE_HEARTBEAT`] for a place in the queue, which otherwise stalls.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn renew(&self) -> Result<bool>;

    /// Leaves it to the programs that also keep it alive: it ends with the last of them.
    fn leave(self: Box<Self>);
}

/// The interval at which a waiting claim renews its place.
pub const QUEUE_HEARTBEAT: Duration = Duration::from_secs(5);

/// A place that was not renewed for this long is stalled. Between two renewals a claim may read the
/// devices, which takes some seconds if the driver is slow.
pub const QUEUE_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The held locks of safe-gpu.
pub trait SafeGpuGuard: Send {
    /// Returns the processes that wait for them.
    ///
    /// # Errors
    /// `Io` when the kernel's list cannot be read.
    fn waiting(&self) -> Result<Vec<Pid>>;

    /// Returns the processes that wait for each of them, in a fixed order; none for a released one.
    /// A process that is not visible here, in another PID namespace, has the PID 0.
    ///
    /// # Errors
    /// As [`waiting`](SafeGpuGuard::waiting).
    fn queues(&self) -> Result<Vec<Vec<Pid>>> {
        Ok(vec![self.waiting()?])
    }

    /// Releases one of them, by its index in [`queues`](SafeGpuGuard::queues).
    ///
    /// # Errors
    /// `Unsupported` if they can be released only together, `Io` when the kernel refuses.
    fn release(&mut self, index: usize) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("release only lock {index} of safe-gpu")))
    }
}
