//! The leases of the fake machine.

use super::World;
use gpu_core::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

impl LeaseStore for World {
    fn entries(&self, kind: EntryKind) -> Result<Vec<LeaseEntry>> {
        let state = self.state();
        Ok(match kind {
            EntryKind::Attempt => state.attempts.clone(),
            EntryKind::Lease => state.leases.clone(),
            EntryKind::Waiter => state.waiters.clone(),
        })
    }

    fn queue(&self) -> Result<Vec<QueuePlace>> {
        let state = self.state();
        let place = |(class, entry): (u64, &LeaseEntry)| QueuePlace {
            ticket: entry.ticket,
            id: entry.id.clone(),
            owner: entry.owner,
            class,
        };
        let mut places: Vec<QueuePlace> = (0..).zip(&state.waiters).map(place).collect();
        places.sort();
        Ok(places)
    }

    fn waiter(&self, place: &QueuePlace) -> Result<Option<Waiter>> {
        let state = self.state();
        let entry = state.waiters.iter().find(|entry| place.is_of(entry)).cloned();
        Ok(entry.map(|entry| Waiter { entry, is_stalled: false }))
    }

    fn publish(&self, kind: EntryKind, entry: &LeaseEntry) -> Result<Box<dyn LeaseGuard>> {
        let mut state = self.state();
        if state.leases_full {
            return Err(Error::new(ErrorKind::Io, "publish a lease"));
        }
        match kind {
            EntryKind::Attempt => state.attempts.push(entry.clone()),
            EntryKind::Lease => state.leases.push(entry.clone()),
            EntryKind::Waiter => state.waiters.push(entry.clone()),
        }
        Ok(Box::new(Kept(self.clone(), (kind, entry.id.clone()), Cell::new(false))))
    }

    fn owner(&self) -> u32 {
        self.state().owner
    }

    fn new_id(&self) -> Result<LeaseId> {
        let mut state = self.state();
        state.ids += 1;
        Ok(LeaseId::parse(&format!("own-{}", state.ids)).unwrap())
    }

    fn ticket(&self) -> Result<u64> {
        Ok(1_000_000)
    }

    fn wait(&self, at_most: Duration) -> Result<bool> {
        let mut state = self.state();
        let before = (state.leases.clone(), state.waiters.clone());
        state.pass(at_most);
        Ok(before != (state.leases.clone(), state.waiters.clone()))
    }

    fn wait_for(&self, place: &QueuePlace, at_most: Duration) -> Result<bool> {
        self.state().pass(at_most);
        Ok(self.waiter(place)?.is_none())
    }

    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        BTreeMap::new()
    }

    fn hold_back_safe_gpu(&self, _patience: Duration) -> Result<Box<dyn SafeGpuGuard>> {
        if self.state().is_safe_gpu_at_work {
            return Err(Error::new(ErrorKind::TimedOut, "hold safe-gpu's locks"));
        }
        self.state().holds_back = true;
        Ok(Box::new(HoldsBack(self.clone())))
    }

    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder> {
        let is_at_work = self.state().is_safe_gpu_at_work;
        is_at_work.then_some(SafeGpuHolder { file: 0, process: None })
    }
}

/// A held entry; the flag shows whether its file was removed.
struct Kept(World, (EntryKind, LeaseId), Cell<bool>);

impl LeaseGuard for Kept {
    fn confirm(&mut self) -> Result<()> {
        let mut state = self.0.state();
        let (kind, id) = &mut self.1;
        if *kind == EntryKind::Attempt {
            let at = state.attempts.iter().position(|entry| entry.id == *id);
            let entry = state.attempts.remove(at.expect("it is there"));
            state.leases.push(entry);
            *kind = EntryKind::Lease;
        }
        Ok(())
    }

    fn inherit(&self, yes: bool) -> Result<()> {
        self.0.state().inherit.push(yes);
        Ok(())
    }

    fn renew(&self) -> Result<bool> {
        let mut state = self.0.state();
        let now = state.now;
        state.renewals.push(now);
        let seen = match &self.1 {
            (EntryKind::Lease, id) => state.leases.iter().any(|entry| entry.id == *id),
            _ => true,
        };
        self.2.set(!seen);
        Ok(seen)
    }

    fn leave(self: Box<Self>) {
        // Living processes of the program keep it; here, forever.
        self.2.set(true);
        self.0.state().left_to_others = true;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.2.get() {
            return;
        }
        let mut state = self.0.state();
        let (kind, id) = &self.1;
        let entries = match kind {
            EntryKind::Attempt => &mut state.attempts,
            EntryKind::Lease => &mut state.leases,
            EntryKind::Waiter => &mut state.waiters,
        };
        entries.retain(|entry| entry.id != *id);
    }
}

struct HoldsBack(World);

impl SafeGpuGuard for HoldsBack {
    fn waiting(&self) -> Result<Vec<Pid>> {
        Ok(self.queues()?.concat())
    }

    fn queues(&self) -> Result<Vec<Vec<Pid>>> {
        let state = self.0.state();
        let queues = [&state.waits_for_safe_gpu, &state.waits_for_other_safe_gpu];
        let pids = |(index, queue): (usize, &Vec<u32>)| {
            if state.released.contains(&index) {
                Vec::new()
            } else {
                queue.iter().map(|pid| Pid(*pid)).collect()
            }
        };
        Ok(queues.into_iter().enumerate().map(pids).collect())
    }

    fn release(&mut self, index: usize) -> Result<()> {
        let mut state = self.0.state();
        if state.keeps_locks {
            return Err(Error::new(ErrorKind::Io, "release a lock of safe-gpu"));
        }
        state.released.push(index);
        Ok(())
    }
}

impl Drop for HoldsBack {
    fn drop(&mut self) {
        self.0.state().holds_back = false;
    }
}
