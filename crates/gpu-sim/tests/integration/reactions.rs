//! The reaction of each kind of process to a signal, and when its memory is returned.

use gpu_core::{
    ActToken, Bytes, Clock, DeviceEventKind, DeviceFiles, DeviceId, ErrorKind, GpuBackend, Pid,
    ProcessFault, ProcessHandle, ProcessState, ProcessTable, Signal,
};
use gpu_sim::{Event, Machine, Seed, Simulation};
use std::path::Path;
use std::time::Duration;

/// Starts a machine with one 24 GiB device, 11 MiB of it used by the driver, and the content of
/// `more`.
fn machine(more: &str) -> Simulation {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), more);
    Simulation::start(Machine::from_dir(dir.path()).unwrap(), Seed(1))
}

fn write(dir: &Path, more: &str) {
    let text = format!(
        "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
         [[gpu]]\nindex = 0\nmemory_total_mib = 24576\ndriver_reserve_mib = 11\n{more}"
    );
    std::fs::write(dir.join("machine.toml"), text).unwrap();
}

/// Starts a machine with a holder of 1000 MiB that has these reactions.
fn holder(reactions: &str) -> Simulation {
    machine(&format!(
        "[[process]]\npid = 4711\nname = 'python'\nuser = 'alice'\n\
         memory = [{{ gpu = 0, mib = 1000 }}]\nmemory_returns_after_ms = 400\n{reactions}"
    ))
}

fn used_mib(simulation: &Simulation) -> u64 {
    simulation.sample(&DeviceId::from_index(0)).unwrap().memory.used.unwrap().mib()
}

fn send(simulation: &Simulation, pid: u32, signal: Signal) -> Box<dyn ProcessHandle> {
    let handle = simulation.open(Pid(pid)).unwrap();
    handle.signal(signal, &ActToken::user_confirmed()).unwrap();
    handle
}

fn pass(simulation: &Simulation, millis: u64) {
    simulation.sleep(Duration::from_millis(millis));
}

#[test]
fn process_exits_on_sigterm_and_memory_returns_later() {
    let simulation = holder("on_term = { exits_after_ms = 300 }");
    let handle = send(&simulation, 4711, Signal::Term);
    pass(&simulation, 299);
    assert!(!handle.has_exited().unwrap());
    assert_eq!(used_mib(&simulation), 1011);
    pass(&simulation, 1);
    assert!(handle.has_exited().unwrap());
    assert_eq!(used_mib(&simulation), 1011, "the process is gone, its memory not yet free");
    pass(&simulation, 399);
    assert_eq!(used_mib(&simulation), 1011);
    pass(&simulation, 1);
    assert_eq!(used_mib(&simulation), 11);
    let again = handle.signal(Signal::Kill, &ActToken::user_confirmed()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Process(ProcessFault::Gone));
    assert_eq!(simulation.signals().len(), 1, "a refused signal reaches no process");
}

#[test]
fn process_ignoring_sigterm_dies_on_sigkill() {
    let simulation = holder("on_term = 'ignores'\non_kill = { exits_after_ms = 50 }");
    let handle = send(&simulation, 4711, Signal::Term);
    pass(&simulation, 60_000);
    assert!(!handle.has_exited().unwrap());
    handle.signal(Signal::Kill, &ActToken::user_confirmed()).unwrap();
    pass(&simulation, 50);
    assert!(handle.has_exited().unwrap());
}

#[test]
fn sigkill_hastens_slow_exit() {
    let simulation = holder("on_term = { exits_after_ms = 30000 }");
    let handle = send(&simulation, 4711, Signal::Term);
    pass(&simulation, 10_000);
    handle.signal(Signal::Kill, &ActToken::user_confirmed()).unwrap();
    pass(&simulation, 100);
    assert!(handle.has_exited().unwrap());
}

#[test]
fn uninterruptible_process_dies_when_its_wait_ends() {
    let simulation = holder("on_kill = { stuck_until_ms = 5000 }");
    let handle = send(&simulation, 4711, Signal::Kill);
    assert_eq!(handle.info().unwrap().state, Ok(ProcessState::Uninterruptible));
    pass(&simulation, 4999);
    assert!(!handle.has_exited().unwrap());
    pass(&simulation, 1);
    assert!(handle.has_exited().unwrap());

    let simulation = holder("on_kill = { stuck_until_ms = 5000 }");
    pass(&simulation, 6000);
    let handle = simulation.open(Pid(4711)).unwrap();
    assert_eq!(handle.info().unwrap().state, Ok(ProcessState::Sleeping), "the wait is over");

    let simulation = holder("on_kill = 'stuck'");
    let handle = send(&simulation, 4711, Signal::Kill);
    pass(&simulation, 86_400_000);
    assert!(!handle.has_exited().unwrap());
    assert_eq!(used_mib(&simulation), 1011);
}

