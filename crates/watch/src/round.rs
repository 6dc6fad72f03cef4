//! One round: scan, report, warn, and end the processes that the policy selects.

use crate::absence::is_blind;
use crate::pending_kills::PendingKill;
use crate::watch::{Change, Watch};
use gpu_core::{ActToken, Error, Fault, ProcessKey, Snapshot};
use gpu_reaper::{Diagnosis, Guard, Past, Plan, Ports, Report, Request};
use std::ops::ControlFlow;
use std::time::Duration;

/// The time between the two scans before a plan. In this time, CPU time, which is counted in
/// hundredths of a second, can advance, and processes that are exiting disappear.
const PAUSE: Duration = Duration::from_millis(500);

/// A scan of the machine.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The diagnosis, which takes earlier snapshots into account.
    pub diagnosis: Diagnosis,
}

impl Scan {
    /// Adds a snapshot to the history and diagnoses it.
    pub fn after(past: &mut Past, snapshot: Snapshot) -> Self {
        past.add(&snapshot);
        let diagnosis = gpu_reaper::diagnose_after(past, &snapshot);
        Scan { snapshot, diagnosis }
    }
}

/// The purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To report changes. Process data may be as old as an [`Observer`](gpu_core::Observer)
    /// permits.
    Report,
    /// To plan. All data is read again.
    Plan,
}

/// The machine that a round scans and acts on.
pub struct Machine<'a> {
    /// Its ports. Without a token, the round writes no line to the audit log.
    pub ports: Ports<'a>,
    /// Scans the machine.
    pub scan: &'a mut dyn FnMut(Purpose) -> Scan,
    /// Permits ending processes. Without it, plans are only reported.
    pub token: Option<&'a ActToken>,
    /// Whether to continue. Called before and after the scans for a plan, and before each step of
    /// its execution, including each signal.
    pub go_on: &'a dyn Fn() -> ControlFlow<()>,
}

