//! A session is a directory that several processes open; each sees the same machine at the same
//! time.

use gpu_core::{
    ErrorKind, GpuBackend, Groups, Observation, Pid, ProcessTable, Snapshot, observe_in_detail,
};
use gpu_sim::{CallEffect, CallFault, Event, Machine, Placeholder, Session, Simulation};
use proptest::prelude::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

fn session(machine: &str) -> Session {
    Session { machine: machine.into(), seed: 7, began_ns: 5_000_000_000, ..Session::default() }
}

fn take_snapshot(simulation: &Simulation) -> Snapshot {
    let all = Observation { groups: Groups::all(), ..Observation::default() };
    observe_in_detail(simulation, simulation, simulation, all)
}

fn refused(dir: &Path) -> (ErrorKind, String) {
    let error = Session::read(dir).unwrap_err();
    (error.kind(), error.fault().text)
}

#[test]
fn session_round_trips_with_private_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = session("labbox");
    for (effect, gpu) in [(CallEffect::Returns(15), Some(1)), (CallEffect::Hangs, None)] {
        let function = "nvmlDeviceGetMemoryInfo_v2".to_owned();
        written.faults.push(CallFault { function, gpu, from: 2, times: Some(3), effect });
    }
    written.placeholders.push(Placeholder { simulated: 21_044, pid: 7000, start_ticks: 12 });
    for frozen in [None, Some(1500)] {
        written.frozen_at_ms = frozen;
        written.write(dir.path()).unwrap();
        assert_eq!(Session::read(dir.path()).unwrap(), written);
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(names.len(), 1, "no other file remains");
    assert_eq!(names[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(written.elapsed(9_000_000_000), Duration::from_millis(1500));
    assert_eq!(session("labbox").elapsed(9_000_000_000), Duration::from_secs(4));
    assert_eq!(session("labbox").elapsed(0), Duration::ZERO);
}

#[test]
fn invalid_session_is_rejected_with_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(Session::FILE);
    let (kind, reported) = refused(dir.path());
    assert_eq!(kind, ErrorKind::Io);
    assert!(reported.contains(&format!("read session '{}'", file.display())), "{reported}");
    assert!(
        reported
            .contains("GPUWS_SIM_SESSION must name the session directory of your own 'gpuws sim'"),
        "{reported}"
    );

    std::fs::create_dir(&file).unwrap();
    assert_eq!(refused(dir.path()).0, ErrorKind::Invalid);
    std::fs::remove_dir(&file).unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    session("labbox").write(elsewhere.path()).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join(Session::FILE), &file).unwrap();
    let (kind, reported) = refused(dir.path());
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(reported.ends_with("it is a symbolic link or not a regular file"), "{reported}");
    session("p100-ghost").write(dir.path()).unwrap();
    assert_eq!(Session::read(elsewhere.path()).unwrap(), session("labbox"), "the link is replaced");

    for text in ["", "{}", "\x7fELF", r#"{"machine":"labbox","began_ns":1,"sed":2}"#] {
        std::fs::write(&file, text).unwrap();
        let (kind, reported) = refused(dir.path());
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(reported.contains("invalid session: "), "{reported}");
    }
    std::fs::File::create(&file).unwrap().set_len(100 << 20).unwrap();
    let (kind, reported) = refused(dir.path());
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(reported.ends_with("it is larger than 1 MiB"), "{reported}");

    let nowhere = dir.path().join("nowhere");
    assert_eq!(session("labbox").write(&nowhere).unwrap_err().kind(), ErrorKind::Io);
    let mut large = session("labbox");
    large.machine = "x".repeat(2 << 20).into();
    assert_eq!(large.write(dir.path()).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn session_writable_by_others_is_rejected_with_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(Session::FILE);
    session("labbox").write(dir.path()).unwrap();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let owner = dir.path().metadata().unwrap().uid();
    for (path, right, wrong) in [(dir.path(), 0o700, 0o777), (&file, 0o600, 0o620)] {
        allow(path, wrong);
        let (kind, reported) = refused(dir.path());
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(reported.contains("session directory of your own 'gpuws sim'"), "{reported}");
        let why = format!("belongs to user {owner} and is writable by others (mode {wrong:o})");
        assert!(reported.ends_with(&why), "{reported}");
        allow(path, right);
    }
    // Only root can change the owner of a file.
    if owner == 0 {
        for path in [&file, dir.path()] {
            if std::os::unix::fs::chown(path, Some(54_321), None).is_err() {
                break; // Even root may lack the right.
            }
            let (kind, reported) = refused(dir.path());
            assert_eq!(kind, ErrorKind::Invalid);
            assert!(
                reported.ends_with("belongs to user 54321, neither to you (user 0) nor to root")
            );
            std::os::unix::fs::chown(path, Some(0), None).unwrap();
        }
    }
    assert_eq!(Session::read(dir.path()).unwrap(), session("labbox"));
}

#[test]
fn machine_loads_by_name_dir_file_or_recording() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines/labbox");
    let embedded = Machine::embedded("labbox").unwrap();
    for path in [Path::new("labbox"), &dir, &dir.join("machine.toml")] {
        assert_eq!(Machine::named(path).unwrap(), embedded, "{}", path.display());
    }
    let (kind, reported) = {
        let error = session("labbx").open().unwrap_err();
        (error.kind(), error.fault().text)
    };
    assert_eq!(kind, ErrorKind::Invalid);
    assert_eq!(
        reported,
        "find machine 'labbx': no built-in machine, directory or file has this name; \
         did you mean 'labbox'?"
    );
    let no_recording = dir.join("../p100-ghost/fuser.txt");
    let error = Machine::named(&no_recording).unwrap_err();
    assert!(error.fault().text.contains("not a recording"), "{}", error.fault().text);
    // A machine may exist at a path that cannot be searched, so the result is the search error.
    let unsearchable = Path::new("/").join("x".repeat(300));
    let error = Machine::named(&unsearchable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.fault().text.contains("File name too long"), "{}", error.fault().text);
    assert!(Machine::name_of(&unsearchable).is_some());
    assert_eq!(Machine::name_of(Path::new("/dev/null/x")), None);
}

