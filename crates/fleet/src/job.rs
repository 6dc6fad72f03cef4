//! A job on another host, which ends with the connection.
//!
//! ssh does not end a command when the connection ends, unless it gives it a terminal, which would
//! change the output. So `gpuws run --end-with-input` there ends the job when its standard input
//! ends, and nothing is ever written to that: it is the write end of a pipe that only this process
//! has. It ends on request, when this process is killed, and when the connection breaks.

use crate::child::{Guard, HostMessage, Stream, wait};
use crate::{HostName, Ssh};
use gpu_core::Clock;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
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
    /// It did not start for another reason: the exit code and the message.
    NotStarted(i32, HostMessage),
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

/// Runs `words` on a host, with its output on the output of this process. The job must start within
/// `limit`, half of which is for the connection. The end of ssh, at the limit or at a signal before
/// the start, ends gpuws there.
///
/// # Errors
/// When ssh cannot be started or watched.
pub(crate) fn attempt(
    host: &HostName,
    words: &[String],
    limit: Duration,
    ssh: &Ssh,
    (signals, clock): (&EndSignals, &dyn Clock),
    tell: &mut dyn FnMut(Step<'_>),
) -> io::Result<Tried> {
    let mut command = ssh.command(host, words, limit / 2);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C reaches this process only; ssh must stay to bring the end of the job.
    command.process_group(0);
    let mut child = Guard(command.spawn()?);
    let pidfd = pidfd_open(rustix::process::Pid::from_child(&child.0), PidfdFlags::empty())?;
    let mut alive = child.0.stdin.take();
    let missing = || io::Error::other("standard error is not piped");
    let mut errors = Errors::new(child.0.stderr.take().ok_or_else(missing)?)?;
    let mut interrupted = None;
    let end = clock.monotonic().saturating_add(limit);
    loop {
        let left = match errors.has_started {
            true => Duration::MAX,
            false => end.saturating_sub(clock.monotonic()),
        };
        if left.is_zero() {
            let error = format!("the job did not start within {} s", limit.as_secs_f64());
            return Ok(Tried::NotStarted(255, HostMessage { error, hint: None }));
        }
        let mut files =
            vec![PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&signals.woken, PollFlags::IN)];
        files.extend(errors.stream.poll());
        wait(&mut files, left)?;
        let is_gone = !files[0].revents().is_empty();
        // What it wrote before it ended is in the pipe by now.
        errors.pass_on(&mut io::stderr(), &mut |messages| tell(Step::Started(messages)))?;
        if is_gone {
            break;
        }
        if let Some(signal) = signals.take() {
            if !errors.has_started {
                return Ok(Tried::Interrupted(signal));
            }
            match alive.take() {
                Some(_) => tell(Step::Ending),
                // Asked twice: the host is left to notice the end of the connection.
                None => drop(pidfd_send_signal(&pidfd, Signal::TERM)),
            }
            interrupted = Some(signal);
        }
    }
    let code = child.0.wait()?.code().unwrap_or(255);
    Ok(match (interrupted.or(signals.take()), errors.has_started) {
        (Some(signal), _) => Tried::Interrupted(signal),
        (None, true) => Tried::Ended(code),
        (None, false) if code == NOT_NOW => Tried::NotNow,
        (None, false) => Tried::NotStarted(code, HostMessage::of(&errors.stream.kept)),
    })
}

/// Standard error of ssh: messages of gpuws, which are kept, the line [`STARTED`], and then that of
/// the job, which is passed on.
struct Errors<F> {
    stream: Stream<F>,
    has_started: bool,
}

impl<F: AsFd> Errors<F> {
    fn new(file: F) -> io::Result<Self> {
        Ok(Errors { stream: Stream::new(file)?, has_started: false })
    }

    /// Passes on what there is, unchanged, as ssh does; `started` gets the messages before the
    /// start when that comes. A closed standard error is no reason to end the job.
    fn pass_on(&mut self, out: &mut dyn Write, started: &mut dyn FnMut(&str)) -> io::Result<()> {
        let has_started = &mut self.has_started;
        self.stream.read(|before, piece| {
            if *has_started {
                let _ = out.write_all(piece);
                return true;
            }
            before.extend_from_slice(piece);
            if let Some((messages, job)) = at_start(before) {
                *has_started = true;
                started(&String::from_utf8_lossy(messages));
                let _ = out.write_all(job);
            }
            before.drain(..before.len().saturating_sub(MESSAGES));
            true
        })?;
        Ok(())
    }
}

/// Returns what comes before the line [`STARTED`] and what comes after it.
fn at_start(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = at + line.len();
        if line.strip_suffix(b"\n") == Some(STARTED.as_bytes()) {
            return Some((&text[..at], &text[end..]));
        }
        at = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the pieces, one after the other; returns the messages, and what was passed on.
    fn passed_on<'t>(
        errors: &mut Errors<UnixStream>,
        writer: &mut UnixStream,
        pieces: impl Iterator<Item = &'t [u8]>,
    ) -> (Vec<String>, Vec<u8>) {
        let (mut messages, mut out) = (Vec::new(), Vec::new());
        for piece in pieces {
            writer.write_all(piece).unwrap();
            errors.pass_on(&mut out, &mut |told| messages.push(told.to_owned())).unwrap();
        }
        (messages, out)
    }

    #[test]
    fn start_is_recognised_however_the_bytes_arrive() {
        let text = b"gpuws: GPU 1\ngpuws: started\nfrom the job\ngpuws: started\n";
        for size in 1..=text.len() {
            let (file, mut writer) = UnixStream::pair().unwrap();
            let mut errors = Errors::new(file).unwrap();
            let (messages, job) = passed_on(&mut errors, &mut writer, text.chunks(size));
            assert_eq!(messages, ["gpuws: GPU 1\n"], "{size}");
            assert_eq!(job, b"from the job\ngpuws: started\n", "{size}");
        }
    }

    #[test]
    fn messages_before_the_start_are_bounded() {
        let (file, mut writer) = UnixStream::pair().unwrap();
        let mut errors = Errors::new(file).unwrap();
        let endless = std::iter::repeat_n(&[b'x'; 8 << 10][..], 100);
        assert_eq!(passed_on(&mut errors, &mut writer, endless), (Vec::new(), Vec::new()));
        assert_eq!(errors.stream.kept.len(), MESSAGES);
    }
}
