//! The files of earlier versions, in tests/compat: the current program reads all of them, and
//! prints and writes every field that they have.

use crate::live::GPUWS;
use crate::program::skipped;
use gpu_claim::Ledger;
use gpu_core::{
    Bytes, DeviceUuid, EntryKind, LeaseEntry, LeaseStore, Origin, OuterLease, Pid, Share, Timestamp,
};
use gpu_history::Reader;
use gpu_host::{FileLeaseStore, LeaseLocation, Roots, SafeGpuFiles};
use gpu_sim::Session;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, SEEK_SET, flock};
use nix::sys::stat::{Mode, UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::mkfifo;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const COMPAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/compat");

/// The versions with samples.
const VERSIONS: [&str; 1] = ["8167d385"];

/// Names of fields with sentences as values, which may be reworded.
const WORDING: [&str; 13] = [
    "command",
    "defects",
    "evidence",
    "explanation",
    "next",
    "notes",
    "reasons",
    "recording",
    "remedy",
    "verdict",
    "warnings",
    "what",
    "why",
];

fn samples(version: &str) -> PathBuf {
    Path::new(COMPAT).join(version)
}

/// Copies a directory, with files that only their owner may write, whatever the umask of the
/// checkout was.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("listed") {
        let entry = entry.expect("listed");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).expect("copied");
            let mode = entry.metadata().expect("present").permissions().mode();
            fs::set_permissions(&to, fs::Permissions::from_mode(mode & 0o755)).expect("own file");
        }
    }
}

fn copied(version: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    copy(&samples(version), dir.path());
    dir
}

/// Returns the lines of tests/compat/commands: the name of a file, an exit code, how the output is
/// compared, and a command.
fn commands() -> Vec<(String, i32, Compared, Vec<String>)> {
    let text = fs::read_to_string(Path::new(COMPAT).join("commands")).expect("a list of commands");
    let line = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let [name, code, how, words @ ..] = &words[..] else { panic!("incomplete: {line}") };
        let how = if how == "types" { Compared::Types } else { Compared::Values };
        (name.clone(), code.parse().expect("a number"), how, words.to_vec())
    };
    text.lines().map(line).collect()
}

/// Returns the objects in a text: a single one, or one on each line.
fn objects(text: &str) -> Vec<Value> {
    let values = serde_json::Deserializer::from_str(text).into_iter();
    values.map(|value| value.unwrap_or_else(|error| panic!("{error}: {text}"))).collect()
}

fn object(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    objects(&text).pop().expect("an object")
}

/// The required agreement of values.
#[derive(Clone, Copy, PartialEq)]
enum Compared {
    /// The values of the sample, except for sentences.
    Values,
    /// Values of the same type: processes and times differ.
    Types,
}

/// Returns what a value lacks compared with an earlier one.
fn lacks(earlier: &Value, now: &Value, how: Compared, path: &str) -> Option<String> {
    let differs = || Some(format!("{path}: {earlier} became {now}"));
    match (earlier, now) {
        (Value::Object(earlier), Value::Object(fields)) => {
            earlier.iter().find_map(|(name, earlier)| match fields.get(name) {
                None => Some(format!("{path}.{name} is missing")),
                Some(now) => lacks(earlier, now, how, &format!("{path}.{name}")),
            })
        }
        (Value::Array(earlier), Value::Array(now)) => {
            let are_fewer = earlier.len() > now.len();
            // Later versions may observe more.
            let grows = ["evidence", "evidence_codes"].iter().any(|name| path.ends_with(name));
            let is_other = how == Compared::Values
                && if grows { are_fewer } else { earlier.len() != now.len() };
            if is_other || now.is_empty() && are_fewer {
                return differs();
            }
            let mut pairs = earlier.iter().zip(now).enumerate();
            pairs.find_map(|(at, (earlier, now))| lacks(earlier, now, how, &format!("{path}.{at}")))
        }
        (Value::String(text), Value::String(_))
            if how == Compared::Values && text.contains(' ') && is_wording(path) =>
        {
            None
        }
        _ if how == Compared::Values => (earlier != now).then(differs)?,
        (Value::Null, _) | (_, Value::Null) => None,
        _ => (std::mem::discriminant(earlier) != std::mem::discriminant(now)).then(differs)?,
    }
}

