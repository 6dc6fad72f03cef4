//! Users who try to be spared, to get others ended, or to flood the notifications; and machines on
//! which anything may fail.

use super::{MINUTE, Notification, Watcher};
use gpu_core::{ActToken, ErrorKind, Pid, ProcessTable};
use gpu_sim::{
    Call, Event, Fault, Machine, Process, Seed, Simulation, random, random_faults, random_machine,
};
use gpu_watch::ChangeKind;
use gpuws_tests::bound;
use std::collections::BTreeSet;

/// A policy that ends every suspect of an ordinary user as early as possible.
const EAGER: &str = r#"
[findings]
after = "1m"
clear_after = "5m"

[reap]
dry_run = false
most_per_hour = 100
protect = ["user:1001", "t2t-decoder"]

[[reap.rule]]
kinds = ["ghost", "listed-but-gone", "zombie-holder"]
all_users = true
min_confidence = "high"
after = "2m"
warn = "0s"

[[reap.rule]]
kinds = ["orphan", "hoarder"]
all_users = true
min_confidence = "likely"
after = "2m"
warn = "0s"
"#;

/// Starts a machine with one device and these processes.
fn machine(processes: &str) -> Simulation {
    let text = format!(
        "description = \"made: attackers\"\nclock = 2025-03-03T00:00:00Z\n[driver]\n\
         version = \"535.261.03\"\ncuda = \"12.2\"\n[[gpu]]\nindex = 0\n\
         name = \"NVIDIA A100-SXM4-80GB\"\nmemory_total_mib = 81920\ndriver_reserve_mib = 4\n\
         {processes}"
    );
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("machine.toml"), &text).unwrap();
    let machine = Machine::from_dir(dir.path());
    Simulation::start(machine.unwrap_or_else(|error| panic!("{error}\n{text}")), Seed(0))
}

/// Returns a process of user 1002 that uses memory of the device.
fn process(pid: u32, listed: bool, more: &str) -> String {
    format!(
        "[[process]]\npid = {pid}\nname = \"python\"\nuid = 1002\nuser = \"mallory\"\nmemory = [{{ \
         gpu = 0, mib = 9000, listed = {listed}, utilization_percent = 0 }}]\n{more}\n"
    )
}

fn watch(simulation: &Simulation, policy: &str, minutes: u64) -> Watcher {
    let mut watcher = Watcher::new(simulation, policy, MINUTE);
    let token = ActToken::user_confirmed();
    while watcher.minute() < minutes {
        watcher.round(Some(&token));
    }
    watcher
}

#[test]
fn process_posing_as_allowed_service_is_raised_and_reaped() {
    let allow = "[[allow]]\nservice = \"vllm.service\"\n[[allow]]\nprogram = \"/usr/bin/vllm\"\n";
    let unit =
        "cgroup = \"/user.slice/user-1002.slice/user@1002.service/app.slice/vllm.service\"\n";
    let names = "command_line = [\"/usr/bin/vllm\", \"serve\"]\n";
    let pretending = process(7_000, false, &format!("{unit}{names}")).replace("python", "vllm");
    let policy = EAGER.replace("[reap]", "[[allow]]\nservice = \"vllm.service\"\n[reap]");
    let watcher = watch(&machine(&pretending), &policy, 20);
    assert_eq!(watcher.changes(ChangeKind::Raised).count(), 1, "{:?}", watcher.notifications);
    assert!(watcher.simulation.signals().iter().any(|sent| sent.process.pid == Pid(7_000)));
    // The genuine system service of that name is allowed.
    let genuine = process(7_000, false, "cgroup = \"/system.slice/vllm.service\"\n");
    let watcher = watch(&machine(&genuine), &policy, 20);
    assert!(watcher.notifications.is_empty(), "{:?}", watcher.notifications);
    // Without a readable executable, it is unknown whether this is the allowed program, so it is
    // reported but not ended.
    let policy = EAGER.replace("[reap]", &format!("{allow}[reap]"));
    let watcher = watch(&machine(&pretending), &policy, 20);
    assert_eq!(watcher.changes(ChangeKind::Raised).count(), 1, "{:?}", watcher.notifications);
    assert_eq!(watcher.simulation.signals(), []);
}

