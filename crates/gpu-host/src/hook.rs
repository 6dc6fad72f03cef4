//! A program that is started for events, with a text on its standard input.
//!
//! The main decision is that it can neither block nor outlive its time: its input is a file in
//! memory, no caller waits for it, and its process group is killed when it ends and at the end of
//! its time. Few run at once, and few wait.

use crate::trusted_file::TrustedFile;
use gpu_core::{Error, ErrorKind, Result};
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The maximum number of programs that run at once.
const RUNNING: usize = 4;

/// The maximum number of events that wait for one of them to end.
const WAITING: usize = 1_024;

/// The search path of the program, because other users may control the caller's own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program to start for events, if there is one.
#[derive(Debug, Default)]
pub struct Hook {
    program: Option<Program>,
    running: Vec<Running>,
    waiting: VecDeque<Event>,
    /// Failures since the last report.
    failures: Vec<Error>,
}

#[derive(Debug)]
struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    limit: Duration,
}

#[derive(Debug)]
struct Event {
    name: String,
    input: Vec<u8>,
}

#[derive(Debug)]
struct Running {
    event: String,
    program: PathBuf,
    limit: Duration,
    child: Child,
    /// When its time ends; `None` after it was killed.
    until: Option<Duration>,
}

impl Hook {
    /// From now on starts the program at this path, which may run for `limit` each time. Running
    /// programs continue, and waiting events go to the new program.
    ///
    /// # Errors
    /// As [`TrustedFile::open`], and `Invalid` when it is not executable. In these cases the
    /// program does not change.
    pub fn follow(
        &mut self,
        program: &Path,
        arguments: Vec<OsString>,
        limit: Duration,
    ) -> Result<()> {
        self.program = Some(Program { path: TrustedFile::program(program)?, arguments, limit });
        Ok(())
    }

    /// Starts no program from now on. Running programs continue.
    pub fn retire(&mut self) {
        self.program = None;
        self.give_up();
    }

    /// Returns whether a program is started.
    pub fn is_used(&self) -> bool {
        self.program.is_some()
    }

    /// Starts the program for an event, now or after another one has ended.
    ///
    /// # Errors
    /// When the event is lost: the program cannot be started, or too many wait.
    pub fn start(&mut self, name: &str, input: Vec<u8>, now: Duration) -> Result<()> {
        self.advance(now);
        let Some(program) = &self.program else { return Ok(()) };
        let event = Event { name: name.to_owned(), input };
        if self.running.len() < RUNNING {
            self.running.push(program.run(event, now)?);
            return Ok(());
        }
        if self.waiting.len() >= WAITING {
            let what = format!(
                "deliver {name}: {WAITING} events are waiting for '{}'",
                program.path.display()
            );
            return Err(Error::new(ErrorKind::Again, what));
        }
        self.waiting.push_back(event);
        Ok(())
    }

    /// Ends programs that have run for too long and processes that have outlived their program,
    /// starts programs for waiting events, and returns the failures since the last call.
    pub fn attend(&mut self, now: Duration) -> Vec<Error> {
        self.advance(now);
        std::mem::take(&mut self.failures)
    }

    fn advance(&mut self, now: Duration) {
        let failures = &mut self.failures;
        self.running.retain_mut(|running| {
            if running.has_ended() {
                failures.extend(running.settle());
                return false;
            }
            if running.until.is_some_and(|until| now >= until) {
                failures.push(running.killed(&format!("within {:?}", running.limit)));
            }
            true
        });
        while self.running.len() < RUNNING
            && let Some(program) = &self.program
            && let Some(event) = self.waiting.pop_front()
        {
            match program.run(event, now) {
                Ok(running) => self.running.push(running),
                Err(error) => failures.push(error),
            }
        }
    }

    /// Drops all waiting events; [`attend`](Hook::attend) then reports their number.
    pub fn give_up(&mut self) {
        let count = self.waiting.len();
        if count > 0 {
            self.waiting.clear();
            let what = format!("deliver {count} pending events");
            self.failures.push(Error::new(ErrorKind::Interrupted, what));
        }
    }

