//! Sessions visible to other programs: their directory, their placeholders, and their host.

use gpu_core::{
    Absent, Access, ActToken, Clock, DeviceFiles, DriverView, Error, ErrorKind, Executable, FileId,
    HeldFile, Host, LeaseId, MockClock, MockHost, MockProcessHandle, Origin, Pid, ProcessFault,
    ProcessInfo, ProcessKey, ProcessList, ProcessTable, Signal, StartTime, Timestamp,
};
use gpu_sim::live::{ACTOR, Dir, LIBRARY, LiveError, PlaceholderProcesses, SessionHost};
use gpu_sim::{ExternalProcess, Machine, Placeholder, Session};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CLOCK: u64 = 1_740_996_000_000;

/// Creates a file that is marked as a simulated NVML.
fn library(dir: &Path) -> PathBuf {
    let path = dir.join(LIBRARY);
    std::fs::write(&path, b"\x7fELF..\0gpuwsSimulatedMachine\0..").unwrap();
    path
}

fn machine(dir: &Path, more: &str) -> PathBuf {
    let text = format!("description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n{more}");
    let machine = dir.join("box");
    std::fs::create_dir(&machine).unwrap();
    std::fs::write(machine.join("machine.toml"), text).unwrap();
    machine
}

fn refused<T>(result: Result<T, LiveError>) -> LiveError {
    result.err().unwrap()
}

#[test]
fn session_dir_is_private_and_removed_at_the_end() {
    let temp = tempfile::tempdir().unwrap();
    let library = library(temp.path());
    let dir = Dir::make(Some(&library)).unwrap();
    let path = dir.path().to_owned();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for name in ["libnvidia-ml.so.1", "libnvidia-ml.so"] {
        assert_eq!(path.join(name).read_link().unwrap(), library.canonicalize().unwrap());
    }
    let before = std::env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty());
    let mut libraries = path.clone().into_os_string();
    if let Some(before) = before {
        libraries.push(":");
        libraries.push(before);
    }
    let variables = dir.environment();
    assert_eq!(variables[0], ("LD_LIBRARY_PATH", libraries));
    assert_eq!(variables[1], (Session::VARIABLE, path.clone().into_os_string()));
    for (device, inside) in [
        ("/dev/nvidia0", Some("dev/nvidia0")),
        ("/dev/dri/renderD128", Some("dev/dri/renderD128")),
        ("/dev/../etc/passwd", None),
        ("/dev//etc/passwd", None),
        ("/etc/passwd", None),
        ("dev/nvidia0", None),
        ("/dev/a\nb", None),
    ] {
        assert_eq!(dir.device_file(device), inside.map(|inside| path.join(inside)), "{device}");
    }
    std::fs::create_dir_all(path.join("dev/deep")).unwrap();
    std::fs::write(path.join("dev/deep/file"), "x").unwrap();
    drop(dir);
    assert!(!path.exists() && library.exists());
}

#[test]
fn only_simulated_nvml_starts_session() {
    let temp = tempfile::tempdir().unwrap();
    let other = temp.path().join("libother.so");
    std::fs::write(&other, b"\x7fELF..\0gpuwsSimulatedMachin").unwrap();
    for wrong in [&other, temp.path()] {
        let error = refused(Dir::make(Some(wrong)));
        assert!(matches!(&error, LiveError::NotSimulated(path) if path == wrong), "{error:?}");
        assert_eq!(error.to_string(), format!("use '{}' as the simulated NVML", wrong.display()));
        assert!(error.hint().unwrap().contains(LIBRARY));
        let error = Error::from(error);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.fault().text.ends_with("it is not a simulated NVML"));
    }
    let missing = temp.path().join("none.so");
    let error = refused(Dir::make(Some(&missing)));
    assert_eq!((error.hint(), Error::from(error).kind()), (None, ErrorKind::Invalid));
}

#[test]
fn session_errors_have_a_kind_and_a_hint() {
    let (name, program) = (ACTOR.to_owned(), PathBuf::from("/bin/p"));
    for (error, kind, text, hint) in [
        (
            LiveError::Relative("a".into()),
            ErrorKind::Invalid,
            "find simulation session 'a': the session path must be absolute",
            Some("start it with 'gpuws sim'"),
        ),
        (
            LiveError::NotInstalled { name, program },
            ErrorKind::Unsupported,
            "find nvml-sim-process next to /bin/p",
            Some("build it with the same profile"),
        ),
        (
            LiveError::NoPrivateDir(Error::new(ErrorKind::Invalid, "trust '/t'")),
            ErrorKind::Invalid,
            "trust '/t'",
            Some("set TMPDIR to a directory that you own"),
        ),
        (LiveError::Failed(Error::new(ErrorKind::Io, "x")), ErrorKind::Io, "x", None),
    ] {
        let given = error.hint();
        assert_eq!(given.is_some(), hint.is_some(), "{text}");
        assert!(given.unwrap_or_default().starts_with(hint.unwrap_or_default()), "{text}");
        let error = Error::from(error);
        assert_eq!((error.kind(), error.fault().text.as_str()), (kind, text));
    }
}