/// What a round reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// The driver has stopped answering.
    Blind(&'a Fault),
    /// The driver answers again.
    Sighted,
    /// A finding was raised, updated or cleared.
    Change(&'a Change),
    /// So many findings were not raised because of the hourly limit.
    HeldBack(usize),
    /// A process will be ended unless something changes, or would be in a dry run.
    Warning {
        /// The process.
        pending: &'a PendingKill,
        /// Whether this is a dry run, in which the process is not ended.
        is_dry_run: bool,
    },
    /// The checks of the plan spare every process that the policy selected.
    Spared {
        /// The last scan before the plan.
        now: &'a Snapshot,
        /// The plan, with each spared process and the reason.
        plan: &'a Plan,
    },
    /// A plan, and its result unless this was a dry run.
    Reap {
        /// The last scan before the plan.
        now: &'a Snapshot,
        /// The plan.
        plan: &'a Plan,
        /// The result; `None` for a dry run.
        report: Option<&'a Report>,
    },
    /// No plan could be made.
    NotPlanned(&'a Error),
}

impl Watch {
    /// Scans the machine once and reports changes. Then warns the owners of processes that the
    /// policy will end soon. If processes are due, scans twice more and executes the plan for those
    /// that are due after both scans.
    ///
    /// Without a token, or with `dry_run` in the policy, the plan is only reported.
    pub fn round(&mut self, machine: &mut Machine<'_>, notify: &mut dyn FnMut(Event<'_>)) {
        self.scan_and_report(machine, Purpose::Report, notify);
        let reap = &self.policy().reap;
        let is_dry_run = machine.token.is_none() || reap.as_ref().is_none_or(|reap| reap.dry_run);
        for pending in &self.warnings() {
            notify(Event::Warning { pending, is_dry_run });
        }
        if self.due().is_empty() || (machine.go_on)().is_break() {
            return;
        }
        let scans = [(); 2].map(|()| {
            machine.ports.clock.sleep(PAUSE);
            self.scan_and_report(machine, Purpose::Plan, notify)
        });
        let due = self.due();
        if due.is_empty() || (machine.go_on)().is_break() {
            return;
        }
        self.reap(machine, &scans, &due, notify);
    }

    fn scan_and_report(
        &mut self,
        machine: &mut Machine<'_>,
        purpose: Purpose,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> Scan {
        let scan = (machine.scan)(purpose);
        let was_blind = std::mem::replace(&mut self.blind, is_blind(&scan.snapshot));
        match &scan.snapshot.driver {
            Err(fault) if self.blind && !was_blind => notify(Event::Blind(fault)),
            _ if was_blind && !self.blind => notify(Event::Sighted),
            _ => {}
        }
        let at = machine.ports.clock.monotonic();
        let before = self.held_back();
        for change in self.update(&scan.snapshot, &scan.diagnosis, at) {
            notify(Event::Change(&change));
        }
        if before == 0 && self.held_back() > 0 {
            notify(Event::HeldBack(self.held_back()));
        }
        scan
    }

    /// Plans for exactly these processes, and executes the plan if that is permitted.
    fn reap(
        &mut self,
        machine: &Machine<'_>,
        scans: &[Scan; 2],
        due: &[PendingKill],
        notify: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(policy) = self.policy().reap.clone() else { return };
        let keys: Vec<ProcessKey> = due.iter().map(PendingKill::key).collect();
        self.tried(&keys);
        let guard = match Guard::new(machine.ports.host, policy.protect.clone()) {
            Ok(guard) => guard,
            Err(error) => return notify(Event::NotPlanned(&error)),
        };
        let request = Request {
            suspects: due.iter().map(|one| (one.id.kind, one.key())).collect(),
            grace: policy.grace,
            ..Request::default()
        };
        let snapshots = [scans[0].snapshot.clone(), scans[1].snapshot.clone()];
        let plan = gpu_reaper::plan(&snapshots, &scans[1].diagnosis, &guard, &request);
        let now = &scans[1].snapshot;
        if plan.targets.is_empty() {
            return notify(Event::Spared { now, plan: &plan });
        }
        let report = machine.token.filter(|_| !policy.dry_run).map(|token| {
            gpu_reaper::execute(&plan, &guard, machine.ports, token, &mut |_| (machine.go_on)())
        });
        // A dry run reports no more processes than a real run may end.
        self.count_ended(report.as_ref().map_or(plan.targets.len(), |report| {
            report.actions.iter().filter(|action| !action.signals.is_empty()).count()
        }));
        notify(Event::Reap { now, plan: &plan, report: report.as_ref() });
        self.resume(machine.ports.clock.monotonic());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use gpu_core::{
        Absent, Bytes, Clock, DeviceDetails, DeviceFault, DeviceId, DeviceInfo, DeviceSample,
        DeviceState, Driver, MockGpuBackend, MockHost, MockJournal, Origin, Pid, Process,
        ProcessInfo, StartTime, Timestamp,
    };
    use gpu_reaper::{Confidence, Finding, FindingKind, Suspect};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock in milliseconds that only sleeping advances.
    struct SleptClock(AtomicU64);

    impl Clock for SleptClock {
        fn wall(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, duration: Duration) {
            let millis = u64::try_from(duration.as_millis()).unwrap();
            self.0.fetch_add(millis, Ordering::Relaxed);
        }
    }

    /// A watcher of a machine with these many orphans of one user, which has a minute between two
    /// rounds.
    struct Scenario {
        watch: Watch,
        clock: SleptClock,
        orphans: u32,
        /// The memory of each orphan.
        memory: Bytes,
        answers: bool,
        goes_on: bool,
    }

    impl Scenario {
        fn new(policy: &str) -> Self {
            let policy = Policy::parse(policy, &|_| Err(Absent::NotFound)).unwrap();
            let watch = Watch::new(policy, Duration::from_secs(60));
            let clock = SleptClock(AtomicU64::new(0));
            Scenario { watch, clock, orphans: 0, memory: Bytes(0), answers: true, goes_on: true }
        }

        /// Runs one round. Returns what it reports, and the scans.
        fn round(&mut self) -> (Vec<String>, Vec<Purpose>) {
            let (backend, journal, mut host) =
                (MockGpuBackend::new(), MockJournal::new(), MockHost::new());
            host.expect_own_ancestry().returning(|| Ok(Vec::new()));
            let ports =
                Ports { backend: &backend, host: &host, clock: &self.clock, journal: &journal };
            let (mut reported, mut scans) = (Vec::new(), Vec::new());
            let (of, goes_on) = ((self.orphans, self.memory, self.answers), self.goes_on);
            let mut scan_now = |purpose| {
                scans.push(purpose);
                scan(of)
            };
            let go_on = || if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
            let mut machine = Machine { ports, scan: &mut scan_now, token: None, go_on: &go_on };
            self.watch.round(&mut machine, &mut |event| {
                reported.push(match event {
                    Event::Blind(_) => "blind".to_owned(),
                    Event::Sighted => "sighted".to_owned(),
                    Event::Change(change) => format!("{:?}", change.kind),
                    Event::HeldBack(count) => format!("{count} held back"),
                    Event::Warning { is_dry_run, .. } => format!("warning, dry run: {is_dry_run}"),
                    Event::Spared { .. } => "spared".to_owned(),
                    Event::Reap { .. } => "reap".to_owned(),
                    Event::NotPlanned(_) => "no plan".to_owned(),
                });
            });
            self.clock.sleep(Duration::from_secs(60));
            (reported, scans)
        }
    }

    fn scan((orphans, memory, answers): (u32, Bytes, bool)) -> Scan {
        let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(0));
        let id = DeviceId::from_index(0);
        snapshot.driver = if answers {
            Ok(Driver { version: Err(Absent::NotRecorded), cuda: Err(Absent::NotRecorded) })
        } else {
            Err(Error::new(DeviceFault::Lost, "ask the driver").fault())
        };
        snapshot.devices = vec![DeviceState {
            info: DeviceInfo::unknown(id.clone()),
            sample: Ok(DeviceSample::absent(Absent::NotSupported)),
            processes: Ok(Vec::new()),
            partitions: Ok(Vec::new()),
            details: Ok(DeviceDetails::default()),
        }];
        snapshot.holders = Ok(Vec::new());
        let mut findings = Vec::new();
        for pid in 100..100 + orphans {
            let mut info = ProcessInfo::from_name(Pid(pid), "python");
            info.key.start = Some(StartTime(1));
            info.uid = Ok(1001);
            info.cgroup = Ok("/user.slice/user-1001.slice/session-1.scope".to_owned());
            let process = info.key;
            snapshot.processes.insert(Pid(pid), Process::from(Ok(info)));
            let confidence = Confidence::High;
            findings.push(Finding {
                kind: FindingKind::Orphan,
                confidence,
                devices: vec![id.clone()],
                memory: Some(memory),
                suspects: vec![Suspect { process, confidence, evidence: Vec::new() }],
                evidence: Vec::new(),
                advice: Vec::new(),
            });
        }
        Scan { snapshot, diagnosis: Diagnosis { findings, ..Diagnosis::default() } }
    }

    #[test]
    fn plan_follows_a_warning_and_two_new_scans() {
        let mut scenario = Scenario::new(
            "[reap]\ndry_run = true\nmost_per_hour = 1\n[[reap.rule]]\nkinds = [\"orphan\"]\n\
             all_users = true\nmin_confidence = \"high\"\nafter = \"1m\"\nwarn = \"1m\"\n",
        );
        scenario.orphans = 1;
        let one = vec![Purpose::Report];
        assert_eq!(scenario.round(), (Vec::new(), one.clone()));
        let events = ["Raised", "warning, dry run: true"].map(str::to_owned).to_vec();
        assert_eq!(scenario.round(), (events, one.clone()));
        scenario.goes_on = false;
        assert_eq!(scenario.round(), (Vec::new(), one.clone()), "no plan at the end");
        scenario.goes_on = true;
        let three = vec![Purpose::Report, Purpose::Plan, Purpose::Plan];
        assert_eq!(scenario.round(), (vec!["spared".to_owned()], three), "it holds no device");
        assert_eq!(scenario.round(), (Vec::new(), one), "the process was tried");
    }

    #[test]
    fn reports_once_that_the_driver_stops_answering_and_answers_again() {
        let mut scenario = Scenario::new("");
        let reported: Vec<Vec<String>> = [true, false, false, true, true]
            .map(|answers| {
                scenario.answers = answers;
                scenario.round().0
            })
            .into();
        assert_eq!(reported.concat(), ["blind", "sighted"]);
        assert_eq!((reported[1].len(), reported[3].len()), (1, 1));
    }

    #[test]
    fn reports_held_back_findings_once() {
        let mut scenario = Scenario::new("");
        scenario.orphans = 70;
        assert!(scenario.round().0.is_empty());
        let (events, _) = scenario.round();
        assert_eq!((events.len(), events.last().unwrap().as_str()), (65, "6 held back"));
        for _ in 2..61 {
            assert!(scenario.round().0.is_empty(), "they are still held back");
        }
        assert_eq!(scenario.round().0, ["Raised"; 6], "an hour after the others");
    }

    #[test]
    fn finding_is_raised_then_updated_hourly_if_it_changes_and_cleared() {
        let mut scenario = Scenario::new("");
        scenario.orphans = 1;
        let mut minutes = |orphans, memory, count| {
            (scenario.orphans, scenario.memory) = (orphans, Bytes::from_mib(memory));
            (0..count).map(|_| scenario.round().0.join(",")).collect::<Vec<_>>()
        };
        assert_eq!(minutes(1, 2_000, 3), ["", "Raised", ""]);
        assert_eq!(minutes(1, 4_000, 58), [""; 58], "not within an hour");
        assert_eq!(minutes(1, 4_000, 2), ["Updated", ""]);
        assert_eq!(minutes(1, 4_000, 90), [""; 90], "nothing has changed");
        assert_eq!(minutes(1, 8_000, 2), ["Updated", ""]);
        assert_eq!(minutes(0, 0, 7), ["", "", "", "", "", "Cleared", ""]);
    }
}
