//! Complete runs of the pipeline on random machines with random scripts and faults, and the
//! properties that hold for all of them.
//!
//! A failure prints the seed; `random(Seed(n))` recreates the machine.

use gpu_core::*;
use gpu_reaper::*;
use gpu_sim::{
    Event as Happening, Fault, Seed, SentSignal, Simulation, random, random_faults, random_machine,
    random_script,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

/// Forwards every query to the simulation, and records the reported memory with times.
struct Witness {
    simulation: Simulation,
    seen: Mutex<Vec<(u32, Reading<Bytes>, usize)>>,
}

impl Witness {
    fn new(simulation: &Simulation) -> Self {
        Witness { simulation: simulation.clone(), seen: Mutex::default() }
    }

    /// Returns the observed memory of a device: each value with the number of signals sent so far.
    fn seen_of(&self, index: u32) -> Vec<(Reading<Bytes>, usize)> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|(device, ..)| *device == index)
            .map(|(_, used, at)| (*used, *at))
            .collect()
    }
}

impl GpuBackend for Witness {
    fn origin(&self) -> Origin {
        GpuBackend::origin(&self.simulation)
    }
    fn driver(&self) -> Result<Driver> {
        self.simulation.driver()
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.simulation.devices()
    }
    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        let sample = self.simulation.sample(device);
        let used = sample.as_ref().map_or(Err(Absent::Failed), |sample| sample.memory.used);
        self.seen.lock().unwrap().push((device.index, used, self.simulation.signals().len()));
        sample
    }
    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        GpuBackend::processes(&self.simulation, device)
    }
    fn partitions(&self, device: &DeviceId) -> Result<Vec<Partition>> {
        self.simulation.partitions(device)
    }
    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        self.simulation.details(device, groups)
    }
    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        self.simulation.events(wait)
    }
    fn topology(&self) -> Result<Topology> {
        self.simulation.topology()
    }
    fn reset(&self, device: &DeviceId, token: &ActToken) -> Result<()> {
        self.simulation.reset(device, token)
    }
}

/// The request of the user in one run.
#[derive(Clone, Debug)]
struct Asked {
    seed: u64,
    /// Whether to request each process by PID, instead of relying on the findings.
    by_number: bool,
    reach: Reach,
    /// The index of the protected process, modulo the number of processes.
    protect: Option<usize>,
    faults: usize,
}

/// The processes to end together with a target.
#[derive(Clone, Copy, Debug)]
enum Reach {
    Process,
    Group,
    Container,
}

fn asked() -> impl Strategy<Value = Asked> {
    let reach = prop_oneof![Just(Reach::Process), Just(Reach::Group), Just(Reach::Container)];
    let protect = prop_oneof![Just(None), (0usize..8).prop_map(Some)];
    (any::<u64>(), any::<bool>(), reach, protect, 0usize..6).prop_map(
        |(seed, by_number, reach, protect, faults)| Asked {
            seed,
            by_number,
            reach,
            protect,
            faults,
        },
    )
}

/// The results of a run.
struct Walk {
    plan: Plan,
    report: Report,
    signals: Vec<SentSignal>,
    journal: Vec<String>,
    witness: Witness,
    own: BTreeSet<Pid>,
    protected: Option<Pid>,
}

/// Takes two snapshots, plans, calls `between`, and acts. `None` if the ancestors of this process
/// are unknown, because then there is no guard to act with.
fn walk(asked: &Asked, between: impl Fn(&Simulation, &Plan)) -> Option<Walk> {
    let seed = Seed(asked.seed);
    let simulation = random(seed);
    let own = ProcessTable::own_ancestry(&simulation).ok()?.iter().map(|key| key.pid).collect();
    let machine = random_machine(seed);
    let script = random_script(seed, &machine);
    let lets_go = script.iter().any(|scheduled| matches!(scheduled.event, Happening::LetGo(..)));
    for (call, nth, fault) in random_faults(seed, &machine, asked.faults) {
        // An instant between the last check and the signal is unavoidable. The reaper cannot handle
        // a target that releases its memory exactly then, or during a delay of the signal
        // (docs/safety.md).
        let unseen = match fault {
            Fault::Meanwhile(Happening::LetGo(..)) => true,
            Fault::Delay(_) => lets_go,
            _ => false,
        };
        if call != gpu_sim::Call::Signal || !unseen {
            simulation.inject(call, nth, fault);
        }
    }
    let pids: Vec<Pid> = machine.processes.iter().map(gpu_sim::Process::pid).collect();
    let protected = asked.protect.and_then(|at| pids.get(at % pids.len().max(1)).copied());
    let snapshot = || {
        simulation.sleep(Duration::from_millis(500));
        observe(&simulation, &simulation, &simulation)
    };
    let mut snapshots = [snapshot(), snapshot()];
    if asked.by_number {
        look_up_processes(&simulation, &mut snapshots[1], &pids);
    }
    let diagnosis = diagnose(&snapshots);
    let guard = Guard::new(&simulation, protected.map(Protect::Pid).into_iter().collect()).ok()?;
    let everyone =
        ProcessTable::processes(&simulation).map(|list| list.processes).unwrap_or_default();
    let request = Request {
        pids: if asked.by_number { pids } else { Vec::new() },
        scope: match asked.reach {
            Reach::Process => Scope::Process,
            Reach::Group => Scope::Group(&everyone),
            Reach::Container => Scope::Container(&everyone),
        },
        ..Request::default()
    };
    let plan = plan(&snapshots, &diagnosis, &guard, &request);
    assert_eq!(simulation.signals(), [], "a dry run sends nothing");
    assert_eq!(simulation.journal(), [] as [String; 0], "a dry run logs nothing");
    between(&simulation, &plan);
    let witness = Witness::new(&simulation);
    let ports =
        Ports { backend: &witness, host: &simulation, clock: &simulation, journal: &simulation };
    let report = execute(&plan, &guard, ports, &ActToken::user_confirmed(), &mut |_| {
        ControlFlow::Continue(())
    });
    let (signals, journal) = (simulation.signals(), simulation.journal());
    Some(Walk { plan, report, signals, journal, witness, own, protected })
}