#[test]
fn zombie_with_live_threads_holds_device() {
    let simulation = holder("threads = 4\non_term = 'leaves_threads'");
    let handle = send(&simulation, 4711, Signal::Term);
    let info = handle.info().unwrap();
    assert_eq!((info.state, info.live_threads), (Ok(ProcessState::Zombie), Ok(3)));
    assert!(!handle.has_exited().unwrap());
    let files = simulation.device_files().unwrap();
    let scan = simulation.holders(&files).unwrap();
    let found = scan.holders.iter().find(|holder| holder.process.pid == Pid(4711)).unwrap();
    assert_eq!(found.through_thread, Some(Pid(4712)));
    assert_eq!(used_mib(&simulation), 1011);
    handle.signal(Signal::Kill, &ActToken::user_confirmed()).unwrap();
    pass(&simulation, 1000);
    assert_eq!(used_mib(&simulation), 11);
}

#[test]
fn zombie_without_threads_has_exited() {
    let simulation =
        machine("[[process]]\npid = 4711\nname = 'python'\nstate = 'zombie'\nthreads = 0");
    let handle = simulation.open(Pid(4711)).unwrap();
    assert!(handle.has_exited().unwrap());
    assert_eq!(
        handle.signal(Signal::Kill, &ActToken::user_confirmed()).unwrap_err().kind(),
        ErrorKind::Process(ProcessFault::Gone)
    );
}

#[test]
fn live_supervisor_respawns_worker() {
    let supervised = "parent = 900\nrespawns_after_ms = 300\n\
                      [[process]]\npid = 900\nname = 'supervisord'\nuid = 0\n";
    let simulation = holder(supervised);
    let first = send(&simulation, 4711, Signal::Kill);
    pass(&simulation, 1000);
    assert!(first.has_exited().unwrap());
    let workers = || -> Vec<_> {
        let processes = ProcessTable::processes(&simulation).unwrap().processes;
        processes.into_iter().filter(|process| process.name == "python").collect()
    };
    let second = workers();
    assert_eq!(second.len(), 1);
    assert_ne!(second[0].key.pid, Pid(4711));
    assert_eq!(used_mib(&simulation), 1011);

    simulation.happen(Event::Exit(Pid(900)));
    send(&simulation, second[0].key.pid.0, Signal::Kill);
    pass(&simulation, 10_000);
    assert!(workers().is_empty());
    assert_eq!(used_mib(&simulation), 11);
}

#[test]
fn reused_pid_is_not_reached_by_old_handle() {
    let reused = "[[event]]\nafter_exit_of = 4711\nafter_ms = 20\n\
                  start = { pid = 4711, name = 'sshd', uid = 0 }\n";
    let simulation = holder(reused);
    let old = send(&simulation, 4711, Signal::Kill);
    let before = old.info().unwrap().key;
    pass(&simulation, 200);
    let new = simulation.open(Pid(4711)).unwrap();
    let after = new.info().unwrap();
    assert_eq!(after.name, "sshd");
    assert!(!before.definitely_same(&after.key));
    assert!(old.has_exited().unwrap());
    assert_eq!(
        old.signal(Signal::Kill, &ActToken::user_confirmed()).unwrap_err().kind(),
        ErrorKind::Process(ProcessFault::Gone)
    );
    assert!(simulation.signals().iter().all(|sent| sent.name == "python"));
}

#[test]
fn pid_in_use_is_never_reassigned() {
    let simulation =
        holder("[[event]]\nat_ms = 10\nstart = { pid = 4711, name = 'other', uid = 0 }\n");
    pass(&simulation, 10);
    assert_eq!(ProcessTable::process(&simulation, Pid(4711)).unwrap().name, "python");
    let list = ProcessTable::processes(&simulation).unwrap().processes;
    let pid_of = |name: &str| list.iter().find(|p| p.name == name).map(|p| p.key.pid);
    assert_eq!(pid_of("python"), Some(Pid(4711)));
    assert!(pid_of("other").is_some_and(|pid| pid != Pid(4711)));
}

#[test]
fn pid_reused_within_one_tick_is_another_process() {
    let simulation = holder("");
    let mut keys = vec![ProcessTable::process(&simulation, Pid(4711)).unwrap()];
    for _ in 0..3 {
        simulation.happen(Event::Exit(Pid(4711)));
        let next = gpu_sim::Process::new(keys[0].clone());
        simulation.happen(Event::Start(Box::new(next)));
        let new = ProcessTable::process(&simulation, Pid(4711)).unwrap();
        assert!(keys.iter().all(|old| !old.key.definitely_same(&new.key)));
        keys.push(new);
    }
}