/// Returns a host that knows the start time of every process.
fn start_times() -> MockHost {
    let mut host = MockHost::new();
    host.expect_process().returning(|pid| {
        let mut info = ProcessInfo::from_name(pid, "a");
        info.key.start = Some(StartTime(u64::from(pid.0) * 10));
        Ok(info)
    });
    host
}

#[test]
fn placeholder_starts_for_each_visible_process_with_a_device() {
    let temp = tempfile::tempdir().unwrap();
    let library = library(temp.path());
    let more = "[[gpu]]\nindex = 0\nmemory_total_mib = 100\n\
        [[process]]\npid = 7\nname = 'python'\ncommand_line = ['python', 'a b.py']\n\
        memory = [{ gpu = 0, mib = 1 }]\non_term = { exits_after_ms = 250 }\n\
        [[process]]\npid = 8\nname = 'idle'\n\
        [[process]]\npid = 9\nname = 'ended'\ngone = true\nmemory = [{ gpu = 0, mib = 1 }]\n\
        [[process]]\npid = 10\nname = 'kernel'\nkernel_thread = true\n\
        files = { '/dev/nvidia0' = 'F....' }\n\
        [[process]]\npid = 11\nname = 'monitor'\nstate = 'stopped'\non_term = 'ignores'\n\
        files = { '/dev/nvidiactl' = 'F....' }\n";
    let mut machine = Machine::named(&machine(temp.path(), more)).unwrap();
    let dir = Dir::make(Some(&library)).unwrap();
    // Writes its configuration to a file, and exits at the end of its standard input.
    let program = |ready: &str| {
        let actor = library.with_file_name(ACTOR);
        let text = format!(
            "#!/bin/sh\nexec 3>\"{}/part-$$\"\necho \"args $*\" >&3\n\
             while read -r line && [ \"$line\" != start ]; do echo \"$line\" >&3; done\n\
             echo {ready}\ncat >/dev/null\n",
            temp.path().display()
        );
        let script = temp.path().join("script");
        std::fs::write(&script, text).unwrap();
        // A child installs the script, because a program that this process has open for writing
        // cannot be executed while a newly forked child of any test holds the inherited descriptor.
        let mut install = std::process::Command::new("install");
        assert!(install.args(["-m", "700"]).arg(script).arg(&actor).status().unwrap().success());
        actor
    };
    let actor = program("ready").canonicalize().unwrap();
    assert_eq!(dir.actor().unwrap(), actor);
    let started = PlaceholderProcesses::start(&machine, &dir, &start_times()).unwrap();
    let simulated: Vec<u32> = started.placeholders.iter().map(|p| p.simulated).collect();
    assert_eq!(simulated, [7, 11]);
    let dev = dir.path().join(Session::DEVICE_FILES);
    let map = |name: &str| format!("map {}\n", dev.join(name).display());
    let expected = [
        format!(
            "args a b.py\nname python\n{}{}{}term 250\n",
            map("nvidia-uvm"),
            map("nvidia0"),
            map("nvidiactl")
        ),
        format!(
            "args \nname monitor\nfile {}\nterm ignored\nstate stopped\n",
            dev.join("nvidiactl").display()
        ),
    ];
    let mut real = Vec::new();
    for (placeholder, expected) in started.placeholders.iter().zip(expected) {
        assert_eq!(placeholder.start_ticks, u64::from(placeholder.pid) * 10);
        let part = temp.path().join(format!("part-{}", placeholder.pid));
        assert_eq!(std::fs::read_to_string(part).unwrap(), expected);
        real.push(format!("/proc/{}", placeholder.pid));
    }
    for name in ["nvidia0", "nvidiactl", "nvidia-uvm"] {
        assert_eq!(dev.join(name).metadata().unwrap().len(), 4096, "{name}");
    }
    assert_eq!(dir.path().join(ACTOR).read_link().unwrap(), actor);
    assert_eq!(ExternalProcess::named(dir.path()).unwrap(), [], "others may join");
    assert!(real.iter().all(|process| Path::new(process).exists()));
    drop(started);
    assert!(!real.iter().any(|process| Path::new(process).exists()));

    let refused = |machine: &Machine| {
        let again = Dir::make(Some(&library)).unwrap();
        let started = PlaceholderProcesses::start(machine, &again, &start_times());
        Error::from(refused(started)).fault().text
    };
    program("broken");
    let why = refused(&machine);
    assert!(why.starts_with("start 'python'"), "{why}");
    machine.processes[0].info.name = "a\nstart".to_owned();
    let why = refused(&machine);
    assert!(why.ends_with("a name contains control characters"), "{why}");
    machine.files = vec![gpu_sim::device_file("/etc/passwd")];
    let why = refused(&machine);
    assert!(why.ends_with("it is not under /dev"), "{why}");
}

