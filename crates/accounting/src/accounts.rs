//! The accumulator of amounts.

use crate::amounts::{Amounts, Booked, Day, Energy, Gap, Gaps};
use crate::division::{divide, divide_time, nanos};
use crate::owner::{Owner, Work};
use crate::series::Series;
use gpu_core::{
    Bytes, DeviceId, DeviceProcessKind, DeviceState, LeaseEntry, Milliwatts, Pid, ProcessKey,
    Snapshot, Timestamp,
};
use std::collections::{BTreeMap, btree_map};
use std::time::Duration;

/// The maximum number of jobs with a row of their own. Later jobs share [`Work::Others`], because
/// users can invent any number of program names.
const MAX_JOBS: usize = 10_000;

/// The maximum plausible power draw of a GPU, 5 kW. A larger advance of the energy counter is
/// discarded.
const MAX_POWER: Milliwatts = Milliwatts(5_000_000);

/// The accounts of a machine over time.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// Longer intervals count as gaps.
    longest: Duration,
    snapshots: usize,
    /// The earliest and latest snapshot times, which differ from the first and last if the clock
    /// was set back.
    span: Option<(Timestamp, Timestamp)>,
    last: Option<(Timestamp, Day)>,
    watched: Duration,
    gaps: Gaps,
    /// The names of users seen so far.
    users: BTreeMap<u32, String>,
    owners: Names<Owner>,
    jobs: Names<(usize, Work)>,
    by_owner: Vec<Amounts>,
    by_job: Vec<Amounts>,
    by_day: BTreeMap<Day, Amounts>,
    gpus: Vec<GpuAccount>,
    total: Amounts,
    series: Series,
    /// The owner and job of each process in the last snapshot, so that their names are built only
    /// once.
    known: BTreeMap<ProcessKey, (usize, usize)>,
    memory: Memory,
}

/// The account of a GPU.
#[derive(Clone, Debug)]
pub struct GpuAccount {
    /// Its identifiers as last seen.
    pub id: DeviceId,
    /// Its product name.
    pub name: Option<String>,
    /// The amounts held and used. The energy is the GPU's total.
    pub amounts: Amounts,
    /// The time for which its processes were known.
    pub observed: Duration,
    /// The held time without a known utilization. No used time is booked for it.
    pub unmeasured: Duration,
    /// The energy that is not attributed to any process: idle power, and energy without a
    /// utilization reading.
    pub unattributed: Energy,
    /// The energy counter and the power draw in the last snapshot.
    meter: (Option<u64>, Option<Milliwatts>),
}

/// A holder of memory on a device in a snapshot.
#[derive(Clone, Copy, Debug)]
struct Holder {
    owner: usize,
    job: usize,
    memory: Bytes,
    /// Its own utilization, in percent.
    own: Option<u8>,
}

/// The memory in one snapshot, by owner and by job.
#[derive(Clone, Debug, Default)]
struct Memory {
    by_owner: Vec<Bytes>,
    by_job: Vec<Bytes>,
    total: Bytes,
}

/// Names and their indices.
#[derive(Clone, Debug)]
struct Names<T> {
    all: Vec<T>,
    indices: BTreeMap<T, usize>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Names { all: Vec::new(), indices: BTreeMap::new() }
    }
}

impl Accounts {
    /// Returns empty accounts. An interval longer than `longest` is a gap, for which no amounts are
    /// booked.
    pub fn new(longest: Duration) -> Self {
        Accounts { longest, ..Accounts::default() }
    }

    /// Adds a snapshot and the leases at that time. Both describe the interval since the previous
    /// snapshot. `day` is the day of the snapshot; an interval across midnight belongs to the day
    /// on which it began.
    pub fn add(&mut self, snapshot: &Snapshot, leases: &[LeaseEntry], day: Day) {
        let now = snapshot.taken_at;
        let interval = match self.last {
            Some((before, _)) if now < before => {
                self.gaps.set_back += 1;
                None
            }
            Some((before, _)) if now.since(before) > self.longest => {
                self.gaps.add(Gap { from: before, to: now });
                None
            }
            Some((before, began)) => Some((before, began)),
            None => None,
        };
        self.snapshots += 1;
        let (first, last) = self.span.unwrap_or((now, now));
        self.span = Some((first.min(now), last.max(now)));
        self.last = Some((now, day));
        let (from, day) = interval.unwrap_or((now, day));
        let time = now.since(from);
        self.watched = self.watched.saturating_add(time);
        let pieces = self.series.watch(from, now);
        self.memory.clear();
        let mut known = BTreeMap::new();
        for (index, device) in snapshot.devices.iter().enumerate() {
            let index = self.gpu(index, device);
            self.add_device((snapshot, leases), device, index, (time, day, &pieces), &mut known);
        }
        self.known = known;
        self.note_peaks(day);
    }

