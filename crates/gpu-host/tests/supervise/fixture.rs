//! Frontends that tests start, their reports, and clean-up.

use crate::roles::REPORT;
use gpu_core::Clock;
use gpu_host::SystemClock;
use rustix::fs::{CWD, Mode};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// The maximum wait for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// A directory with a report in it, and a pipe named `go`.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let go = dir.path().join("go");
        rustix::fs::mkfifoat(CWD, &go, Mode::RUSR | Mode::WUSR).expect("a pipe can be made");
        Fixture { dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn report_file(&self) -> PathBuf {
        self.dir().join("report")
    }

    /// Returns the report, line by line.
    pub(crate) fn report(&self) -> Vec<String> {
        let text = fs::read_to_string(self.report_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the content of a file of the directory, once it is not empty.
    pub(crate) fn said(&self, name: &str) -> String {
        let path = self.dir().join(name);
        eventually(name, || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        fs::read_to_string(path).expect("it is there").trim().to_owned()
    }

    /// Returns how often a line occurs in the report.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.report().iter().filter(|reported| *reported == line).count()
    }

    /// Waits for a line of the report.
    pub(crate) fn expect(&self, line: &str) {
        eventually(line, || self.count(line) > 0);
    }

    /// Continues a job that waits in `: < go`.
    pub(crate) fn go(&self) {
        fs::OpenOptions::new().write(true).open(self.dir().join("go")).expect("a pipe");
    }

    /// Returns the supervisor, once it responds.
    pub(crate) fn supervisor(&self) -> Pid {
        let find =
            || self.report().iter().find_map(|line| line.strip_prefix("supervisor ")?.parse().ok());
        eventually("a supervisor", || find().is_some());
        number(find().expect("it is there"))
    }

    /// Returns a frontend of `mode` for a command, not yet started, in the directory of the fixture.
    pub(crate) fn front(&self, mode: &str, command: &[&str]) -> Command {
        self.role(&[&["front", mode], command].concat())
    }

    /// Returns this program in another role.
    pub(crate) fn role(&self, words: &[&str]) -> Command {
        let mut front = Command::new(std::env::current_exe().expect("this program has a file"));
        front.args(words).env(REPORT, self.report_file()).current_dir(self.dir());
        front
    }

    /// Starts a frontend for a shell script.
    pub(crate) fn shell(&self, mode: &str, script: &str) -> Child {
        self.front(mode, &["sh", "-c", script]).spawn().expect("it can be started")
    }
}

pub(crate) fn number(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process number")
}

pub(crate) fn send(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("it can be signalled");
}

/// Waits for a child, with a timeout.
pub(crate) fn end_of(child: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually("the end of a child", || {
        status = child.try_wait().expect("it can be waited for");
        status.is_some()
    });
    status.expect("it has ended")
}

/// Returns the exit status of a child: its code, or its signal as a negative number.
pub(crate) fn how(child: &mut Child) -> i32 {
    let status = end_of(child);
    status.code().unwrap_or_else(|| -status.signal().expect("a code or a signal"))
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !condition() {
        assert!(clock.monotonic() < PATIENCE, "it did not come true: {what}");
        clock.sleep(Duration::from_millis(5));
    }
}

/// Waits while something wrong could happen.
pub(crate) fn a_while() {
    SystemClock::new().sleep(Duration::from_millis(400));
}

/// One line of `/proc`: PID, name, state, parent.
pub(crate) struct Seen {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: u32,
}

/// Returns all processes.
pub(crate) fn all_processes() -> Vec<Seen> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let (before, after) = stat.rsplit_once(") ")?;
        let mut fields = after.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Seen { pid, name: before.split_once('(')?.1.to_owned(), state, parent })
    };
    fs::read_dir("/proc").expect("there is a /proc").filter_map(read).collect()
}

/// Returns the descendants of a process.
pub(crate) fn below(pid: u32) -> Vec<Seen> {
    let (mut rest, mut found) = (all_processes(), Vec::<Seen>::new());
    loop {
        let (more, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|seen| {
            seen.parent == pid || found.iter().any(|found| found.pid == seen.parent)
        });
        if more.is_empty() {
            return found;
        }
        found.extend(more);
        rest = others;
    }
}

/// Waits until no process lives that a test has started.
pub(crate) fn all_end() {
    eventually("the end of all", || below(std::process::id()).iter().all(|seen| seen.state == 'Z'));
}

/// Ends all descendants of this process, and names those that still lived.
pub(crate) fn end_all() -> Vec<String> {
    let mut lived = Vec::new();
    loop {
        // Orphans that have ended are reaped here.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        while let Ok(Some(_)) = waitid(WaitId::All, ended) {}
        let left = below(std::process::id());
        if left.is_empty() {
            return lived;
        }
        for seen in left.iter().filter(|seen| seen.state != 'Z') {
            let name = format!("{} {}", seen.pid, seen.name);
            if !lived.contains(&name) {
                lived.push(name);
            }
            // It may have ended by itself.
            let _ = kill_process(number(seen.pid), Signal::KILL);
        }
        SystemClock::new().sleep(Duration::from_millis(2));
    }
}
