//! Who has devices and who waits, and which of them matter to a claim.

use gpu_core::{Entry, EntryKind, Locks, Result, Share};

/// Everyone who has devices or waits for them, as one reading told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The leases.
    pub leases: Vec<Entry>,
    /// Those that wait, the earliest first.
    pub waiters: Vec<Entry>,
}

impl Ledger {
    /// Reads who is alive now.
    ///
    /// Waiters are read first: one that becomes a lease in between is seen twice, never missed,
    /// and counts as a lease.
    ///
    /// # Errors
    /// Those of [`Locks::entries`].
    pub fn read(locks: &dyn Locks) -> Result<Self> {
        let mut waiters = locks.entries(EntryKind::Waiter)?;
        let leases = locks.entries(EntryKind::Lease)?;
        let is_lease = |waiter: &Entry| leases.iter().any(|lease| is_same(lease, waiter));
        waiters.retain(|waiter| !is_lease(waiter));
        waiters.sort_by(|a, b| (a.ticket, &a.id, a.owner).cmp(&(b.ticket, &b.id, b.owner)));
        Ok(Ledger { leases, waiters })
    }

    /// Returns the lease that an entry was taken out of.
    ///
    /// Anybody can write that he is inside of another's lease. It is believed of the lease's owner
    /// and of root, and only as far as the lease itself goes; all else counts as if it stood
    /// alone, as does an entry whose outer lease has ended.
    pub fn parent_of(&self, entry: &Entry) -> Option<&Entry> {
        let within = entry.within.as_ref()?;
        self.leases.iter().find(|lease| {
            lease.id == *within
                && !is_same(lease, entry)
                && (entry.owner == lease.owner || entry.owner == 0)
                && entry.devices.iter().all(|device| lease.devices.contains(device))
        })
    }

    /// Returns those that compete for the devices of one lease, or for the machine's.
    pub fn pool(&self, within: Option<&Entry>) -> Ledger {
        let belongs = |entry: &&Entry| match (self.parent_of(entry), within) {
            (None, None) => true,
            (Some(parent), Some(within)) => is_same(parent, within),
            _ => false,
        };
        Ledger {
            leases: self.leases.iter().filter(belongs).cloned().collect(),
            waiters: self.waiters.iter().filter(belongs).cloned().collect(),
        }
    }

    /// Returns those that came before an entry and wait.
    pub fn ahead_of(&self, entry: &Entry) -> impl Iterator<Item = &Entry> {
        self.waiters.iter().filter(|other| !is_same(other, entry) && other.is_before(entry))
    }
}

/// Tells whether both are one and the same: ids alone could be another user's copy.
pub(crate) fn is_same(a: &Entry, b: &Entry) -> bool {
    a.id == b.id && a.owner == b.owner
}

/// Returns an entry as if it had got these devices.
pub(crate) fn granted(entry: &Entry, devices: Vec<gpu_core::DeviceUuid>) -> Entry {
    Entry { devices, ..entry.clone() }
}

/// Returns an entry as if it had got these devices and nobody could be beside it.
pub(crate) fn reserved(entry: &Entry, devices: Vec<gpu_core::DeviceUuid>) -> Entry {
    let mut reserved = granted(entry, devices);
    reserved.claim.share = Share::Whole;
    reserved
}
