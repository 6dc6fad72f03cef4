//! Runs a program with a few arguments, some text, and a time limit, and returns its output.
//!
//! The main decision is that its output goes through pipes of its own and that the caller does not
//! wait for its end beyond the limit: the caller's own output may be a pipe that is read to its end
//! (the scripts of slurmd), and the program never gets that pipe.

use crate::trusted_file::TrustedFile;
use gpu_core::{Clock, Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The maximum number of bytes to keep of each of the two outputs.
const OUTPUT: usize = 4 << 20;

/// How long a program may still run after it has closed its outputs.
const PAUSE: Duration = Duration::from_millis(5);

/// A program, with the whole environment that it gets.
#[derive(Clone, Debug)]
pub struct Tool {
    program: PathBuf,
    /// Its `argv[0]`: a program with several names behaves according to it.
    name: OsString,
    environment: Vec<(OsString, OsString)>,
}

/// The output and the end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its standard output, at most 4 MiB of it.
    pub output: String,
    /// Its standard error, at most 4 MiB of it.
    pub errors: String,
    /// Its exit status; `None` if it exceeded its time and was killed.
    pub status: Option<ExitStatus>,
}

impl Tool {
    /// Returns the program at this path, with this environment and nothing else.
    ///
    /// # Errors
    /// As [`TrustedFile::open`], and `Invalid` when it is not executable.
    pub fn new(program: &Path, environment: Vec<(OsString, OsString)>) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().to_owned();
        Ok(Tool { program: TrustedFile::program(program)?, name, environment })
    }

    /// Returns this program itself, to be started again.
    pub fn own(environment: Vec<(OsString, OsString)>) -> Self {
        Tool { program: "/proc/self/exe".into(), name: "gpuws".into(), environment }
    }

    /// Returns the path without links.
    pub fn path(&self) -> &Path {
        &self.program
    }

    /// Runs the program, without a shell, from `/` and with empty standard input, for at most
    /// `limit`. Output before the end of its time is part of the answer.
    ///
    /// # Errors
    /// `Io` when it cannot be started.
    pub fn ask(
        &self,
        arguments: &[impl AsRef<OsStr>],
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<Answer> {
        let failed = |error| {
            Error::new(ErrorKind::Io, format!("run '{}'", self.program.display()))
                .with_source(error)
        };
        let until = clock.monotonic().saturating_add(limit);
        let mut child = Command::new(&self.program)
            .arg0(&self.name)
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().cloned())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes =
            [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let mut outputs = pipes.map(|pipe| Output { pipe, text: Vec::new() });
        read_all(&mut outputs, until, clock);
        let status = end(&mut child, until, clock);
        let [output, errors] = outputs.map(|output| lossy(&output.text));
        Ok(Answer { output, errors, status })
    }
}

/// One of the outputs of a program; without a pipe once it has ended.
struct Output {
    pipe: Option<OwnedFd>,
    text: Vec<u8>,
}

impl Output {
    /// Reads the available data; drops the excess, so that the program does not wait for a reader.
    fn read(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut part = [0; 16 << 10];
        match rustix::io::read(pipe, &mut part) {
            Ok(0) => self.pipe = None,
            Ok(length) => {
                let room = OUTPUT.saturating_sub(self.text.len());
                self.text.extend_from_slice(&part[..length.min(room)]);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.pipe = None,
        }
    }
}

/// Reads both outputs until they end or the time is over.
fn read_all(outputs: &mut [Output; 2], until: Duration, clock: &dyn Clock) {
    loop {
        let left = until.saturating_sub(clock.monotonic());
        let open = outputs.iter_mut().filter(|output| output.pipe.is_some());
        let open: Vec<&mut Output> = open.collect();
        if open.is_empty() || left.is_zero() {
            return;
        }
        let pipes = open.iter().filter_map(|output| output.pipe.as_ref());
        let mut polled: Vec<PollFd<'_>> =
            pipes.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)).collect();
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        for (output, ready) in open.into_iter().zip(ready) {
            if ready {
                output.read();
            }
        }
    }
}

/// Waits for the end of a program within its time; then kills it, and does not wait for a program
/// that SIGKILL cannot end.
fn end(child: &mut Child, until: Duration, clock: &dyn Clock) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if clock.monotonic() >= until {
            let _ = child.kill();
            clock.sleep(PAUSE);
            let _ = child.try_wait();
            return None;
        }
        clock.sleep(PAUSE);
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;

    const LONG: Duration = Duration::from_secs(600);

    fn shell() -> Tool {
        Tool::new(Path::new("/bin/sh"), vec![("A".into(), "x y".into())]).unwrap()
    }

    fn ask(script: &str, limit: Duration) -> Answer {
        shell().ask(&["-c", script], limit, &SystemClock::new()).unwrap()
    }

    #[test]
    fn answer_has_both_outputs_and_the_environment_is_given_alone() {
        let answer = ask("echo \"$A\" \"${HOME-none}\"; pwd; cat; echo no >&2; exit 3", LONG);
        assert_eq!((&*answer.output, &*answer.errors), ("x y none\n/\n", "no\n"));
        assert_eq!(answer.status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn program_past_its_time_is_killed_and_its_output_kept() {
        let answer = ask("echo first; exec sleep 1000", Duration::from_millis(300));
        assert_eq!((&*answer.output, answer.status), ("first\n", None));
        // A child that keeps the pipe does not hold the caller either.
        let answer = ask("sleep 1000 & echo $!", Duration::from_millis(300));
        let pid: i32 = answer.output.trim().parse().unwrap();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        assert!(answer.status.is_some_and(|status| status.success()), "{answer:?}");
    }

    #[test]
    fn program_behind_a_link_keeps_the_name_of_the_link() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("asked");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        let tool = Tool::new(&link, Vec::new()).unwrap();
        let answer = tool.ask(&["-c", "echo $0"], LONG, &SystemClock::new()).unwrap();
        assert_eq!(answer.output, "asked\n");
    }

    #[test]
    fn flood_of_output_is_cut_and_does_not_block() {
        let answer = ask("head -c 9000000 /dev/zero; echo end >&2", LONG);
        assert_eq!((answer.output.len(), &*answer.errors), (OUTPUT, "end\n"));
    }

    #[test]
    fn program_writable_by_others_is_not_run() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o757)).unwrap();
        let refused = Tool::new(&path, Vec::new()).unwrap_err();
        assert!(refused.to_string().contains("writable by others"), "{refused}");
        assert!(Tool::new(Path::new("/no/such/tool"), Vec::new()).is_err());
    }
}