fn is_wording(path: &str) -> bool {
    let names = path.rsplit('.').find(|name| name.parse::<usize>().is_err());
    names.is_some_and(|name| WORDING.contains(&name))
}

fn assert_keeps(earlier: &[Value], now: &[Value], how: Compared, what: &str) {
    assert_eq!(earlier.len(), now.len(), "{what}: {now:?}");
    for (earlier, now) in earlier.iter().zip(now) {
        assert_eq!(lacks(earlier, now, how, what), None, "{now}");
    }
}

/// Returns the number of files in a directory and below.
fn count(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).expect("listed").map(|entry| entry.expect("listed").path());
    entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}

#[test]
fn no_sample_is_lost() {
    assert_eq!(VERSIONS.map(|version| count(&samples(version))), [79]);
}

#[test]
fn earlier_recordings_give_the_same_json() {
    for version in VERSIONS {
        let dir = copied(version);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut sampled: BTreeSet<String> =
            fs::read_dir(dir.path().join("json")).expect("samples").map(name_of).collect();
        for (name, code, how, words) in commands() {
            let output = Command::new(GPUWS)
                .arg("--json")
                .args(&words)
                .current_dir(dir.path())
                .env("TZ", "UTC")
                // The stand-in for ssh answers like an earlier version.
                .env("PATH", format!("{}:{path}", dir.path().display()))
                .env("DIR", dir.path())
                .env_remove("GPUWS_SIM_SESSION")
                .stdin(Stdio::null())
                .output()
                .expect("gpuws runs");
            assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
            let file = format!("{name}.json");
            let sample = fs::read_to_string(dir.path().join("json").join(&file)).expect(&file);
            let now = objects(&String::from_utf8(output.stdout).expect("UTF-8"));
            assert_keeps(&objects(&sample), &now, how, &name);
            sampled.remove(&file);
        }
        assert_eq!(sampled, BTreeSet::new(), "no command reads these");
    }
}

fn name_of(entry: std::io::Result<fs::DirEntry>) -> String {
    entry.expect("listed").file_name().into_string().expect("UTF-8")
}

/// A lease directory made of samples, alive as long as this value.
struct Revived {
    dir: TempDir,
    files: BTreeMap<String, File>,
}

impl Revived {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        Revived { dir, files: BTreeMap::new() }
    }

    fn own(&self) -> PathBuf {
        self.dir.path().join(format!("u{}", nix::unistd::geteuid()))
    }

    /// Locks a file as its creator had locked it.
    fn lock(&mut self, name: &str) {
        let file = File::options().read(true).write(true).open(self.own().join(name)).expect(name);
        let all = flock {
            l_type: i16::try_from(F_WRLCK).expect("small"),
            l_whence: i16::try_from(SEEK_SET).expect("small"),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_OFD_SETLK(&all)).expect("the file is not locked");
        self.files.insert(name.to_owned(), file);
    }

    fn unlock(&mut self, name: &str) {
        self.files.remove(name).expect("it is locked");
    }

    /// Renews a place in the queue; its FIFO has a writer.
    fn queue(&mut self, name: &str) {
        let queue = self.own().join("queue");
        let id = name.rsplit('-').next().expect("an ID");
        let fifo = queue.join(format!("wait-{id}"));
        mkfifo(&fifo, Mode::from_bits_truncate(0o644)).expect("a FIFO");
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
        let now = TimeSpec::new(tv_sec, tv_nsec);
        let no_follow = UtimensatFlags::NoFollowSymlink;
        utimensat(nix::fcntl::AT_FDCWD, &queue.join(name), &now, &now, no_follow).expect("renewed");
        let file = File::options().read(true).write(true).open(fifo).expect("a writer");
        self.files.insert(name.to_owned(), file);
    }

    fn store(&self) -> FileLeaseStore {
        let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
        FileLeaseStore::new(
            LeaseLocation::dir(self.dir.path()),
            SafeGpuFiles::below(self.dir.path()),
            roots,
        )
    }
}

