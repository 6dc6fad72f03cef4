//! The kernel's ports behind a recorder. It triggers actions of targets at the worst moments, and
//! checks each delivered signal against the truth when the audit line was written: the reaper must
//! take into account everything that was true by then.

use super::roles::WorldDirs;
use super::truth::{Truth, line};
use gpu_core::*;
use gpu_host::{FileJournal, LinuxHost};
use gpu_reaper::{Membership, Plan};
use gpuws_tests::Chance;
use rustix::process::{Pid as Number, Signal as Call, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum time for a target to act after it was triggered, in microseconds.
const ACT_US: u64 = 3000;
/// The maximum time in milliseconds for a PID to be reused.
const REUSE_MS: u64 = 25;

/// The odds of triggering a target and, once triggered, of making it exit, as one in so many:
/// during inspection, and between inspection and signal.
const BEFORE: (u64, u64) = (10, 8);
const AT_THE_SIGNAL: (u64, u64) = (3, 3);

/// A deliberately broken rule, through ports that mislead the reaper.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Not,
    /// The first state of a process is reported forever, and signals are sent to PIDs.
    Identity,
    /// The program of a process is not reported, so its name decides.
    Name,
    /// The first program of a process is reported forever.
    Program,
    /// The audit log is not written.
    Audit,
}

impl Broken {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "product" => Broken::Not,
            "identity" => Broken::Identity,
            "name" => Broken::Name,
            "program" => Broken::Program,
            "audit" => Broken::Audit,
            other => panic!("'{other}' is no rule"),
        }
    }
}

/// The plan for one process.
struct Planned {
    uid: Option<u32>,
    program: Option<FileId>,
    holds: bool,
}

/// An audit line about a signal, and the truth when it was written.
struct Intent {
    pid: u32,
    start: u64,
    signal: String,
    truth: Option<Truth>,
    /// Whether it had permanently closed its memory.
    released: bool,
}