#[test]
fn advance_to_never_goes_back() {
    let simulation = session("labbox").open().unwrap();
    for (to, now) in [(1500, 1500), (700, 1500), (1500, 1500), (60_000, 60_000)] {
        simulation.advance_to(Duration::from_millis(to));
        assert_eq!(simulation.elapsed(), Duration::from_millis(now));
    }
    assert!(simulation.calls().is_empty(), "that is no call of a port");
}

#[test]
fn placeholder_pid_replaces_simulated_pid_everywhere() {
    let mut session = session("respawning-worker");
    session.placeholders = vec![
        Placeholder { simulated: 900, pid: 30_900, start_ticks: 1 },
        // This PID belongs to another process on the simulated machine.
        Placeholder { simulated: 4711, pid: 900, start_ticks: 1 },
    ];
    let simulation = session.open().unwrap();
    let worker = ProcessTable::process(&simulation, Pid(900)).unwrap();
    assert_eq!((worker.name.as_str(), worker.parent), ("python", Ok(Pid(30_900))));
    assert_eq!(worker.group, Ok(Pid(30_900)));
    assert_eq!(ProcessTable::process(&simulation, Pid(30_900)).unwrap().name, "supervisord");
    assert!(ProcessTable::process(&simulation, Pid(4711)).is_err());

    let used =
        |simulation: &Simulation| take_snapshot(simulation).devices[0].memory_used().unwrap().mib();
    simulation.advance_to(Duration::from_secs(100));
    assert_eq!(used(&simulation), 8203);
    simulation.happen(Event::Exit(Pid(900)));
    simulation.advance_to(Duration::from_secs(200));
    assert_eq!(used(&simulation), 11, "it is returned, and no worker respawns");
}