/// Returns the names of the files in a directory that begin with a prefix, in the order of their
/// tickets.
fn named(dir: &Path, prefix: &str) -> Vec<String> {
    let names = fs::read_dir(dir).expect("listed").map(name_of);
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort_by_key(|name| object(&dir.join(name))["ticket"].as_u64());
    names
}

fn devices(names: &[&str]) -> Vec<DeviceUuid> {
    names.iter().map(|name| DeviceUuid((*name).to_owned())).collect()
}

const GPU_0: &str = "GPU-a5ac5660-4aaa-19e1-9642-a2e6bf742cd7";
const GPU_2: &str = "GPU-a5ac5460-4aaa-167b-9642-a4e6bf74303d";
const GPU_3: &str = "GPU-a5ac5360-4aaa-14c8-9642-a3e6bf742e8a";
const GPU_4: &str = "GPU-a5ac5a60-4aaa-20ad-9642-9ee6bf74260b";
const GPU_5: &str = "GPU-a5ac5960-4aaa-1efa-9642-9de6bf742458";
const GPU_6: &str = "GPU-a5ac5860-4aaa-1d47-9642-a0e6bf742971";
const GPU_7: &str = "GPU-a5ac5760-4aaa-1b94-9642-9fe6bf7427be";

#[test]
fn earlier_leases_hold_their_devices() {
    let samples = samples("8167d385").join("session");
    let mut revived = Revived::new();
    copy(&samples.join("leases"), &revived.own());
    let leases = named(&revived.own(), "lease-");
    let id = |at: usize| leases[at].strip_prefix("lease-").expect("a lease").to_owned();
    // A lease counts while its file, or the file that its job has inherited, is locked.
    for name in &leases[..3] {
        revived.lock(name);
    }
    revived.lock(&format!("kept-{}", id(3)));
    // The last is an attempt, which is renamed when it is confirmed.
    let attempt = format!("try-{}", id(4));
    fs::rename(revived.own().join(&leases[4]), revived.own().join(&attempt)).expect("renamed");
    revived.lock(&attempt);
    for name in named(&revived.own().join("queue"), "place-") {
        revived.queue(&name);
    }

    let store = revived.store();
    let owner = store.owner();
    let ledger = Ledger::read(&store).expect("readable");
    let by_id =
        |id: &str| ledger.leases.iter().find(|lease| lease.id.as_str() == id).expect("alive");
    let [exported, wide, share, outer, inner] = [0, 1, 2, 3, 4].map(|at| by_id(&id(at)));
    let held = [
        (exported, devices(&[GPU_6]), "sleep 1000"),
        (wide, devices(&[GPU_2, GPU_3]), "sleep 1000"),
        (share, devices(&[GPU_7]), "./nvml-sim-process --use visible:1000"),
        (outer, devices(&[GPU_4, GPU_5]), "gpuws run -n 1 -- sleep 1000"),
        (inner, devices(&[GPU_4]), "sleep 1000"),
    ];
    assert_eq!(ledger.leases.len(), held.len());
    for (lease, devices, command) in held {
        assert_eq!((lease.owner, &lease.devices, &*lease.command), (owner, &devices, command));
        assert_eq!(lease.claim.count, u32::try_from(devices.len()).expect("few"));
        assert_eq!(lease.claim.visible_minors, (0..12).collect::<Vec<u32>>());
        assert!(lease.root.pid > Pid(1) && lease.root.start.is_some(), "{lease:?}");
        assert!(lease.since > Timestamp(1_795_000_000_000), "{lease:?}");
    }
    assert_eq!((&exported.claim.among, exported.claim.share), (&devices(&[GPU_6]), Share::Whole));
    assert_eq!(wide.claim.except, devices(&[GPU_0, GPU_4, GPU_5, GPU_6, GPU_7]));
    assert_eq!(wide.claim.free_memory, Some(Bytes::from_mib(1024)));
    assert_eq!(wide.claim.compute_capability, Some((6, 0)));
    assert_eq!(
        (share.claim.memory(), share.claim.accept_used),
        (Some(Bytes::from_mib(2048)), true)
    );
    // The sample is of root.
    assert_eq!(inner.within, [OuterLease { id: outer.id.clone(), owner: 0 }]);
    let parent = ledger.parent_of(inner).map(|lease| &lease.id);
    assert_eq!(parent, (owner == 0).then_some(&outer.id));

    let [first, second] = &ledger.waiters[..] else { panic!("{:?}", ledger.waiters) };
    assert_eq!((first.claim.count, first.claim.share, &*first.command), (12, Share::Whole, "true"));
    assert_eq!((second.claim.count, second.claim.memory()), (2, Some(Bytes::from_mib(1024))));
    assert_eq!(second.claim.required, devices(&[GPU_6]));
    assert!(first.root.start.is_some() && second.root.start.is_some());
    let ended = store.last_leased();
    assert!(ended.contains_key(&DeviceUuid(GPU_0.to_owned())), "{ended:?}");

    // The program sees the same leases.
    let listed = gpuws(&["leases", "--claims", &revived.dir.path().display().to_string()]);
    let listed = objects(&String::from_utf8(listed.stdout).expect("UTF-8")).remove(0);
    let ids = |of: &str| listed[of].as_array().expect("a list").iter().map(|each| &each["id"]);
    assert_eq!(ids("leases").count(), 5, "{listed}");
    assert!(ids("leases").eq(leases.iter().map(|name| name.strip_prefix("lease-").expect("one"))));
    assert!(ids("queue").eq([first.id.as_str(), second.id.as_str()]));

    // Unlocked files do not count.
    for name in revived.files.keys().cloned().collect::<Vec<_>>() {
        revived.unlock(&name);
    }
    let ledger = Ledger::read(&revived.store()).expect("readable");
    assert_eq!(ledger, Ledger::default());
}