    /// Drops all waiting events, kills all running programs, and returns the failures since the
    /// last call of [`attend`](Hook::attend), these included.
    pub fn end(&mut self, now: Duration) -> Vec<Error> {
        self.give_up();
        self.advance(now);
        let killed = self.running.iter_mut().filter(|running| running.until.is_some());
        self.failures.extend(killed.map(|running| running.killed("before the shutdown")));
        std::mem::take(&mut self.failures)
    }

    /// Returns the latest time of the next call of [`attend`](Hook::attend), if no program ends
    /// before.
    pub fn due(&self) -> Option<Duration> {
        self.running.iter().filter_map(|running| running.until).min()
    }

    /// Returns whether no program runs and no event waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }
}

impl Drop for Hook {
    /// Kills all running programs without waiting for them: a process in a system call may take
    /// long to end.
    fn drop(&mut self) {
        for running in &mut self.running {
            running.kill();
            let _ = running.child.try_wait();
        }
    }
}

impl Program {
    fn run(&self, event: Event, now: Duration) -> Result<Running> {
        let what = || format!("start '{}' for {}", self.path.display(), event.name);
        let failed = |error| Error::new(ErrorKind::Io, what()).with_source(error);
        // A user with the permission may have replaced the file.
        let program = TrustedFile::program(&self.path)?;
        let child = Command::new(&program)
            .args(&self.arguments)
            .env_clear()
            .envs([("PATH", PATH), ("LANG", "C.UTF-8")])
            .current_dir("/")
            .process_group(0)
            .stdin(in_memory(&event.input).map_err(failed)?)
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (limit, until) = (self.limit, Some(now.saturating_add(self.limit)));
        Ok(Running { event: event.name, program, limit, child, until })
    }
}