/// The properties of every run, in any event.
fn check(walk: &Walk) {
    for sent in &walk.signals {
        let target =
            walk.plan.targets.iter().find(|target| target.key.definitely_same(&sent.process));
        let target = target.unwrap_or_else(|| panic!("{sent:?} was in no plan"));
        assert!(!walk.own.contains(&sent.process.pid), "{sent:?} is of our own line");
        assert_ne!(Some(sent.process.pid), walk.protected, "{sent:?} is protected");
        assert_ne!(sent.process.pid, Pid(1));
        if matches!(target.membership, Membership::Holds(_)) {
            assert!(sent.held_device_file, "{sent:?} had released the device");
        }
        let daemons = ["nvidia-persiste", "nvidia-cuda-mps", "nv-hostengine", "Xorg"];
        let asked_for =
            target.why.contains("requested by PID") && target.on_account_of == sent.process.pid;
        assert!(
            asked_for || !daemons.iter().any(|daemon| sent.name.starts_with(daemon)),
            "{sent:?}"
        );
    }
    // Each line precedes its signal, so there are never more signals than lines.
    let lines = walk.journal.iter().filter(|line| line.contains(r#""event":"signal""#)).count();
    assert!(lines >= walk.signals.len(), "{:?}", walk.journal);
    for freed in &walk.report.memory {
        let seen = walk.witness.seen_of(freed.device.index);
        let Some(bytes) = freed.freed else {
            assert!(!freed.came_back);
            continue;
        };
        // The device reported both figures, one before any signal and one after.
        assert!(seen.iter().any(|(used, signals)| *used == freed.before && *signals == 0));
        assert!(
            seen.iter()
                .any(|(used, signals)| *used == freed.after && *signals == walk.signals.len())
        );
        let back = freed.before.unwrap().saturating_sub(freed.after.unwrap());
        assert_eq!(bytes, back.saturating_sub(freed.by_others.unwrap_or_default()));
        if freed.came_back {
            // All expected memory except the driver's share is freed: at least half of it.
            assert!(bytes.0 > 0 && bytes.0 >= freed.expected.map_or(0, |expected| expected.0 / 2));
            let of_device = |pid: &Pid| {
                let mut actions = walk.report.actions.iter();
                actions.any(|action| action.pid == *pid && action.outcome.is_gone())
            };
            let mut expected = walk.plan.expected.iter();
            let expected = expected.find(|expected| expected.device.same_device(&freed.device));
            assert!(
                expected.unwrap().targets.iter().all(of_device),
                "an unexpected target was used"
            );
        }
    }
    if walk.report.is_complete() {
        let gone = walk.report.actions.iter().all(|action| action.outcome.is_gone());
        assert!(gone && walk.report.stopped.is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn protected_processes_are_never_signalled(asked in asked()) {
        if let Some(walk) = walk(&asked, |_, _| {}) {
            check(&walk);
        }
    }

    #[test]
    fn pid_reused_between_plan_and_act_is_never_signalled(asked in asked()) {
        let simulation_seed = asked.seed;
        let reused = |simulation: &Simulation, plan: &Plan| {
            for target in &plan.targets {
                simulation.happen(Happening::Exit(target.key.pid));
                // The successor has the same name, user and holdings as its predecessor.
                let before = random_machine(Seed(simulation_seed)).processes;
                let before = before.into_iter().find(|process| process.pid() == target.key.pid);
                let mut successor = before.unwrap_or_else(|| gpu_sim::Process::new(target.process.clone()));
                successor.info.key.start = None;
                simulation.happen(Happening::Start(Box::new(successor)));
            }
        };
        if let Some(walk) = walk(&asked, reused) {
            check(&walk);
            prop_assert_eq!(walk.signals, []);
        }
    }

    #[test]
    fn process_releasing_device_before_act_is_never_signalled(mut asked in asked()) {
        asked.reach = Reach::Process;
        let release = |simulation: &Simulation, plan: &Plan| {
            for target in &plan.targets {
                simulation.happen(Happening::LetGo(target.key.pid, None));
            }
        };
        if let Some(walk) = walk(&asked, release) {
            check(&walk);
            prop_assert_eq!(walk.signals, []);
        }
    }

    #[test]
    fn process_leaving_scope_is_never_signalled(mut asked in asked()) {
        asked.reach = Reach::Group;
        let leave = |simulation: &Simulation, plan: &Plan| {
            for target in &plan.targets {
                simulation.happen(Happening::JoinsGroup(target.key.pid, Pid(4_000_000)));
            }
        };
        if let Some(walk) = walk(&asked, leave) {
            check(&walk);
            for sent in &walk.signals {
                let target = walk.plan.targets.iter().find(|target| target.key == sent.process);
                prop_assert!(matches!(target.unwrap().membership, Membership::Holds(_)));
            }
        }
    }

    #[test]
    fn no_signal_without_audit_log(asked in asked(), nth in 1u64..4) {
        let failing = |simulation: &Simulation, _: &Plan| {
            simulation.inject_from(gpu_sim::Call::Append, nth, Fault::Error(ErrorKind::Io));
        };
        if let Some(walk) = walk(&asked, failing) {
            check(&walk);
            prop_assert!(walk.signals.len() < nth as usize);
        }
    }

    #[test]
    fn diagnosis_never_panics_and_blames_live_process_once(seed in any::<u64>(), faults in 0usize..12) {
        let machine = random_machine(Seed(seed));
        let mut scripted = machine.clone();
        scripted.events = random_script(Seed(seed), &machine);
        let simulation = Simulation::start(scripted, Seed(seed));
        for (call, nth, fault) in random_faults(Seed(seed), &machine, faults) {
            simulation.inject(call, nth, fault);
        }
        let mut snapshots = Vec::new();
        for _ in 0..5 {
            simulation.sleep(Duration::from_secs(3));
            snapshots.push(observe(&simulation, &simulation, &simulation));
            let diagnosis = diagnose(&snapshots);
            for cleared in &diagnosis.cleared {
                let suspects = diagnosis.findings.iter().flat_map(|finding| &finding.suspects);
                prop_assert!(suspects.into_iter().all(|suspect| suspect.process.pid != cleared.process.pid));
            }
            let usage = Usage::of(snapshots.last().unwrap());
            for device in &snapshots.last().unwrap().devices {
                let busy = usage.on(device.id()).iter().any(|user| user.occupies);
                prop_assert!(!(busy && usage.is_free(device.id())));
            }
        }
    }
}

/// If listed processes account for all memory, the holders of the device files add no finding and
/// make no device busy.
#[test]
fn holder_search_adds_no_finding_if_memory_is_explained() {
    let (mut searched, mut spared) = (0, 0);
    for seed in 0..800 {
        let machine = random(Seed(seed));
        let snapshot = |holders| {
            let observation = Observation { holders, ..Observation::default() };
            observe_in_detail(&machine, &machine, &machine, observation)
        };
        let (quick, full) = (snapshot(HolderSearch::IfUnexplained), snapshot(HolderSearch::Always));
        let is_spared = quick.holders.is_err();
        *if is_spared { &mut spared } else { &mut searched } += 1;
        if !is_spared {
            assert_eq!(quick, full, "seed {seed}");
        }
        let free = |snapshot: &Snapshot| -> Vec<bool> {
            let usage = Usage::of(snapshot);
            snapshot.devices.iter().map(|device| usage.is_free(device.id())).collect()
        };
        assert_eq!(free(&quick), free(&full), "seed {seed}");
        let found = |snapshot| diagnose(std::slice::from_ref(snapshot)).findings;
        assert_eq!(found(&quick), found(&full), "seed {seed}");
    }
    assert!(searched >= 50 && spared >= 50, "searched {searched}, spared {spared}");
}

/// Without outcomes on these machines, the properties above would be vacuous.
#[test]
fn random_walks_cover_every_outcome() {
    let (mut ended, mut killed, mut back, mut kept, mut released) = (0, 0, 0, 0, 0);
    for seed in 0..800 {
        let reach = Reach::Process;
        let asked = Asked { seed, by_number: seed % 2 == 0, reach, protect: None, faults: 2 };
        let Some(walk) = walk(&asked, |_, _| {}) else { continue };
        check(&walk);
        killed += walk.signals.iter().filter(|sent| sent.signal == Signal::Kill).count();
        for action in &walk.report.actions {
            ended += usize::from(matches!(action.outcome, Outcome::Ended { .. }));
            released += usize::from(action.outcome == Outcome::LetGo);
        }
        back += walk.report.memory.iter().filter(|freed| freed.came_back).count();
        kept += walk.report.memory.iter().filter(|freed| !freed.came_back).count();
    }
    let counts = [ended, killed, back, kept, released];
    assert!(
        counts.iter().all(|count| *count >= 5),
        "ended, killed, freed, kept, released: {counts:?}"
    );
}