/// A later version may add fields: every program keeps the place, and its turn.
#[test]
fn queue_place_with_unknown_fields_is_kept() {
    let mut revived = Revived::new();
    copy(&samples("8167d385").join("session/leases/queue"), &revived.own().join("queue"));
    let queue = revived.own().join("queue");
    let names = named(&queue, "place-");
    for name in &names {
        let text = fs::read_to_string(queue.join(name)).expect("a place");
        let text = text.replace("\"count\":", "\"time_limit_ms\":60000,\"count\":");
        let text = text.replace("\"command\":", "\"colour\":\"red\",\"command\":");
        assert!(text.contains("60000") && text.contains("red"));
        fs::write(queue.join(name), text).expect("written");
        revived.queue(name);
    }
    let ids: Vec<&str> = names.iter().map(|name| name.rsplit('-').next().expect("one")).collect();
    let old = old_program();
    if old.is_none() {
        skipped("GPUWS_OLD_PROGRAM names no program of another version");
    }
    for program in [GPUWS.into()].into_iter().chain(old) {
        let output = Command::new(&program)
            .args(["--json", "leases", "--claims"])
            .arg(revived.dir.path())
            .env_remove("GPUWS_SIM_SESSION")
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let listed = objects(&String::from_utf8(output.stdout).expect("UTF-8")).remove(0);
        let queue = listed["queue"].as_array().expect("a list");
        assert!(queue.iter().map(|claim| &claim["id"]).eq(&ids), "{program:?}: {listed}");
    }
}

