//! The device memory of other processes, so that memory that they free meanwhile is not attributed
//! to the targets.

use crate::plan::{Expected, Plan};
use crate::report::Doubt;
use gpu_core::{
    Absent, Bytes, GpuBackend, Holder, HolderScan, Host, MemoryInfo, Pid, ProcessKey, Reading,
    own_memory,
};
use std::collections::{BTreeMap, BTreeSet};

/// The memory of a device at one moment, and the part listed for other processes.
#[derive(Clone, Debug)]
pub(crate) struct MemoryAtMoment {
    /// The minimum used while the list was read.
    pub(crate) least: Reading<Bytes>,
    /// The maximum used while the list was read.
    pub(crate) most: Reading<Bytes>,
    pub(crate) total: Reading<Bytes>,
    /// The driver's list of processes that are not targets.
    pub(crate) others: Reading<Others>,
}

/// The driver's lists of processes that are not targets, before and after the samples.
#[derive(Clone, Debug)]
pub(crate) struct Others {
    /// The processes in either list.
    pids: BTreeSet<Pid>,
    /// The memory of the processes in both lists; they had it in between as well.
    least: Bytes,
    /// The memory of the processes in either list.
    most: Bytes,
}

impl MemoryAtMoment {
    /// Reads a device. A process that has memory during both samples is in the list before them or
    /// in the one after them, even if one process hands over to another; a process in both lists
    /// has it all the time.
    pub(crate) fn of(
        backend: &dyn GpuBackend,
        host: &dyn Host,
        plan: &Plan,
        expected: &Expected,
    ) -> Self {
        let earlier = others(backend, host, plan, expected);
        let memory = || memory(backend, host, expected);
        let (first, last) = (memory(), memory());
        let later = others(backend, host, plan, expected);
        let used = |memory: Reading<MemoryInfo>| memory.and_then(|memory| memory.used);
        let both = |pick: fn(Bytes, Bytes) -> Bytes| Ok(pick(used(first)?, used(last)?));
        MemoryAtMoment {
            least: both(Bytes::min),
            most: both(Bytes::max),
            total: last.and_then(|memory| memory.total),
            others: earlier.and_then(|earlier| Ok(Others::of(&earlier, &later?))),
        }
    }

    /// Returns the maximum memory that others have freed since `before`; absent if the driver does
    /// not report it.
    pub(crate) fn given_back(&self, before: &MemoryAtMoment) -> Reading<Bytes> {
        let now = self.listed()?;
        Ok(before.listed()?.most.saturating_sub(now.least))
    }

    /// Returns the minimum memory that others have taken since `before`.
    pub(crate) fn taken(&self, before: &MemoryAtMoment) -> Reading<Bytes> {
        let before = before.listed()?;
        Ok(self.listed()?.least.saturating_sub(before.most))
    }

    fn listed(&self) -> Reading<&Others> {
        self.others.as_ref().map_err(|absent| *absent)
    }
}

fn memory(backend: &dyn GpuBackend, host: &dyn Host, expected: &Expected) -> Reading<MemoryInfo> {
    let sample = backend.sample(&expected.device).map_err(|error| error.kind().absent())?;
    Ok(own_memory(&sample, host))
}

impl Others {
    fn of(earlier: &Listed, later: &Listed) -> Self {
        let pids: BTreeSet<Pid> = earlier.keys().chain(later.keys()).copied().collect();
        let in_list = |list: &Listed, pid: &Pid| list.get(pid).copied().unwrap_or_default();
        let sum = |pick: fn(Bytes, Bytes) -> Bytes| {
            pids.iter().map(|pid| pick(in_list(earlier, pid), in_list(later, pid))).sum()
        };
        Others { least: sum(Bytes::min), most: sum(Bytes::max), pids }
    }
}

/// Listed processes, and the memory of each.
type Listed = BTreeMap<Pid, Bytes>;

/// Returns the listed processes of a device that are not targets. Another process may have the PID
/// of a target that has ended.
fn others(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    plan: &Plan,
    expected: &Expected,
) -> Reading<Listed> {
    // The driver's PIDs are meaningless here: targets cannot be distinguished from others.
    if host.sees_host_pids() == Ok(false) {
        return Err(Absent::NotSupported);
    }
    let listed = backend.processes(&expected.device).map_err(|error| error.kind().absent())?;
    let is_target = |pid: Pid| {
        let mut targets = plan.targets.iter().map(|target| &target.key);
        targets.find(|key| key.pid == pid).is_some_and(|key| {
            // A process that has just ended may still be listed.
            host.process(pid).map_or(true, |now| now.key.definitely_same(key))
        })
    };
    let mut others = Listed::new();
    for process in listed.iter().filter(|process| !is_target(process.pid)) {
        *others.entry(process.pid).or_default() += process.memory?;
    }
    Ok(others)
}

/// The processes that held the devices before the first signal and those that hold them now.
pub(crate) struct Holders<'a> {
    pub(crate) before: &'a Reading<HolderScan>,
    pub(crate) now: &'a Reading<HolderScan>,
}

/// Returns why the freed memory may not come from the targets; `None` if it certainly does.
///
/// A process that no list accounts for and that has released the device may have had any part of
/// the freed memory. If it still holds the device, its memory is assumed to be unchanged.
pub(crate) fn doubt(
    plan: &Plan,
    expected: &Expected,
    host: &dyn Host,
    before: &MemoryAtMoment,
    now: &MemoryAtMoment,
    holders: &Holders<'_>,
) -> Option<Doubt> {
    let given_back = now.given_back(before);
    if host.sees_host_pids() == Ok(false) {
        // Processes of other namespaces are not even counted.
        return Some(Doubt::NotListed);
    }
    let (Ok(first), Ok(last)) = (holders.before, holders.now) else {
        return given_back.is_err().then_some(Doubt::NotListed);
    };
    let is_target = |key: &ProcessKey| plan.targets.iter().any(|target| target.key == *key);
    let users = |scan: &HolderScan| -> BTreeSet<ProcessKey> {
        let uses = |holder: &&Holder| {
            holder.may_use_memory_of(&expected.device) && !is_target(&holder.process)
        };
        scan.holders.iter().filter(uses).map(|holder| holder.process).collect()
    };
    let (users, there) = (users(first), users(last));
    let Some(listed) = before.listed().ok().filter(|_| given_back.is_ok()) else {
        let alone = users.is_empty() && first.unreadable.total() == 0;
        return (!alone).then_some(Doubt::NotListed);
    };
    let mut unlisted = users.iter().filter(|key| !listed.pids.contains(&key.pid));
    if let Some(gone) = unlisted.find(|key| !there.contains(key)) {
        return Some(Doubt::LetGo(gone.pid));
    }
    // Only the number of unreadable processes is known.
    let shares = expected.memory.is_none() || expected.unexplained.0 > 0;
    let ended = last.unreadable.total() < first.unreadable.total();
    (shares && ended).then_some(Doubt::Unseen)
}