#[test]
fn plan_without_targets_is_reported_but_not_as_dry_run() {
    // Only root's display servers count as such, but the name is enough to be spared.
    let simulation = machine(&process(7_000, false, "").replace("python", "Xorg"));
    let watcher = watch(&simulation, EAGER, 30);
    let spared = watcher
        .notifications
        .iter()
        .filter(|(_, notification)| matches!(notification, Notification::Spared))
        .count();
    let dry = watcher
        .notifications
        .iter()
        .any(|(_, notification)| matches!(notification, Notification::Planned(_)));
    assert!(spared == 1 && !dry, "{:?}", watcher.notifications);
    assert_eq!(simulation.signals(), []);
}

#[test]
fn dry_run_plans_one_batch_at_a_time_until_all_are_planned() {
    let script: String = (0..5).map(|at| process(7_000 + at, true, "")).collect();
    let policy = EAGER
        .replace("dry_run = false", "dry_run = true")
        .replace("most_per_hour = 100", "most_per_hour = 2");
    let watcher = watch(&machine(&script), &policy, 150);
    let planned = |until: u64| -> Vec<Pid> {
        let planned =
            watcher.notifications.iter().filter_map(|(minute, notification)| match notification {
                Notification::Planned(pids) if *minute < until => Some(pids),
                _ => None,
            });
        planned.flatten().copied().collect()
    };
    assert_eq!(planned(60).len(), 2, "{:?}", watcher.notifications);
    let all: BTreeSet<Pid> = planned(150).into_iter().collect();
    assert_eq!(all.len(), 5, "{:?}", watcher.notifications);
}

#[test]
fn pid_reused_between_snapshot_and_signal_is_spared() {
    let simulation = machine(&process(7_000, false, ""));
    let mut successor = Process::new(ProcessTable::process(&simulation, Pid(7_000)).unwrap());
    successor.info.key.start = None;
    for event in [Event::Exit(Pid(7_000)), Event::Start(Box::new(successor))] {
        simulation.inject(Call::Open, 1, Fault::Meanwhile(event));
    }
    let watcher = watch(&simulation, EAGER, 10);
    let reaped = watcher
        .notifications
        .iter()
        .any(|(_, notification)| matches!(notification, Notification::Reaped(_)));
    assert!(
        reaped && ProcessTable::process(&simulation, Pid(7_000)).is_ok(),
        "{:?}",
        watcher.notifications
    );
    assert_eq!(simulation.signals(), []);
}

#[test]
fn watcher_stopped_before_signal_sends_none() {
    let signals = |permits| {
        let simulation = machine(&process(7_000, false, ""));
        let mut watcher = Watcher::new(&simulation, EAGER, MINUTE);
        watcher.permits.set(permits);
        for _ in 0..10 {
            watcher.round(Some(&ActToken::user_confirmed()));
        }
        simulation.signals().len()
    };
    // The watcher checks before and after its snapshots, before the audit line, and before the
    // signal.
    assert_eq!([0, 1, 2, 3, 4].map(signals), [0, 0, 0, 0, 1]);
}

/// Unlisted memory passes from fork to fork: one finding, few updates, and no process lives long
/// enough to be ended.
#[test]
fn ghost_changing_its_process_is_one_finding() {
    let mut script = process(7_000, false, "");
    for step in 1..180 {
        let (at, pid) = (step * 70_000, 7_000 + step);
        script.push_str(&format!(
            "[[event]]\nat_ms = {at}\nstart = {{ pid = {pid}, name = \"python\", uid = 1002, \
             memory = [{{ gpu = 0, mib = 9000, listed = false }}] }}\n[[event]]\nat_ms = {}\n\
             exit = {}\n",
            at + 100,
            pid - 1
        ));
    }
    let policy = EAGER.replace("after = \"2m\"", "after = \"10m\"");
    let watcher = watch(&machine(&script), &policy, 180);
    assert_eq!(watcher.changes(ChangeKind::Raised).count(), 1, "{:?}", watcher.notifications);
    assert_eq!(watcher.changes(ChangeKind::Cleared).count(), 0, "{:?}", watcher.notifications);
    let updates = watcher.changes(ChangeKind::Updated).count();
    assert_eq!(updates, 2, "{:?}", watcher.notifications);
    assert_eq!(watcher.simulation.signals(), []);
}