/// Returns a clock that returns fixed times, and sleeps once.
fn clock() -> Arc<dyn Clock> {
    let mut clock = MockClock::new();
    clock.expect_wall().returning(|| Timestamp(77));
    clock.expect_monotonic().returning(|| Duration::from_secs(88));
    let second = |duration: &Duration| *duration == Duration::from_secs(99);
    clock.expect_sleep().withf(second).times(1).returning(|_| ());
    Arc::new(clock)
}

/// Asserts that the wall clock of a host shows this time, and that its other times come from
/// [`clock`].
fn check_clock(host: &SessionHost, wall: u64) {
    let clock = host.clock();
    assert_eq!((clock.wall(), clock.monotonic()), (Timestamp(wall), Duration::from_secs(88)));
    clock.sleep(Duration::from_secs(99));
}

#[test]
fn session_host_shows_frozen_machine_and_signals_no_process() {
    let temp = tempfile::tempdir().unwrap();
    let more = "hostname = 'box1'\n[viewer]\nnamespace = 'n'\n\
        [[gpu]]\nindex = 0\nname = 'G'\nmemory_total_mib = 100\n\
        [[process]]\npid = 7\nname = 'a'\nnamespace = { name = 'n', pid = 3 }\n\
        memory = [{ gpu = 0, mib = 1 }]\n\
        [[process]]\npid = 8\nname = 'b'\nnamespace = { name = 'n', pid = 4 }\n\
        [[event]]\nat_ms = 30000\nexit = 8\n";
    let machine = machine(temp.path(), more);
    let dir = temp.path().join("session");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    let no_real = |_: PathBuf, _: PathBuf| -> Box<dyn Host> { panic!("it is not live") };
    let open = |millis: u64| {
        let frozen_at_ms = Some(millis);
        let session = Session { machine: machine.clone(), frozen_at_ms, ..Session::default() };
        session.write(&dir).unwrap();
        SessionHost::open(&dir, no_real, clock()).unwrap()
    };
    let early = open(10_000);
    assert!(early.process(Pid(4)).is_ok());
    check_clock(&early, CLOCK + 10_000);
    let host = open(60_000);
    check_clock(&host, CLOCK + 60_000);
    assert_eq!(host.dir(), dir.canonicalize().unwrap());
    assert!(!host.has_real_processes());
    assert_eq!(host.origin(), Origin::Simulated("box".to_owned()));
    assert_eq!(host.hostname(), Ok("box1".to_owned()));
    assert_eq!(host.sees_host_pids(), Ok(false));
    assert_eq!(host.driver_devices().unwrap()[0].name, Ok("G".to_owned()));
    let files = host.device_files().unwrap();
    assert_eq!(files.len(), 3);
    assert_eq!(host.holders(&files).unwrap().holders[0].process.pid, Pid(3));
    assert_eq!(host.process(Pid(3)).unwrap().name, "a");
    assert!(host.process(Pid(4)).is_err(), "it has ended");
    assert!(host.processes().unwrap().processes.iter().any(|process| process.name == "a"));
    assert_eq!(host.own_ancestry().unwrap().len(), 2);
    assert_eq!(host.inherited_leases(), []);
    let refused = host.open(Pid(3)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);

    let error = SessionHost::open(Path::new("session"), no_real, clock_unused()).err().unwrap();
    assert!(matches!(error, LiveError::Relative(_)), "{error:?}");
    assert!(SessionHost::open(temp.path(), no_real, clock_unused()).is_err(), "no session");
}

fn clock_unused() -> Arc<dyn Clock> {
    Arc::new(MockClock::new())
}