    fn gpu(&mut self, index: usize, device: &DeviceState) -> usize {
        let same = |gpu: &GpuAccount| gpu.id.same_device(device.id());
        let known = match self.gpus.get(index) {
            Some(gpu) if same(gpu) => Some(index),
            _ => self.gpus.iter().position(same),
        };
        known.unwrap_or_else(|| {
            self.gpus.push(GpuAccount {
                id: device.id().clone(),
                name: device.info.name.clone().ok(),
                amounts: Amounts::default(),
                observed: Duration::ZERO,
                unmeasured: Duration::ZERO,
                unattributed: Energy::default(),
                meter: (None, None),
            });
            self.gpus.len() - 1
        })
    }

    fn add_device(
        &mut self,
        snapshot: (&Snapshot, &[LeaseEntry]),
        device: &DeviceState,
        index: usize,
        (time, day, pieces): (Duration, Day, &[(usize, u64)]),
        known: &mut BTreeMap<ProcessKey, (usize, usize)>,
    ) {
        let energy = self.gpus[index].energy(device, time);
        let Some(holders) = self.holders(snapshot, device, known) else {
            self.book_unattributed(index, day, energy);
            return;
        };
        let mut held = Bytes(0);
        for holder in &holders {
            held += holder.memory;
            self.memory.add(holder);
        }
        let gpu = &mut self.gpus[index];
        gpu.amounts.peak = gpu.amounts.peak.max(held);
        gpu.observed = gpu.observed.saturating_add(time);
        let whole = device.sample.as_ref().ok().and_then(|sample| sample.utilization.ok());
        let whole = whole.map(|share| share.get());
        let is_measured = whole.is_some() || holders.iter().all(|holder| holder.own.is_some());
        if !holders.is_empty() && !is_measured {
            gpu.unmeasured = gpu.unmeasured.saturating_add(time);
        }
        let (booked, rest) = divided(&holders, whole, time, energy);
        self.book_unattributed(index, day, rest);
        for (holder, booked) in holders.iter().zip(&booked) {
            self.gpus[index].amounts.book(booked);
            self.by_owner[holder.owner].book(booked);
            self.by_job[holder.job].book(booked);
            self.by_day.entry(day).or_default().book(booked);
            self.total.book(booked);
            self.series.book(pieces, holder.owner, booked.used, holder.memory);
        }
    }

    /// Books energy that is not attributed to any process.
    fn book_unattributed(&mut self, index: usize, day: Day, energy: Energy) {
        self.gpus[index].unattributed += energy;
        self.gpus[index].amounts.energy += energy;
        self.by_day.entry(day).or_default().energy += energy;
        self.total.energy += energy;
    }

    /// Returns the holders of memory on a device; `None` if they are unknown.
    fn holders(
        &mut self,
        (snapshot, leases): (&Snapshot, &[LeaseEntry]),
        device: &DeviceState,
        known: &mut BTreeMap<ProcessKey, (usize, usize)>,
    ) -> Option<Vec<Holder>> {
        let listed = device.processes.as_ref().ok()?;
        let mut holders = Vec::with_capacity(listed.len());
        for process in listed {
            // A process that only draws does not keep the GPU from others.
            if process.kind == DeviceProcessKind::Graphics {
                continue;
            }
            let own = process.utilization.ok().map(|share| share.get());
            let (owner, job) = self.names(snapshot, process.pid, known);
            holders.push(Holder { owner, job, memory: process.memory.unwrap_or_default(), own });
        }
        let unlisted = device.memory_unlisted().filter(|memory| memory.0 > 0);
        if let Some(memory) = unlisted {
            let owner = self.owner(Owner::Unlisted);
            let job = self.job(owner, Work::Unknown);
            holders.push(Holder { owner, job, memory, own: None });
        }
        if holders.is_empty() {
            // A leased device is reserved for the owner of the lease.
            let key = device.id().lease_key();
            let parts =
                device.partitions.iter().flatten().filter_map(|part| part.uuid.as_ref().ok());
            let parts: Vec<_> = parts.collect();
            let is_leased = |lease: &&LeaseEntry| {
                let has = |uuid| lease.has(uuid) || lease.parts_of.contains(uuid);
                // Merged leases do not show the parent device of a MIG device.
                let has_part =
                    || lease.merged.is_some() && parts.iter().any(|uuid| lease.has(uuid));
                key.as_deref().is_ok_and(has) || has_part()
            };
            for lease in leases.iter().filter(is_leased) {
                let user = self.users.get(&lease.owner).cloned().map(Owner::User);
                let owner = self.owner(user.unwrap_or(Owner::Uid(lease.owner)));
                let work = match &lease.merged {
                    Some(_) => Work::Unknown,
                    None => Work::command(&lease.command),
                };
                let job = self.job(owner, work);
                holders.push(Holder { owner, job, memory: Bytes(0), own: Some(0) });
            }
        }
        Some(holders)
    }

