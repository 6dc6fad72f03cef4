//! Copies of the program: those that keep a claim, and the one that queries NVML. They require a
//! `main` that serves, so this does not use the test harness, and exits with 0 if all checks pass.

use gpu_core::visible::cuda::VISIBLE;
use gpu_core::{
    Absent, Claim, DeviceKey, DeviceUuid, Driver, EntryKind, ErrorKind, FileId, Groups, LeaseEntry,
    LeaseStore, Origin, Pid, ProcessKey, ProcessTable, Timestamp,
};
use gpu_host::{FileLeaseStore, LinuxHost};
use gpu_machine::{
    CLAIMS, Cause, Holder, Keeps, MachineError, Options, Served, Source, is_in_session, roots,
    serve_if_requested,
};
use gpu_reaper::Usage;
use gpu_sim::Session;
use gpu_steward::{ClaimContext, Grant, Wants};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// The arguments of the copies that check the effects of their environment.
const IN_SESSION: &str = "check-session";
const LIVE_SESSION: &str = "check-live-session";
const REAL_LIBRARY: &str = "check-real-library";
const OWN_CLAIMS: &str = "check-claims";
const SHARED_CLAIMS: &str = "check-shared-claims";

/// The exit codes of the copies that serve.
fn code(served: Served) -> i32 {
    match served {
        Served::Done => 10,
        Served::Misused => 11,
        Served::Failed => 12,
    }
}

fn main() {
    let word = std::env::args().nth(1);
    if word.as_deref() == Some("nvml-helper") && is_in_session() {
        return greet();
    }
    if let Some(served) = serve_if_requested() {
        std::process::exit(code(served));
    }
    match word.as_deref() {
        Some(IN_SESSION) => session_has_its_own_devices_log_and_leases(),
        Some(LIVE_SESSION) => live_session_has_real_processes(),
        Some(REAL_LIBRARY) => real_library_is_refused_in_a_session(),
        Some(OWN_CLAIMS) => lease_directory_of_the_environment_is_used(),
        Some(SHARED_CLAIMS) => shared_lease_directory_of_the_environment_is_refused(),
        Some(word @ ("lease-holder" | "run-placeholder" | "nvml-helper")) => {
            panic!("{word} is not served")
        }
        _ => {
            keeper_with_invalid_arguments_ends();
            keeper_lives_as_long_as_its_root();
            claim_is_kept_until_its_holder_ends();
            unloadable_library_leaves_the_processes();
            environment_names_session_and_leases();
        }
    }
}