#[test]
fn process_with_taken_pid_gets_another() {
    let mut session = session("labbox");
    session.placeholders = vec![Placeholder { simulated: 21_044, pid: 18_250, start_ticks: 1 }];
    let simulation = session.open().unwrap();
    let listed = |gpu: usize| {
        let id = simulation.devices().unwrap()[gpu].id.clone();
        GpuBackend::processes(&simulation, &id).unwrap()[0].pid
    };
    assert_eq!(listed(0), Pid(18_250));
    assert_eq!(
        ProcessTable::process(&simulation, Pid(18_250)).unwrap().user,
        Ok("alice".to_owned())
    );
    assert_eq!(ProcessTable::process(&simulation, listed(2)).unwrap().user, Ok("bob".to_owned()));
    assert!(![18_250, 21_044].contains(&listed(2).0));
    let id = simulation.devices().unwrap()[0].id.clone();
    let accounting = simulation.details(&id, Groups::all()).unwrap().accounting.unwrap();
    let kept = accounting.processes.unwrap().into_iter().map(|p| (p.pid, p.running));
    assert!(kept.into_iter().any(|account| account == (Ok(Pid(18_250)), Ok(true))));
}

#[test]
fn placeholders_for_unknown_processes_are_rejected() {
    let one = Placeholder { simulated: 21_044, pid: 7000, start_ticks: 1 };
    for wrong in [
        vec![Placeholder { simulated: 1234, ..one }],
        vec![Placeholder { pid: 0, ..one }],
        vec![one, Placeholder { pid: 7001, ..one }],
        vec![one, Placeholder { simulated: 18_250, ..one }],
    ] {
        let mut session = session("labbox");
        session.placeholders = wrong;
        let error = session.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("use process "), "{error}");
    }
}

#[test]
fn scheduled_events_apply_to_placeholders_except_exit() {
    let dir = tempfile::tempdir().unwrap();
    let text = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
        [[gpu]]\nindex = 0\nname = 'G'\nmemory_total_mib = 1000\n\
        [[process]]\npid = 7\nname = 'a'\nmemory = [{ gpu = 0, mib = 10 }]\n\
        [[process]]\npid = 8\nname = 'b'\nparent = 7\nmemory = [{ gpu = 0, mib = 20 }]\n\
        [[event]]\nat_ms = 10\nuses = { pid = 7, gpu = 0, mib = 100, utilization_percent = 5 }\n\
        [[event]]\nat_ms = 20\nexit = 7\n\
        [[event]]\nat_ms = 30\nexit = 8\n\
        [[event]]\nat_ms = 40\njoins_group = { pid = 7, group = 8 }\n\
        [[event]]\nafter_exit_of = 7\nstart = { pid = 9, name = 'c', parent = 8 }\n";
    std::fs::write(dir.path().join("machine.toml"), text).unwrap();
    let mut session = session(dir.path().to_str().unwrap());
    session.placeholders = vec![Placeholder { simulated: 7, pid: 8, start_ticks: 1 }];
    let simulation = session.open().unwrap();
    simulation.advance_to(Duration::from_secs(10));
    let listed = take_snapshot(&simulation).devices[0].processes.clone().unwrap();
    let listed: Vec<_> = listed.iter().map(|p| (p.pid.0, p.memory.unwrap().mib())).collect();
    assert_eq!(listed, [(8, 100)], "the end of the renumbered one is its own");
    assert_eq!(ProcessTable::process(&simulation, Pid(8)).unwrap().name, "a");
    assert_eq!(
        ProcessTable::process(&simulation, Pid(8)).unwrap().group,
        Ok(Pid(10)),
        "9 comes later"
    );
    simulation.happen(Event::Exit(Pid(8)));
    let names = |simulation: &Simulation| -> Vec<String> {
        let list = ProcessTable::processes(simulation).unwrap();
        list.processes.into_iter().map(|process| process.name).collect()
    };
    simulation.advance_to(Duration::from_secs(20));
    assert!(names(&simulation).contains(&"c".to_owned()), "{:?}", names(&simulation));
}

