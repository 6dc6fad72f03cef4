//! The world: its first process starts the others, reaps them, reuses their PIDs for bystanders,
//! and collects the reports.

use super::layout;
use super::roles::{ATTACKER, ActorRole, HONEST, INSTALLED, ONLOOKER, PROGRAM_NAMES, WorldDirs};
use super::truth::{Truth, all_pids};
use crate::attacker::sandbox::HANGS;
use crate::attacker::verdict::Verdict;
use gpu_core::Clock;
use gpu_host::SystemClock;
use gpuws_tests::Chance;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The minimum number of attackers. Attackers start others; if there are fewer, the world starts
/// one.
const ATTACKERS: usize = 10;
const BYSTANDERS: usize = 6;
/// The number of last steps that a violation shows.
const KEPT: usize = 50;
/// The interval for continuing stopped processes and counting attackers.
const ROUND: Duration = Duration::from_millis(100);
/// The file with the most recent PID of this PID namespace.
pub(crate) const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

struct World {
    dirs: WorldDirs,
    seed: u64,
    chance: Chance,
    clock: SystemClock,
    lines: Receiver<Value>,
    pipe: PipeWriter,
    started: u64,
    /// The processes that the world started, by PID, with their roles.
    processes: BTreeMap<u32, &'static str>,
    bystanders: VecDeque<u32>,
    steps: BTreeMap<String, u64>,
    counts: BTreeMap<String, u64>,
    last_steps: VecDeque<String>,
    sent: BTreeMap<(u64, u64, String), usize>,
    violations: Vec<String>,
}

/// Runs until the attackers have taken this many steps and have met the reapers, which may take up
/// to `most` steps on a busy machine; or until a violation that contains one of `words` (any
/// violation if `words` is empty).
pub(crate) fn run(
    dir: &Path,
    seed: u64,
    (steps, most): (u64, u64),
    rule: &str,
    words: &[&str],
) -> Verdict {
    let mut world = World::new(dir, seed);
    let is_meant = |violation: &String| {
        words.is_empty() || words.iter().any(|words| violation.contains(words))
    };
    world.start_processes(rule);
    let mut round_at = Duration::ZERO;
    let mut progress = (0, world.clock.monotonic());
    let needed = |world: &World| if world.has_met() { steps } else { most };
    while !world.violations.iter().any(is_meant) && world.made() < needed(&world) {
        world.reap_ended();
        world.process_lines();
        let now = world.clock.monotonic();
        if now >= round_at {
            world.replenish();
            round_at = now + ROUND;
        }
        if world.made() > progress.0 {
            progress = (world.made(), now);
        } else if now > progress.1 + HANGS {
            world.violations.push("the attackers make no steps any more".to_owned());
            break;
        }
        world.clock.sleep(Duration::from_millis(1));
    }
    if world.violations.is_empty() {
        world.finish();
    }
    world.verdict()
}