    fn names(
        &mut self,
        snapshot: &Snapshot,
        pid: Pid,
        known: &mut BTreeMap<ProcessKey, (usize, usize)>,
    ) -> (usize, usize) {
        // In another PID namespace, the driver's PIDs match no process, or an unrelated one.
        let visible = snapshot.sees_host_pids != Ok(false);
        let info = snapshot.process(pid).ok().filter(|_| visible);
        let key = info.map_or(ProcessKey { pid, start: None }, |info| info.key);
        match known.entry(key) {
            btree_map::Entry::Occupied(entry) => return *entry.get(),
            btree_map::Entry::Vacant(entry) => {
                if let Some(names) = self.known.get(&key).filter(|_| key.start.is_some()) {
                    return *entry.insert(*names);
                }
            }
        }
        if let Some(info) = info
            && let (Ok(uid), Owner::User(name)) = (info.uid, Owner::of(Some(info)))
        {
            self.users.insert(uid, name);
        }
        let owner = self.owner(Owner::of(info));
        let names = (owner, self.job(owner, Work::of(info)));
        known.insert(key, names);
        names
    }

    fn owner(&mut self, owner: Owner) -> usize {
        let index = self.owners.index(owner);
        grow(&mut self.by_owner, index);
        grow(&mut self.memory.by_owner, index);
        index
    }

    fn job(&mut self, owner: usize, work: Work) -> usize {
        let full = self.jobs.all.len() >= MAX_JOBS;
        let fits = !full || self.jobs.indices.contains_key(&(owner, work.clone()));
        let index = self.jobs.index((owner, if fits { work } else { Work::Others }));
        grow(&mut self.by_job, index);
        grow(&mut self.memory.by_job, index);
        index
    }

    fn note_peaks(&mut self, day: Day) {
        let note = |all: &mut [Amounts], now: &[Bytes]| {
            for (amounts, now) in all.iter_mut().zip(now) {
                amounts.peak = amounts.peak.max(*now);
            }
        };
        note(&mut self.by_owner, &self.memory.by_owner);
        note(&mut self.by_job, &self.memory.by_job);
        let of_day = self.by_day.entry(day).or_default();
        of_day.peak = of_day.peak.max(self.memory.total);
        self.total.peak = self.total.peak.max(self.memory.total);
    }

    /// Returns the users in the order in which they were first seen.
    pub fn users(&self) -> impl Iterator<Item = (&Owner, &Amounts)> {
        self.owners.all.iter().zip(&self.by_owner)
    }

    /// Returns the users; the buckets of the [`Series`] refer to them by index.
    pub fn owners(&self) -> &[Owner] {
        &self.owners.all
    }

    /// Returns the jobs with their users in the order in which they were first seen.
    pub fn jobs(&self) -> impl Iterator<Item = (&Owner, &Work, &Amounts)> {
        let names = self.jobs.all.iter().zip(&self.by_job);
        names.map(|((owner, work), amounts)| (&self.owners.all[*owner], work, amounts))
    }

    /// Returns the days in order.
    pub fn days(&self) -> impl Iterator<Item = (Day, &Amounts)> {
        self.by_day.iter().map(|(day, amounts)| (*day, amounts))
    }

    /// Returns the GPUs in the order in which they were first seen.
    pub fn gpus(&self) -> &[GpuAccount] {
        &self.gpus
    }

    /// Returns the totals of the machine, including unattributed energy.
    pub fn total(&self) -> &Amounts {
        &self.total
    }

    /// Returns the energy that is not attributed to any process.
    pub fn unattributed(&self) -> Energy {
        Energy(self.gpus.iter().map(|gpu| gpu.unattributed.0).sum())
    }

    /// Returns the use over time.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Returns the earliest and latest snapshot times.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        self.span
    }

    /// Returns the number of snapshots.
    pub fn snapshot_count(&self) -> usize {
        self.snapshots
    }

    /// Returns the watched time: the time between snapshots, without the gaps.
    pub fn watched(&self) -> Duration {
        self.watched
    }

    /// Returns the intervals that were not watched.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }
}