#[test]
fn memory_returned_during_sleep_can_be_reallocated() {
    let simulation = holder(
        "[[process]]\npid = 5000\nname = 'other'\nuid = 0\nmemory = [{ gpu = 0, mib = 23000 }]\n\
         [[event]]\nat_ms = 100\nexit = 4711\n\
         [[event]]\nat_ms = 600\nuses = { pid = 5000, gpu = 0, mib = 24000, utilization_percent = 1 }\n",
    );
    pass(&simulation, 1000);
    assert_eq!(used_mib(&simulation), 24_011);
}

#[test]
fn process_has_no_files_or_memory_of_released_device() {
    let simulation = holder("[[event]]\nat_ms = 1000\nlet_go = { pid = 4711 }\n");
    let handle = simulation.open(Pid(4711)).unwrap();
    let files = simulation.device_files().unwrap();
    assert_eq!(handle.held(&files).unwrap().len(), 3);
    pass(&simulation, 1000);
    assert_eq!(handle.held(&files).unwrap(), []);
    pass(&simulation, 400);
    assert_eq!(used_mib(&simulation), 11);
}

#[test]
fn leaked_memory_stays_until_reset() {
    let simulation = holder("leaks_memory = true");
    send(&simulation, 4711, Signal::Kill);
    pass(&simulation, 3_600_000);
    assert_eq!(used_mib(&simulation), 1011);
    let device = DeviceId::from_index(0);
    simulation.reset(&device, &ActToken::user_confirmed()).unwrap();
    assert_eq!(used_mib(&simulation), 11);
}

#[test]
fn memory_is_never_overcommitted() {
    let simulation = holder(
        "respawns_after_ms = 100\nparent = 1\n\
         [[process]]\npid = 5000\nname = 'other'\nuid = 0\nmemory = [{ gpu = 0, mib = 23000 }]\n\
         [[event]]\nat_ms = 10\nuses = { pid = 4711, gpu = 0, mib = 5000, utilization_percent = 1 }\n",
    );
    pass(&simulation, 10);
    assert_eq!(used_mib(&simulation), 24_576);
    send(&simulation, 4711, Signal::Kill);
    pass(&simulation, 200);
    assert_eq!(used_mib(&simulation), 24_576, "the next one starts before the memory is back");
    pass(&simulation, 400);
    assert_eq!(used_mib(&simulation), 23_011, "and so it got none");
}

#[test]
fn events_fire_in_order_within_one_sleep() {
    let simulation = holder(
        "[[event]]\nat_ms = 20\nuses = { pid = 4711, gpu = 0, mib = 3000, utilization_percent = 5 }\n\
         [[event]]\nat_ms = 10\nuses = { pid = 4711, gpu = 0, mib = 2000, utilization_percent = 9 }\n\
         [[event]]\nat_ms = 30\njoins_group = { pid = 4711, group = 7 }\n\
         [[event]]\nat_ms = 30\njoins_cgroup = { pid = 4711, cgroup = '/elsewhere' }\n",
    );
    pass(&simulation, 100);
    assert_eq!(used_mib(&simulation), 3011);
    let info = ProcessTable::process(&simulation, Pid(4711)).unwrap();
    assert_eq!((info.group, info.cgroup), (Ok(Pid(7)), Ok("/elsewhere".to_owned())));
}

#[test]
fn cpu_time_advances_only_while_computing() {
    let simulation = holder(
        "cpu_percent = 250\ncpu_time_ms = 1000\n\
         [[process]]\npid = 5000\nname = 'idle'\nuid = 0\ncpu_time_ms = 7\n\
         [[event]]\nat_ms = 10000\ncomputes = { pid = 4711, cpu_percent = 0 }\n",
    );
    let time = |pid| ProcessTable::process(&simulation, Pid(pid)).unwrap().cpu_time.unwrap();
    pass(&simulation, 4000);
    assert_eq!(time(4711), Duration::from_millis(11_000));
    pass(&simulation, 60_000);
    assert_eq!(time(4711), Duration::from_millis(26_000));
    assert_eq!(time(5000), Duration::from_millis(7));
}

#[test]
fn orphans_are_reparented_to_init() {
    let simulation = holder("parent = 900\n[[process]]\npid = 900\nname = 'launcher'\nuid = 0\n");
    simulation.happen(Event::Exit(Pid(900)));
    assert_eq!(ProcessTable::process(&simulation, Pid(4711)).unwrap().parent, Ok(Pid(1)));
}

#[test]
fn init_and_kernel_threads_ignore_signals() {
    let simulation =
        machine("[[process]]\npid = 12\nname = 'kthreadd'\nkernel_thread = true\nuid = 0\n");
    for pid in [1, 12] {
        let handle = send(&simulation, pid, Signal::Kill);
        pass(&simulation, 60_000);
        assert!(!handle.has_exited().unwrap(), "{pid}");
    }
    assert_eq!(simulation.signals().len(), 2, "but it shows that they were sent one");
}

