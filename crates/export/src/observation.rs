//! A snapshot of a machine, and its values.

use crate::catalog::Metric;
use crate::context::Context;
use crate::jobs::JobsOf;
use crate::labels::Labels;
use crate::metrics::{Metrics, flag, from_milli};
use crate::{JobFiles, Reaps, Waits};
use crate::{findings, gpus, leases, reaps, users};
use gpu_claim::Ledger;
use gpu_core::{Absent, Bytes, DeviceState, Fault, Origin, Snapshot};
use gpu_reaper::{Diagnosis, Usage};
use gpu_steward::lease_users;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The values to export in addition to those that only gpuws has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The ordinary figures of each GPU, which other exporters have too.
    pub figures: bool,
    /// Each listed process that uses at least this much memory; `None` for no process.
    pub processes: Option<Bytes>,
    /// How long claims waited, which only a series of snapshots shows.
    pub waits: bool,
}

/// A snapshot of a machine.
pub struct Observation<'a> {
    /// The snapshot, with details of its processes.
    pub snapshot: &'a Snapshot,
    /// The diagnosis of the snapshot.
    pub diagnosis: &'a Diagnosis,
    /// The leases and the queue, or why they are unknown.
    pub ledger: Result<&'a Ledger, Fault>,
    /// The content of the audit log; `None` if it could not be read.
    pub reaps: Option<&'a Reaps>,
    /// How long claims have waited; `None` if waits are not observed.
    pub waits: Option<&'a Waits>,
    /// The duration of the snapshot.
    pub took: Duration,
    /// Returns the name of a user.
    pub user: &'a dyn Fn(u32) -> String,
}

impl<'a> Observation<'a> {
    pub(crate) fn context(&self) -> Context<'a> {
        let snapshot = self.snapshot;
        let ledger = self.ledger.as_ref().ok().copied();
        let mut names = BTreeMap::new();
        for info in snapshot.processes.values().filter_map(|process| process.0.as_ref().ok()) {
            if let (Ok(uid), Ok(name)) = (info.uid, &info.user) {
                names.entry(uid).or_insert_with(|| name.clone());
            }
        }
        let owners = ledger.into_iter().flat_map(|ledger| {
            let entries = ledger.leases.iter().chain(&ledger.waiters).chain(&ledger.stalled);
            entries.map(|entry| entry.owner)
        });
        let of_processes =
            snapshot.processes.values().filter_map(|process| process.0.as_ref().ok());
        let uids: BTreeSet<u32> =
            of_processes.filter_map(|info| info.uid.ok()).chain(owners).collect();
        for uid in uids {
            names.entry(uid).or_insert_with(|| (self.user)(uid));
        }
        let top = ledger.map(|ledger| ledger.pool(None).leases).unwrap_or_default();
        let used = ledger.map(|ledger| lease_users(snapshot, &ledger.leases)).unwrap_or_default();
        Context {
            snapshot,
            diagnosis: self.diagnosis,
            ledger,
            usage: Usage::of(snapshot),
            jobs: ledger
                .map(|ledger| JobsOf::find(snapshot, &used, &top, &leases::used(&used, ledger))),
            labels: snapshot.devices.iter().map(|device| Labels::of(device.id())).collect(),
            used,
            top,
            names,
        }
    }

    /// Returns the values to export. A value that the snapshot could not read is missing.
    pub fn metrics(&self, shown: Shown) -> Metrics {
        self.metrics_of(&self.context(), shown)
    }

    pub(crate) fn metrics_of(&self, context: &Context<'_>, shown: Shown) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.add_version();
        self.add_machine(&mut metrics);
        gpus::add(context, shown.figures, &mut metrics);
        findings::add(context, &mut metrics);
        leases::add(context, &mut metrics);
        users::add(context, shown.processes, &mut metrics);
        if let Some(reaps) = self.reaps {
            reaps::add(reaps, &mut metrics);
        }
        if let Some(waits) = self.waits.filter(|_| shown.waits && context.ledger.is_some()) {
            waits.add_to(&mut metrics);
        }
        metrics
    }

    /// Returns the jobs on each GPU, for the files that dcgm-exporter reads; `None` if the GPUs or
    /// the leases are unknown, and the files should stay as they are.
    pub fn job_files(&self) -> Option<JobFiles> {
        self.job_files_of(&self.context())
    }

    pub(crate) fn job_files_of(&self, context: &Context<'_>) -> Option<JobFiles> {
        let is_known = self.snapshot.driver.is_ok() && !self.snapshot.devices.is_empty();
        context.jobs.as_ref().filter(|_| is_known).map(|jobs| jobs.files(self.snapshot))
    }

    fn add_machine(&self, metrics: &mut Metrics) {
        let snapshot = self.snapshot;
        let sleeps = |fault: &Fault| fault.kind.absent() == Absent::Asleep;
        let up = snapshot.driver.as_ref().map_or_else(sleeps, |_| true) && !self.driver_hangs();
        metrics.add(Metric::Up, [], flag(up));
        let driver = snapshot.driver.as_ref().ok();
        let version = driver.and_then(|driver| driver.version.as_deref().ok());
        let cuda = driver.and_then(|driver| driver.cuda.as_deref().ok());
        let origin = match &snapshot.origin {
            Origin::Live => "live".to_owned(),
            other => other.to_string(),
        };
        let labels = [
            ("origin", &*origin),
            ("driver_version", version.unwrap_or_default()),
            ("cuda_version", cuda.unwrap_or_default()),
        ];
        metrics.add(Metric::Machine, labels, 1.0);
        for metric in [Metric::ScanDuration, Metric::LookDuration] {
            metrics.add(metric, [], self.took.as_secs_f64());
        }
        for metric in [Metric::ScanTimestamp, Metric::LookTimestamp] {
            metrics.add(metric, [], from_milli(snapshot.taken_at.0));
        }
        let parts = [
            ("driver", up),
            ("holders", snapshot.holders.is_ok()),
            ("leases", self.ledger.is_ok()),
            ("kernel_log", snapshot.driver_messages.is_ok()),
            ("audit_log", self.reaps.is_some()),
        ];
        for (part, is_readable) in parts {
            metrics.add(Metric::Readable, [("part", part)], flag(is_readable));
        }
        if snapshot.holders.is_ok() {
            let count = f64::from(snapshot.unreadable.total());
            metrics.add(Metric::UnreadableProcesses, [], count);
        }
    }

    /// Returns whether the driver missed its deadline for a device.
    fn driver_hangs(&self) -> bool {
        self.snapshot.devices.iter().any(is_silent)
    }
}

/// Returns whether the driver did not answer in time about a device.
fn is_silent(device: &DeviceState) -> bool {
    let silent = |fault: &Fault| fault.kind.absent() == Absent::NoAnswer;
    let faults = [device.sample.as_ref().err(), device.processes.as_ref().err()];
    faults.into_iter().flatten().any(silent)
}
