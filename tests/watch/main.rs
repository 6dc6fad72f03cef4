//! `gpuws watch` over days in virtual time: each finding is raised once and cleared when it ends,
//! no healthy process is accused, and the policy and its checks permit every signal.
#![expect(clippy::print_stdout, reason = "the figures of a run are its result")]

mod attacks;
mod day;

use day::{DAY, Day, Sick};
use gpu_core::{
    ActToken, Clock, ErrorKind, MachineFault, Observer, Pid, ProcessTable, observe_in_detail,
};
use gpu_reaper::{Past, Ports, full_observation};
use gpu_sim::{Call, Fault, Simulation};
use gpu_watch::{Change, ChangeKind, Look, Machine, Policy, Purpose, Told, Watch};
use gpuws_tests::{Chance, bound};
use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A notification of a watcher, with its minute.
pub(crate) enum Said {
    Change(Box<Change>),
    Warning(Pid),
    HeldBack(usize),
    Blind,
    Spared,
    Planned(Vec<Pid>),
    Reaped(Vec<Pid>),
    NotPlanned(String),
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Change(change) => {
                let suspects = &change.finding.suspects;
                let pids: Vec<u32> = suspects.iter().map(|s| s.process.pid.0).collect();
                let gpus: Vec<u32> = change.finding.devices.iter().map(|id| id.index).collect();
                write!(f, "{:?} {} GPUs {gpus:?} PIDs {pids:?}", change.kind, change.id)
            }
            Said::Warning(pid) => write!(f, "warning {pid}"),
            Said::HeldBack(count) => write!(f, "{count} held back"),
            Said::Blind => f.write_str("blind"),
            Said::Spared => f.write_str("spared"),
            Said::Planned(pids) => write!(f, "planned {pids:?}"),
            Said::Reaped(pids) => write!(f, "reaped {pids:?}"),
            Said::NotPlanned(why) => write!(f, "not planned: {why}"),
        }
    }
}

/// A watcher on a simulated machine.
pub(crate) struct Watcher {
    pub(crate) simulation: Simulation,
    watch: Watch,
    past: Past,
    observer: Observer,
    every: Duration,
    /// The number of times that it is still permitted to continue.
    pub(crate) permits: Cell<u64>,
    pub(crate) said: Vec<(u64, Said)>,
}

impl Watcher {
    pub(crate) fn new(simulation: &Simulation, policy: &str, every: Duration) -> Self {
        let policy = Policy::parse(policy, &|name| simulation.account(name));
        let policy = policy.unwrap_or_else(|error| panic!("{error}"));
        let watch = Watch::new(policy, every);
        Watcher {
            simulation: simulation.clone(),
            watch,
            past: Past::every(every),
            observer: Observer::new(),
            every,
            permits: Cell::new(u64::MAX),
            said: Vec::new(),
        }
    }

    pub(crate) fn minute(&self) -> u64 {
        self.simulation.elapsed().as_secs() / 60
    }

    /// Runs one round, then waits until the next.
    pub(crate) fn round(&mut self, token: Option<&ActToken>) {
        let simulation = &self.simulation;
        let past = &mut self.past;
        let observer = &mut self.observer;
        let mut look = |purpose| {
            let (machine, whole) = (simulation, full_observation());
            let snapshot = match purpose {
                Purpose::Tell => observer.observe(machine, machine, machine, whole),
                Purpose::Plan => observe_in_detail(machine, machine, machine, whole),
            };
            Look::after(past, snapshot)
        };
        let mut machine = Machine {
            ports: Ports {
                backend: simulation,
                host: simulation,
                clock: simulation,
                journal: simulation,
            },
            look: &mut look,
            token,
            go_on: &|| match self.permits.get() {
                0 => ControlFlow::Break(()),
                left => {
                    self.permits.set(left - 1);
                    ControlFlow::Continue(())
                }
            },
        };
        let minute = simulation.elapsed().as_secs() / 60;
        let said = &mut self.said;
        self.watch.round(&mut machine, &mut |told| {
            let word = match told {
                Told::Change(change) => Said::Change(Box::new(change.clone())),
                Told::Warning { condemned, .. } => Said::Warning(condemned.key().pid),
                Told::HeldBack(count) => Said::HeldBack(count),
                Told::Blind(_) => Said::Blind,
                Told::Sighted => return,
                Told::Spared { .. } => Said::Spared,
                Told::Reap { plan, report: None, .. } => {
                    Said::Planned(plan.targets.iter().map(|target| target.key.pid).collect())
                }
                Told::Reap { plan, report: Some(_), .. } => {
                    Said::Reaped(plan.targets.iter().map(|target| target.key.pid).collect())
                }
                Told::NotPlanned(error) => Said::NotPlanned(error.to_string()),
            };
            said.push((minute, word));
        });
        simulation.sleep(self.every);
    }

