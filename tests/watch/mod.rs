//! `gpuws watch` over days in virtual time: each finding is raised once and cleared when it ends,
//! no healthy process is accused, and the policy and its checks permit every signal.
#![expect(clippy::print_stdout, reason = "the figures of a run are its result")]

mod attacks;
mod day;

use day::{DAY, Day, Defect};
use gpu_core::{
    ActToken, Clock, ErrorKind, MachineFault, Observer, Pid, ProcessTable, observe_in_detail,
};
use gpu_reaper::{Past, Ports, full_observation};
use gpu_sim::{Call, Fault, Simulation};
use gpu_watch::{Change, ChangeKind, Event, Machine, Policy, Purpose, Scan, Watch};
use gpuws_tests::{Chance, bound};
use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A notification of a watcher, with its minute.
pub(crate) enum Notification {
    Change(Box<Change>),
    Warning(Pid),
    HeldBack(usize),
    Blind,
    Spared,
    Planned(Vec<Pid>),
    Reaped(Vec<Pid>),
    NotPlanned(String),
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notification::Change(change) => {
                let suspects = &change.finding.suspects;
                let pids: Vec<u32> = suspects.iter().map(|s| s.process.pid.0).collect();
                let gpus: Vec<u32> = change.finding.devices.iter().map(|id| id.index).collect();
                write!(f, "{:?} {} GPUs {gpus:?} PIDs {pids:?}", change.kind, change.id)
            }
            Notification::Warning(pid) => write!(f, "warning {pid}"),
            Notification::HeldBack(count) => write!(f, "{count} held back"),
            Notification::Blind => f.write_str("blind"),
            Notification::Spared => f.write_str("spared"),
            Notification::Planned(pids) => write!(f, "planned {pids:?}"),
            Notification::Reaped(pids) => write!(f, "reaped {pids:?}"),
            Notification::NotPlanned(why) => write!(f, "not planned: {why}"),
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
    pub(crate) notifications: Vec<(u64, Notification)>,
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
            notifications: Vec::new(),
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
        let mut observe = |purpose| {
            let (machine, whole) = (simulation, full_observation());
            let snapshot = match purpose {
                Purpose::Report => observer.observe(machine, machine, machine, whole),
                Purpose::Plan => observe_in_detail(machine, machine, machine, whole),
            };
            Scan::after(past, snapshot)
        };
        let mut machine = Machine {
            ports: Ports {
                backend: simulation,
                host: simulation,
                clock: simulation,
                journal: simulation,
            },
            scan: &mut observe,
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
        let notifications = &mut self.notifications;
        self.watch.round(&mut machine, &mut |event| {
            let notification = match event {
                Event::Change(change) => Notification::Change(Box::new(change.clone())),
                Event::Warning { pending, .. } => Notification::Warning(pending.key().pid),
                Event::HeldBack(count) => Notification::HeldBack(count),
                Event::Blind(_) => Notification::Blind,
                Event::Sighted => return,
                Event::Spared { .. } => Notification::Spared,
                Event::Reap { plan, report: None, .. } => Notification::Planned(
                    plan.targets.iter().map(|target| target.key.pid).collect(),
                ),
                Event::Reap { plan, report: Some(_), .. } => {
                    Notification::Reaped(plan.targets.iter().map(|target| target.key.pid).collect())
                }
                Event::NotPlanned(error) => Notification::NotPlanned(error.to_string()),
            };
            notifications.push((minute, notification));
        });
        simulation.sleep(self.every);
    }

