//! The memory that a job uses on its devices, and whether it was freed.

use crate::ancestry;
use crate::claim_context::ClaimContext;
use gpu_core::{
    Absent, Bytes, DeviceProcess, DeviceProcessKind, DeviceState, DeviceUuid, Pid, ProcessKey,
    Reading, Snapshot,
};
use gpu_reaper::driver_reserve;
use std::borrow::Cow;

/// Processes that descend from a job's root and do not belong to the job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    /// The living ones.
    pub(crate) pids: Vec<Pid>,
    /// Memory without a listed process may be theirs.
    pub(crate) blurs_unlisted: bool,
}

/// A device of a job, with its memory before the job started.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    uuid: DeviceUuid,
    /// No other lease shares it.
    whole: bool,
    used: Reading<Bytes>,
    unlisted: Reading<Bytes>,
    /// The peak of the job's memory.
    pub(crate) peak: Reading<Bytes>,
}

impl Tally {
    /// Starts the tally of a device, from the last snapshot before the job.
    pub(crate) fn begin(context: &ClaimContext, uuid: &DeviceUuid, whole: bool) -> Self {
        let device = find(&context.snapshot, uuid);
        let device = device.as_deref().map_err(|absent| *absent);
        Tally {
            uuid: uuid.clone(),
            whole,
            used: device.and_then(DeviceState::memory_used),
            unlisted: device.and_then(|device| unlisted(&context.snapshot, device)),
            peak: Err(Absent::NotRecorded),
        }
    }

    /// Records the current use by the tree of `root`.
    pub(crate) fn note(&mut self, snapshot: &Snapshot, root: &ProcessKey, others: &Others) {
        let now = self.use_now(snapshot, root, others);
        self.peak = match (self.peak, now) {
            (Ok(peak), Ok(now)) => Ok(peak.max(now)),
            (Err(_), now) => now,
            (peak, Err(_)) => peak,
        };
    }

    /// The memory listed for the processes of the tree. On a device that the job has to itself,
    /// this includes new memory without a listed process, because some drivers list no processes.
    fn use_now(&self, snapshot: &Snapshot, root: &ProcessKey, others: &Others) -> Reading<Bytes> {
        let device = &*find(snapshot, &self.uuid)?;
        let growth = || {
            if others.blurs_unlisted {
                return Err(Absent::NotSupported);
            }
            let growth = unlisted(snapshot, device)?.saturating_sub(self.unlisted?);
            let reserve = driver_reserve(device.memory_total()?, false);
            Ok(if growth > reserve { growth } else { Bytes(0) })
        };
        let listed = listed(device).and_then(|listed| {
            let is_of_job =
                |pid| !others.pids.contains(&pid) && ancestry::descends(snapshot, pid, root);
            let of_tree = listed.iter().filter(|process| is_of_job(process.pid));
            of_tree.map(|process| process.memory).sum::<Reading<Bytes>>()
        });
        match (listed, self.whole) {
            // Not the sum: for a moment, the memory of an ended process is attributed to none.
            (Ok(listed), true) => Ok(listed.max(growth().unwrap_or_default())),
            (Err(_), true) => growth(),
            (Ok(_), false) if snapshot.sees_host_pids == Ok(false) => Err(Absent::NotSupported),
            (listed, false) => listed,
        }
    }

    /// Returns whether a process of the job computes on the device, where safe-gpu can see it.
    pub(crate) fn shows(&self, snapshot: &Snapshot, root: &ProcessKey, others: &Others) -> bool {
        self.computes(snapshot, |pid| {
            !others.pids.contains(&pid) && ancestry::descends(snapshot, pid, root)
        })
    }

    /// Returns whether a process computes on the device, where safe-gpu can see it.
    pub(crate) fn lists(&self, snapshot: &Snapshot, pid: Pid) -> bool {
        self.computes(snapshot, |listed| listed == pid)
    }

    fn computes(&self, snapshot: &Snapshot, is_one: impl Fn(Pid) -> bool) -> bool {
        let Ok(device) = find(snapshot, &self.uuid) else { return false };
        let listed = listed(&device).unwrap_or_default();
        // `nvidia-smi --query-compute-apps` omits processes that only draw.
        let mut computing =
            listed.iter().filter(|process| process.kind != DeviceProcessKind::Graphics);
        computing.any(|process| is_one(process.pid))
    }

    /// Returns whether no process of the tree is listed any more, and the memory without a listed
    /// process is no more than before, apart from the driver's own share.
    pub(crate) fn is_back(&self, snapshot: &Snapshot, root: &ProcessKey) -> Reading<bool> {
        let device = &*find(snapshot, &self.uuid)?;
        if listed(device)?.iter().any(|process| ancestry::descends(snapshot, process.pid, root)) {
            return Ok(false);
        }
        let tolerance = driver_reserve(device.memory_total()?, false);
        match (unlisted(snapshot, device), self.unlisted, self.whole) {
            (Ok(now), Ok(before), _) if snapshot.sees_host_pids != Ok(false) => {
                Ok(now <= before + tolerance)
            }
            (_, _, true) => Ok(device.memory_used()? <= self.used? + tolerance),
            // It is unknown which processes the unattributed memory belongs to.
            (Err(absent), _, false) => Err(absent),
            _ => Err(Absent::NotSupported),
        }
    }
}

/// Finds a device, or a MIG device as a separate one.
fn find<'a>(snapshot: &'a Snapshot, uuid: &DeviceUuid) -> Reading<Cow<'a, DeviceState>> {
    let is_it = |device: &DeviceState| device.id().has_key(uuid);
    let found = if uuid.is_partition() {
        let mut mig = snapshot.devices.iter().flat_map(DeviceState::partitions_as_devices);
        mig.find(is_it).map(Cow::Owned)
    } else {
        snapshot.devices.iter().find(|device| is_it(device)).map(Cow::Borrowed)
    };
    found.ok_or(match &snapshot.driver {
        Ok(_) => Absent::NotFound,
        Err(fault) => fault.kind.absent(),
    })
}

fn listed(device: &DeviceState) -> Reading<&[DeviceProcess]> {
    device.processes.as_deref().map_err(|fault| fault.kind.absent())
}

/// The memory in use without a listed process.
fn unlisted(snapshot: &Snapshot, device: &DeviceState) -> Reading<Bytes> {
    let used = device.memory_used()?;
    if snapshot.sees_host_pids == Ok(false) {
        return Ok(used);
    }
    let listed = listed(device)?.iter().map(|process| process.memory);
    Ok(used.saturating_sub(listed.sum::<Reading<Bytes>>()?))
}
