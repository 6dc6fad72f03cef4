//! Invariants of every random machine with every random script.

use gpu_core::{
    ActToken, Bytes, Clock, DeviceId, DeviceProcessKind, ErrorKind, GpuBackend, Pid, ProcessFault,
    ProcessHandle, ProcessState, ProcessTable, Signal, observe,
};
use gpu_sim::{
    Call, Event, Fault, Machine, Process, Reaction, Seed, Simulation, When, random, random_faults,
    random_machine, random_script,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An action of a test on a machine.
#[derive(Clone, Debug)]
enum Step {
    Signal(usize, Signal),
    Sleep(u64),
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let signal = prop_oneof![Just(Signal::Term), Just(Signal::Kill)];
    let step = prop_oneof![
        (0usize..8, signal).prop_map(|(which, signal)| Step::Signal(which, signal)),
        (0u64..8000).prop_map(Step::Sleep),
        Just(Step::Look),
    ];
    prop::collection::vec(step, 0..20)
}

/// Returns when a process ends, by its reactions and the signals sent: an independent model of the
/// rules.
fn end_of(process: &Process, signals: &[(Duration, Signal)]) -> Option<Duration> {
    let ends = signals.iter().filter_map(|(at, signal)| {
        let reaction = match signal {
            Signal::Term => process.on_term,
            Signal::Kill => process.on_kill,
        };
        match reaction {
            Reaction::ExitsAfter(after) => Some(*at + after),
            Reaction::Stuck(Some(until)) => Some(until.max(*at)),
            Reaction::Ignores | Reaction::Stuck(None) | Reaction::LeavesThreads => None,
        }
    });
    ends.min()
}

fn is_dead_zombie(process: &Process) -> bool {
    process.info.state == Ok(ProcessState::Zombie) && process.info.live_threads == Ok(0)
}

/// Returns the memory that a device must have in use at `now`.
fn expected_used(
    machine: &Machine,
    device: u32,
    signals: &BTreeMap<Pid, Vec<(Duration, Signal)>>,
    now: Duration,
) -> Bytes {
    let own = &machine.devices[device as usize];
    let mut used = own.reserve + own.leaked;
    for process in &machine.processes {
        let sent = signals.get(&process.pid()).map_or(&[][..], Vec::as_slice);
        let free = end_of(process, sent).zip(process.memory_returns).map(|(a, b)| a + b);
        if free.is_none_or(|free| now < free) {
            let holdings = process.holdings.iter().filter(|holding| holding.device == device);
            used += holdings.map(|holding| holding.memory).sum();
        }
    }
    used
}

fn conserves_memory(seed: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut machine = random_machine(Seed(seed));
    for process in &mut machine.processes {
        // The independent model does not cover respawned processes.
        process.respawns = None;
    }
    machine.viewer.privileged = true;
    let simulation = Simulation::start(machine.clone(), Seed(seed));
    let mut signals: BTreeMap<Pid, Vec<(Duration, Signal)>> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Signal(which, signal) => {
                let Some(process) = machine.processes.get(which) else { continue };
                let pid = process.pid();
                let Ok(handle) = simulation.open(pid) else { continue };
                let alive = !is_dead_zombie(process);
                let sent = handle.signal(signal, &ActToken::user_confirmed());
                prop_assert_eq!(sent.is_ok(), alive);
                if alive {
                    signals.entry(pid).or_default().push((simulation.elapsed(), signal));
                }
            }
            Step::Sleep(millis) => simulation.sleep(Duration::from_millis(millis)),
            Step::Look => {}
        }
        for device in &machine.devices {
            let index = device.info.id.index;
            let used = simulation.sample(&device.info.id).unwrap().memory.used.unwrap();
            let expected = expected_used(&machine, index, &signals, simulation.elapsed());
            prop_assert_eq!(used, expected, "GPU {} at {:?}", index, simulation.elapsed());
        }
    }
    Ok(())
}

