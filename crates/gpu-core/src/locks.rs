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
    /// A lease.
    Lease,
    /// A place in the queue.
    Waiter,
}

/// A place for leases that all users of the machine share.
///
/// What is alive is what the kernel holds locked: an entry ends with the last process that has its
/// descriptor, however that dies, and what is left behind means nothing.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Locks: Send + Sync {
    /// Takes the right to decide, and waits for it for `patience` at most. The thread that took it
    /// is to drop it: an adapter may change for that time which signals the thread blocks.
    ///
    /// It keeps the order of claims. That no device is granted twice does not rest on it: whoever
    /// has published a lease looks again, and withdraws from a conflict.
    ///
    /// # Errors
    /// `TimedOut`, naming who has it where that can be seen; `Io` when it cannot be opened.
    fn table(&self, patience: Duration) -> Result<Box<dyn Held>>;

    /// Returns every entry that is alive. What is unlocked, malformed, no regular file or cannot
    /// be read is none.
    ///
    /// # Errors
    /// `Io` when the place cannot be read.
    fn entries(&self, kind: EntryKind) -> Result<Vec<Entry>>;

    /// Publishes an entry: whole, and alive from the first moment at which others see it.
    ///
    /// # Errors
    /// `Io` when it cannot be written; nothing is left of it then.
    fn publish(&self, kind: EntryKind, entry: &Entry) -> Result<Box<dyn Held>>;

    /// Returns the user whose the entries are that are published here.
    fn owner(&self) -> u32;

    /// Returns an id that no other entry has.
    ///
    /// # Errors
    /// `Io` when there is no source of chance.
    fn new_id(&self) -> Result<LeaseId>;

    /// Returns a ticket that is later than every one that anybody on this machine drew before,
    /// whatever others wrote into their entries.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn ticket(&self) -> Result<u64>;

    /// Returns once an entry came or ended after the last call of [`entries`](Locks::entries), or
    /// `at_most` has passed, and tells which: true for a change. It may return before either.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn wait(&self, at_most: Duration) -> Result<bool>;

    /// Returns when each device was last leased, as far as files that were left tell.
    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp>;

    /// Holds back every safe-gpu until the guard is dropped, and waits for one that is at work for
    /// `patience` at most.
    ///
    /// # Errors
    /// `TimedOut` when one of them keeps its lock; `Io` when a lock file cannot be opened.
    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn HeldBack>>;
}

/// Something held until it is dropped.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Held: Send {
    /// Says whether a program that is started now keeps it alive too.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn inherit(&self, yes: bool) -> Result<()>;

    /// Tells whether others still see it, and says to whoever clears old files away that it is
    /// wanted: to be called every hour or so. What nobody sees any more is to be published again.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn renew(&self) -> Result<bool>;

    /// Leaves it to the programs that keep it alive too: it ends with the last of them.
    fn leave(self: Box<Self>);
}

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