    pub(crate) fn changes(&self, kind: ChangeKind) -> impl Iterator<Item = (u64, &Change)> {
        self.said.iter().filter_map(move |(minute, said)| match said {
            Said::Change(change) if change.kind == kind => Some((*minute, &**change)),
            _ => None,
        })
    }
}

/// A policy that raises after two minutes, clears after five, and ends what bob leaves behind.
const POLICY: &str = r#"
[findings]
after = "2m"
clear_after = "5m"

[reap]
dry_run = false
most_per_hour = 2
protect = ["precious"]

[[reap.rule]]
kinds = ["ghost", "zombie-holder", "listed-but-gone"]
users = ["bob"]
min_confidence = "high"
after = "30m"
warn = "10m"

[[reap.rule]]
kinds = ["hoarder", "orphan"]
all_users = true
gpus = ["2", "5", "6"]
min_confidence = "likely"
after = "60m"
warn = "15m"
"#;

/// Returns the latest time at which a finding can be raised, in minutes after its cause. A hoarder
/// becomes likely after ten minutes without GPU and CPU use, and earlier computation still counts
/// for a while.
fn latest(sick: &Sick) -> u64 {
    let certain = match sick.kind {
        "hoarder" | "orphan" => 30,
        _ => 1,
    };
    certain + 2 + FAULTS
}

/// The delay that failed snapshots may cause, in minutes.
const FAULTS: u64 = 8;

/// Makes some snapshots fail: the driver does not respond, or a list cannot be read.
fn disturb(simulation: &Simulation, chance: &mut Chance, left: &mut u64) {
    if *left == 0 && chance.one_in(90) {
        *left = 1 + chance.below(3);
    }
    if *left == 0 {
        return;
    }
    *left -= 1;
    let call = *chance.of(&[Call::Driver, Call::Holders, Call::DeviceFiles]);
    let kind = match call {
        Call::Driver => ErrorKind::Machine(MachineFault::DriverNotLoaded),
        _ => ErrorKind::Io,
    };
    simulation.inject(call, simulation.count(call) + 1, Fault::Error(kind));
}

fn is_of(sick: &Sick, change: &Change) -> bool {
    let devices: Vec<u32> = change.finding.devices.iter().map(|id| id.index).collect();
    let suspects = &change.finding.suspects;
    sick.kind == change.id.kind.name()
        && devices == [sick.gpu]
        && sick.pid.is_none_or(|pid| suspects.iter().any(|s| s.process.pid == Pid(pid)))
}

/// The figures of some days.
#[derive(Debug, Default)]
struct Figures {
    looks: u64,
    failed: usize,
    raised: usize,
    cleared: usize,
    signals: usize,
}

fn watch_day(seed: u64, figures: &mut Figures) {
    let day = Day::new(seed);
    let mut watcher = Watcher::new(&day.start(seed), POLICY, MINUTE);
    let (token, mut chance) = (ActToken::user_confirmed(), Chance::new(seed));
    let mut left = 0;
    while watcher.minute() < DAY {
        disturb(&watcher.simulation, &mut chance, &mut left);
        watcher.round(Some(&token));
        figures.looks += 1;
    }
    let signals = watcher.simulation.signals();
    let told = || {
        let sick: Vec<String> = day.sick.iter().map(|sick| format!("{sick:?}")).collect();
        let said: Vec<String> = watcher.said.iter().map(|said| format!("{said:?}")).collect();
        format!("seed {seed}:\n{}\n{}", sick.join("\n"), said.join("\n"))
    };
    // No other process is accused, and each fault is raised once, in time.
    let mut of: Vec<Vec<u64>> = vec![Vec::new(); day.sick.len()];
    for (minute, change) in watcher.changes(ChangeKind::Raised) {
        let whose = day.sick.iter().position(|sick| {
            let until = sick.until.unwrap_or(DAY) + FAULTS;
            is_of(sick, change) && (sick.from..=until).contains(&minute)
        });
        let whose = whose.unwrap_or_else(|| panic!("false alarm {change:#?}\n{}", told()));
        of[whose].push(minute);
    }
    for (sick, raised) in day.sick.iter().zip(&of) {
        let [at] = raised[..] else { panic!("{sick:?} raised at {raised:?}; {}", told()) };
        assert!(at <= sick.from + latest(sick), "{sick:?} raised at {at}; {}", told());
        let ended = signals.iter().filter(|sent| Some(sent.process.pid.0) == sick.pid);
        let ended = ended.map(|sent| sent.at.as_secs() / 60);
        let over = sick.until.into_iter().chain(ended.filter(|_| sick.reapable)).min();
        let cleared: Vec<u64> = watcher
            .changes(ChangeKind::Cleared)
            .filter(|(minute, change)| {
                is_of(sick, change) && *minute >= at && over.is_none_or(|over| *minute >= over)
            })
            .map(|(minute, _)| minute)
            .filter(|minute| *minute <= over.unwrap_or(DAY) + 7 + FAULTS)
            .collect();
        match over {
            Some(over) if over + 7 + FAULTS < DAY => {
                assert_eq!(cleared.len(), 1, "{sick:?} ended at {over}; {}", told());
            }
            Some(_) => {}
            None => assert_eq!(cleared, [0_u64; 0], "{sick:?} is not over; {}", told()),
        }
    }
    let (raised, cleared) =
        (watcher.changes(ChangeKind::Raised).count(), watcher.changes(ChangeKind::Cleared).count());
    assert!(cleared <= raised, "{}", told());
    check_signals(&day, &watcher, &told);
    // Each reapable process was ended.
    for sick in day.sick.iter().filter(|sick| sick.reapable) {
        let ended = signals.iter().any(|sent| Some(sent.process.pid.0) == sick.pid);
        assert!(ended, "{sick:?} was not ended; {}", told());
    }
    figures.failed += watcher.said.iter().filter(|(_, said)| matches!(said, Said::Blind)).count();
    figures.raised += raised;
    figures.cleared += cleared;
    figures.signals += signals.len();
}