#[test]
fn device_memory_matches_machine() {
    let simulation = machine("");
    let sample = simulation.sample(&DeviceId::from_index(0)).unwrap();
    assert_eq!(sample.memory.total, Ok(Bytes::from_mib(24_576)));
    assert_eq!(sample.memory.used, Ok(Bytes::from_mib(11)));
    assert_eq!(sample.utilization.unwrap().get(), 0);
}

#[test]
fn device_event_is_awaited_and_fetched_once() {
    let simulation = machine(
        "[[event]]\nat_ms = 500\nreports = { gpu = 0, xid = 79 }\n\
         [[event]]\nat_ms = 500\nreports = { gpu = 0, xid = 13 }\n\
         [[event]]\nat_ms = 3000\nreports = { gpu = 0, xid = 48 }\n",
    );
    let xids = |wait: u64| -> Vec<_> {
        let reported = simulation.events(Duration::from_millis(wait)).unwrap();
        assert!(reported.iter().all(|event| event.device == Some(0)));
        reported.into_iter().map(|event| event.kind).collect()
    };
    assert_eq!(xids(499), []);
    assert_eq!(simulation.elapsed(), Duration::from_millis(499), "a quiet wait lasts");
    assert_eq!(xids(10_000), [DeviceEventKind::Error(79), DeviceEventKind::Error(13)]);
    assert_eq!(simulation.elapsed(), Duration::from_millis(500), "and one that is answered ends");
    assert_eq!(xids(0), []);
    simulation.sleep(Duration::from_secs(10));
    assert_eq!(xids(0), [DeviceEventKind::Error(48)], "unfetched events are kept");
    assert_eq!(simulation.elapsed(), Duration::from_millis(10_500));
    assert!(simulation.sample(&DeviceId::from_index(0)).is_ok(), "the device works on");
}

#[test]
fn process_releases_one_device_and_keeps_the_others() {
    let simulation = machine(
        "[[gpu]]\nindex = 1\nminor = 5\nmemory_total_mib = 100\n\
         [[process]]\npid = 7\nname = 'a'\nmemory_returns_after_ms = 100\n\
         memory = [{ gpu = 0, mib = 10 }, { gpu = 1, mib = 20 }]\n\
         [[event]]\nat_ms = 10\nlet_go = { pid = 7, gpu = 1 }\n",
    );
    let used = |gpu| simulation.sample(&DeviceId::from_index(gpu)).unwrap().memory.used.unwrap();
    let files = simulation.device_files().unwrap();
    let handle = simulation.open(Pid(7)).unwrap();
    assert_eq!(handle.held(&files).unwrap().len(), 4);
    pass(&simulation, 109);
    assert_eq!((used(0), used(1)), (Bytes::from_mib(21), Bytes::from_mib(20)));
    pass(&simulation, 1);
    assert_eq!((used(0), used(1)), (Bytes::from_mib(21), Bytes(0)));
    let held = handle.held(&files).unwrap();
    let mut held: Vec<&str> = held.iter().map(|file| &*file.path).collect();
    held.sort_unstable();
    assert_eq!(held, ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]);
}

#[test]
fn respawned_worker_leads_its_own_group_and_keeps_its_session() {
    let simulation = holder(
        "parent = 900\nrespawns_after_ms = 300\nsession = 900\n\
         [[process]]\npid = 900\nname = 'supervisord'\nuid = 0\n",
    );
    send(&simulation, 4711, Signal::Kill);
    pass(&simulation, 1000);
    let processes = ProcessTable::processes(&simulation).unwrap().processes;
    let worker = processes.into_iter().find(|process| process.name == "python").unwrap();
    assert_ne!(worker.key.pid, Pid(4711));
    assert_eq!((worker.group, worker.session), (Ok(worker.key.pid), Ok(Pid(900))));
    assert_eq!(worker.cpu_time, Ok(Duration::ZERO));
    // It started 0.4 s after the start of the simulation.
    assert_eq!(worker.started_at.unwrap().0, 1_740_996_000_400);
}

#[test]
fn added_device_use_is_listed_with_memory_and_load() {
    let simulation = holder(
        "[[gpu]]\nindex = 1\nmemory_total_mib = 100\n\
         [[event]]\nat_ms = 10\nuses = { pid = 4711, gpu = 1, mib = 70, utilization_percent = 35 }\n",
    );
    pass(&simulation, 10);
    let second = DeviceId::from_index(1);
    let listed = GpuBackend::processes(&simulation, &second).unwrap();
    assert_eq!((listed[0].pid, listed[0].memory), (Pid(4711), Ok(Bytes::from_mib(70))));
    assert_eq!(simulation.sample(&second).unwrap().utilization.unwrap().get(), 35);
    assert_eq!(used_mib(&simulation), 1011, "in addition to that on the first device");
}
