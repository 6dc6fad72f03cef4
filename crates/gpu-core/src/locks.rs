//! The port to the place where leases are kept.

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{DeviceUuid, Pid};
use crate::lease::{Entry, LeaseId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A lease that its maker has not confirmed yet ([`Held::confirm`]).
    Attempt,
    /// A confirmed lease.
    Lease,
    /// A place in the queue.
    Waiter,
}

/// A place in the queue, as its name alone tells; whether it is alive is not known yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePlace {
    /// Its place in the order of claims ([`Entry::ticket`]).
    pub ticket: u64,
    /// Its id.
    pub id: LeaseId,
    /// The user who owns it.
    pub owner: u32,
    /// Equal for all places of one user that ask for the same within the same lease.
    pub class: u64,
}

impl QueuePlace {
    /// Returns whether this place is the one of an entry.
    pub fn is_of(&self, entry: &Entry) -> bool {
        self.id == entry.id && self.owner == entry.owner
    }
}

/// A live claim in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// What it asks for.
    pub entry: Entry,
    /// It has not renewed its place for longer than a running program lets pass: it is stopped.
    pub is_stalled: bool,
}

/// Who has a lock file of safe-gpu locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeGpuHolder {
    /// The place of the file among all of them.
    pub file: usize,
    /// The process; `None` where the kernel does not tell: a lock of an open file description, or a
    /// process of another PID namespace.
    pub process: Option<Pid>,
}

/// A place for leases that all users of the machine share.
///
/// What is alive is what the kernel holds for a process: an entry ends with the last process that
/// has its descriptor, however that dies, and a file left behind means nothing. Nobody can make,
/// change, hide or end an entry of another user, root excepted.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Locks: Send + Sync {
    /// Returns every entry of a kind that is alive. What is dead, malformed, no regular file or
    /// cannot be read is none.
    ///
    /// An entry that is confirmed between a call for [`EntryKind::Attempt`] and a later call for
    /// [`EntryKind::Lease`] is seen by the second call at the latest.
    ///
    /// # Errors
    /// `Io` when the place cannot be read.
    fn entries(&self, kind: EntryKind) -> Result<Vec<Entry>>;

    /// Returns all places in the queue in the order of their tickets, dead ones included: a
    /// listing whose cost does not depend on what is in them.
    ///
    /// # Errors
    /// `Io` when the place cannot be read.
    fn queue(&self) -> Result<Vec<QueuePlace>>;

    /// Returns the claim at a place of the last [`queue`](Locks::queue); `None` when it is dead.
    ///
    /// # Errors
    /// `Io` when the machine cannot say.
    fn waiter(&self, place: &QueuePlace) -> Result<Option<Waiter>>;

    /// Publishes an entry: whole, and alive from the first moment at which others see it.
    ///
    /// # Errors
    /// `Io` when it cannot be written; nothing is left of it then.
    fn publish(&self, kind: EntryKind, entry: &Entry) -> Result<Box<dyn Held>>;

    /// Returns the user who owns the entries that are published here.
    fn owner(&self) -> u32;

    /// Returns an id that no other entry has.
    ///
    /// # Errors
    /// `Io` when there is no source of chance.
    fn new_id(&self) -> Result<LeaseId>;

    /// Returns a ticket that is later than every one that anybody on this machine drew before,
    /// whatever others wrote into their entries: nanoseconds of a clock that nobody can set.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn ticket(&self) -> Result<u64>;

    /// Returns true once a lease may have ended after the last call of
    /// [`entries`](Locks::entries) for attempts, false after `at_most` or a signal.
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

    /// Returns when each device was last leased, as far as files that were left tell.
    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp>;

    /// Holds back every safe-gpu until the guard is dropped, and waits for one that is at work for
    /// `patience` at most.
    ///
    /// # Errors
    /// `TimedOut` when one of them keeps its lock; `Io` when a lock file cannot be opened.
    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn HeldBack>>;

    /// Returns who keeps [`hold_back_safe_gpu`](Locks::hold_back_safe_gpu) from its lock now;
    /// `None` where nobody does, or where that cannot be told. It takes no lock and does not wait.
    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder>;
}

/// Something held until it is dropped.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Held: Send {
    /// Makes an attempt a lease. A lease stays one.
    ///
    /// # Errors
    /// `Io` when others may not see it as one; it is an attempt still.
    fn confirm(&mut self) -> Result<()>;

    /// Says whether a program that is started now keeps it alive too.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn inherit(&self, yes: bool) -> Result<()>;

    /// Shows that it is wanted, and tells whether others still see it; what nobody sees any more
    /// is to be published again. To be called every hour or so for a lease, so that nobody clears
    /// it away as an old file, and every [`QUEUE_HEARTBEAT`] for a place in the queue, which stalls otherwise.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn renew(&self) -> Result<bool>;

    /// Leaves it to the programs that keep it alive too: it ends with the last of them.
    fn leave(self: Box<Self>);
}

/// How often a claim that waits renews its place.
pub const QUEUE_HEARTBEAT: Duration = Duration::from_secs(5);

/// A place that was not renewed for so long is stalled. Between two beats there may be a look at
/// the devices, which takes some seconds where the driver is slow.
pub const QUEUE_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The locks of safe-gpu, held.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait HeldBack: Send {
    /// Returns who waits for them.
    ///
    /// # Errors
    /// `Io` when the kernel's list cannot be read.
    fn waiting(&self) -> Result<Vec<Pid>>;

    /// Returns who waits for each of them, in a fixed order; nobody for one that was released.
    /// A process that is not visible here, in another PID namespace, has the number 0.
    ///
    /// # Errors
    /// As [`waiting`](HeldBack::waiting).
    fn queues(&self) -> Result<Vec<Vec<Pid>>> {
        Ok(vec![self.waiting()?])
    }

    /// Releases one of them, by its place in [`queues`](HeldBack::queues).
    ///
    /// # Errors
    /// `Unsupported` where they can be released only together, `Io` when the kernel refuses it.
    fn release(&mut self, place: usize) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("release lock {place} of safe-gpu alone")))
    }
}