impl GpuAccount {
    /// Returns the energy used in an interval, and stores the meter readings.
    fn energy(&mut self, device: &DeviceState, time: Duration) -> Energy {
        let details = device.details.as_ref().ok();
        let counter = details.and_then(|details| details.power.as_ref()?.energy.ok());
        let draw = device.sample.as_ref().ok().and_then(|sample| sample.power_draw.ok());
        let (counted, drawn) = std::mem::replace(&mut self.meter, (counter, draw));
        if time.is_zero() {
            return Energy::default();
        }
        // The counter restarts with the driver. Milliwatts times milliseconds are microjoules.
        let millis = time.as_millis();
        let advance = counter.zip(counted).and_then(|(now, before)| now.checked_sub(before));
        let advance = advance.map(|millijoules| u128::from(millijoules) * 1_000);
        let most = u128::from(MAX_POWER.0) * millis + 1_000_000;
        if let Some(microjoules) = advance.filter(|advance| *advance <= most) {
            return Energy(microjoules);
        }
        let draws = [draw, drawn].into_iter().flatten().map(|draw| u128::from(draw.0));
        let (count, sum) = draws.fold((0, 0), |(count, sum), draw| (count + 1, sum + draw));
        Energy((sum * millis).checked_div(count).unwrap_or(0))
    }
}

/// Returns the amounts booked for each holder, and the energy that is left.
fn divided(
    holders: &[Holder],
    whole: Option<u8>,
    time: Duration,
    energy: Energy,
) -> (Vec<Booked>, Energy) {
    let memory: Vec<u64> = holders.iter().map(|holder| holder.memory.0).collect();
    let percent = |share: u64| nanos(time.as_nanos() * u128::from(share) / 100);
    let own: u64 = holders.iter().map(|holder| u64::from(holder.own.unwrap_or(0))).sum();
    // Holders without a known share divide the rest.
    let is_rest = |holder: &Holder| holder.own.is_none();
    let rest_memory: Vec<u64> =
        holders.iter().filter(|holder| is_rest(holder)).map(|holder| holder.memory.0).collect();
    let rest = percent(u64::from(whole.unwrap_or(0)).saturating_sub(own));
    let mut rest = divide_time(rest, &rest_memory);
    let scaled: Vec<u64> =
        holders.iter().map(|holder| u64::from(holder.own.unwrap_or(0))).collect();
    let mut scaled = divide_time(percent(own.min(100)), &scaled);
    let mut held = divide_time(time, &memory);
    let mut booked: Vec<Booked> = holders
        .iter()
        .map(|holder| {
            let held = held.next().unwrap_or_default();
            let share = scaled.next().unwrap_or_default();
            let used = if is_rest(holder) {
                rest.next().unwrap_or_default()
            } else if own == 0 {
                // Without compute, `scaled` is an even division.
                Duration::ZERO
            } else {
                share
            };
            let idle = if holder.own.or(whole) == Some(0) { held } else { Duration::ZERO };
            Booked { held, used, idle, energy: Energy::default() }
        })
        .collect();
    let mut weights: Vec<u64> = booked
        .iter()
        .map(|booked| u64::try_from(booked.used.as_nanos()).unwrap_or(u64::MAX))
        .collect();
    let used: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let unused = time.as_nanos().saturating_sub(used).max(u128::from(used == 0));
    weights.push(u64::try_from(unused).unwrap_or(u64::MAX));
    let mut parts = divide(energy.0, &weights).map(Energy);
    for booked in &mut booked {
        booked.energy = parts.next().unwrap_or_default();
    }
    (booked, parts.next().unwrap_or_default())
}

impl Memory {
    fn clear(&mut self) {
        self.by_owner.fill(Bytes(0));
        self.by_job.fill(Bytes(0));
        self.total = Bytes(0);
    }

    fn add(&mut self, holder: &Holder) {
        self.by_owner[holder.owner] += holder.memory;
        self.by_job[holder.job] += holder.memory;
        self.total += holder.memory;
    }
}

impl<T: Clone + Ord> Names<T> {
    fn index(&mut self, name: T) -> usize {
        if let Some(index) = self.indices.get(&name) {
            return *index;
        }
        self.all.push(name.clone());
        self.indices.insert(name, self.all.len() - 1);
        self.all.len() - 1
    }
}

fn grow<T: Default + Clone>(all: &mut Vec<T>, index: usize) {
    if all.len() <= index {
        all.resize(index + 1, T::default());
    }
}