const OWN: ProcessKey = ProcessKey { pid: Pid(50), start: Some(StartTime(500)) };

fn info(pid: Pid) -> ProcessInfo {
    let mut info = ProcessInfo::from_name(pid, "a");
    info.key.start = Some(StartTime(u64::from(pid.0) * 10));
    info.parent = Ok(Pid(1));
    if pid == Pid(60) {
        info.executable = Ok(Box::new(Executable {
            path: format!("/x/{ACTOR}"),
            file: FileId::Device { major: 1, minor: 1 },
            owner: 0,
            writable_by_others: false,
            seen_by_caller: Ok(true),
        }));
    }
    info
}

/// Returns the real processes of a live session: a placeholder (60), and another process (70).
fn real() -> MockHost {
    let mut host = MockHost::new();
    host.expect_hostname().returning(|| Ok("real".to_owned()));
    host.expect_own_ancestry().returning(|| Ok(vec![OWN]));
    host.expect_inherited_leases().returning(|| vec![(LeaseId::parse("7").unwrap(), 1000)]);
    host.expect_process().returning(|pid| Ok(info(pid)));
    host.expect_processes().returning(|| {
        let processes = vec![info(Pid(60)), info(Pid(70))];
        Ok(ProcessList { processes, ..ProcessList::default() })
    });
    host.expect_device_files().returning(|| Ok(vec![gpu_sim::device_file("/dev/nvidia0")]));
    host.expect_open().returning(|pid| {
        let mut handle = MockProcessHandle::new();
        handle.expect_info().returning(move || Ok(info(pid)));
        handle.expect_has_exited().returning(|| Err(Error::new(ErrorKind::Io, "poll")));
        let file = gpu_sim::device_file("/dev/nvidia0");
        let held = HeldFile::of(&file, Access::OPEN, vec![3]);
        handle.expect_held().returning(move |_| Ok(vec![held.clone()]));
        let denied = || Error::new(ProcessFault::NotPermitted, "signal");
        handle.expect_signal().returning(move |_, _| Err(denied()));
        Ok(Box::new(handle))
    });
    host
}

#[test]
fn live_session_host_opens_only_processes_of_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let placeholder = Placeholder { simulated: 21_044, pid: 60, start_ticks: 600 };
    let session =
        Session { machine: "labbox".into(), placeholders: vec![placeholder], ..Session::default() };
    session.write(dir.path()).unwrap();
    let own = dir.path().canonicalize().unwrap();
    let make = |dev: PathBuf, sys: PathBuf| -> Box<dyn Host> {
        assert_eq!((dev, sys), (own.join("dev"), own.join("sys")));
        Box::new(real())
    };
    let host = SessionHost::open(dir.path(), make, clock()).unwrap();
    assert!(host.has_real_processes());
    assert_eq!(host.origin(), Origin::Simulated("labbox".to_owned()));
    assert_eq!(host.hostname(), Ok("real".to_owned()));
    assert_eq!(host.sees_host_pids(), Ok(true));
    assert_eq!(host.driver_devices().unwrap().len(), 4, "the simulated ones");
    assert_eq!(host.driver_messages().unwrap(), [], "the real ones stay hidden");
    assert_eq!(host.own_ancestry().unwrap(), [OWN]);
    assert_eq!(host.inherited_leases().len(), 1);
    assert_eq!(host.device_files().unwrap().len(), 1);
    check_clock(&host, 77);

    let hidden = |info: ProcessInfo| info.executable == Err(Absent::NotRecorded);
    assert!(hidden(host.process(Pid(60)).unwrap()), "the data of the placeholder is hidden");
    assert_eq!(host.process(Pid(70)).unwrap(), info(Pid(70)));
    let list = host.processes().unwrap().processes;
    assert!(hidden(list[0].clone()));
    assert_eq!(list[1], info(Pid(70)));

    let handle = host.open(Pid(60)).unwrap();
    assert!(hidden(handle.info().unwrap()));
    assert_eq!(handle.held(&[]).unwrap()[0].descriptors, [3]);
    assert_eq!(handle.has_exited().unwrap_err().kind(), ErrorKind::Io);
    let signal = handle.signal(Signal::Kill, &ActToken::user_confirmed());
    let not_permitted = ErrorKind::Process(ProcessFault::NotPermitted);
    assert_eq!(signal.unwrap_err().kind(), not_permitted);
    let other = host.open(Pid(70)).err().unwrap();
    assert_eq!(other.kind(), not_permitted);
    assert!(other.fault().text.ends_with("it is not part of the simulation"));
}
