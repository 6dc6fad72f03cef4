//! A run: attackers, honest processes that are killed and stopped at random times, and the oracle's
//! verdict.

use super::layout::{DEVICES, choose, devices, observation};
use super::oracle::Oracle;
use super::sandbox::{ATTACKER, HANGS, HONEST, ONLOOKER, Sandbox};
use super::status::Counts;
use super::verdict::Verdict;
use gpu_claim::{ClaimRequest, Wait, take};
use gpu_core::{Claim, Clock, Pid, ProcessKey};
use gpuws_tests::Chance;
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

/// The number of attackers; all run as the same user.
const ATTACKERS: u64 = 2;
/// The number of honest processes per user: at the start, as with an array job, and later.
const HONEST_AT_FIRST: usize = 10;
const HONEST_OF_ONE: usize = 3;
/// The maximum time that a process is stopped.
const STOPPED_MS: u64 = 500;
/// The maximum time between two events, and between two checks of the oracle.
const EVENTS_MS: u64 = 150;
const CHECK_INTERVAL: Duration = Duration::from_millis(60);

/// The configuration of a run.
pub(crate) struct Plan {
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    /// The maximum number of steps until honest processes and attackers have met, or until an
    /// expected violation; on a busy machine, the readers get few turns.
    pub(crate) most: u64,
    /// Text of the violation that a broken rule must cause. Without a broken rule, any violation
    /// ends the run.
    pub(crate) expected: Option<&'static str>,
    /// Whether root can create a shared directory, which happens in the middle of the run.
    pub(crate) has_run: bool,
    /// The rule of the readers and of the honest claims.
    pub(crate) reader: &'static str,
    pub(crate) honest: &'static str,
}

struct Run<'a> {
    plan: &'a Plan,
    sandbox: Sandbox,
    oracle: Oracle,
    chance: Chance,
    /// The stopped processes, with the time to continue each.
    stopped: Vec<(String, Duration)>,
    /// The number of claims of each process, and the time of its last change.
    asked: std::collections::BTreeMap<String, (u64, Duration)>,
    checks: u64,
    kills: u64,
    stops: u64,
}

/// Runs until the attackers have taken their steps and have met honest processes, or until a
/// violation.
pub(crate) fn run(plan: &Plan) -> Verdict {
    let mut run = Run {
        plan,
        sandbox: Sandbox::new(&plan.dir, plan.has_run),
        oracle: Oracle::default(),
        chance: Chance::new(plan.seed),
        stopped: Vec::new(),
        asked: std::collections::BTreeMap::new(),
        checks: 0,
        kills: 0,
        stops: 0,
    };
    run.execute();
    let mut verdict = run.verdict();
    if run.oracle.violations.is_empty() {
        run.finish();
        verdict.violations.clone_from(&run.oracle.violations);
    }
    verdict
}

