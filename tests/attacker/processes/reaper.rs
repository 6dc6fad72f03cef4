//! The honest side: ends processes of the world with the product, without knowing their next steps,
//! and checks plans and reports.

use super::driver::{Device, memory_of};
use super::recorder::{Broken, Recorder};
use super::roles::{ATTACKER, HONEST, INSTALLED, WorldDirs};
use super::truth::{Truth, all_pids, line};
use gpu_core::{
    ActToken, Bytes, Clock, Pid, ProcessInfo, ProcessTable, Snapshot, Timestamp, look_up_processes,
    observe,
};
use gpu_host::{FileJournal, LinuxHost, Roots, SystemClock};
use gpu_nvidia_driver::drivers;
use gpu_reaper::{
    Guard, Outcome, Plan, Ports, Refusal, Report, Request, Role, Scope, diagnose, execute, plan,
};
use gpuws_tests::Chance;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How much faster time passes for the product, because it waits for seconds.
const FASTER: u32 = 100;

/// A clock that runs fast.
struct Fast(SystemClock);

impl Clock for Fast {
    fn wall(&self) -> Timestamp {
        self.0.wall()
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic() * FASTER
    }
    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration / FASTER);
    }
}

/// The user of the product, and the truth before each round.
struct Reaper {
    is_root: bool,
    recorder: Recorder,
    device: Device,
    clock: Fast,
    chance: Chance,
}

/// Runs rounds until the stop file exists.
pub(crate) fn reap(dirs: &WorldDirs, user: u32, seed: u64, rule: &str) {
    let roots = Roots { proc: "/proc".into(), dev: dirs.dev(), sys: "/sys".into() };
    let host = LinuxHost::with_drivers(roots, drivers());
    let journal = FileJournal::open(dirs.audit(user)).expect("the audit log can be opened");
    let chance = Chance::new(seed);
    let clock = Arc::new(SystemClock::new());
    let world = (dirs.clone(), Chance::new(!seed), Broken::named(rule));
    let recorder = Recorder::new(host, journal, clock, world);
    let clock = Fast(SystemClock::new());
    let device = Device::new();
    let mut reaper = Reaper { is_root: user == 0, recorder, device, clock, chance };
    while !dirs.stop().exists() {
        reaper.round();
        reaper.send_results();
    }
}

impl Reaper {
    /// Observes, plans and acts once.
    fn round(&mut self) {
        let hides = self.chance.one_in(2);
        self.device.hides.store(hides, Ordering::Relaxed);
        let known: BTreeMap<u32, Truth> =
            all_pids().into_iter().filter_map(|pid| Some((pid, Truth::of(pid)?))).collect();
        let ghosts = hides && self.chance.one_in(2);
        let pids = if ghosts { Vec::new() } else { self.numbers(&known) };
        // Without a PID, the product takes two snapshots; a suspect must be a suspect in both.
        let snapshots = (0..1 + u8::from(pids.is_empty())).map(|_| self.snapshot(&pids));
        let snapshots: Vec<Snapshot> = snapshots.collect();
        let everyone = match self.chance.below(3) {
            0 => self.recorder.processes().map(|list| list.processes).unwrap_or_default(),
            _ => Vec::new(),
        };
        let request = self.request(pids, &everyone);
        let guard = Guard::new(&self.recorder, Vec::new()).expect("the own ancestry is readable");
        let plan = plan(&snapshots, &diagnose(&snapshots), &guard, &request);
        self.recorder.ledger().count("plans");
        self.judge_refusals(&request, &plan, &known);
        // A user reads the plan and does not execute it if it has unintended targets.
        if plan.targets.is_empty() || !self.judge_targets(&request, &plan) {
            return;
        }
        self.recorder.expect(&plan);
        let (clock, journal) = (&self.clock, &self.recorder);
        let ports = Ports { backend: &self.device, host: &self.recorder, clock, journal };
        let report = execute(&plan, &guard, ports, &ActToken::user_confirmed(), &mut |_| {
            ControlFlow::Continue(())
        });
        self.judge_report(&plan, &report, hides);
    }

    fn snapshot(&self, pids: &[Pid]) -> Snapshot {
        let mut snapshot = observe(&self.device, &self.recorder, &self.clock);
        look_up_processes(&self.recorder, &mut snapshot, pids);
        snapshot
    }

    /// Returns the PIDs to request: mostly attackers with memory.
    fn numbers(&mut self, known: &BTreeMap<u32, Truth>) -> Vec<Pid> {
        let all_pids: Vec<u32> = known.keys().copied().collect();
        let holders = self.device.users().into_iter().filter(|(_, _, kind)| kind == "attack");
        let holders: Vec<u32> = holders.map(|(pid, ..)| pid).collect();
        let own = line(std::process::id());
        let one = |chance: &mut Chance| {
            Pid(match chance.below(16) {
                0 => *chance.of(&own),
                1 | 2 => *chance.of(&all_pids),
                _ if holders.is_empty() => *chance.of(&all_pids),
                _ => *chance.of(&holders),
            })
        };
        let count = 1 + self.chance.below(6);
        (0..count).map(|_| one(&mut self.chance)).collect()
    }

