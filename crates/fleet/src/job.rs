//! A job on another host, which ends with the connection.
//!
//! ssh does not end a command when the connection ends, unless it gives it a terminal, which would
//! change the output. So `gpuws run --end-with-input` there ends the job when its standard input
//! ends, and nothing is ever written to that: it is the write end of a pipe that only this process
//! has. It ends on request, when this process is killed, and when the connection breaks.

use crate::child::{last_line, wait};
use crate::{HostName, Ssh};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The line on standard error by which `gpuws run --announce` says that it has the devices, and
/// that the command starts. Before this line nothing has run.
pub const STARTED: &str = "gpuws: started";

/// What is kept of the messages before the start, in bytes.
const MESSAGES: usize = 64 << 10;

/// The exit code of gpuws when the devices are not free (EX_TEMPFAIL).
const NOT_NOW: i32 = 75;

/// The signals that end a job, SIGINT and SIGTERM, as something to wait for.
///
/// Others end this process as usual, and the job with it.
#[derive(Debug)]
pub(crate) struct EndSignals {
    woken: UnixStream,
    last: Arc<AtomicUsize>,
}

impl EndSignals {
    /// Begins to catch the signals.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new() -> io::Result<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let last = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            // In this order: who is woken finds the signal.
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&last), number)?;
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(EndSignals { woken, last })
    }

    /// Returns the signal that came since the last call, if one did.
    fn take(&self) -> Option<i32> {
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(1..)) {}
        i32::try_from(self.last.swap(0, Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// Lets this time pass, or less if a signal comes; returns the signal.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn pause(&self, time: Duration) -> io::Result<Option<i32>> {
        wait(&mut [PollFd::new(&self.woken, PollFlags::IN)], time)?;
        Ok(self.take())
    }
}

/// How an attempt to run a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// It ran, and this is its exit code.
    Ended(i32),
    /// The devices are not free there; nothing ran.
    NotNow,
    /// It did not start for another reason: the exit code and the last message.
    NotStarted(i32, String),
    /// A signal ended it, before or after the start.
    Interrupted(i32),
}

/// What happens in an attempt.
pub(crate) enum Step<'a> {
    /// The job starts; these are the messages of gpuws there until now, as lines.
    Started(&'a str),
    /// A signal came, and the job is asked to end.
    Ending,
}

/// Runs `words` on a host, with its output on the output of this process.
///
/// # Errors
/// When ssh cannot be started or watched.
pub(crate) fn attempt(
    host: &HostName,
    words: &[String],
    connect: Duration,
    ssh: &Ssh,
    signals: &EndSignals,
    tell: &mut dyn FnMut(Step<'_>),
) -> io::Result<Tried> {
    let mut command = ssh.command(host, words, connect);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C reaches this process only; ssh must stay to bring the end of the job.
    command.process_group(0);
    let mut child = command.spawn()?;
    let pidfd = pidfd_open(rustix::process::Pid::from_child(&child), PidfdFlags::empty())?;
    let mut alive = child.stdin.take();
    let missing = || io::Error::other("standard error is not piped");
    let mut errors = Errors::new(child.stderr.take().ok_or_else(missing)?)?;
    let mut interrupted = None;
    loop {
        let mut files =
            vec![PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&signals.woken, PollFlags::IN)];
        if errors.is_open {
            files.push(PollFd::new(&errors.file, PollFlags::IN));
        }
        wait(&mut files, Duration::MAX)?;
        let is_gone = !files[0].revents().is_empty();
        if let Some(messages) = errors.pass_on()? {
            tell(Step::Started(&messages));
            errors.flush();
        }
        if is_gone {
            break;
        }
        if let Some(signal) = signals.take() {
            match alive.take() {
                Some(_) => tell(Step::Ending),
                // Asked twice: the host is left to notice the end of the connection.
                None => drop(pidfd_send_signal(&pidfd, Signal::TERM)),
            }
            interrupted = Some(signal);
        }
    }
    let code = child.wait()?.code().unwrap_or(255);
    Ok(match (interrupted.or(signals.take()), errors.has_started) {
        (Some(signal), _) => Tried::Interrupted(signal),
        (None, true) => Tried::Ended(code),
        (None, false) if code == NOT_NOW => Tried::NotNow,
        (None, false) => Tried::NotStarted(code, last_line(&errors.before)),
    })
}

/// Standard error of ssh: messages of gpuws, the line [`STARTED`], and then that of the job.
struct Errors<F> {
    file: F,
    is_open: bool,
    before: Vec<u8>,
    has_started: bool,
    /// What the job has written and this process has not.
    job: Vec<u8>,
}

impl<F: std::os::fd::AsFd> Errors<F> {
    fn new(file: F) -> io::Result<Self> {
        let flags = fcntl_getfl(&file)?;
        fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
        Ok(Errors { file, is_open: true, before: Vec::new(), has_started: false, job: Vec::new() })
    }

    /// Passes on what there is; returns the messages before the start when that comes.
    fn pass_on(&mut self) -> io::Result<Option<String>> {
        let mut piece = [0; 8 << 10];
        while self.is_open {
            match rustix::io::read(&self.file, &mut piece) {
                Ok(0) => self.is_open = false,
                Ok(size) if self.has_started => {
                    self.job.extend_from_slice(&piece[..size]);
                    self.flush();
                }
                Ok(size) => {
                    if let Some(messages) = self.take_in(&piece[..size]) {
                        return Ok(Some(messages));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    fn take_in(&mut self, piece: &[u8]) -> Option<String> {
        self.before.extend_from_slice(piece);
        let mut at = 0;
        for line in self.before.split_inclusive(|byte| *byte == b'\n') {
            if line.strip_suffix(b"\n") == Some(STARTED.as_bytes()) {
                let messages = String::from_utf8_lossy(&self.before[..at]).into_owned();
                self.job = self.before.split_off(at + line.len());
                self.has_started = true;
                return Some(messages);
            }
            at += line.len();
        }
        self.before.drain(..self.before.len().saturating_sub(MESSAGES));
        None
    }

    /// Writes what the job has written, unchanged, as ssh does. A closed standard error is no
    /// reason to end the job.
    fn flush(&mut self) {
        let _ = io::stderr().write_all(&self.job);
        self.job.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_recognised_however_the_bytes_arrive() {
        let text = b"gpuws: GPU 1\ngpuws: started\nfrom the job\ngpuws: started\n";
        for size in 1..text.len() {
            let (file, _) = UnixStream::pair().unwrap();
            let mut errors = Errors::new(file).unwrap();
            let mut messages = None;
            for piece in text.chunks(size) {
                match errors.has_started {
                    true => errors.job.extend_from_slice(piece),
                    false => messages = errors.take_in(piece),
                }
            }
            assert_eq!(messages.as_deref(), Some("gpuws: GPU 1\n"), "{size}");
            assert_eq!(errors.job, b"from the job\ngpuws: started\n", "{size}");
        }
    }

    #[test]
    fn messages_before_the_start_are_bounded() {
        let (file, _) = UnixStream::pair().unwrap();
        let mut errors = Errors::new(file).unwrap();
        for _ in 0..100 {
            assert_eq!(errors.take_in(&[b'x'; 8 << 10]), None);
        }
        assert_eq!(errors.before.len(), MESSAGES);
    }
}