impl World {
    fn new(dir: &Path, seed: u64) -> Self {
        let dirs = WorldDirs { root: dir.to_owned() };
        layout::make(&dirs);
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
        World {
            dirs,
            seed,
            chance: Chance::new(seed),
            clock: SystemClock::new(),
            lines,
            pipe,
            started: 0,
            processes: BTreeMap::new(),
            bystanders: VecDeque::new(),
            steps: BTreeMap::new(),
            counts: BTreeMap::new(),
            last_steps: VecDeque::new(),
            sent: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    fn start_processes(&mut self, rule: &str) {
        let bin = self.dirs.bin();
        let mps = PathBuf::from(INSTALLED).join("nvidia-cuda-mps-server");
        for (kind, user, program) in [
            ("daemon", 0, bin.join("Xorg")),
            ("daemon", 0, bin.join("nvidia-persistenced")),
            ("daemon", HONEST, mps.clone()),
            ("daemon", ATTACKER, mps),
            ("monitor", 0, bin.join("participant")),
            ("monitor", ATTACKER, bin.join("participant")),
            ("sshd", 0, bin.join("sshd")),
        ] {
            self.start(kind, user, &program, None).expect("the program starts");
        }
        for user in [0, 0, HONEST] {
            self.start_reaper(user, rule);
        }
    }

    /// Starts a reaper below an ancestor, and its driver.
    fn start_reaper(&mut self, user: u32, rule: &str) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut driver =
            self.role("driver").command(&self.dirs, self.dirs.bin().join("participant"));
        driver.stdin(OwnedFd::from(theirs));
        self.processes.insert(driver.spawn().unwrap().id(), "driver");
        let mut ancestor = Command::new(self.dirs.bin().join("participant"));
        ancestor.arg("ancestor").arg(&self.dirs.root).arg(user.to_string());
        ancestor.arg(self.chance.below(u64::MAX).to_string()).arg(rule);
        ancestor.current_dir("/").stdin(OwnedFd::from(ours));
        ancestor.stdout(self.pipe.try_clone().unwrap()).process_group(0);
        if user != 0 {
            ancestor.uid(user).gid(user);
        }
        self.processes.insert(ancestor.spawn().unwrap().id(), "ancestor");
    }

    fn role(&mut self, kind: &str) -> ActorRole {
        self.started += 1;
        ActorRole {
            kind: kind.to_owned(),
            token: format!("{kind}-{}", self.started),
            seed: self.seed.wrapping_mul(1009).wrapping_add(self.chance.below(u64::MAX)),
            budget: 1 + self.chance.below(7),
            program: 0,
        }
    }

    /// Starts a process, in a process group if it can join one.
    fn start(
        &mut self,
        kind: &'static str,
        user: u32,
        program: &Path,
        group: Option<i32>,
    ) -> std::io::Result<u32> {
        let role = self.role(kind);
        let mut command = role.command(&self.dirs, program.to_owned());
        command.stdout(self.pipe.try_clone()?).process_group(group.unwrap_or(0));
        if user != 0 {
            command.uid(user).gid(user);
        }
        let pid = command.spawn()?.id();
        self.processes.insert(pid, kind);
        Ok(pid)
    }

    /// Starts a process that leads a group, one that joins a group, or a separate one.
    fn start_in_a_group(&mut self, kind: &'static str, user: u32, program: &Path) -> Option<u32> {
        let group = self.chance.one_in(3).then(|| self.any_group()).flatten();
        let started = self.start(kind, user, program, group);
        started.or_else(|_| self.start(kind, user, program, None)).ok()
    }

    fn any_group(&mut self) -> Option<i32> {
        let attackers = attackers();
        let group = (!attackers.is_empty()).then(|| self.chance.of(&attackers).1.group)?;
        Some(group).filter(|group| *group > 0)
    }

    fn start_attacker(&mut self) {
        let user = *self.chance.of(&[ATTACKER, ATTACKER, HONEST]);
        let name = *self.chance.of(&PROGRAM_NAMES);
        let program = self.dirs.program(0, name);
        if !self.chance.one_in(8) {
            self.start_in_a_group("attack", user, &program);
            return;
        }
        // The attacker runs in its own PID namespace.
        let inner = self.role("attack").command(&self.dirs, program);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "setpriv", "--clear-groups"]);
        command.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
        command.arg(inner.get_program()).args(inner.get_args()).current_dir("/");
        command.stdout(self.pipe.try_clone().unwrap()).process_group(0);
        // It ends with the process inside, and prints an error if that process was killed.
        let namespace = command.stderr(Stdio::null()).spawn().unwrap().id();
        self.processes.insert(namespace, "attack");
    }

    /// Reaps all ended processes and reuses their PIDs.
    fn reap_ended(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap();
            let kind = self.processes.remove(&pid).unwrap_or("orphan");
            self.bystanders.retain(|bystander| *bystander != pid);
            self.judge_end(pid, kind, status);
            if ["attack", "orphan"].contains(&kind) {
                self.reuse_pid(pid);
            }
        }
    }

    /// Checks how a process ended. A trigger may have reached a bystander instead of the previous
    /// owner of its PID.
    fn judge_end(&mut self, pid: u32, kind: &str, status: WaitStatus) {
        let signal = status.terminating_signal();
        let called = [Signal::USR1, Signal::USR2].map(|signal| Some(signal.as_raw()));
        match kind {
            "attack" | "orphan" => {}
            "bystander" if called.contains(&signal) => {}
            "ancestor" if status.exit_status() == Some(0) && self.dirs.stop().exists() => {}
            "driver" if self.dirs.stop().exists() => {}
            _ => {
                let how = signal.map_or("itself".to_owned(), |signal| format!("signal {signal}"));
                self.violations.push(format!("{kind} {pid} was ended by {how}"));
            }
        }
    }

    /// Starts a bystander with this PID, unless another process gets it first.
    fn reuse_pid(&mut self, pid: u32) {
        if self.bystanders.len() >= BYSTANDERS {
            let oldest = self.bystanders.pop_front().and_then(|pid| i32::try_from(pid).ok());
            if let Some(oldest) = oldest.and_then(Pid::from_raw) {
                let _ = kill_process(oldest, Signal::USR1);
            }
        }
        // If the file is not writable, PIDs wrap around naturally, which takes longer.
        let _ = fs::write(LAST_NUMBER, (pid - 1).to_string());
        let user = *self.chance.of(&[ATTACKER, HONEST, ONLOOKER]);
        let program = self.dirs.bin().join("participant");
        if let Some(bystander) = self.start_in_a_group("bystander", user, &program) {
            self.bystanders.push_back(bystander);
            *self.counts.entry("numbers given away".into()).or_default() +=
                u64::from(bystander == pid);
        }
    }

    /// Continues stopped attackers, and starts more if there are few.
    fn replenish(&mut self) {
        let attackers = attackers();
        for (pid, _) in &attackers {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::CONT);
            }
        }
        if attackers.len() < ATTACKERS {
            self.start_attacker();
        }
    }

    fn made(&self) -> u64 {
        self.steps.values().sum()
    }

    /// Returns whether each kind of encounter between reapers and attackers has happened.
    fn has_met(&self) -> bool {
        let count = |what: &str| self.counts.get(what).copied().unwrap_or(0);
        let needed = ["signals", "refusals", "ended", "executed between snapshot and signal"];
        needed.iter().all(|what| count(what) > 0)
    }

    fn process_lines(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            if let (Some(step), Some(token)) = (line["step"].as_str(), line["token"].as_str()) {
                if step.starts_with("violation") {
                    self.violations.push(step.to_owned());
                }
                *self.steps.entry(step.to_owned()).or_default() += 1;
                self.last_steps.push_back(format!("{token} {step}"));
                let over = self.last_steps.len().saturating_sub(KEPT);
                self.last_steps.drain(..over);
            }
            for (what, count) in line["counts"].as_object().into_iter().flatten() {
                *self.counts.entry(what.clone()).or_default() += count.as_u64().unwrap_or(0);
            }
            let violations = line["violations"].as_array().into_iter().flatten();
            self.violations.extend(violations.filter_map(Value::as_str).map(str::to_owned));
            for sent in line["sent"].as_array().into_iter().flatten() {
                let number = |index: usize| sent[index].as_u64().unwrap_or(0);
                let signal = sent[2].as_str().unwrap_or_default().to_owned();
                *self.sent.entry((number(0), number(1), signal)).or_default() += 1;
            }
        }
    }

    /// Ends the reapers, and searches the audit logs for each signal.
    fn finish(&mut self) {
        fs::write(self.dirs.stop(), "").unwrap();
        let end = self.clock.monotonic() + HANGS;
        while self.processes.values().any(|kind| *kind == "ancestor") {
            self.reap_ended();
            self.process_lines();
            if self.clock.monotonic() > end {
                return self.violations.push("a reaper does not end".to_owned());
            }
            self.clock.sleep(Duration::from_millis(2));
        }
        self.process_lines();
        let mut written: BTreeMap<(u64, u64, String), usize> = BTreeMap::new();
        for user in [0, HONEST] {
            for line in fs::read_to_string(self.dirs.audit(user)).unwrap_or_default().lines() {
                let line: Value = serde_json::from_str(line).expect("each line is a JSON object");
                let number = |name: &str| line[name].as_u64().unwrap_or(0);
                let signal = line["signal"].as_str().unwrap_or_default().to_owned();
                *written.entry((number("pid"), number("start_ticks"), signal)).or_default() += 1;
            }
        }
        for (signal, count) in &self.sent {
            if written.get(signal).is_none_or(|lines| lines < count) {
                self.violations.push(format!("the audit log lacks {signal:?}"));
            }
        }
    }

    fn verdict(self) -> Verdict {
        let mut figures = format!(
            "seed {}: {} steps of processes in {:.1} s; {} violations\n ",
            self.seed,
            self.made(),
            self.clock.monotonic().as_secs_f64(),
            self.violations.len(),
        );
        for (what, count) in &self.counts {
            write!(figures, " {what} {count};").unwrap();
        }
        figures.push_str("\n ");
        for (step, count) in &self.steps {
            write!(figures, " {step} {count}").unwrap();
        }
        Verdict {
            figures,
            met: self.has_met(),
            violations: self.violations,
            last_steps: Vec::from(self.last_steps).join("\n"),
            seed: self.seed,
        }
    }
}

/// Returns the living attackers.
fn attackers() -> Vec<(u32, Truth)> {
    let all_pids = all_pids().into_iter().filter_map(|pid| Some((pid, Truth::of(pid)?)));
    all_pids.filter(|(_, truth)| truth.kind() == "attack" && !truth.is_zombie).collect()
}