/// The state of the current plan.
pub(crate) struct Ledger {
    dirs: WorldDirs,
    pub(crate) chance: Chance,
    broken: Broken,
    planned: BTreeMap<(u32, u64), Planned>,
    /// The changes since the plan was made.
    changed: BTreeSet<(u32, &'static str)>,
    /// The last audit line, if it announced a signal: target, signal, and the truth at that time.
    intent: Option<Intent>,
    own_ancestry: Vec<u32>,
    pub(crate) sent: Vec<Value>,
    pub(crate) violations: Vec<String>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Ledger {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Triggers a target, one in `called` times; one in `ended` of these times, the target exits.
    fn trigger(&mut self, pid: u32, clock: &dyn Clock, (called, ended): (u64, u64)) {
        if !self.chance.one_in(called) || !self.planned.keys().any(|key| key.0 == pid) {
            return;
        }
        let Some(before) = Truth::of(pid).filter(|truth| truth.kind() == "attack") else { return };
        let Some(number) = i32::try_from(pid).ok().and_then(Number::from_raw) else { return };
        let ends = self.chance.one_in(ended);
        // The process may have ended or belong to another user.
        let _ = kill_process(number, if ends { Call::USR2 } else { Call::USR1 });
        clock.sleep(Duration::from_micros(self.chance.below(ACT_US)));
        let mut waited = 0;
        while ends && waited < REUSE_MS && Truth::of(pid).is_none_or(|t| t.start == before.start) {
            clock.sleep(Duration::from_millis(1));
            waited += 1;
        }
    }

    /// Records the changes since the plan was made.
    fn compare(&mut self, pid: u32, now: Option<&Truth>) {
        let Some(now) = now else { return };
        let planned = self.planned.iter().find(|(key, _)| key.0 == pid);
        let Some(((_, start), planned)) = planned else { return };
        let reused = *start != now.start;
        let executed = now.program.as_ref().is_some_and(|(file, _)| planned.program != Some(*file));
        let what = match (reused, executed) {
            (true, _) => "reused between snapshot and signal",
            (_, true) => "executed between snapshot and signal",
            _ => return,
        };
        if self.changed.insert((pid, what)) {
            self.count(what);
        }
    }

    /// Checks a delivered signal.
    fn check(&mut self, pid: u32, signal: Signal) {
        self.count("signals");
        let mut wrong = Vec::new();
        let intent = self.intent.take();
        let intent = intent.filter(|of| of.pid == pid && of.signal == signal.to_string());
        match &intent {
            None => wrong.push("no audit line records it"),
            Some(intent) => {
                self.sent.push(json!([pid, intent.start, intent.signal]));
                wrong.extend(self.objection(intent));
            }
        }
        if pid <= 1 || self.own_ancestry.contains(&pid) {
            wrong.push("it is process 1, the reaper or an ancestor of it");
        }
        for wrong in wrong {
            let truth = intent.as_ref().and_then(|intent| intent.truth.as_ref());
            self.violations.push(format!("{signal} reached {pid}, but {wrong}: {truth:?}"));
        }
    }

    fn objection(&self, intent: &Intent) -> Option<&'static str> {
        let Some(planned) = self.planned.get(&(intent.pid, intent.start)) else {
            return Some("it is in no plan");
        };
        let Some(truth) = &intent.truth else { return Some("it had ended") };
        if truth.start != intent.start {
            return Some("another process had its number");
        }
        // A zombie cannot be harmed, so nothing is checked.
        if truth.is_zombie {
            return None;
        }
        let program = truth.program.as_ref().map(|(file, _)| *file);
        match () {
            () if truth.kind() != "attack" => Some("no user may end it"),
            () if planned.uid != Some(truth.uid) => Some("it is another user's"),
            () if program != planned.program => {
                Some("it runs another program, or does not tell which")
            }
            () if planned.holds && intent.released => Some("it had released the memory"),
            () => None,
        }
    }
}

/// The ports of the kernel.
pub(crate) struct Recorder {
    host: LinuxHost,
    journal: FileJournal,
    clock: Arc<dyn Clock>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Recorder {
    pub(crate) fn new(
        host: LinuxHost,
        journal: FileJournal,
        clock: Arc<dyn Clock>,
        (dirs, chance, broken): (WorldDirs, Chance, Broken),
    ) -> Self {
        let ledger = Ledger {
            dirs,
            chance,
            broken,
            planned: BTreeMap::new(),
            changed: BTreeSet::new(),
            intent: None,
            own_ancestry: line(std::process::id()),
            sent: Vec::new(),
            violations: Vec::new(),
            counts: BTreeMap::new(),
        };
        Recorder { host, journal, clock, ledger: Arc::new(Mutex::new(ledger)) }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces the plan to be executed next.
    pub(crate) fn expect(&self, plan: &Plan) {
        let planned = plan.targets.iter().filter_map(|target| {
            let program = target.process.executable.as_ref().ok().map(|program| program.file);
            let holds = matches!(target.membership, Membership::Holds(_));
            let planned = Planned { uid: target.process.uid.ok(), program, holds };
            Some(((target.key.pid.0, target.key.start?.0), planned))
        });
        let mut ledger = self.ledger();
        ledger.planned = planned.collect();
        ledger.changed.clear();
    }
}

impl Journal for Recorder {
    fn append(&self, text: &str) -> Result<()> {
        let mut ledger = self.ledger();
        if ledger.broken == Broken::Audit {
            return Ok(());
        }
        ledger.intent = None;
        self.journal.append(text)?;
        let line: Value = serde_json::from_str(text).expect("each line is a JSON object");
        if line["event"] == "signal" {
            let number = |name: &str| line[name].as_u64().expect("the field is present");
            let pid = u32::try_from(number("pid")).expect("the number is a PID");
            ledger.trigger(pid, &*self.clock, AT_THE_SIGNAL);
            let truth = Truth::of(pid);
            ledger.compare(pid, truth.as_ref());
            let token = truth.as_ref().and_then(|truth| Some(&truth.role.as_ref()?.token));
            let released = token.is_some_and(|token| ledger.dirs.released(token).exists());
            let signal = line["signal"].as_str().unwrap_or_default().to_owned();
            let start = number("start_ticks");
            ledger.intent = Some(Intent { pid, start, signal, truth, released });
        }
        Ok(())
    }
}

impl ProcessTable for Recorder {
    fn origin(&self) -> Origin {
        self.host.origin()
    }
    fn hostname(&self) -> Reading<String> {
        self.host.hostname()
    }
    fn sees_host_pids(&self) -> Reading<bool> {
        // The substitute device uses the PIDs of these namespaces.
        Ok(true)
    }
    fn is_root(&self) -> Reading<bool> {
        self.host.is_root()
    }
    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        let info = self.host.process(pid)?;
        Ok(match self.ledger().broken {
            Broken::Name => ProcessInfo { executable: Err(Absent::NotRecorded), ..info },
            _ => info,
        })
    }
    fn processes(&self) -> Result<ProcessList> {
        self.host.processes()
    }
    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
        self.host.own_ancestry()
    }
    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        self.host.inherited_leases()
    }
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        self.ledger().trigger(pid.0, &*self.clock, BEFORE);
        let (handle, clock) = (self.host.open(pid)?, self.clock.clone());
        let (seen, held) = (Mutex::default(), Mutex::default());
        Ok(Box::new(Handle { handle, clock, pid, seen, held, ledger: self.ledger.clone() }))
    }
}