fn copy(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(words).env_remove(VISIBLE).env_remove(CLAIMS).env_remove(Session::VARIABLE);
    command
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn key_of(pid: u32) -> ProcessKey {
    LinuxHost::new(roots()).process(Pid(pid)).unwrap().key
}

fn start_of(key: ProcessKey) -> String {
    key.start.unwrap().0.to_string()
}

/// Starts a process that lives until its standard input is closed.
fn root() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

fn end(mut root: Child) {
    drop(root.stdin.take());
    root.wait().unwrap();
}

fn keeper_with_invalid_arguments_ends() {
    for misused in [
        &["lease-holder"][..],
        &["lease-holder", "7"],
        &["lease-holder", "x", "7"],
        &["lease-holder", "0", "7"],
        &["run-placeholder", "7", "x"],
    ] {
        let output = copy(misused).output().unwrap();
        let reported = (output.status.code(), printed(&output));
        assert_eq!(reported, (Some(code(Served::Misused)), String::new()), "{misused:?}");
    }
    // A process with another start time is another process.
    let own = std::process::id().to_string();
    for word in ["lease-holder", "run-placeholder"] {
        let output = copy(&[word, &own, "1"]).output().unwrap();
        let reported = (output.status.code(), printed(&output));
        assert_eq!(reported, (Some(code(Served::Done)), "holds".to_owned()), "{word}");
    }
    // There is no such device, and CUDA may be missing.
    let failed = |command: &mut Command| {
        let output = command.output().unwrap();
        let message = printed(&output);
        assert!(!message.is_empty() && message != "holds", "{message}");
        output.status.code() == Some(code(Served::Failed))
    };
    assert!(failed(&mut copy(&["lease-holder", &own, "1", "GPU-none"])));
    assert!(failed(copy(&["run-placeholder", &own, "1"]).env(VISIBLE, "GPU-none")));
    let lease_only = copy(&["lease-holder", &own, "1"]).env(VISIBLE, "GPU-none").output();
    assert_eq!(printed(&lease_only.unwrap()), "holds", "it keeps the devices of its words");
}

fn keeper_lives_as_long_as_its_root() {
    let root = root();
    let key = key_of(root.id());
    let (pid, start) = (root.id().to_string(), start_of(key));
    let keepers = ["lease-holder", "run-placeholder"].map(|word| {
        let mut keeper = copy(&[word, &pid, &start]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = keeper.stdout.take().unwrap();
        let message = std::io::read_to_string(&mut output).unwrap();
        assert_eq!(message, "holds");
        let name = std::fs::read_to_string(format!("/proc/{}/comm", keeper.id())).unwrap();
        assert_eq!(name == "run-placeholder\n", word == "run-placeholder", "{name}");
        assert!(keeper.try_wait().unwrap().is_none());
        keeper
    });
    end(root);
    for mut keeper in keepers {
        assert_eq!(keeper.wait().unwrap().code(), Some(code(Served::Done)));
    }
}

fn entry(locks: &FileLeaseStore, root: ProcessKey) -> LeaseEntry {
    LeaseEntry {
        id: locks.new_id().unwrap(),
        ticket: locks.ticket().unwrap(),
        owner: locks.owner(),
        root,
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: vec![DeviceUuid("GPU-none".to_owned())],
        parts_of: Vec::new(),
        merged: None,
        command: "train".to_owned(),
        since: Timestamp(0),
    }
}

fn claim_is_kept_until_its_holder_ends() {
    let source = Source::open(&Options::simulated("labbox")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let locks = source.lease_store(Some(dir.path())).unwrap();
    let leases = || locks.entries(EntryKind::Lease).unwrap().len();
    let snapshot = source.snapshot();
    let root = root();
    let key = key_of(root.id());
    let grant = || {
        let entry = entry(&locks, key);
        let mut held = locks.publish(EntryKind::Lease, &entry).unwrap();
        held.confirm().unwrap();
        let context = ClaimContext {
            usage: Usage::of(&snapshot),
            snapshot: snapshot.clone(),
            partitions: Vec::new(),
            topology: None,
            last_leased: BTreeMap::new(),
            reported: Wants::default(),
        };
        Grant {
            entry,
            devices: Vec::new(),
            decision: None,
            accepted: Vec::new(),
            parent: None,
            context,
            held,
            held_back: None,
        }
    };
    let start = |grant: &Grant, lease: bool, contexts: bool| {
        Holder::start(grant, key, Keeps { lease, contexts }, &[])
    };
    let first = grant();
    let holder = start(&first, true, false).unwrap();
    first.held.leave();
    assert_eq!(leases(), 1, "the holder keeps it");
    drop(holder);
    assert_eq!(leases(), 0, "it was ended");

    let second = grant();
    let holder = start(&second, false, false).unwrap();
    second.held.leave();
    assert_eq!(leases(), 0, "it was not to keep the lease");
    drop(holder);

    let third = grant();
    let error = start(&third, true, true).unwrap_err();
    assert_eq!(error.cause(), Cause::NotKept);
    assert!(std::error::Error::source(&error).is_some(), "why there is no context");
    third.held.leave();
    assert_eq!(leases(), 0);

    let fourth = grant();
    start(&fourth, true, false).unwrap().detach();
    fourth.held.leave();
    assert_eq!(leases(), 1, "the holder goes on");
    end(root);
    rustix::process::wait(rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(leases(), 0, "it ended with its root");
}

/// Writes a file that is not a library.
fn no_library(dir: &Path) -> PathBuf {
    let path = dir.join("libnvidia-ml.so.1");
    std::fs::write(&path, "no library").unwrap();
    path
}

fn unloadable_library_leaves_the_processes() {
    let dir = tempfile::tempdir().unwrap();
    let library = no_library(dir.path());
    let options = Options { nvml: Some(&library), ..Options::this_machine() };
    let sources = [
        Source::open(&options).unwrap(),
        Source::open_for_query(&options, Groups::all(), true).unwrap(),
        Source::open_for_query(&options, Groups::NONE, false).unwrap(),
    ];
    for source in sources {
        assert!(!source.is_simulated() && source.can_end_processes);
        assert_eq!((source.session(), source.backend.origin()), (None, Origin::Live));
        let now = source.snapshot();
        assert!(now.driver.is_err() && now.devices.is_empty());
        assert!(source.host.process(Pid(std::process::id())).is_ok());
        assert_eq!(source.two_snapshots().len(), 1, "a second one shows no difference");
    }
    let mut helper = copy(&["nvml-helper", library.to_str().unwrap()]);
    let (orders, _writer) = std::io::pipe().unwrap();
    helper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(orders);
    let mut helper = helper.spawn().unwrap();
    let mut greeting = String::new();
    BufReader::new(helper.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
    assert!(greeting.contains("greeting"), "{greeting}");
    end(helper);
    assert!(!is_in_session());
}

fn environment_names_session_and_leases() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let session =
        Session { machine: "labbox".into(), frozen_at_ms: Some(5000), ..Session::default() };
    session.write(&dir).unwrap();
    no_library(&dir);
    let live = dir.join("live");
    std::fs::create_dir_all(live.join("dev")).unwrap();
    std::fs::write(live.join("dev/nvidia7"), "").unwrap();
    no_library(&live);
    Session { live: true, ..session }.write(&live).unwrap();
    let shared = dir.join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
    let below_shared = shared.join("claims");
    std::fs::create_dir(&below_shared).unwrap();
    let own = dir.join("own");
    std::fs::create_dir(&own).unwrap();
    for (word, variable, value) in [
        (IN_SESSION, Session::VARIABLE, &dir),
        (LIVE_SESSION, Session::VARIABLE, &live),
        (REAL_LIBRARY, Session::VARIABLE, &dir),
        (OWN_CLAIMS, CLAIMS, &own),
        (SHARED_CLAIMS, CLAIMS, &below_shared),
    ] {
        let status = copy(&[word]).env(variable, value).status().unwrap();
        assert!(status.success(), "{word}: {status}");
    }
}

/// Returns the directory of the session.
fn session_dir() -> PathBuf {
    PathBuf::from(std::env::var_os(Session::VARIABLE).unwrap())
}

/// Reports the library of the session if started to query it, and answers with a driver without
/// devices.
fn greet() {
    let library = std::env::args().nth(2).map(PathBuf::from);
    let is_own = library == Some(session_dir().join("libnvidia-ml.so.1"));
    let simulated = serde_json::json!({ "machine": "labbox", "session": session_dir() });
    let simulated = if is_own { simulated } else { serde_json::Value::Null };
    let greeting = serde_json::json!({ "protocol": 6, "simulated": simulated });
    let driver = Driver { version: Ok("1.2".to_owned()), cuda: Err(Absent::TooOld) };
    let look = serde_json::json!({ "begun": { "driver": { "Ok": driver }, "count": 0 } });
    let mut output = std::io::stdout();
    writeln!(output, "{}", serde_json::json!({ "greeting": greeting })).unwrap();
    for query in std::io::stdin().lines() {
        if query.unwrap().contains("look") {
            writeln!(output, "{look}").unwrap();
        }
        writeln!(output, "\"done\"").unwrap();
    }
}

/// Opens the machine of the session; [`greet`] answers the queries of its NVML.
fn session() -> Source {
    // A program with more than one thread queries NVML in a new process.
    std::thread::spawn(std::thread::park);
    let library = session_dir().join("libnvidia-ml.so.1");
    let progress = |message: &str| MESSAGES.lock().unwrap().push(message.to_owned());
    Source::open(&Options { nvml: Some(&library), progress, ..Options::this_machine() }).unwrap()
}

/// The messages about waits.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn live_session_has_real_processes() {
    let source = session();
    assert!(source.can_end_processes && !source.is_simulated());
    assert!(source.host.process(Pid(std::process::id())).is_ok());
    let files = source.host.device_files().unwrap();
    let devices: Vec<_> = files.iter().map(|file| file.device).collect();
    let node = FileId::Device { major: 195, minor: 7 };
    assert_eq!(devices, [Some(DeviceKey::Node(node))], "that of the session");
}

fn real_library_is_refused_in_a_session() {
    let library = session_dir().join("libnvidia-ml.so.1");
    let error = Source::open(&Options { nvml: Some(&library), ..Options::this_machine() });
    let error = error.err().unwrap();
    assert!(error.hint().unwrap().contains("unset GPUWS_SIM_SESSION"), "{error:?}");
    assert_eq!(error.into_error().kind(), ErrorKind::Invalid);
}

fn session_has_its_own_devices_log_and_leases() {
    assert!(is_in_session());
    let dir = session_dir();
    let source = session();
    assert_eq!(source.session(), Some(&*dir));
    let origin = Origin::Simulated("labbox".to_owned());
    assert_eq!((source.backend.origin(), source.host.origin()), (origin.clone(), origin));
    assert!(!source.is_simulated() && !source.can_end_processes);
    assert_eq!(source.host.process(Pid(21_044)).unwrap().user, Ok("alice".to_owned()));
    assert_eq!(source.clock.wall(), Timestamp(1_740_996_005_000));
    assert_eq!(&*source.file(Path::new("/dev/nvidia3")).unwrap().path, "/dev/nvidia3");
    assert!(source.file(Path::new("/dev/null")).is_err(), "it is not of the session");

    assert_eq!(source.two_snapshots().len(), 2);
    assert!(MESSAGES.lock().unwrap().is_empty(), "that wait is short");
    assert_eq!(
        source.snapshots(gpu_core::Observation::default(), 2, Duration::from_secs(1)).count(),
        2
    );
    assert_eq!(*MESSAGES.lock().unwrap(), ["sample 1 of 2 taken; next in 1 s"]);

    source.journal().unwrap().append("a line").unwrap();
    let log = std::fs::read_to_string(dir.join("audit.jsonl")).unwrap();
    assert_eq!(log, "a line\n");
    assert!(source.existing_lease_store().is_none(), "no directory was created");
    assert!(source.leases().fault().is_none());
    let locks = source.lease_store(None).unwrap();
    assert!(dir.join("claims").is_dir());
    let held = locks.publish(EntryKind::Lease, &entry(&locks, key_of(1))).unwrap();
    let read = source.existing_lease_store().unwrap();
    assert_eq!(read.entries(EntryKind::Lease).unwrap().len(), 1);
    drop(held);
}

fn lease_directory_of_the_environment_is_used() {
    let dir = std::env::var_os(CLAIMS).unwrap();
    let source = Source::bare();
    let locks = source.lease_store(None).unwrap();
    let own = key_of(std::process::id());
    let held = locks.publish(EntryKind::Lease, &entry(&locks, own)).unwrap();
    assert!(std::fs::read_dir(dir).unwrap().next().is_some());
    assert_eq!(source.existing_lease_store().unwrap().entries(EntryKind::Lease).unwrap().len(), 1);
    drop(held);
    let simulated = Source::open(&Options::simulated("labbox")).unwrap();
    assert!(
        simulated.existing_lease_store().is_none(),
        "a simulated machine has no leases to read"
    );
}

fn shared_lease_directory_of_the_environment_is_refused() {
    let source = Source::bare();
    let error: MachineError = source.lease_store(None).err().unwrap();
    assert!(error.hint().unwrap().contains("double grants"));
    assert_eq!(error.into_error().kind(), ErrorKind::Invalid);
    assert!(source.existing_lease_store().is_none());
}