/// Checks that every signal was permitted: the policy covers the process, it was faulty for the
/// whole time of its rule, its owner was warned in time, and an audit line precedes the signal.
fn check_signals(day: &Day, watcher: &Watcher, told: &dyn Fn() -> String) {
    let signals = watcher.simulation.signals();
    for sent in &signals {
        let minute = sent.at.as_secs() / 60;
        let sick = day.sick.iter().find(|sick| {
            let until = sick.until.unwrap_or(DAY);
            sick.pid == Some(sent.process.pid.0) && (sick.from..until).contains(&minute)
        });
        let sick = sick.unwrap_or_else(|| panic!("{sent:?} is healthy; {}", told()));
        assert!(sick.reapable, "{sent:?} to {sick:?}; {}", told());
        assert!(sent.held_device_file && sent.name != "precious", "{sent:?}");
        let (after, warn) = if sick.kind == "ghost" { (30, 10) } else { (60, 15) };
        assert!(minute >= sick.from + after, "{sent:?} to {sick:?}; {}", told());
        let warned = watcher
            .said
            .iter()
            .find(|(_, said)| matches!(said, Said::Warning(pid) if *pid == sent.process.pid));
        let (at, _) = warned.unwrap_or_else(|| panic!("{sent:?} without warning; {}", told()));
        assert!(minute >= at + warn, "{sent:?} warned at {at}; {}", told());
    }
    let journal = watcher.simulation.journal();
    let lines = journal.iter().filter(|line| line.contains(r#""event":"signal""#)).count();
    assert!(lines >= signals.len(), "{journal:?}");
    let mut hours: Vec<(u64, Pid)> =
        signals.iter().map(|sent| (sent.at.as_secs(), sent.process.pid)).collect();
    hours.dedup_by_key(|(_, pid)| *pid);
    for hour in hours.windows(3) {
        assert!(hour[2].0 - hour[0].0 >= 3_600, "more than two processes an hour: {signals:?}");
    }
}

#[test]
fn findings_of_a_day_are_raised_once_and_cleared_and_only_the_policy_reaps() {
    let mut figures = Figures::default();
    let days = bound("GPUWS_DAYS", 6, 200);
    for seed in 0..days {
        watch_day(seed, &mut figures);
    }
    println!("{days} days: {figures:?}, no false alarm, nothing missed");
    assert!(figures.raised as u64 >= 12 * days && figures.signals as u64 >= 3 * days);
    assert!(figures.failed > 0, "some looks failed");
}

#[test]
fn dry_run_ends_nothing_and_says_what_it_would_end() {
    let day = Day::new(1);
    for (policy, token) in [
        (POLICY.replace("dry_run = false", "dry_run = true"), Some(ActToken::user_confirmed())),
        (POLICY.to_owned(), None),
    ] {
        let mut watcher = Watcher::new(&day.start(1), &policy, MINUTE);
        while watcher.minute() < DAY {
            watcher.round(token.as_ref());
        }
        let planned: Vec<&Vec<Pid>> = watcher
            .said
            .iter()
            .filter_map(|(_, said)| match said {
                Said::Planned(pids) => Some(pids),
                Said::Reaped(_) => panic!("{:?}", watcher.said),
                _ => None,
            })
            .collect();
        for sick in day.sick.iter().filter(|sick| sick.reapable) {
            assert!(planned.iter().any(|pids| pids.iter().any(|pid| Some(pid.0) == sick.pid)));
        }
        assert_eq!(watcher.simulation.signals(), []);
        assert_eq!(watcher.simulation.journal(), [""; 0]);
    }
}