/// Returns the program of another version that `GPUWS_OLD_PROGRAM` names.
pub(crate) fn old_program() -> Option<PathBuf> {
    std::env::var_os("GPUWS_OLD_PROGRAM").map(PathBuf::from)
}

#[test]
fn earlier_lease_on_mig_device_blocks_its_gpu() {
    let mut revived = Revived::new();
    copy(&samples("8167d385").join("session/leases-mig"), &revived.own());
    let name = named(&revived.own(), "lease-").remove(0);
    revived.lock(&name);
    let leases = revived.store().entries(EntryKind::Lease).expect("readable");
    let [LeaseEntry { devices: held, parts_of, claim, .. }] = &leases[..] else { panic!("one") };
    assert_eq!(held, &devices(&["MIG-12c54e5e-ecac-94f9-bb3a-29a04a79b687"]));
    assert_eq!(parts_of, &devices(&["GPU-d52257bc-1eea-2a84-5184-f35132cab4fa"]));
    assert_eq!((claim.among.len(), claim.share), (3, Share::Whole));
}

fn gpuws(words: &[&str]) -> Output {
    let mut command = Command::new(GPUWS);
    command.arg("--json").args(words).env_remove("GPUWS_SIM_SESSION").stdin(Stdio::null());
    command.output().expect("gpuws runs")
}

#[test]
fn earlier_histories_are_whole() {
    let dir = copied("8167d385");
    for (name, frames, start, machine, leases) in [
        ("history", 12, 1_574_332_200_000, "p100-ghost", 0),
        ("anonymous", 2, 1_740_996_000_000, "labbox", 0),
        // Without the lease within another.
        ("session/leased", 2, 0, "twelve-gpus", 4),
    ] {
        let mut reader = Reader::open(File::open(dir.path().join(name)).expect(name)).expect(name);
        assert_eq!((reader.len(), reader.check()), (frames, &[][..]), "{name}");
        let (first, last) = reader.span().expect("a history");
        assert!(start == 0 || first == Timestamp(start), "{name}: {first:?}");
        assert!(first < last, "{name}");
        let frame = reader.frame(frames - 1).expect("the last");
        assert_eq!(frame.snapshot.origin, Origin::Simulated(machine.to_owned()), "{name}");
        assert_eq!(frame.leases.expect("readable").len(), leases, "{name}");
    }
    // A history with names is continued, and an anonymous one is not.
    for (name, machine, code) in [("history", "p100-ghost", 0), ("anonymous", "labbox", 2)] {
        let path = dir.path().join(name).display().to_string();
        let ended = gpuws(&["--sim", machine, "record", "--for", "30s", "--names", &path]);
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    }
    let reader = Reader::open(File::open(dir.path().join("history")).expect("a directory"));
    assert_eq!(reader.expect("readable").len(), 12 + 30);
}

#[test]
fn earlier_session_is_open_to_this_program() {
    let dir = copied("8167d385");
    let session = Session::read(&dir.path().join("session")).expect("a session");
    assert_eq!(session.machine, Path::new("twelve-gpus"));
    assert!(session.live && session.began_ns > 0, "{session:?}");
    assert!(session.open().is_ok());
}