/// A process that computes occasionally resets its own idle time, and is reported a few times a
/// day.
#[test]
fn flapping_process_is_neither_reaped_nor_spams() {
    let mut script = process(7_000, true, "");
    for step in 1..=48 {
        let at = step * 30 * 60_000;
        for (at, load) in [(at, 90), (at + 120_000, 0)] {
            script.push_str(&format!(
                "[[event]]\nat_ms = {at}\nuses = {{ pid = 7000, gpu = 0, mib = 9000, \
                 utilization_percent = {load} }}\n"
            ));
        }
    }
    let policy = EAGER.replace("after = \"2m\"", "after = \"25m\"");
    let watcher = watch(&machine(&script), &policy, 24 * 60);
    let count = watcher.notifications.len();
    assert!(count > 0 && count <= 2 * 48, "{count}: {:?}", watcher.notifications);
    assert_eq!(watcher.simulation.signals(), []);
}

#[test]
fn flood_of_one_user_is_held_back_and_others_are_raised() {
    let orphan = |pid: u32, uid: u32| {
        format!(
            "[[process]]\npid = {pid}\nname = \"python\"\nuid = {uid}\nparent = 1\ngroup = \
             900000\nsession = 900000\nmemory = [{{ gpu = 0, mib = 100, utilization_percent = 0 \
             }}]\ncommand_line = [\"python\", \"-c\", \"from multiprocessing.spawn import \
             spawn_main\"]\n"
        )
    };
    let mut script: String = (0..300).map(|at| orphan(10_000 + at, 1002)).collect();
    script.push_str(&orphan(20_000, 1003));
    let watcher = watch(&machine(&script), "[findings]\nafter = \"1m\"", 50);
    let raised: Vec<u32> = watcher
        .changes(ChangeKind::Raised)
        .map(|(_, change)| change.finding.suspects[0].process.pid.0)
        .collect();
    assert_eq!(raised.len(), 65);
    assert!(raised.contains(&20_000));
    assert!(
        watcher
            .notifications
            .iter()
            .any(|(_, notification)| matches!(notification, Notification::HeldBack(236)))
    );
}

#[test]
fn process_computing_on_another_device_is_not_reaped() {
    let simulation = Simulation::embedded("gtx1080ti-x8-hoarder").unwrap();
    let policy = EAGER.replace("\"user:1001\", ", "");
    let watcher = watch(&simulation, &policy, 12 * 60);
    assert!(watcher.changes(ChangeKind::Raised).count() > 0);
    assert_eq!(simulation.signals(), []);
    // A process that computes on no device is reaped.
    let simulation = machine(&process(7_000, true, ""));
    watch(&simulation, EAGER, 60);
    assert!(!simulation.signals().is_empty());
}

/// While a policy ends one process, with its maximum grace period, the time of another process
/// continues.
#[test]
fn reap_does_not_restart_idle_time_of_others() {
    let policy = EAGER
        .replace("most_per_hour", "grace = \"4m\"\nmost_per_hour")
        .replace("kinds = [\"orphan\", \"hoarder\"]\nall_users = true\nmin_confidence = \"likely\"\nafter = \"2m\"",
            "kinds = [\"orphan\", \"hoarder\"]\nall_users = true\nmin_confidence = \"likely\"\nafter = \"2h\"");
    let idle = process(7_000, true, "");
    let minute = |script: &str| {
        let simulation = machine(script);
        watch(&simulation, &policy, 5 * 60);
        let signals = simulation.signals();
        signals.iter().find(|sent| sent.process.pid == Pid(7_000)).unwrap().at.as_secs() / 60
    };
    let alone = minute(&idle);
    let ghost = "[[event]]\nat_ms = 5400000\nstart = { pid = 8000, name = \"python\", uid = 1002, \
        memory = [{ gpu = 0, mib = 9000, listed = false }], on_term = \"ignores\" }\n";
    let disturbed = minute(&format!("{idle}{ghost}"));
    assert!((alone..=alone + 6).contains(&disturbed), "{alone}, {disturbed}");
}