impl DeviceFiles for Recorder {
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        self.host.device_files()
    }
    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        self.host.holders(files)
    }
}

impl DriverView for Recorder {
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }
    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        Ok(Vec::new())
    }
}

/// An opened process.
struct Handle {
    handle: Box<dyn ProcessHandle>,
    clock: Arc<dyn Clock>,
    pid: Pid,
    ledger: Arc<Mutex<Ledger>>,
    /// The first state, for the broken rules.
    seen: Mutex<Option<ProcessInfo>>,
    held: Mutex<Option<Vec<HeldFile>>>,
}

impl Handle {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trigger(&self, how_often: (u64, u64)) -> Broken {
        let mut ledger = self.ledger();
        ledger.trigger(self.pid.0, &*self.clock, how_often);
        ledger.compare(self.pid.0, Truth::of(self.pid.0).as_ref());
        ledger.broken
    }
}

impl ProcessHandle for Handle {
    fn info(&self) -> Result<ProcessInfo> {
        let broken = self.trigger(BEFORE);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*seen, broken) {
            (Some(seen), Broken::Identity) => return Ok(seen.clone()),
            (Some(seen), Broken::Program) => {
                return Ok(ProcessInfo {
                    executable: seen.executable.clone(),
                    ..self.handle.info()?
                });
            }
            _ => {}
        }
        let info = self.handle.info()?;
        *seen = Some(info.clone());
        Ok(info)
    }

    fn uids(&self) -> Result<Uids> {
        self.handle.uids()
    }

    fn held(&self, files: &[DeviceFile]) -> Result<Vec<HeldFile>> {
        let broken = self.trigger(BEFORE);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some(held) if broken == Broken::Identity => Ok(held.clone()),
            _ => Ok(held.insert(self.handle.held(files)?).clone()),
        }
    }

    fn has_exited(&self) -> Result<bool> {
        self.handle.has_exited()
    }

    fn signal(&self, signal: Signal, token: &ActToken) -> Result<()> {
        if self.trigger(AT_THE_SIGNAL) == Broken::Identity {
            let number = i32::try_from(self.pid.0).ok().and_then(Number::from_raw);
            let call = if signal == Signal::Term { Call::TERM } else { Call::KILL };
            let gone = |_| Error::new(ProcessFault::Gone, "signal a number");
            kill_process(number.expect("the PID is positive"), call).map_err(gone)?;
        } else {
            self.handle.signal(signal, token)?;
        }
        self.ledger().check(self.pid.0, signal);
        Ok(())
    }
}