#[test]
fn earlier_audit_log_is_counted() {
    let log = samples("8167d385").join("session/audit.jsonl");
    let output = Command::new(GPUWS)
        .args(["sim", "twelve-gpus", "--live", "--", "sh", "-c"])
        .arg("install -m 600 \"$LOG\" \"$GPUWS_SIM_SESSION/audit.jsonl\"; \"$0\" export --textfile -")
        .arg(GPUWS)
        .env("LOG", log)
        .stdin(Stdio::null())
        .output()
        .expect("gpuws runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let times = "gpuws_reap_timestamp_seconds{outcome=\"ended\"} 1795";
    assert!(text.lines().any(|line| line.starts_with(times)), "{text}");
    for line in [
        "gpuws_reap_signals_total{signal=\"SIGTERM\"} 3.0",
        "gpuws_reap_outcomes_total{outcome=\"ended\"} 3.0",
        "gpuws_reap_outcomes_total{outcome=\"failed\"} 2.0",
        "gpuws_resets_total{outcome=\"failed\"} 1.0",
    ] {
        assert!(text.lines().any(|each| each == line), "{line}: {text}");
    }
}

fn metrics(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).expect("metrics");
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let names = series.map(|line| {
        let parts = line.split('"').step_by(2).map(|part| part.trim_end_matches('='));
        let all: String = parts.collect();
        all.rsplit_once(' ').map_or(all.clone(), |(name, _)| name.to_owned())
    });
    names.collect()
}

/// Makes the current program write the kinds of files that the samples are: its files have every
/// field of the samples.
#[test]
fn every_field_of_earlier_files_is_written() {
    let root = nix::unistd::geteuid().is_root();
    let namespaces = ["--uts", "--cgroup", "--pid", "--fork", "--mount-proc", "hostname", "gpu01"];
    let map = if root { &[][..] } else { &["--map-root-user"] };
    let possible = Command::new("unshare").args(map).args(namespaces).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skipped("tests/compat/make.sh needs root or user namespaces");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let now = dir.path().join("now");
    let made = Command::new("tests/compat/make.sh")
        .arg(GPUWS)
        .arg(&now)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert!(made.status.success(), "{made:?}");
    let earlier = samples("8167d385");
    let files = ["session.json", "run.json", "reset.json", "holders.json", "reap-plan.json"];
    let more = ["reap.json", "reap-group.json", "claim-hold.json", "claim-release.json"];
    let leases = ["leases.json", "claim.json", "status.json", "audit.jsonl"];
    let read = |dir: &Path, file: &str| {
        objects(&fs::read_to_string(dir.join("session").join(file)).expect(file))
    };
    for file in files.iter().chain(&more).chain(&leases) {
        assert_keeps(&read(&earlier, file), &read(&now, file), Compared::Types, file);
    }
    for (dir, kinds) in [
        ("leases", &["lease-", "past-"][..]),
        ("leases/queue", &["place-"]),
        ("leases-mig", &["lease-"]),
    ] {
        let of = |of: &Path, kind| {
            let dir = of.join("session").join(dir);
            named(&dir, kind).iter().map(|name| object(&dir.join(name))).collect::<Vec<_>>()
        };
        for kind in kinds {
            assert_keeps(&of(&earlier, kind), &of(&now, kind), Compared::Types, kind);
        }
    }
    let page = |of: &Path| metrics(&of.join("session/metrics.prom"));
    let (earlier, now) = (page(&earlier), page(&now));
    assert!(earlier.len() > 35, "{earlier:?}");
    assert_eq!(earlier.difference(&now).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn dropped_and_renamed_fields_are_noticed() {
    let object = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let sample = object(r#"{"a": [{"b": 1, "why": "in use by 7"}], "c": null}"#);
    for (now, values, types) in [
        (r#"{"a": [{"b": 1, "why": "used by 7", "d": 2}], "c": null}"#, true, true),
        (r#"{"a": [{"b": 2, "why": "used by 7"}], "c": null}"#, false, true),
        (r#"{"a": [{"b": "1", "why": "used by 7"}], "c": null}"#, false, false),
        (r#"{"a": [{"B": 1, "why": "used by 7"}], "c": null}"#, false, false),
        (r#"{"a": [], "c": null}"#, false, false),
        (r#"{"a": [{"b": 1, "why": "used by 7"}]}"#, false, false),
    ] {
        for (how, keeps) in [(Compared::Values, values), (Compared::Types, types)] {
            assert_eq!(lacks(&sample, &object(now), how, "").is_none(), keeps, "{now}");
        }
    }
}
