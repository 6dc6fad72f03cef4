//! Runs a program with limits on its time and output.

use gpu_core::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How many bytes of standard error are kept, from the end.
const WORDS_LIMIT: usize = 16 << 10;

/// How long a program may take to end after SIGTERM. ssh ends its `ProxyCommand` in this time.
const GRACE: Duration = Duration::from_millis(300);

/// How often a request to stop is noticed.
const NOTICE: Duration = Duration::from_millis(100);

const PIECE: usize = 32 << 10;

/// The maximum number of reads in a row: more than a pipe holds (1 MiB, pipe(7)), but few enough to
/// check the time while a program prints without end.
const PIECES: usize = 64;

/// Limits for a program.
pub(crate) struct Limits<'a> {
    pub(crate) time: Duration,
    /// The maximum number of bytes on standard output.
    pub(crate) output: u64,
    /// The number of bytes that all programs together may still print. Each program subtracts from
    /// it.
    pub(crate) budget: Option<&'a AtomicU64>,
    /// Once true, the program is ended as if its time had run out.
    pub(crate) stops: Option<&'a AtomicBool>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) enum Ending {
    Exited(ExitStatus),
    TimedOut,
    TooMuch,
}

/// The output of a program, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ending: Ending,
    pub(crate) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ran {
    /// Returns the last nonempty line of standard error, cut to 200 characters.
    pub(crate) fn last_words(&self) -> String {
        last_line(&self.stderr)
    }

    /// Returns the error message on standard error.
    pub(crate) fn message(&self) -> HostMessage {
        HostMessage::of(&self.stderr)
    }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    bounded(text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default())
}

/// Cuts a line from a host to the maximum length in characters.
fn bounded(line: &str) -> String {
    line.chars().take(200).collect()
}

/// The message of a failed gpuws on another host. Each text has at most 200 characters and is not
/// escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMessage {
    /// The error; empty if there was no output.
    pub error: String,
    /// The hint below the error.
    pub hint: Option<String>,
}

impl HostMessage {
    /// Parses the end of standard error. A hint, a usage line or a list of names may follow the
    /// error, so the last line is used only if no line starts like a gpuws error.
    pub(crate) fn of(text: &[u8]) -> Self {
        let lossy = String::from_utf8_lossy(text);
        let lines: Vec<&str> = lossy.lines().map(str::trim).collect();
        let begins =
            |line: &&str| line.starts_with("gpuws: failed to ") || line.starts_with("error: ");
        let Some(at) = lines.iter().rposition(begins) else {
            return HostMessage { error: last_line(text), hint: None };
        };
        let error = lines[at].strip_prefix("gpuws: ").unwrap_or(lines[at]);
        let hint = lines[at..].iter().find_map(|line| line.strip_prefix("hint: "));
        HostMessage { error: bounded(error), hint: hint.map(bounded) }
    }
}

/// Runs a program without input, until it exits. Its output may stay open longer, because a shared
/// ssh connection (`ControlPersist`) keeps it open.
///
/// # Errors
/// When it cannot be started or watched.
pub(crate) fn run(
    command: &mut Command,
    limits: &Limits<'_>,
    clock: &dyn Clock,
) -> io::Result<Ran> {
    let end = clock.monotonic() + limits.time;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guard(command.spawn()?);
    let pidfd = pidfd_open(rustix::process::Pid::from_child(&child.0), PidfdFlags::empty())?;
    let missing = || io::Error::other("the output is not piped");
    let mut out = Stream::new(child.0.stdout.take().ok_or_else(missing)?)?;
    let mut err = Stream::new(child.0.stderr.take().ok_or_else(missing)?)?;
    let mut ending = None;
    while ending.is_none() {
        let left = end.saturating_sub(clock.monotonic());
        let stops = limits.stops.is_some_and(|stops| stops.load(Ordering::Relaxed));
        if left.is_zero() || stops {
            ending = Some(Ending::TimedOut);
            break;
        }
        let left = if limits.stops.is_some() { left.min(NOTICE) } else { left };
        let is_gone = {
            let mut files = vec![PollFd::new(&pidfd, PollFlags::IN)];
            files.extend(out.poll().into_iter().chain(err.poll()));
            wait(&mut files, left)?;
            !files[0].revents().is_empty()
        };
        // Everything it printed before it exited is in the pipes by now.
        err.read(|kept, piece| {
            kept.extend_from_slice(piece);
            kept.drain(..kept.len().saturating_sub(WORDS_LIMIT));
            true
        })?;
        let fits = out.read(|kept, piece| {
            let size = piece.len() as u64;
            let take = |left: u64| left.checked_sub(size);
            let fits = kept.len() as u64 + size <= limits.output
                && limits.budget.is_none_or(|budget| {
                    budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
                });
            if fits {
                kept.extend_from_slice(piece);
            }
            fits
        })?;
        if !fits {
            ending = Some(Ending::TooMuch);
        } else if is_gone {
            ending = Some(Ending::Exited(child.0.wait()?));
        }
    }
    if !matches!(ending, Some(Ending::Exited(_))) {
        let _ = pidfd_send_signal(&pidfd, Signal::TERM);
        wait(&mut [PollFd::new(&pidfd, PollFlags::IN)], GRACE)?;
    }
    let ending = ending.unwrap_or(Ending::TimedOut);
    Ok(Ran { ending, stdout: out.kept, stderr: err.kept })
}

/// Waits until a file is ready or the time is up; a signal ends the wait early.
pub(crate) fn wait(files: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time.min(Duration::from_secs(3_600))).unwrap_or_default();
    match poll(files, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A child process that never outlives the call.
pub(crate) struct Guard(pub(crate) Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // This fails if the child has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One end of a pipe, and the text kept from it.
pub(crate) struct Stream<F> {
    file: F,
    is_open: bool,
    pub(crate) kept: Vec<u8>,
}

impl<F: AsFd> Stream<F> {
    pub(crate) fn new(file: F) -> io::Result<Self> {
        let flags = fcntl_getfl(&file)?;
        fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
        Ok(Stream { file, is_open: true, kept: Vec::new() })
    }

    /// Returns the descriptor to poll; `None` after the end of the stream.
    pub(crate) fn poll(&self) -> Option<PollFd<'_>> {
        self.is_open.then(|| PollFd::new(&self.file, PollFlags::IN))
    }

    /// Reads available data, at most [`PIECES`] times. `keep` returns whether to continue; if it
    /// returns false, so does this function.
    pub(crate) fn read(
        &mut self,
        mut keep: impl FnMut(&mut Vec<u8>, &[u8]) -> bool,
    ) -> io::Result<bool> {
        let mut piece = [0; PIECE];
        for _ in 0..PIECES {
            if !self.is_open {
                break;
            }
            match rustix::io::read(&self.file, &mut piece) {
                Ok(0) => self.is_open = false,
                Ok(size) if !keep(&mut self.kept, &piece[..size]) => return Ok(false),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }
}
