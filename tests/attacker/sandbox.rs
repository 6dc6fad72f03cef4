//! The file system and the PID namespace of the attackers and their victims.

use super::layout::{Layout, SAFE_GPU};
use super::status::Summary;
use gpu_core::Clock;
use gpu_host::SystemClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The users of a run. Root is the other honest user.
pub(crate) const ATTACKER: u32 = 61_001;
pub(crate) const HONEST: u32 = 61_002;
pub(crate) const ONLOOKER: u32 = 61_003;

const INSIDE: &str = "GPUWS_ATTACK_INSIDE";

/// The time after which a step counts as hanging, even on a loaded machine.
pub(crate) const HANGS: Duration = Duration::from_secs(240);

/// Runs a test in its own mount namespace, PID namespace (so that no process outlives it) and, if
/// the caller is not root, user namespace. Returns the directory for its file system; `None`
/// outside the namespaces, where the test has already run or was skipped.
pub(crate) fn enter(test: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return Some(dir.into());
    }
    let unshare = || {
        let mut unshare = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user", "--map-auto"]);
        }
        unshare.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
        unshare
    };
    if !unshare().arg("true").output().is_ok_and(|output| output.status.success()) {
        let why = "namespaces of mounts, processes and several users cannot be made here";
        writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("standard error is open");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut inside = unshare();
    inside.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture", "-q"]);
    let status = inside.env(INSIDE, dir.path()).status().unwrap();
    assert!(status.success(), "{test} failed in its namespaces");
    None
}

/// Mounts an empty file system.
pub(crate) fn mount(dir: &Path, options: &str) {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir);
    assert!(mount.status().unwrap().success(), "mounting failed");
}

/// A process of the run.
pub(crate) struct Participant {
    pub(crate) name: String,
    pub(crate) child: Child,
}

impl Participant {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        // Other code notices a process that has ended.
        let _ = kill_process(pid, signal);
    }
}

/// A process that reads the leases on request.
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    input: ChildStdin,
    answers: Receiver<Value>,
    _child: Child,
}

impl Reader {
    /// Requests a reading.
    pub(crate) fn ask(&mut self) {
        self.input.write_all(b"read\n").expect("the reader runs");
    }

    /// Returns the requested reading.
    pub(crate) fn answer(&self) -> Value {
        let late = json!({ "error": "it does not answer" });
        self.answers.recv_timeout(HANGS).unwrap_or(late)
    }
}

pub(crate) struct Sandbox {
    pub(crate) layout: Layout,
    pub(crate) clock: SystemClock,
    pub(crate) honest: Vec<Participant>,
    pub(crate) attackers: Vec<Participant>,
    pub(crate) readers: Vec<Reader>,
    lines: Receiver<Value>,
    pipe: PipeWriter,
    started: u64,
    canaries: Vec<String>,
}

