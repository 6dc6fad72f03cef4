//! A job on another host, which ends when the connection does.
//!
//! When a connection ends, ssh does not end the remote command unless it allocated a terminal,
//! which would change the output. So `gpuws run --end-with-input` on the host ends the job when its
//! standard input ends. That input is a pipe that carries no data, and only this process holds its
//! write end. It closes on request, when this process is killed, and when the connection breaks.

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

/// The line on standard error with which `gpuws run --announce` reports that it has the devices and
/// starts the command. Before this line, the command has not run.
pub const STARTED: &str = "gpuws: started";

/// How many bytes of the messages before the start are kept.
const MESSAGES: usize = 64 << 10;

/// The exit code of gpuws when the devices are not free (EX_TEMPFAIL).
const NOT_NOW: i32 = 75;

/// The signals that end a job, SIGINT and SIGTERM, in a form that can be waited for.
///
/// Other signals end this process as usual, and with it the job.
#[derive(Debug)]
pub(crate) struct EndSignals {
    woken: UnixStream,
    last: Arc<AtomicUsize>,
}

impl EndSignals {
    /// Starts to catch the signals.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn new() -> io::Result<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let last = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            // Store the signal before waking the thread that reads it.
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&last), number)?;
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(EndSignals { woken, last })
    }

    /// Returns the signal received since the last call, if any.
    fn take(&self) -> Option<i32> {
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(1..)) {}
        i32::try_from(self.last.swap(0, Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// Waits for this time or until a signal arrives, and returns the signal.
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
    /// It ran, and returned this exit code.
    Ended(i32),
    /// The devices are not free on the host; the command did not run.
    NotNow,
    /// It did not start for another reason: the exit code and the message.
    NotStarted(i32, HostMessage),
    /// A signal ended it, before or after the start.
    Interrupted(i32),
}

/// A step of an attempt.
pub(crate) enum Step<'a> {
    /// The job starts. The messages that gpuws printed on the host so far, as lines.
    Started(&'a str),
    /// A signal arrived, and the job is asked to end.
    Ending,
}

/// Runs `words` on a host and forwards its output. The job must start within `limit`, half of which
/// is for the connection. At the limit, or at a signal before the start, ssh is ended, which ends
/// gpuws on the host.
///
/// # Errors
/// When ssh cannot be started or watched.
pub(crate) fn attempt(
    host: &HostName,
    words: &[String],
    limit: Duration,
    ssh: &Ssh,
    (signals, clock): (&EndSignals, &dyn Clock),
    report: &mut dyn FnMut(Step<'_>),
) -> io::Result<Tried> {
    let mut command = ssh.command(host, words, limit / 2);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C must reach only this process; ssh must keep running to end the job.
    command.process_group(0);
    let mut child = Guard(command.spawn()?);
    let pidfd = pidfd_open(rustix::process::Pid::from_child(&child.0), PidfdFlags::empty())?;
    let mut alive = child.0.stdin.take();
    let missing = || io::Error::other("standard error is not piped");
    let mut errors = Errors::new(child.0.stderr.take().ok_or_else(missing)?)?;
    let mut interrupted = None;
    let end = clock.monotonic().saturating_add(limit);
    loop {
        let left =
            if errors.has_started { Duration::MAX } else { end.saturating_sub(clock.monotonic()) };
        if left.is_zero() {
            let error = format!("the job did not start within {} s", limit.as_secs_f64());
            return Ok(Tried::NotStarted(255, HostMessage { error, hint: None }));
        }
        let mut files =
            vec![PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&signals.woken, PollFlags::IN)];
        files.extend(errors.stream.poll());
        wait(&mut files, left)?;
        let is_gone = !files[0].revents().is_empty();
        // Everything it wrote before it exited is in the pipe by now.
        errors.pass_on(&mut io::stderr(), &mut |messages| report(Step::Started(messages)))?;
        if is_gone {
            break;
        }
        if let Some(signal) = signals.take() {
            if !errors.has_started {
                return Ok(Tried::Interrupted(signal));
            }
            match alive.take() {
                Some(_) => report(Step::Ending),
                // At the second request, stop waiting: the host ends the job once it notices that
                // the connection has ended.
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

/// Standard error of ssh: first messages of gpuws, which are kept, then the line [`STARTED`], then
/// the job's output, which is forwarded.
struct Errors<F> {
    stream: Stream<F>,
    has_started: bool,
}

impl<F: AsFd> Errors<F> {
    fn new(file: F) -> io::Result<Self> {
        Ok(Errors { stream: Stream::new(file)?, has_started: false })
    }

    /// Forwards available data unchanged, as ssh does. When the job starts, `started` receives the
    /// messages before the start. A closed standard error does not end the job.
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

/// Returns the text before and after the line [`STARTED`].
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

    /// Writes the pieces in order; returns the messages and the forwarded data.
    fn passed_on<'t>(
        errors: &mut Errors<UnixStream>,
        writer: &mut UnixStream,
        pieces: impl Iterator<Item = &'t [u8]>,
    ) -> (Vec<String>, Vec<u8>) {
        let (mut messages, mut out) = (Vec::new(), Vec::new());
        for piece in pieces {
            writer.write_all(piece).unwrap();
            errors.pass_on(&mut out, &mut |text| messages.push(text.to_owned())).unwrap();
        }
        (messages, out)
    }

    /// A clock that stands still: no deadline passes.
    struct StoppedClock;

    impl Clock for StoppedClock {
        fn wall(&self) -> gpu_core::Timestamp {
            gpu_core::Timestamp(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) {}
    }

    /// Runs a job through a shell script in place of ssh, which finds its options in `$options`. A
    /// signal arrives at once, or else when the job starts. Returns the result and the steps.
    fn interrupted(script: &str, at_once: bool) -> (Tried, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ssh");
        let script = format!("#!/bin/sh\noptions=$*\n[ $# -gt 0 ] || exit 0\n{script}\n");
        std::fs::write(&path, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        // The kernel refuses to run a file that a child of another thread still has open.
        while std::process::Command::new(&path).output().is_err() {}

        let (woken, mut wake) = UnixStream::pair().unwrap();
        woken.set_nonblocking(true).unwrap();
        let signals = EndSignals { woken, last: Arc::default() };
        let last = Arc::clone(&signals.last);
        let mut arrive = || {
            last.store(usize::try_from(SIGINT).unwrap(), Ordering::Relaxed);
            wake.write_all(b"x").unwrap();
        };
        if at_once {
            arrive();
        }
        let mut steps = Vec::new();
        let mut report = |step: Step<'_>| match step {
            Step::Started(messages) => {
                steps.push(messages.trim_end().to_owned());
                arrive();
            }
            Step::Ending => steps.push("ending".to_owned()),
        };
        let (host, limit) = ("a".parse().unwrap(), Duration::from_secs(60));
        let (words, ports) = (["true".to_owned()], (&signals, &StoppedClock as &dyn Clock));
        let tried = attempt(&host, &words, limit, &Ssh::other(path), ports, &mut report).unwrap();
        (tried, steps)
    }

    #[test]
    fn signal_before_the_start_ends_ssh() {
        let (tried, steps) = interrupted("exec sleep 600", true);
        assert_eq!((tried, steps.len()), (Tried::Interrupted(SIGINT), 0));
    }

    #[test]
    fn signal_after_the_start_closes_the_input_of_the_job() {
        let script = format!("echo \"$options\" >&2; echo '{STARTED}' >&2; cat; exit 7");
        let (tried, steps) = interrupted(&script, false);
        assert_eq!(tried, Tried::Interrupted(SIGINT));
        let [options, ending] = &steps[..] else { panic!("{steps:?}") };
        assert!(options.contains(" ConnectTimeout=30 "), "half of the limit: {options}");
        assert_eq!(ending, "ending");
    }

    #[test]
    fn recognises_start_in_any_chunking() {
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
