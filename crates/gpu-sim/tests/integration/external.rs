//! Real processes that register themselves in a session's directory.

use gpu_core::{Absent, Bytes, DeviceId, DeviceProcess, ErrorKind, GpuBackend, Pid, ProcessTable};
use gpu_sim::{Event, ExternalProcess, Simulation, Use};
use std::path::Path;
use std::time::Duration;

fn used(gpu: u32, mib: u64) -> Use {
    Use { gpu, mig: None, mib, utilization_percent: None }
}

fn external(pid: u32, start_ticks: u64, uses: &[Use]) -> ExternalProcess {
    ExternalProcess { pid, start_ticks, uses: uses.to_vec() }
}

fn pids(session: &Path) -> Vec<u32> {
    ExternalProcess::named(session).unwrap().iter().map(|external| external.pid).collect()
}

#[test]
fn announced_processes_are_listed_oldest_first_until_they_leave() {
    let session = tempfile::tempdir().unwrap();
    let late = external(5, 700, &[used(0, 1), used(3, 2)]);
    assert_eq!(late.enter(session.path()).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(ExternalProcess::named(session.path()).unwrap_err().kind(), ErrorKind::Io);
    ExternalProcess::admit(session.path()).unwrap();
    assert_eq!(ExternalProcess::admit(session.path()).unwrap_err().kind(), ErrorKind::Io);
    assert!(pids(session.path()).is_empty());
    let share = Use { mig: Some(2), utilization_percent: Some(100), ..used(0, 1) };
    let early = external((1 << 22) - 1, 600, &[share]);
    late.enter(session.path()).unwrap();
    early.enter(session.path()).unwrap();
    let found = ExternalProcess::named(session.path()).unwrap();
    assert_eq!(found, [early.clone(), late.clone()]);
    early.leave(session.path()).unwrap();
    early.leave(session.path()).unwrap();
    assert_eq!(pids(session.path()), [5]);
    let path = session.path().join(ExternalProcess::DIR).join("5-700");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(late.leave(session.path()).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn malformed_announcements_are_skipped() {
    let session = tempfile::tempdir().unwrap();
    ExternalProcess::admit(session.path()).unwrap();
    let above = Use { utilization_percent: Some(101), ..used(0, 1) };
    for wrong in [
        external(0, 1, &[used(0, 1)]),
        external(1 << 22, 1, &[used(0, 1)]),
        external(6, 1, &[]),
        external(7, 1, &[used(0, 1), used(0, 2)]),
        external(8, 1, &[above]),
        external(9, 1, &[used(0, 1), Use { gpu: 1, ..above }]),
    ] {
        wrong.enter(session.path()).unwrap();
    }
    let dir = session.path().join(ExternalProcess::DIR);
    let right = external(10, 1, &[used(0, 1)]);
    let text = serde_json::to_string(&right).unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write("11-1", &text);
    write("10-2", &text);
    write("12-1", "nonsense");
    write("10-1", &format!("{text}{}", " ".repeat((1 << 16) + 1 - text.len())));
    assert!(pids(session.path()).is_empty(), "wrong names, no JSON, and one byte too much");
    write("10-1", &format!("{text}{}", " ".repeat((1 << 16) - text.len())));
    assert_eq!(pids(session.path()), [10]);
}

/// Starts a machine with a device, and one in MIG mode, each with a process.
fn start() -> Simulation {
    let dir = tempfile::tempdir().unwrap();
    let text = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nmemory_total_mib = 1000\n\
        [[gpu]]\nindex = 1\nmemory_total_mib = 1000\nmig_enabled = true\n\
        mig = [{ index = 0, gpu_instance = 5, compute_instance = 1, memory_total_mib = 500 }, \
               { index = 1, gpu_instance = 6, compute_instance = 2, memory_total_mib = 500 }]\n\
        [[process]]\npid = 7\nname = 'a'\nmemory = [{ gpu = 0, mib = 600 }]\n";
    std::fs::write(dir.path().join("machine.toml"), text).unwrap();
    Simulation::named(dir.path()).unwrap()
}

fn listed(simulation: &Simulation, gpu: u32) -> Vec<DeviceProcess> {
    GpuBackend::processes(simulation, &DeviceId::from_index(gpu)).unwrap()
}

#[test]
fn external_process_uses_free_memory_until_it_exits() {
    let simulation = start();
    simulation.advance_to(Duration::from_secs(3));
    let share = Use { utilization_percent: Some(30), ..used(0, 900) };
    let inside = Use { mig: Some(1), ..used(1, 20) };
    simulation.external(&external(90, 1, &[share, inside, used(9, 5)]));
    let entry = |gpu: u32| listed(&simulation, gpu).into_iter().find(|p| p.pid == Pid(90)).unwrap();
    assert_eq!(entry(0).memory, Ok(Bytes::from_mib(400)));
    assert_eq!((entry(0).gpu_instance, entry(0).compute_instance), (None, None));
    assert_eq!((entry(1).gpu_instance, entry(1).compute_instance), (Some(6), Some(2)));
    assert_eq!(entry(1).memory, Ok(Bytes::from_mib(20)));
    let device = simulation.sample(&DeviceId::from_index(0)).unwrap();
    assert!(device.utilization.unwrap().get().abs_diff(30) <= 4);
    simulation.happen(Event::Exit(Pid(90)));
    assert_eq!(listed(&simulation, 1), []);

    simulation.external(&external(91, 1, &[used(1, 1)]));
    let entry = &listed(&simulation, 1)[0];
    assert_eq!((entry.gpu_instance, entry.utilization), (None, Err(Absent::NotSupported)));
}

#[test]
fn external_process_displaces_simulated_one_with_same_pid() {
    let simulation = start();
    let own = simulation.own_ancestry().unwrap();
    let first_impossible = 1 << 22;
    simulation.external(&external(7, 1, &[used(0, 1)]));
    let pids: Vec<u32> = listed(&simulation, 0).iter().map(|process| process.pid.0).collect();
    assert_eq!(pids, [7, first_impossible]);
    let moved = ProcessTable::process(&simulation, Pid(first_impossible)).unwrap();
    assert_eq!(moved.name, "a");
    assert_eq!(simulation.own_ancestry().unwrap(), own);

    simulation.external(&external(own[0].pid.0, 1, &[used(0, 1)]));
    let line: Vec<_> = simulation.own_ancestry().unwrap().iter().map(|key| key.pid).collect();
    assert_eq!(line, [Pid(first_impossible + 1), own[1].pid, own[2].pid]);
}