impl Sandbox {
    /// Creates the directories. `has_run` states whether there is a `/run` in which root can create
    /// a directory for leases.
    pub(crate) fn new(dir: &Path, has_run: bool) -> Self {
        mount(dir, "mode=0755,size=512m,nr_inodes=200k");
        let layout = Layout { root: dir.to_owned(), run: dir.join("run") };
        let make = |path: &str, mode| {
            let path = dir.join(path);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let write = |path: &Path, mode| {
            fs::write(path, "untouched").unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        if has_run {
            make("run", 0o755);
        }
        make("tmp", 0o1777);
        make("tmp/safe_gpu", 0o1777);
        layout.safe_gpu().iter().for_each(|path| write(path, 0o666));
        make("canary", 0o755);
        make("canary/directory", 0o755);
        let [open, closed, _, inner] = layout.canaries();
        write(&open, 0o666);
        write(&closed, 0o644);
        write(&inner, 0o644);
        make("bin", 0o755);
        make("status", 0o700);
        // Every user must be able to run the program.
        fs::copy(env!("CARGO_BIN_EXE_attack-participant"), dir.join("bin/participant")).unwrap();

        let (reader, pipe) = std::io::pipe().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                let line =
                    serde_json::from_str(&line.unwrap()).expect("each line is a JSON object");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let canaries = canaries(&layout);
        Sandbox {
            layout,
            clock: SystemClock::new(),
            honest: Vec::new(),
            attackers: Vec::new(),
            readers: Vec::new(),
            lines,
            pipe,
            started: 0,
            canaries,
        }
    }

    fn participant(&mut self, role: &str, user: u32) -> (String, Command) {
        self.started += 1;
        let mut command = Command::new(self.layout.root.join("bin/participant"));
        command.arg(role).arg(&self.layout.root).arg(&self.layout.run);
        command.current_dir("/").stdin(Stdio::null());
        if user != 0 {
            command.uid(user).gid(user);
        }
        (format!("{role}-{}-of-{user}", self.started), command)
    }

    /// Starts an honest process.
    pub(crate) fn start_honest(&mut self, user: u32, seed: u64, rule: &str) {
        let (name, mut command) = self.participant("honest", user);
        command.arg(&name).arg(seed.wrapping_add(self.started).to_string()).arg(rule);
        command.stdout(self.pipe.try_clone().unwrap());
        self.honest.push(Participant { name, child: command.spawn().unwrap() });
    }

    /// Starts an attacker, which takes a number of steps and then keeps everything.
    pub(crate) fn start_attacker(&mut self, seed: u64, steps: u64) {
        let (name, mut command) = self.participant("attacker", ATTACKER);
        let seed = seed.wrapping_mul(1009).wrapping_add(self.started);
        command.args([seed, steps, u64::from(HONEST)].map(|number| number.to_string()));
        command.stdout(File::create_new(self.status_file(&name)).unwrap());
        self.attackers.push(Participant { name, child: command.spawn().unwrap() });
    }

    /// Starts a reader with the library's rules or a broken rule.
    pub(crate) fn start_reader(&mut self, name: &'static str, user: u32, rule: &str) {
        let (_, mut command) = self.participant("reader", user);
        command.arg(rule).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let line = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                if line.is_none_or(|line: Value| sender.send(line).is_err()) {
                    return;
                }
            }
        });
        let input = child.stdin.take().unwrap();
        self.readers.push(Reader { name, input, answers, _child: child });
    }

    fn status_file(&self, name: &str) -> PathBuf {
        self.layout.root.join("status").join(name)
    }

    /// Returns the progress of the attackers.
    pub(crate) fn summaries(&self) -> Vec<Summary> {
        let files = self.attackers.iter().map(|attacker| self.status_file(&attacker.name));
        files.map(|file| Summary::read(&file).unwrap_or_default()).collect()
    }

    /// Returns the last steps of each attacker.
    pub(crate) fn last_steps(&self) -> String {
        let mut text = String::new();
        for attacker in &self.attackers {
            text += &format!("the last steps of {}:\n  ", attacker.name);
            text += &Summary::last_steps(&self.status_file(&attacker.name), 50).join("\n  ");
            text.push('\n');
        }
        text
    }

    /// Writes a line on behalf of a process, in sequence with all other lines.
    pub(crate) fn say(&mut self, event: &str, participant: &str) {
        let line = json!({ "event": event, "participant": participant });
        self.pipe.write_all(format!("{line}\n").as_bytes()).expect("the test reads the pipe");
    }

    /// Processes all lines so far.
    pub(crate) fn hear(&mut self, mut each: impl FnMut(&Value)) {
        self.say("mark", "");
        loop {
            let line = self.lines.recv_timeout(HANGS).expect("the marker line arrives");
            if line["event"] == "mark" {
                return;
            }
            each(&line);
        }
    }

    /// Describes the changes to root's files through links planted by the attacker.
    pub(crate) fn changed_canaries(&self) -> Vec<String> {
        let now = canaries(&self.layout);
        let pairs = self.canaries.iter().zip(&now).filter(|(before, now)| before != now);
        pairs.map(|(before, now)| format!("{before} is {now} now")).collect()
    }

    /// Returns the locked files in the directories of leases.
    pub(crate) fn locked(&self) -> Vec<String> {
        let device = fs::metadata(&self.layout.root).unwrap().dev();
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
        let here = format!("{major:02x}:{minor:02x}:");
        let list = fs::read_to_string("/proc/locks").unwrap();
        list.lines().filter(|line| line.contains(&here)).map(str::to_owned).collect()
    }

    /// Waits until a condition holds; returns false if it does not.
    pub(crate) fn eventually(&self, mut condition: impl FnMut() -> bool) -> bool {
        let end = self.clock.monotonic() + HANGS;
        while !condition() {
            if self.clock.monotonic() > end {
                return false;
            }
            self.clock.sleep(Duration::from_millis(5));
        }
        true
    }
}

/// Returns, for each of root's files, everything that others could change except the link count.
fn canaries(layout: &Layout) -> Vec<String> {
    let one = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(file) = fs::symlink_metadata(&path) else { return format!("{name}: gone") };
        let mut inside: Vec<_> = fs::read_dir(&path).into_iter().flatten().flatten().collect();
        inside.sort_by_key(fs::DirEntry::file_name);
        let inside: Vec<_> = inside.iter().map(fs::DirEntry::file_name).collect();
        let text = fs::read(&path).unwrap_or_default();
        let times = (file.mtime(), file.mtime_nsec());
        let owner = (file.uid(), file.gid());
        format!("{name}: {:o} of {owner:?}, {times:?}, {text:?}, {inside:?}", file.mode())
    };
    let mut paths = layout.canaries().to_vec();
    paths.push(layout.tmp().join("safe_gpu"));
    let mut reported: Vec<String> = paths.drain(..4).map(one).collect();
    // Every user may create files in this directory, so only its owner and mode must not change.
    let owners = [paths[0].clone(), layout.tmp().join(SAFE_GPU)].map(|path| {
        let file = fs::symlink_metadata(&path);
        file.map_or("gone".into(), |file| format!("{:o} of {}", file.mode(), file.uid()))
    });
    reported.extend(owners);
    reported
}