impl Running {
    /// Returns whether the program has ended. It is not waited for yet, so its PID is not reused.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), options), Ok(None))
    }

    /// Kills what the program has left in its process group, waits for the program, and returns how
    /// it has failed.
    fn settle(&mut self) -> Option<Error> {
        let was_killed = self.until.is_none();
        self.kill();
        let status = self.child.try_wait().ok()??;
        failure(&self.program, &self.event, status).filter(|_| !was_killed)
    }

    /// Kills the program, and returns that it did not end in time.
    fn killed(&mut self, time: &str) -> Error {
        self.kill();
        let what = format!("deliver {} {time}", self.event);
        let why = format!("'{}' was still running and was killed", self.program.display());
        Error::new(ErrorKind::TimedOut, what).with_source(why)
    }

    /// Kills the process group. The child leads it and has not been waited for, so its PID is not
    /// reused.
    fn kill(&mut self) {
        self.until = None;
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

/// Returns a file in memory with this content, positioned at its start.
fn in_memory(content: &[u8]) -> std::io::Result<File> {
    let file = rustix::fs::memfd_create("gpuws-event", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(content)?;
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}

fn failure(program: &Path, event: &str, status: ExitStatus) -> Option<Error> {
    if status.success() {
        return None;
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was terminated by signal {signal}"),
        (None, None) => "failed".to_owned(),
    };
    let why = format!("'{}' {how}", program.display());
    Some(Error::new(ErrorKind::Io, format!("deliver {event}")).with_source(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;
    use gpu_core::Clock;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const LIMIT: Duration = Duration::from_secs(3_600);

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("hook");
        write_program(&path, &format!("#!/bin/sh\n{text}\n"));
        path
    }

    /// Lets a child write it: the kernel executes no file that is open for writing, and a child of
    /// another thread can have a copy of this program's descriptors.
    fn write_program(path: &Path, text: &str) {
        let write = ["-c", "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"", "sh"];
        let written = Command::new("sh").args(write).arg(path).arg(text).status().unwrap();
        assert!(written.success());
    }

    fn hook(program: &Path, limit: Duration) -> Hook {
        let mut hook = Hook::default();
        hook.follow(program, Vec::new(), limit).unwrap();
        hook
    }

    /// Waits until no process of these PIDs, a line each, is left.
    fn until_gone(pids: &Path) {
        for pid in fs::read_to_string(pids).unwrap().lines() {
            let stat = || fs::read_to_string(format!("/proc/{pid}/stat"));
            // It is a zombie until its new parent reaps it.
            while stat().is_ok_and(|stat| !stat.contains(") Z ") && stat.contains("(sleep)")) {
                SystemClock::new().sleep(Duration::from_millis(2));
            }
        }
    }

    /// Calls `attend` until no program runs, with a clock that stands still, and returns the
    /// failures.
    fn finish(hook: &mut Hook, now: Duration) -> Vec<String> {
        let clock = SystemClock::new();
        let mut failures = Vec::new();
        while !hook.is_idle() {
            failures.extend(hook.attend(now));
            clock.sleep(Duration::from_millis(2));
        }
        failures.iter().map(|error| error.fault().text).collect()
    }

    #[test]
    fn event_is_on_standard_input_and_environment_is_clean() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let text = format!("{{ cat; env | sort; pwd; echo \"$1\"; }} > '{}'", out.display());
        let mut hook = Hook::default();
        hook.follow(&script(dir.path(), &text), vec!["a b".into()], LIMIT).unwrap();
        let long = "x".repeat(1 << 20);
        hook.start("an event", format!("{long}\n").into_bytes(), Duration::ZERO).unwrap();
        assert_eq!(finish(&mut hook, Duration::ZERO), [""; 0]);
        let said = fs::read_to_string(out).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0].len(), long.len(), "more than a pipe has room for");
        assert!(lines.contains(&"LANG=C.UTF-8") && !said.contains("CARGO"), "{:?}", &lines[1..]);
        assert_eq!(lines[lines.len() - 2..], ["/", "a b"]);
    }

    #[test]
    fn hanging_program_is_killed_with_children_and_others_continue() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let text = format!("sleep 1000 & echo $! >> '{}'; wait", pids.display());
        let limit = Duration::from_secs(30);
        let mut hook = hook(&script(dir.path(), &text), limit);
        for name in ["a", "b", "c", "d", "e"] {
            hook.start(name, Vec::new(), Duration::ZERO).unwrap();
        }
        assert_eq!((hook.running.len(), hook.waiting.len()), (RUNNING, 1));
        let count = || fs::read_to_string(&pids).map_or(0, |text| text.lines().count());
        let clock = SystemClock::new();
        while count() < RUNNING {
            clock.sleep(Duration::from_millis(2));
        }
        assert!(hook.attend(Duration::from_secs(29)).is_empty());
        assert_eq!(hook.due(), Some(limit));
        let failures = hook.attend(limit);
        assert_eq!(failures.len(), RUNNING);
        assert!(failures[0].fault().text.contains("was still running"), "{:?}", failures[0]);
        // The fifth starts once one of the killed is gone.
        while count() <= RUNNING {
            hook.attend(limit);
            clock.sleep(Duration::from_millis(2));
        }
        drop(hook);
        until_gone(&pids);
    }

    #[test]
    fn what_a_program_leaves_behind_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let text = format!("sleep 1000 & echo $! > '{}'; exit 0", pids.display());
        let mut hook = hook(&script(dir.path(), &text), LIMIT);
        hook.start("a", Vec::new(), Duration::ZERO).unwrap();
        assert_eq!(finish(&mut hook, Duration::ZERO), [""; 0]);
        until_gone(&pids);
    }

    #[test]
    fn waiting_events_start_as_programs_end() {
        let dir = tempfile::tempdir().unwrap();
        let got = dir.path().join("got");
        let mut hook = hook(&script(dir.path(), &format!("echo >> '{}'", got.display())), LIMIT);
        let clock = SystemClock::new();
        for name in 0..3 * RUNNING {
            hook.start(&name.to_string(), Vec::new(), Duration::ZERO).unwrap();
            // `attend` is not called; a program that has ended makes room for a waiting event.
            while hook.running.len() == RUNNING && !hook.running[0].has_ended() {
                clock.sleep(Duration::from_millis(2));
            }
        }
        assert!(hook.waiting.len() < RUNNING, "{}", hook.waiting.len());
        assert_eq!(finish(&mut hook, Duration::ZERO), [""; 0]);
        assert_eq!(fs::read_to_string(got).unwrap().lines().count(), 3 * RUNNING);
    }

    #[test]
    fn new_program_gets_what_waits_and_an_old_one_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        let (gate, got) = (dir.path().join("gate"), dir.path().join("got"));
        let wait = format!("#!/bin/sh\nwhile [ ! -e '{}' ]; do sleep 0.01; done\n", gate.display());
        for (path, text) in [(&old, wait), (&new, "#!/bin/sh\n".to_owned())] {
            write_program(path, &format!("{text}basename $0 >> '{}'\n", got.display()));
        }
        let mut hook = hook(&old, LIMIT);
        for name in 0..RUNNING + 2 {
            hook.start(&name.to_string(), Vec::new(), Duration::ZERO).unwrap();
        }
        hook.follow(&new, Vec::new(), LIMIT).unwrap();
        fs::write(&gate, "").unwrap();
        assert_eq!(finish(&mut hook, Duration::ZERO), [""; 0]);
        let got = fs::read_to_string(got).unwrap();
        assert_eq!(got.matches("old").count(), RUNNING, "{got}");
        assert_eq!(got.matches("new").count(), 2, "{got}");
        // Without a program, waiting events are lost, and the failure says so.
        fs::remove_file(&gate).unwrap();
        hook.follow(&old, Vec::new(), LIMIT).unwrap();
        for name in 0..RUNNING + 2 {
            hook.start(&name.to_string(), Vec::new(), Duration::ZERO).unwrap();
        }
        hook.retire();
        let reported = hook.attend(Duration::ZERO)[0].fault().text;
        assert!(reported.starts_with("deliver 2 pending events"), "{reported}");
        assert_eq!((hook.running.len(), hook.is_used()), (RUNNING, false));
        let reported = hook.end(Duration::ZERO);
        assert_eq!(reported.len(), RUNNING);
        let reported = reported[0].fault().text;
        assert!(reported.starts_with("deliver 0 before the shutdown: '"), "{reported}");
        assert!(reported.ends_with("old' was still running and was killed"), "{reported}");
    }

    #[test]
    fn failures_are_reported_and_too_many_events_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut hook = hook(&script(dir.path(), "exit 3"), LIMIT);
        hook.start("raised ghost", Vec::new(), Duration::ZERO).unwrap();
        let failures = finish(&mut hook, Duration::ZERO);
        assert!(failures[0].ends_with("hook' exited with 3"), "{failures:?}");
        assert!(failures[0].starts_with("deliver raised ghost: "), "{failures:?}");
        fs::write(dir.path().join("hook"), "#!/bin/sh\nsleep 1000\n").unwrap();
        for at in 0..RUNNING + WAITING {
            hook.start(&at.to_string(), Vec::new(), Duration::ZERO).unwrap();
        }
        let full = hook.start("one more", Vec::new(), Duration::ZERO).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Again);
    }

    #[test]
    fn program_writable_by_others_is_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "exit 0");
        let mut hook = hook(&path, LIMIT);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o757)).unwrap();
        let refused = hook.start("x", Vec::new(), Duration::ZERO).unwrap_err();
        assert!(refused.to_string().contains("writable by others"), "{refused}");
        assert!(hook.follow(&path, Vec::new(), LIMIT).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = hook.follow(&path, Vec::new(), LIMIT).unwrap_err();
        assert!(refused.to_string().contains("is not executable"), "{refused}");
    }
}
