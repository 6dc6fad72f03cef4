//! A program that is started for events, with a text on its standard input.
//!
//! The main decision is that it can neither block nor outlive its time: its input is a file in
//! memory, nobody waits for it, and its process group is killed at the end of its time. Few run at
//! once, and few wait.

use crate::trusted_file::TrustedFile;
use gpu_core::{Error, ErrorKind, Result};
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The most that run at once.
const RUNNING: usize = 4;

/// The most events that wait for one of them to end.
const WAITING: usize = 256;

/// The search path of the program: the caller's own may be anybody's.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that is started for events.
#[derive(Debug)]
pub struct Hook {
    program: PathBuf,
    arguments: Vec<OsString>,
    limit: Duration,
    running: Vec<Running>,
    waiting: VecDeque<Event>,
}

#[derive(Debug)]
struct Event {
    name: String,
    input: Vec<u8>,
}

#[derive(Debug)]
struct Running {
    name: String,
    child: Child,
    /// When its time ends; `None` once it has been killed.
    until: Option<Duration>,
}

impl Hook {
    /// Returns the program at this path, which may run for `limit` each time.
    ///
    /// # Errors
    /// As [`TrustedFile::open`], and `Invalid` when it is not executable.
    pub fn new(program: &Path, arguments: Vec<OsString>, limit: Duration) -> Result<Self> {
        let program = trusted(program)?;
        let (running, waiting) = (Vec::new(), VecDeque::new());
        Ok(Hook { program, arguments, limit, running, waiting })
    }

    /// Starts the program for an event, now or once another one has ended.
    ///
    /// # Errors
    /// When the event is not passed on: the program cannot be started, or too many wait.
    pub fn start(&mut self, name: &str, input: Vec<u8>, now: Duration) -> Result<()> {
        let event = Event { name: name.to_owned(), input };
        if self.running.len() < RUNNING {
            return self.run(event, now);
        }
        if self.waiting.len() >= WAITING {
            let what =
                format!("pass on {name}: {WAITING} events wait for '{}'", self.program.display());
            return Err(Error::new(ErrorKind::Again, what));
        }
        self.waiting.push_back(event);
        Ok(())
    }

    /// Ends what has run for too long, starts what waits, and returns the failures since the last
    /// call.
    pub fn attend(&mut self, now: Duration) -> Vec<Error> {
        let mut failures = Vec::new();
        let limit = self.limit;
        let program = &self.program;
        self.running.retain_mut(|running| match running.child.try_wait() {
            Ok(Some(status)) => {
                let was_killed = running.until.is_none();
                failures.extend(failure(program, &running.name, status).filter(|_| !was_killed));
                false
            }
            Ok(None) => {
                if running.until.is_some_and(|until| now >= until) {
                    running.kill();
                    let what = format!("pass on {} within {limit:?}", running.name);
                    let why = format!("'{}' was still running and was killed", program.display());
                    failures.push(Error::new(ErrorKind::TimedOut, what).with_source(why));
                }
                true
            }
            Err(_) => false,
        });
        while self.running.len() < RUNNING
            && let Some(event) = self.waiting.pop_front()
        {
            failures.extend(self.run(event, now).err());
        }
        failures
    }

    /// Returns when [`attend`](Hook::attend) has something to do at the latest, if nothing ends
    /// before.
    pub fn due(&self) -> Option<Duration> {
        self.running.iter().filter_map(|running| running.until).min()
    }

    /// Returns whether nothing runs or waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    fn run(&mut self, event: Event, now: Duration) -> Result<()> {
        let what = || format!("start '{}' for {}", self.program.display(), event.name);
        let failed = |error| Error::new(ErrorKind::Io, what()).with_source(error);
        // Somebody with the right to may have exchanged it.
        let program = trusted(&self.program)?;
        let child = Command::new(program)
            .args(&self.arguments)
            .env_clear()
            .envs([("PATH", PATH), ("LANG", "C.UTF-8")])
            .current_dir("/")
            .process_group(0)
            .stdin(in_memory(&event.input).map_err(failed)?)
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let until = Some(now.saturating_add(self.limit));
        self.running.push(Running { name: event.name, child, until });
        Ok(())
    }
}

impl Drop for Hook {
    /// Kills what still runs.
    fn drop(&mut self) {
        for running in &mut self.running {
            // A child that has ended and is not reaped keeps its PID.
            if !matches!(running.child.try_wait(), Ok(Some(_))) {
                running.kill();
                let _ = running.child.wait();
            }
        }
    }
}

impl Running {
    /// Kills the process group. The child leads it and has not been waited for, so its PID is not
    /// reused.
    fn kill(&mut self) {
        self.until = None;
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

fn trusted(program: &Path) -> Result<PathBuf> {
    let file = TrustedFile::open(program)?;
    match file.is_executable()? {
        true => Ok(file.path().to_owned()),
        false => {
            let what = format!("use the file '{}', which is not executable", program.display());
            Err(Error::new(ErrorKind::Invalid, what))
        }
    }
}

/// Returns a file in memory with this content, to be read from its start.
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
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "failed".to_owned(),
    };
    let why = format!("'{}' {how}", program.display());
    Some(Error::new(ErrorKind::Io, format!("pass on {event}")).with_source(why))
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
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Attends until nothing runs, at a time that stands still, and returns the failures.
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
        let hook = Hook::new(&script(dir.path(), &text), vec!["a b".into()], LIMIT);
        let mut hook = hook.unwrap();
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
    fn program_that_hangs_is_killed_with_its_children_and_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let text = format!("sleep 1000 & echo $! >> '{}'; wait", pids.display());
        let limit = Duration::from_secs(30);
        let mut hook = Hook::new(&script(dir.path(), &text), Vec::new(), limit).unwrap();
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
        for pid in fs::read_to_string(&pids).unwrap().lines() {
            let stat = || fs::read_to_string(format!("/proc/{pid}/stat"));
            // It is a zombie until its new parent reaps it.
            while stat().is_ok_and(|stat| !stat.contains(") Z ") && stat.contains("(sleep)")) {
                clock.sleep(Duration::from_millis(2));
            }
        }
    }

    #[test]
    fn failures_are_reported_and_too_many_events_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut hook = Hook::new(&script(dir.path(), "exit 3"), Vec::new(), LIMIT).unwrap();
        hook.start("raised ghost", Vec::new(), Duration::ZERO).unwrap();
        let failures = finish(&mut hook, Duration::ZERO);
        assert!(failures[0].ends_with("hook' exited with 3"), "{failures:?}");
        assert!(failures[0].starts_with("pass on raised ghost: "), "{failures:?}");
        fs::write(dir.path().join("hook"), "#!/bin/sh\nsleep 1000\n").unwrap();
        for at in 0..RUNNING + WAITING {
            hook.start(&at.to_string(), Vec::new(), Duration::ZERO).unwrap();
        }
        let full = hook.start("one more", Vec::new(), Duration::ZERO).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Again);
    }

    #[test]
    fn program_that_others_can_change_is_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "exit 0");
        let mut hook = Hook::new(&path, Vec::new(), LIMIT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o757)).unwrap();
        let refused = hook.start("x", Vec::new(), Duration::ZERO).unwrap_err();
        assert!(refused.to_string().contains("writable by others"), "{refused}");
        assert!(Hook::new(&path, Vec::new(), LIMIT).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Hook::new(&path, Vec::new(), LIMIT).unwrap_err();
        assert!(refused.to_string().contains("is not executable"), "{refused}");
    }
}