#[test]
fn machine_is_named_without_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("box")).unwrap();
    for name in ["box/machine.toml", "r.jsonl"] {
        std::fs::write(path(name), "nonsense").unwrap();
    }
    for (machine, name) in [
        ("labbox".into(), Some("labbox")),
        ("crowd:3x4".into(), Some("crowd:3x4")),
        (path("box"), Some("box")),
        (path("box/machine.toml"), Some("box")),
        (path("r.jsonl"), Some("r")),
        (path("none"), None),
        ("./labbox".into(), None),
        ("labbx".into(), None),
    ] {
        assert_eq!(Machine::name_of(&machine).as_deref(), name, "{}", machine.display());
        let session = Session { machine, ..Session::default() };
        assert_eq!(session.machine_name().as_deref(), name);
    }
}

#[test]
fn session_file_replaces_incomplete_write() {
    let dir = tempfile::tempdir().unwrap();
    let unfinished = dir.path().join(format!("{}.{}", Session::FILE, std::process::id()));
    std::fs::write(&unfinished, "half").unwrap();
    session("labbox").write(dir.path()).unwrap();
    assert_eq!(Session::read(dir.path()).unwrap(), session("labbox"));
    assert!(!unfinished.exists());
    std::fs::create_dir(&unfinished).unwrap();
    assert_eq!(session("p100-ghost").write(dir.path()).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(Session::read(dir.path()).unwrap(), session("labbox"), "the old one is whole");
}

#[test]
fn session_of_the_largest_size_is_read() {
    let dir = tempfile::tempdir().unwrap();
    session("labbox").write(dir.path()).unwrap();
    let file = dir.path().join(Session::FILE);
    let text = std::fs::read_to_string(&file).unwrap();
    for (size, is_read) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        std::fs::write(&file, format!("{text}{}", " ".repeat(size - text.len()))).unwrap();
        assert_eq!(Session::read(dir.path()).is_ok(), is_read, "{size}");
    }
    let mut large = session("");
    let written = serde_json::to_vec(&large).unwrap().len();
    large.machine = "x".repeat((1 << 20) - written).into();
    large.write(dir.path()).unwrap();
    large.machine = "x".repeat((1 << 20) - written + 1).into();
    assert_eq!(large.write(dir.path()).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn session_is_live_with_placeholders_or_live_flag() {
    let placeholder = Placeholder { simulated: 1, pid: 2, start_ticks: 3 };
    for (live, placeholders, is_live) in [
        (false, vec![], false),
        (true, vec![], true),
        (false, vec![placeholder], true),
        (true, vec![placeholder], true),
    ] {
        let session = Session { live, placeholders, ..session("labbox") };
        assert_eq!(session.is_live(), is_live);
    }
    let fault: CallFault =
        serde_json::from_str(r#"{ "function": "*", "effect": "hangs" }"#).unwrap();
    assert_eq!((fault.from, fault.times, fault.gpu), (1, None, None), "every call, by default");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A process that opens a session early and reads it often sees the same state as one that
    /// opens it late.
    #[test]
    fn session_state_depends_only_on_time(seed: u64, times in prop::collection::vec(0u64..90_000, 1..6)) {
        let end = Duration::from_millis(times.iter().copied().max().unwrap());
        for machine in gpu_sim::machines() {
            let mut session = session(machine.name);
            session.seed = seed;
            let (often, once) = (session.open().unwrap(), session.open().unwrap());
            for time in &times {
                often.advance_to(Duration::from_millis(*time));
                take_snapshot(&often);
            }
            once.advance_to(end);
            prop_assert_eq!(often.elapsed(), end);
            prop_assert_eq!(take_snapshot(&often), take_snapshot(&once), "{}", machine.name);
        }
    }
}