#[test]
fn failed_snapshots_neither_raise_nor_clear() {
    for call in [Call::Driver, Call::Devices, Call::Holders, Call::DeviceFiles] {
        let simulation = machine(&process(7_000, false, ""));
        let mut watcher = Watcher::new(&simulation, "", MINUTE);
        (0..5).for_each(|_| watcher.round(None));
        assert_eq!(watcher.changes(ChangeKind::Raised).count(), 1, "{call:?}");
        simulation.inject_from(call, simulation.count(call) + 1, Fault::Error(ErrorKind::Io));
        // The process ends unobserved.
        simulation.happen(Event::Exit(Pid(7_000)));
        (0..60).for_each(|_| watcher.round(None));
        assert_eq!(watcher.changes(ChangeKind::Cleared).count(), 0, "{call:?}");
        let raised = watcher.changes(ChangeKind::Raised).map(|(_, change)| change.id.kind.name());
        assert!(
            raised.skip(1).all(|kind| kind == "device-fault"),
            "{call:?} {:?}",
            watcher.notifications
        );
    }
}

/// Whatever the machine does and whatever fails, every signal goes to a planned process that the
/// policy covers, that holds a device, and that has a line in the audit log.
#[test]
fn every_signal_on_random_machines_is_permitted() {
    let count = bound("GPUWS_WATCH_MACHINES", 400, 20_000);
    let signals: usize = (0..count).map(signals_of_random_machine).sum();
    println!("{count} random machines with faults: {signals} signals, each permitted");
    assert!(signals > 20);
}

fn signals_of_random_machine(seed: u64) -> usize {
    let (simulation, machine) = (random(Seed(seed)), random_machine(Seed(seed)));
    let Ok(own) = ProcessTable::own_ancestry(&simulation) else { return 0 };
    let own: BTreeSet<Pid> = own.iter().map(|key| key.pid).collect();
    for (call, nth, fault) in random_faults(Seed(seed), &machine, (seed % 8) as usize) {
        // An instant between the last check and the signal is unavoidable.
        if call != Call::Signal {
            simulation.inject(call, nth, fault);
        }
    }
    let watcher = watch(&simulation, EAGER, 40);
    let reaped = watcher.notifications.iter().filter_map(|(_, notification)| match notification {
        Notification::Reaped(pids) => Some(pids),
        _ => None,
    });
    let planned: BTreeSet<Pid> = reaped.flatten().copied().collect();
    let signals = simulation.signals();
    for sent in &signals {
        let (pid, name) = (sent.process.pid, sent.name.as_str());
        let details = format!("seed {seed}: {sent:?}\n{:?}", watcher.notifications);
        assert!(planned.contains(&pid) && sent.held_device_file, "{details}");
        assert!(!own.contains(&pid) && pid != Pid(1) && name != "t2t-decoder", "{details}");
        let daemons = ["nvidia-persiste", "nv-hostengine", "Xorg", "gnome-shell"];
        assert!(!daemons.contains(&name), "{details}");
        // The owner is neither root nor the protected user; a respawned process has the owner of
        // the original.
        let named = machine.processes.iter().filter(|process| process.info.name == name);
        let mut users = named.filter_map(|process| process.info.uid.ok());
        assert!(users.any(|uid| uid == 1002), "{details}");
        let same = machine.processes.iter().find(|process| process.pid() == pid);
        if let Some(process) = same.filter(|process| process.info.name == name) {
            assert_eq!(process.info.uid, Ok(1002), "{details}");
        }
    }
    let journal = simulation.journal();
    let lines = journal.iter().filter(|line| line.contains(r#""event":"signal""#)).count();
    assert!(lines >= signals.len(), "seed {seed}: {journal:?}");
    signals.len()
}