/// If a process exits and frees its memory immediately, the memory is free immediately.
#[test]
fn immediately_returned_memory_is_free() {
    let steps = vec![Step::Sleep(2987), Step::Sleep(2097), Step::Signal(0, Signal::Term)];
    conserves_memory(5_686_794_001_364_413_586, steps).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Memory is conserved: at any time, used memory is that of the driver, leaks and live
    /// processes, plus memory not yet returned.
    #[test]
    fn memory_is_conserved(seed: u64, steps in steps()) {
        conserves_memory(seed, steps)?;
    }

    /// Invariants under any script: a handle stays with its process, the clock never goes back,
    /// counts are correct, each signal reaches the opened process, and used memory fits on the
    /// device.
    #[test]
    fn scripts_and_faults_keep_invariants(seed: u64, steps in steps(), faults in 0usize..12) {
        let simulation = random(Seed(seed));
        let machine = random_machine(Seed(seed));
        for (call, nth, fault) in random_faults(Seed(seed), &machine, faults) {
            simulation.inject(call, nth, fault);
        }
        let mut opened: Vec<(Box<dyn ProcessHandle>, Option<gpu_core::ProcessKey>)> = Vec::new();
        let mut before = Duration::ZERO;
        let mut queried = 0;
        for step in steps {
            match step {
                Step::Signal(which, signal) => {
                    let Some(process) = machine.processes.get(which) else { continue };
                    if let Ok(handle) = simulation.open(process.pid()) {
                        let key = handle.info().ok().map(|info| info.key);
                        opened.push((handle, key));
                    }
                    let Some((handle, key)) = opened.last() else { continue };
                    let sent = simulation.signals().len();
                    let result = handle.signal(signal, &ActToken::user_confirmed());
                    let reached = simulation.signals().split_off(sent);
                    prop_assert_eq!(reached.len(), usize::from(result.is_ok()));
                    if let (Some(reached), Some(key)) = (reached.first(), key) {
                        prop_assert_eq!(reached.process, *key);
                    }
                }
                Step::Sleep(millis) => simulation.sleep(Duration::from_millis(millis)),
                Step::Look => {
                    let snapshot = observe(&simulation, &simulation, &simulation);
                    queried += 1;
                    for device in &snapshot.devices {
                        if let (Ok(used), Ok(total)) = (device.memory_used(), device.memory_total()) {
                            prop_assert!(used <= total);
                        }
                    }
                }
            }
            prop_assert!(simulation.elapsed() >= before);
            before = simulation.elapsed();
            for (handle, key) in &opened {
                match (handle.info(), key) {
                    (Ok(info), Some(key)) => prop_assert_eq!(info.key, *key),
                    (Err(error), _) if error.kind() == ErrorKind::Process(ProcessFault::Gone) => {}
                    _ => {}
                }
            }
        }
        prop_assert!(simulation.count(Call::Holders) >= queried || faults > 0);
        prop_assert_eq!(simulation.signals().len() as u64 <= simulation.count(Call::Signal), true);
    }

    /// The same seed gives the same machine and the same sequence of events.
    #[test]
    fn same_seed_repeats_exactly(seed: u64) {
        let (a, b) = (random(Seed(seed)), random(Seed(seed)));
        let machine = random_machine(Seed(seed));
        prop_assert_eq!(random_script(Seed(seed), &machine), random_script(Seed(seed), &machine));
        for _ in 0..8 {
            for simulation in [&a, &b] {
                simulation.sleep(Duration::from_secs(5));
            }
            prop_assert_eq!(observe(&a, &a, &a), observe(&b, &b, &b));
        }
    }

    /// No input after a header makes the reader panic or run without bound.
    #[test]
    fn arbitrary_bytes_are_read_or_rejected(bytes: Vec<u8>, json in "[\\[\\]{}\":,0-9a-z_ \n]{0,200}") {
        let header = b"{\"gpuws_recording\":1,\"anonymous\":true}\n";
        for text in [&bytes[..], json.as_bytes()] {
            let whole = [header, text].concat();
            let _ = gpu_sim::Recording::read(&whole[..]);
            let _ = gpu_sim::Recording::read(text);
        }
    }
}

#[test]
fn random_machines_cover_every_kind() {
    let mut seen = [false; 6];
    for seed in 0..200 {
        let machine = random_machine(Seed(seed));
        let processes = &machine.processes;
        let listed = |process: &Process| process.holdings.iter().any(|h| h.listed.is_some());
        let holds = |process: &Process| !process.holdings.is_empty();
        seen[0] |= processes.iter().any(|p| holds(p) && !listed(p));
        seen[1] |= processes.iter().any(|p| holds(p) && p.hidden.is_some());
        seen[2] |= processes.iter().any(|p| p.on_kill == Reaction::Stuck(None));
        seen[3] |= processes.iter().any(|p| p.respawns.is_some());
        seen[4] |= processes.iter().any(|p| !holds(p) && !p.files.is_empty());
        seen[5] |= !machine.viewer.privileged;
        let snapshot = {
            let simulation = Simulation::start(machine, Seed(seed));
            observe(&simulation, &simulation, &simulation)
        };
        assert!(snapshot.device(&DeviceId::from_index(0)).is_some());
    }
    assert_eq!(seen, [true; 6]);
}

fn name_of_event(event: &Event) -> &'static str {
    match event {
        Event::Start(_) => "start",
        Event::Exit(_) => "exit",
        Event::LetGo(_, None) => "let go of all",
        Event::LetGo(..) => "let go of one",
        Event::Uses(..) => "uses",
        Event::Computes(..) => "computes",
        Event::JoinsGroup(..) => "joins group",
        Event::JoinsCgroup(..) => "joins cgroup",
        Event::Fails(..) => "fails",
        Event::Reports(..) => "reports",
        Event::Becomes(_) => "becomes",
    }
}

fn name_of_reaction(reaction: Reaction) -> &'static str {
    match reaction {
        Reaction::Ignores => "ignores",
        Reaction::ExitsAfter(after) if after == Duration::from_secs(30) => "exits late",
        Reaction::ExitsAfter(after) => {
            assert!(after <= Duration::from_secs(2));
            "exits"
        }
        Reaction::Stuck(None) => "stuck",
        Reaction::Stuck(Some(until)) => {
            assert!(until <= Duration::from_secs(20));
            "stuck for a time"
        }
        Reaction::LeavesThreads => "leaves threads",
    }
}

