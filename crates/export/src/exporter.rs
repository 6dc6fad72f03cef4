//! Takes a snapshot for each scrape.

use crate::look::{Look, Shown};
use crate::{JobFiles, Metrics, Reaps, Waits};
use gpu_claim::Ledger;
use gpu_core::{
    Absent, Clock, Fault, GpuBackend, Group, Groups, Host, LeaseStore, Observer, Snapshot, ask,
};
use gpu_reaper::{Past, full_observation};
use gpu_steward::DeviceLeases;
use std::time::Duration;

/// The longest usual time between two scrapes. Lasting conditions are followed over ten of them.
const INTERVAL: Duration = Duration::from_secs(60);

/// A machine, as its ports.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    /// The devices.
    pub backend: &'a dyn GpuBackend,
    /// The processes.
    pub host: &'a dyn Host,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// The leases; `None` for a machine without leases.
    pub leases: Option<&'a dyn LeaseStore>,
}

/// Takes snapshots of one machine, and keeps what only several snapshots show.
#[derive(Default)]
pub struct Exporter {
    observer: Observer,
    past: Option<Past>,
    waits: Waits,
    makes_job_files: bool,
}

/// The result of a snapshot.
#[derive(Debug)]
pub struct Exported {
    /// The values.
    pub metrics: Metrics,
    /// The files for dcgm-exporter; `None` if they should stay as they are, or are not made.
    pub job_files: Option<JobFiles>,
    /// Whether the driver failed to answer, so that another backend should be opened.
    pub has_lost_driver: bool,
}

impl Exporter {
    /// Returns an exporter without a snapshot; `makes_job_files` enables the files for
    /// dcgm-exporter.
    pub fn new(makes_job_files: bool) -> Self {
        Exporter { makes_job_files, ..Exporter::default() }
    }

    /// Takes a snapshot. `reaps` is the content of the audit log, if it could be read; `user`
    /// returns the name of a user. Sleeping devices are not woken, and no device is kept open.
    pub fn look(
        &mut self,
        ports: &Ports<'_>,
        reaps: Option<&Reaps>,
        shown: Shown,
        user: &dyn Fn(u32) -> String,
    ) -> Exported {
        let begin = ports.clock.monotonic();
        let mut observation = full_observation();
        if shown.figures {
            observation.groups = observation.groups.and(Groups::from_iter([Group::Power]));
        }
        // Read the leases first: the snapshot then has the processes of every lease that was
        // granted before.
        let ledger = self.ledger(ports);
        let snapshot = self.observer.observe(ports.backend, ports.host, ports.clock, observation);
        let past = self.past.get_or_insert_with(|| Past::every(INTERVAL));
        past.add(&snapshot);
        let mut diagnosis = gpu_reaper::diagnose_after(past, &snapshot);
        let leases = ledger.as_ref().map(|ledger| ledger.pool(None).leases);
        DeviceLeases::recorded(leases.map_err(Clone::clone)).excuse(&snapshot, &mut diagnosis);
        let look = Look {
            snapshot: &snapshot,
            diagnosis: &diagnosis,
            ledger: ledger.as_ref().map_err(Clone::clone),
            reaps,
            waits: Some(&self.waits),
            took: ports.clock.monotonic().saturating_sub(begin),
            user,
        };
        let scene = look.scene();
        Exported {
            metrics: look.metrics_of(&scene, shown),
            job_files: self.makes_job_files.then(|| look.job_files_of(&scene)).flatten(),
            has_lost_driver: has_lost_driver(&snapshot),
        }
    }

    /// Reads the leases and the queue, and counts the claims that were granted since the previous
    /// snapshot.
    fn ledger(&mut self, ports: &Ports<'_>) -> Result<Ledger, Fault> {
        let Some(leases) = ports.leases else { return Ok(Ledger::default()) };
        let ledger = ask(|| Ledger::read(leases))?;
        // Without a ticket, the time of a grant cannot be compared with that of its claim.
        if let Ok(ticket) = leases.ticket() {
            self.waits.add(&ledger, (ticket, ports.clock.wall()));
        }
        Ok(ledger)
    }
}

/// Returns whether the driver failed. A backend that was given up does not notice when the driver
/// recovers.
fn has_lost_driver(snapshot: &Snapshot) -> bool {
    let sleeps = |fault: &Fault| fault.kind.absent() == Absent::Asleep;
    let no_answer = |fault: &Fault| fault.kind.absent() == Absent::NoAnswer;
    let mut samples = snapshot.devices.iter().map(|device| &device.sample);
    snapshot.driver.as_ref().is_err_and(|fault| !sleeps(fault))
        || samples.any(|sample| sample.as_ref().is_err_and(no_answer))
}
