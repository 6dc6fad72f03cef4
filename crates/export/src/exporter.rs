//! Takes a snapshot for each scrape.

use crate::observation::{Observation, Shown};
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
    pub fn observe(
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
        let observed = Observation {
            snapshot: &snapshot,
            diagnosis: &diagnosis,
            ledger: ledger.as_ref().map_err(Clone::clone),
            reaps,
            waits: Some(&self.waits),
            took: ports.clock.monotonic().saturating_sub(begin),
            user,
        };
        let context = observed.context();
        Exported {
            metrics: observed.metrics_of(&context, shown),
            job_files: self.makes_job_files.then(|| observed.job_files_of(&context)).flatten(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{
        Claim, DeviceId, DeviceInfo, DeviceSample, DeviceState, Driver, Error, ErrorKind,
        LeaseEntry, LeaseId, MockClock, MockGpuBackend, MockHost, MockLeaseStore, Origin, Pid,
        ProcessKey, StartTime, Timestamp,
    };

    fn fault(absent: Absent) -> Fault {
        Fault { kind: ErrorKind::Field(absent), text: "query it".to_owned() }
    }

    #[test]
    fn driver_is_lost_unless_it_answers_or_sleeps() {
        let machine = |driver, sample| {
            let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(0));
            snapshot.driver = driver;
            snapshot.devices = vec![DeviceState {
                info: DeviceInfo::unknown(DeviceId::from_index(0)),
                sample,
                processes: Ok(Vec::new()),
                partitions: Ok(Vec::new()),
                details: Ok(Default::default()),
            }];
            snapshot
        };
        let absent = Absent::NotSupported;
        let driver = || Ok(Driver { version: Err(absent), cuda: Err(absent) });
        let sample = || Ok(DeviceSample::absent(absent));
        for (driver, sample, is_lost) in [
            (driver(), sample(), false),
            (driver(), Err(fault(Absent::NotPermitted)), false),
            (driver(), Err(fault(Absent::NoAnswer)), true),
            (Err(fault(Absent::Asleep)), sample(), false),
            (Err(fault(Absent::Failed)), sample(), true),
            (Err(fault(Absent::Failed)), Err(fault(Absent::NotPermitted)), true),
        ] {
            let snapshot = machine(driver, sample);
            assert_eq!(has_lost_driver(&snapshot), is_lost, "{snapshot:?}");
        }
    }

    #[test]
    fn ledger_has_the_leases_or_why_they_are_unknown() {
        let (backend, host) = (MockGpuBackend::new(), MockHost::new());
        let mut clock = MockClock::new();
        clock.expect_wall().returning(|| Timestamp(0));
        let ledger = |leases: Option<&dyn LeaseStore>| {
            let ports = Ports { backend: &backend, host: &host, clock: &clock, leases };
            Exporter::new(false).ledger(&ports)
        };
        assert!(ledger(None).unwrap().leases.is_empty());
        let mut store = MockLeaseStore::new();
        store.expect_queue().returning(|| Ok(Vec::new()));
        store.expect_ticket().returning(|| Ok(1));
        store.expect_entries().returning(|kind| {
            let lease = LeaseEntry {
                id: LeaseId::parse("0000000000a1").unwrap(),
                ticket: 1,
                owner: 1000,
                root: ProcessKey { pid: Pid(7), start: Some(StartTime(1)) },
                within: Vec::new(),
                claim: Claim::whole(1),
                devices: Vec::new(),
                parts_of: Vec::new(),
                merged: None,
                command: "python".to_owned(),
                since: Timestamp(0),
            };
            Ok(if kind == gpu_core::EntryKind::Lease { vec![lease] } else { Vec::new() })
        });
        assert_eq!(ledger(Some(&store)).unwrap().leases.len(), 1);
        let mut broken = MockLeaseStore::new();
        broken.expect_queue().returning(|| Err(Error::new(ErrorKind::Io, "read the queue")));
        assert!(ledger(Some(&broken)).unwrap_err().text.contains("read the queue"));
    }
}