impl Run<'_> {
    fn execute(&mut self) {
        for (name, user) in [("root", 0), ("the other user", HONEST), ("an onlooker", ONLOOKER)] {
            self.sandbox.start_reader(name, user, self.plan.reader);
        }
        for _ in 0..ATTACKERS {
            self.sandbox.start_attacker(self.plan.seed, self.plan.most / ATTACKERS);
        }
        // The attacker starts first and takes every name; root starts last, and creates the shared
        // directory in the middle of the run.
        self.until_step(self.plan.steps / 50);
        self.start_honest(HONEST);
        self.until_step(self.plan.steps / 5);
        self.start_honest(0);
        self.until_step(self.plan.steps);
        while !self.is_enough() {
            let end = self.steps() + self.plan.steps / 50;
            self.until_step(end);
            self.check();
        }
    }

    /// Returns whether the run has served its purpose, or the attackers have taken all their steps.
    fn is_enough(&self) -> bool {
        let violations = &self.oracle.violations;
        let shows = match self.plan.expected {
            Some(words) => violations.iter().any(|violation| violation.contains(words)),
            None => !violations.is_empty() || self.oracle.grants > 0 && self.oracle.foreign > 0,
        };
        shows || self.sandbox.summaries().iter().all(|summary| summary.done)
    }

    fn steps(&self) -> u64 {
        self.sandbox.summaries().iter().map(|summary| summary.steps).sum()
    }

    fn start_honest(&mut self, user: u32) {
        for _ in 0..HONEST_AT_FIRST {
            self.sandbox.start_honest(user, self.plan.seed, self.plan.honest);
        }
    }

    /// Continues until the attackers have taken this many steps in total, or all of their steps.
    fn until_step(&mut self, end: u64) {
        let (mut event_at, mut check_at) = (Duration::ZERO, Duration::ZERO);
        let mut progress = (0, self.sandbox.clock.monotonic());
        while self.oracle.violations.is_empty() {
            let summaries = self.sandbox.summaries();
            let steps = summaries.iter().map(|summary| summary.steps).sum();
            if steps >= end || summaries.iter().all(|summary| summary.done) {
                return;
            }
            let now = self.sandbox.clock.monotonic();
            if steps > progress.0 {
                progress = (steps, now);
            } else if now > progress.1 + HANGS {
                self.oracle.violations.push("the attackers make no steps any more".to_owned());
            }
            self.continue_stopped(now);
            if now >= event_at && !self.sandbox.honest.is_empty() {
                self.event(now);
                event_at = now + Duration::from_millis(self.chance.below(EVENTS_MS));
            }
            if now >= check_at {
                self.check();
                check_at = self.sandbox.clock.monotonic() + CHECK_INTERVAL;
            }
            self.sandbox.clock.sleep(Duration::from_millis(3));
        }
    }

    /// Kills or stops an honest process at a random moment.
    fn event(&mut self, now: Duration) {
        let which = self.chance.index(self.sandbox.honest.len());
        if self.chance.one_in(2) {
            self.kills += 1;
            let mut participant = self.sandbox.honest.swap_remove(which);
            self.check_end(&mut participant.child, &participant.name.clone());
            self.sandbox.say("kill", &participant.name);
            participant.signal(Signal::KILL);
            participant.child.wait().unwrap();
            let of_user = if participant.name.ends_with("-0") { 0 } else { HONEST };
            let tail = format!("-{of_user}");
            let left = self
                .sandbox
                .honest
                .iter()
                .filter(|participant| participant.name.ends_with(&tail))
                .count();
            if left < HONEST_OF_ONE {
                self.sandbox.start_honest(of_user, self.plan.seed, self.plan.honest);
            }
        } else {
            self.stops += 1;
            let participant = &self.sandbox.honest[which];
            participant.signal(Signal::STOP);
            let until = now + Duration::from_millis(self.chance.below(STOPPED_MS));
            self.stopped.push((participant.name.clone(), until));
        }
    }

    /// Continues the processes that have been stopped long enough.
    fn continue_stopped(&mut self, now: Duration) {
        let honest = &self.sandbox.honest;
        self.stopped.retain(|(name, until)| {
            if now >= *until {
                honest.iter().filter(|participant| participant.name == *name).for_each(
                    |participant| {
                        participant.signal(Signal::CONT);
                    },
                );
            }
            now < *until
        });
    }

    fn check_end(&mut self, child: &mut std::process::Child, name: &str) {
        if let Some(status) = child.try_wait().unwrap() {
            self.oracle.violations.push(format!("{name} ended by itself: {status}"));
        }
    }

    fn hear(&mut self) {
        let oracle = &mut self.oracle;
        self.sandbox.hear(|line| oracle.hear(line));
    }

    /// Runs all checks of the oracle.
    fn check(&mut self) {
        self.checks += 1;
        self.hear();
        let before = self.oracle.living();
        self.sandbox.readers.iter_mut().for_each(super::sandbox::Reader::ask);
        let seen: Vec<_> =
            self.sandbox.readers.iter().map(|reader| (reader.name, reader.answer())).collect();
        self.hear();
        let lived = self.oracle.living().intersection(&before).cloned().collect();
        for (name, seen) in &seen {
            self.oracle.judge(name, &[0, u64::from(HONEST)], seen, &lived);
        }
        self.oracle.violations.extend(self.sandbox.changed_canaries());
        let now = self.sandbox.clock.monotonic();
        let mut ended = Vec::new();
        for participant in self.sandbox.honest.iter_mut().chain(&mut self.sandbox.attackers) {
            if let Some(status) = participant.child.try_wait().unwrap() {
                ended.push(format!("{} ended by itself: {status}", participant.name));
            }
        }
        self.oracle.violations.extend(ended);
        for participant in &self.sandbox.honest {
            let asked = self.oracle.asked.get(&participant.name).copied().unwrap_or_default();
            let last = self.asked.entry(participant.name.clone()).or_insert((asked, now));
            if last.0 != asked {
                *last = (asked, now);
            } else if now > last.1 + HANGS {
                self.oracle.violations.push(format!("{} hangs", participant.name));
            }
        }
    }

    /// Ends the attackers and the honest processes, and checks what remains.
    fn finish(&mut self) {
        let mut left = Vec::new();
        for mut participant in std::mem::take(&mut self.sandbox.attackers) {
            participant.signal(Signal::KILL);
            participant.child.wait().unwrap();
        }
        fs::write(self.sandbox.layout.stop(), "").unwrap();
        for mut participant in std::mem::take(&mut self.sandbox.honest) {
            participant.signal(Signal::CONT);
            if self.sandbox.eventually(|| participant.child.try_wait().unwrap().is_some()) {
                self.check_success(&mut participant);
            } else {
                left.push(format!("{} does not end", participant.name));
            }
        }
        self.check();
        let sandbox = &self.sandbox;
        if !sandbox.eventually(|| sandbox.locked().is_empty()) {
            left.extend(sandbox.locked().iter().map(|lock| format!("it is still locked: {lock}")));
        }
        let ask = ClaimRequest {
            claim: Claim::whole(u32::try_from(DEVICES).unwrap()),
            root: ProcessKey { pid: Pid(std::process::id()), start: None },
            within: None,
            parts_of: Vec::new(),
            command: "everything".to_owned(),
            wait: Wait::No,
            pace: Duration::from_millis(100),
            holds_back_safe_gpu: true,
        };
        let mut watch = |_: &gpu_claim::Waiting<'_>| ControlFlow::Continue(());
        let (locks, all) = (sandbox.layout.locks(), devices());
        match take(&locks, &sandbox.clock, &ask, &mut || observation(&all), &choose, &mut watch) {
            Ok(taken) if taken.entry.devices == all => {}
            Ok(taken) => left.push(format!("only {:?} could be claimed", taken.entry.devices)),
            Err(error) => left.push(format!("the devices could not be claimed: {error:?}")),
        }
        self.oracle.violations.extend(left);
    }

    fn check_success(&mut self, participant: &mut super::sandbox::Participant) {
        let status = participant.child.wait().unwrap();
        if !status.success() {
            self.oracle.violations.push(format!("{} ended with {status}", participant.name));
        }
    }

    fn verdict(&self) -> Verdict {
        let mut counts = Counts::new();
        let mut steps = 0;
        for summary in self.sandbox.summaries() {
            steps += summary.steps;
            for (kind, (tried, allowed)) in summary.counts {
                let count = counts.entry(kind).or_default();
                count.0 += tried;
                count.1 += allowed;
            }
        }
        let links = fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
        let oracle = &self.oracle;
        let mut figures = format!(
            "seed {}: {steps} steps of user {ATTACKER} in {:.1} s (fs.protected_hardlinks is {}); \
             {} grants, {} kills, {} stops; {} checks saw {} entries of the attacker; \
             {} violations\n ",
            self.plan.seed,
            self.sandbox.clock.monotonic().as_secs_f64(),
            links.trim(),
            oracle.grants,
            self.kills,
            self.stops,
            self.checks,
            oracle.foreign,
            oracle.violations.len(),
        );
        for (kind, (tried, allowed)) in &counts {
            write!(figures, " {kind} {allowed}/{tried}").unwrap();
        }
        Verdict {
            figures,
            violations: oracle.violations.clone(),
            met: oracle.grants > 0 && oracle.foreign > 0,
            last_steps: self.sandbox.last_steps(),
            seed: self.plan.seed,
        }
    }
}