    fn request<'a>(&mut self, pids: Vec<Pid>, everyone: &'a [ProcessInfo]) -> Request<'a> {
        let users: &[u32] = match (self.is_root, self.chance.below(4)) {
            (false, _) => &[HONEST],
            (true, 0) => &[ATTACKER],
            (true, 1) => &[HONEST],
            (true, _) => &[],
        };
        Request {
            pids,
            users: users.iter().map(u32::to_string).collect(),
            scope: if everyone.is_empty() { Scope::Process } else { Scope::Group(everyone) },
            grace: Duration::from_millis(self.chance.below(2000)),
            ..Request::default()
        }
    }

    fn violation(&self, text: String) {
        self.recorder.ledger().violations.push(text);
    }

    /// Checks that a name chosen by a process does not protect it.
    fn judge_refusals(&self, request: &Request<'_>, plan: &Plan, known: &BTreeMap<u32, Truth>) {
        for refused in &plan.refused {
            self.recorder.ledger().count("refusals");
            let Refusal::Role(role @ (Role::Display | Role::Daemon)) = refused.why else {
                continue;
            };
            // The process ran only its own programs; the last one is the program that root
            // installed.
            let own = |truth: &Truth| {
                let installed = |path: &std::path::Path| path.starts_with(INSTALLED);
                truth.kind() == "attack"
                    && truth.program.as_ref().is_some_and(|(_, path)| !installed(path))
            };
            let pid = refused.pid.0;
            let (before, now) = (known.get(&pid), Truth::of(pid));
            let same = before.map(|truth| truth.start) == now.as_ref().map(|truth| truth.start);
            let forged = same && before.is_some_and(own) && now.as_ref().is_some_and(own);
            if self.is_root && forged && !request.pids.is_empty() {
                let name = &refused.name;
                self.violation(format!(
                    "{pid} passes for a {role:?} by its name {name:?}: {now:?}"
                ));
            }
        }
    }

    /// Checks the targets of a plan; returns whether to execute it.
    fn judge_targets(&self, request: &Request<'_>, plan: &Plan) -> bool {
        let mut meant = true;
        for target in &plan.targets {
            let (pid, start) = (target.key.pid.0, target.key.start.map(|start| start.0));
            let uid = target.process.uid.ok().map(|uid| uid.to_string());
            let asked = request.users.is_empty() || uid.is_some_and(|u| request.users.contains(&u));
            if !asked {
                self.violation(format!("{pid} is planned, but its user was not requested"));
            }
            if pid <= 1 || line(std::process::id()).contains(&pid) {
                self.violation(format!("{pid} is planned for, of the reaper's own line"));
            }
            // A plan without a start time is a bug.
            let Some(truth) = Truth::of(pid).filter(|truth| Some(truth.start) == start) else {
                continue;
            };
            if ["daemon", "sshd", "login", "ancestor"].contains(&truth.kind()) {
                self.violation(format!("{pid} is planned for: {truth:?}"));
            }
            meant &= truth.kind() == "attack" || truth.is_zombie;
        }
        if !meant {
            self.recorder.ledger().count("plans left");
        }
        meant
    }

    /// Checks a report: only the memory of the targets can have been freed. It cannot be
    /// distinguished from unlisted memory and continued holders, as docs/safety.md states.
    fn judge_report(&self, plan: &Plan, report: &Report, hides: bool) {
        let had = plan
            .targets
            .iter()
            .filter_map(|target| Some(memory_of(target.key.pid.0, target.key.start?.0)));
        let had: Bytes = had.sum();
        for freed in &report.memory {
            let reported = freed.freed.filter(|_| freed.doubt.is_none()).unwrap_or_default();
            if reported > had && !hides && self.is_root {
                let (gone, freed) = (&report.actions, freed);
                let text =
                    format!("{reported} were freed by targets that had {had}: {gone:?}, {freed:?}");
                self.violation(text);
            }
            let mut ledger = self.recorder.ledger();
            match freed.freed {
                None | Some(Bytes(0)) => ledger.count("not freed"),
                Some(_) if freed.doubt.is_some() => ledger.count("freed in doubt"),
                Some(_) => ledger.count("freed"),
            }
        }
        for action in &report.actions {
            let mut ledger = self.recorder.ledger();
            ledger.count(match action.outcome {
                Outcome::Ended { .. } => "ended",
                Outcome::AlreadyGone => "already gone",
                Outcome::NotTheSame => "not the same",
                Outcome::AnotherProgram => "another program",
                Outcome::LetGo => "released",
                Outcome::RoleForbids { .. } => "role forbids",
                Outcome::Survived { .. } => "survived",
                _ => "otherwise",
            });
        }
        if let Some(fault) = &report.stopped {
            self.violation(format!("the reaper stopped: {}", fault.text));
        }
    }

    /// Sends the results to the test.
    fn send_results(&mut self) {
        let mut ledger = self.recorder.ledger();
        let line = json!({
            "counts": std::mem::take(&mut ledger.counts),
            "violations": std::mem::take(&mut ledger.violations),
            "sent": std::mem::take(&mut ledger.sent),
        });
        drop(ledger);
        let text = format!("{line}\n");
        std::io::stdout().write_all(text.as_bytes()).expect("the test reads the pipe");
    }
}