    pub(crate) fn changes(&self, kind: ChangeKind) -> impl Iterator<Item = (u64, &Change)> {
        self.notifications.iter().filter_map(move |(minute, notification)| match notification {
            Notification::Change(change) if change.kind == kind => Some((*minute, &**change)),
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
fn latest(defect: &Defect) -> u64 {
    let certain = match defect.kind {
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

fn is_of(defect: &Defect, change: &Change) -> bool {
    let devices: Vec<u32> = change.finding.devices.iter().map(|id| id.index).collect();
    let suspects = &change.finding.suspects;
    defect.kind == change.id.kind.name()
        && devices == [defect.gpu]
        && defect.pid.is_none_or(|pid| suspects.iter().any(|s| s.process.pid == Pid(pid)))
}

/// The figures of some days.
#[derive(Debug, Default)]
struct Figures {
    snapshots: u64,
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
        figures.snapshots += 1;
    }
    let signals = watcher.simulation.signals();
    let describe = || {
        let defects: Vec<String> = day.defects.iter().map(|defect| format!("{defect:?}")).collect();
        let notifications: Vec<String> =
            watcher.notifications.iter().map(|notification| format!("{notification:?}")).collect();
        format!("seed {seed}:\n{}\n{}", defects.join("\n"), notifications.join("\n"))
    };
    // No other process is accused, and each fault is raised once, in time.
    let mut of: Vec<Vec<u64>> = vec![Vec::new(); day.defects.len()];
    for (minute, change) in watcher.changes(ChangeKind::Raised) {
        let index = day.defects.iter().position(|defect| {
            let until = defect.until.unwrap_or(DAY) + FAULTS;
            is_of(defect, change) && (defect.from..=until).contains(&minute)
        });
        let index = index.unwrap_or_else(|| panic!("false alarm {change:#?}\n{}", describe()));
        of[index].push(minute);
    }
    for (defect, raised) in day.defects.iter().zip(&of) {
        let [at] = raised[..] else { panic!("{defect:?} raised at {raised:?}; {}", describe()) };
        assert!(at <= defect.from + latest(defect), "{defect:?} raised at {at}; {}", describe());
        let ended = signals.iter().filter(|sent| Some(sent.process.pid.0) == defect.pid);
        let ended = ended.map(|sent| sent.at.as_secs() / 60);
        let over = defect.until.into_iter().chain(ended.filter(|_| defect.reapable)).min();
        let cleared: Vec<u64> = watcher
            .changes(ChangeKind::Cleared)
            .filter(|(minute, change)| {
                is_of(defect, change) && *minute >= at && over.is_none_or(|over| *minute >= over)
            })
            .map(|(minute, _)| minute)
            .filter(|minute| *minute <= over.unwrap_or(DAY) + 7 + FAULTS)
            .collect();
        match over {
            Some(over) if over + 7 + FAULTS < DAY => {
                assert_eq!(cleared.len(), 1, "{defect:?} ended at {over}; {}", describe());
            }
            Some(_) => {}
            None => assert_eq!(cleared, [0_u64; 0], "{defect:?} is not over; {}", describe()),
        }
    }
    let (raised, cleared) =
        (watcher.changes(ChangeKind::Raised).count(), watcher.changes(ChangeKind::Cleared).count());
    assert!(cleared <= raised, "{}", describe());
    check_signals(&day, &watcher, &describe);
    // Each reapable process was ended.
    for defect in day.defects.iter().filter(|defect| defect.reapable) {
        let ended = signals.iter().any(|sent| Some(sent.process.pid.0) == defect.pid);
        assert!(ended, "{defect:?} was not ended; {}", describe());
    }
    figures.failed += watcher
        .notifications
        .iter()
        .filter(|(_, notification)| matches!(notification, Notification::Blind))
        .count();
    figures.raised += raised;
    figures.cleared += cleared;
    figures.signals += signals.len();
}

/// Checks that every signal was permitted: the policy covers the process, it was faulty for the
/// whole time of its rule, its owner was warned in time, and an audit line precedes the signal.
fn check_signals(day: &Day, watcher: &Watcher, describe: &dyn Fn() -> String) {
    let signals = watcher.simulation.signals();
    for sent in &signals {
        let minute = sent.at.as_secs() / 60;
        let defect = day.defects.iter().find(|defect| {
            let until = defect.until.unwrap_or(DAY);
            defect.pid == Some(sent.process.pid.0) && (defect.from..until).contains(&minute)
        });
        let defect = defect.unwrap_or_else(|| panic!("{sent:?} is healthy; {}", describe()));
        assert!(defect.reapable, "{sent:?} to {defect:?}; {}", describe());
        assert!(sent.held_device_file && sent.name != "precious", "{sent:?}");
        let (after, warn) = if defect.kind == "ghost" { (30, 10) } else { (60, 15) };
        assert!(minute >= defect.from + after, "{sent:?} to {defect:?}; {}", describe());
        let warned = watcher.notifications.iter().find(
            |(_, note)| matches!(note, Notification::Warning(pid) if *pid == sent.process.pid),
        );
        let (at, _) = warned.unwrap_or_else(|| panic!("{sent:?} without warning; {}", describe()));
        assert!(minute >= at + warn, "{sent:?} warned at {at}; {}", describe());
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
fn findings_are_raised_once_and_cleared_and_only_policy_reaps() {
    let mut figures = Figures::default();
    let days = bound("GPUWS_DAYS", 6, 200);
    for seed in 0..days {
        watch_day(seed, &mut figures);
    }
    println!("{days} days: {figures:?}, no false alarm, nothing missed");
    assert!(figures.raised as u64 >= 12 * days && figures.signals as u64 >= 3 * days);
    assert!(figures.failed > 0, "some snapshots failed");
}

#[test]
fn dry_run_only_reports_its_plans() {
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
            .notifications
            .iter()
            .filter_map(|(_, notification)| match notification {
                Notification::Planned(pids) => Some(pids),
                Notification::Reaped(_) => panic!("{:?}", watcher.notifications),
                _ => None,
            })
            .collect();
        for defect in day.defects.iter().filter(|defect| defect.reapable) {
            assert!(planned.iter().any(|pids| pids.iter().any(|pid| Some(pid.0) == defect.pid)));
        }
        assert_eq!(watcher.simulation.signals(), []);
        assert_eq!(watcher.simulation.journal(), [""; 0]);
    }
}