#[test]
fn random_scripts_and_faults_have_every_kind_in_time() {
    let (mut events, mut faults) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..300 {
        let machine = random_machine(Seed(seed));
        let script = random_script(Seed(seed), &machine);
        assert!(script.len() <= 6);
        for scheduled in script {
            let is_start = matches!(scheduled.event, Event::Start(_));
            match scheduled.when {
                When::At(at) => assert!(at <= Duration::from_secs(30) && !is_start),
                When::AfterExit(_, after) => {
                    assert!(after <= Duration::from_millis(500) && is_start);
                }
            }
            events.insert(name_of_event(&scheduled.event));
        }
        assert_eq!(random_faults(Seed(seed), &machine, 0), []);
        let some = random_faults(Seed(seed), &machine, 7);
        assert!((7..=8).contains(&some.len()), "{}", some.len());
        for (_, nth, fault) in some {
            assert!((1..=12).contains(&nth));
            faults.insert(match fault {
                Fault::Error(_) => "error",
                Fault::Delay(_) => "delay",
                Fault::Hang(_) => "hang",
                Fault::ListChanged => "list changed",
                Fault::Meanwhile(Event::Start(process)) => {
                    assert_eq!((process.info.name.as_str(), process.info.uid), ("bash", Ok(1002)));
                    "another process"
                }
                Fault::Meanwhile(_) => "meanwhile",
            });
        }
    }
    let all = [
        "computes",
        "exit",
        "fails",
        "joins cgroup",
        "joins group",
        "let go of all",
        "let go of one",
        "reports",
        "start",
        "uses",
    ];
    assert_eq!(events.into_iter().collect::<Vec<_>>(), all);
    let all = ["another process", "delay", "error", "hang", "list changed", "meanwhile"];
    assert_eq!(faults.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn random_processes_have_every_reaction_and_consistent_roles() {
    let (mut terms, mut kills, mut kinds) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for seed in 0..300 {
        let machine = random_machine(Seed(seed));
        assert!((1..=4).contains(&machine.devices.len()) && machine.processes.len() <= 8);
        assert_eq!(machine.clock.0 - machine.booted.0, 7 * 86_400_000);
        let paths: Vec<_> = machine.files.iter().map(|file| &*file.path).collect();
        assert!(paths.contains(&"/dev/nvidia0") && paths.contains(&"/dev/nvidia-modeset"));
        let pids: Vec<Pid> = machine.processes.iter().map(Process::pid).collect();
        assert!(pids.is_sorted_by(|a, b| a < b) && pids.iter().all(|pid| pid.0 >= 1000));
        for process in &machine.processes {
            terms.insert(name_of_reaction(process.on_term));
            kills.insert(name_of_reaction(process.on_kill));
            let name = process.info.name.as_str();
            let kind = match process.holdings.first() {
                Some(first) => {
                    assert_eq!(
                        first.device, 0,
                        "a process with memory has some on the first device"
                    );
                    match first.listed {
                        Some(DeviceProcessKind::Graphics) => {
                            assert!(["Xorg", "gnome-shell"].contains(&name), "{name}");
                            "display"
                        }
                        Some(_) => "listed",
                        None => "unlisted",
                    }
                }
                None if process.files.is_empty() => "bystander",
                None => {
                    let known = ["nv-hostengine", "argusagent", "nvidia-persiste"];
                    assert!(known.contains(&name), "{name}");
                    "monitor"
                }
            };
            kinds.insert(kind);
            let zombie = process.info.state == Ok(ProcessState::Zombie);
            let ended = zombie && process.info.live_threads == Ok(0);
            assert!(!ended || kind == "bystander", "a zombie without threads has no device");
            assert!(process.hidden.is_none() || kind == "listed");
        }
    }
    let all = ["exits", "exits late", "ignores", "leaves threads", "stuck", "stuck for a time"];
    assert_eq!(terms.into_iter().collect::<Vec<_>>(), all);
    kills.insert("ignores");
    assert_eq!(kills.into_iter().collect::<Vec<_>>(), all);
    let all = ["bystander", "display", "listed", "monitor", "unlisted"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Each event of a device is reported once, in time order.
    #[test]
    fn every_event_is_delivered_once(seed: u64) {
        let machine = random_machine(Seed(seed));
        let script = random_script(Seed(seed), &machine);
        let mut expected: Vec<_> = script
            .iter()
            .filter_map(|scheduled| {
                let (When::At(at), Event::Reports(device, kind)) =
                    (scheduled.when, &scheduled.event)
                else {
                    return None;
                };
                Some((at, Some(*device), *kind))
            })
            .collect();
        expected.sort_by_key(|(at, ..)| *at);
        let simulation = random(Seed(seed));
        let mut reported = Vec::new();
        while simulation.elapsed() < Duration::from_secs(60) {
            let events = simulation.events(Duration::from_secs(7)).unwrap();
            reported.extend(events.into_iter().map(|e| (simulation.elapsed(), e.device, e.kind)));
        }
        prop_assert_eq!(reported, expected);
    }
}
