//! The parent's side of the child: starts it, exchanges messages, and ends it. Every wait is
//! bounded.

use super::fork::{Ends, fork};
use super::wire::{self, LINE_LIMIT, Lines, Order, REPLY_LIMIT, Reply, Request};
use super::{Helper, moment};
use gpu_core::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open,
    pidfd_send_signal, waitid, waitpid,
};
use std::ffi::OsStr;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The minimum number of bytes to read at once: the snapshot of a small machine.
const PIECE: usize = 16 << 10;

/// The time that a child has to exit on request.
const EXIT_TIMEOUT: Duration = Duration::from_millis(100);

/// The reason why there is no message.
#[derive(Debug)]
pub(crate) enum ChildError {
    /// The deadline passed before a message arrived.
    TimedOut,
    /// The child has exited; with a description, as in 'it was terminated by signal 11'.
    Ended(String),
    /// The child sent an invalid message.
    Invalid,
    /// A system call failed.
    System(Errno),
}

/// A running child.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    /// Writes to its standard input. This is a socket, because writing to a pipe without a reader
    /// raises SIGPIPE.
    requests: UnixStream,
    /// Reads from its standard output.
    replies: OwnedFd,
    /// Writes to its standard error; closing it ends the child.
    orders: Option<Orders>,
    lines: Lines,
    /// The number of bytes received since the last request.
    amount: usize,
    line: Vec<u8>,
    killed: bool,
}

/// The pipe to the child's standard error.
#[derive(Debug)]
struct Orders {
    pipe: OwnedFd,
    /// Kept so that the pipe always has a reader; otherwise a write could raise SIGPIPE.
    _reader: OwnedFd,
}

impl Process {
    /// Starts the child with only its ends of the protocol: without a terminal, in its own process
    /// group so that it does not receive Ctrl-C, and in a current directory that keeps no file
    /// system busy.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn start(helper: &Helper) -> Result<Self> {
        let what = || format!("start the NVML helper '{}'", helper.program.display());
        let failed = |error: std::io::Error| Error::new(ErrorKind::Io, what()).with_source(error);
        let begun = || {
            let library = helper.library.as_deref().map(from_root).transpose()?;
            let (requests, input) = UnixStream::pair()?;
            requests.set_nonblocking(true)?;
            let (replies, output) = pipe_with(PipeFlags::CLOEXEC)?;
            let (errors, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
            for own in [&replies, &pipe] {
                fcntl_setfl(own, fcntl_getfl(own)? | OFlags::NONBLOCK)?;
            }
            let orders = Orders { pipe, _reader: errors.try_clone()? };
            let ends = Ends { requests: input.into(), replies: output, orders: errors };
            // If the fork fails, starting the program may still work.
            let copy = helper.forks.then(|| fork(&ends, library.as_deref()).ok().flatten());
            let pid = match copy.flatten() {
                Some(pid) => pid,
                None => spawn(helper, ends, library)?,
            };
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
                // Without a pidfd, the PID identifies the child until it is reaped; closing its
                // input ends it too.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            })?;
            Ok((pid, pidfd, requests, replies, Some(orders)))
        };
        let (pid, pidfd, requests, replies, orders) = begun().map_err(failed)?;
        let (lines, line, amount, killed) = (Lines::default(), Vec::new(), 0, false);
        Ok(Process { pid, pidfd, requests, replies, orders, lines, amount, line, killed })
    }

    /// Sends a request. A full socket buffer means that the child does not read.
    pub(crate) fn request(&mut self, request: &Request) -> Result<(), ChildError> {
        self.amount = 0;
        self.line.clear();
        let short =
            wire::write(&mut self.line, request).is_ok() && self.line.len() <= wire::MESSAGE_LIMIT;
        if !short {
            return Err(ChildError::System(Errno::TOOBIG));
        }
        let mut rest = &self.line[..];
        while !rest.is_empty() {
            match send(&self.requests, rest, SendFlags::NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(ChildError::TimedOut),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(self.ended()),
                Err(errno) => return Err(ChildError::System(errno)),
            }
        }
        Ok(())
    }

    /// Sends an order, which the child reads even during a query.
    pub(crate) fn order(&mut self, order: Order) -> Result<(), ChildError> {
        let Some(orders) = &self.orders else { return Err(ChildError::System(Errno::PIPE)) };
        let mut line = Vec::new();
        // The line is short enough for an atomic write to a pipe.
        wire::write(&mut line, &order).map_err(|_| ChildError::Invalid)?;
        rustix::io::write(&orders.pipe, &line).map_err(ChildError::System)?;
        Ok(())
    }

    /// Receives the next message; `TimedOut` if none arrives before `until`. Messages received
    /// earlier are returned even after that.
    pub(crate) fn receive(&mut self, until: Duration) -> Result<Reply, ChildError> {
        let mut has_ended = false;
        loop {
            if let Some(line) = self.lines.take() {
                return serde_json::from_slice(line).map_err(|_| ChildError::Invalid);
            }
            if self.lines.pending() > LINE_LIMIT || self.amount > REPLY_LIMIT {
                return Err(ChildError::Invalid);
            }
            match self.lines.read(&self.replies, PIECE) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => self.amount += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if has_ended => return Err(self.ended()),
                // Output written before the exit is still read.
                Err(Errno::AGAIN) => has_ended = self.wait(until)?,
                Err(errno) => return Err(ChildError::System(errno)),
            }
        }
    }

    /// Waits for output or for the exit of the child; returns whether it has exited. The exit must
    /// be checked, because a process started by the child may keep its output open.
    fn wait(&self, until: Duration) -> Result<bool, ChildError> {
        let left = until.saturating_sub(moment());
        let mut query =
            [PollFd::new(&self.replies, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
        match poll(&mut query, Some(&timespec(left))) {
            Ok(0) if moment() >= until => Err(ChildError::TimedOut),
            Ok(_) => Ok(!query[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(ChildError::System(errno)),
        }
    }

    /// Returns its PID.
    pub(crate) fn pid(&self) -> gpu_core::Pid {
        gpu_core::Pid(self.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Returns whether it has exited, so that reaping it does not block.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let until = moment().saturating_add(limit);
        loop {
            let left = until.saturating_sub(moment());
            match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timespec(left))) {
                Err(Errno::INTR) => {}
                ended => return ended.is_ok_and(|count| count > 0),
            }
        }
    }

    /// Describes how it exited, after its output ended.
    fn ended(&self) -> ChildError {
        let how = if self.ends_within(EXIT_TIMEOUT) { self.reap() } else { None };
        ChildError::Ended(how.unwrap_or_else(|| "it stopped answering".to_owned()))
    }

    /// Reaps the exited process and describes how it exited.
    fn reap(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options).ok()??;
        match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Some(format!("it was terminated by signal {signal}")),
            (None, Some(code)) => Some(format!("it exited with code {code}")),
            (None, None) => None,
        }
    }

    /// Kills it; returns it if it is still running after a tenth of a second. It is then in
    /// uninterruptible sleep and exits when that ends.
    pub(crate) fn kill(mut self) -> Option<Self> {
        self.end();
        if self.has_ended() { None } else { Some(self) }
    }

    fn end(&mut self) {
        self.disconnect();
        // It may have exited already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.killed = true;
        self.ends_within(EXIT_TIMEOUT);
    }

    /// Closes its inputs, which makes a well-behaved child exit.
    pub(crate) fn disconnect(&mut self) {
        // A fork of this program may hold a copy of the pipe, which would keep the child running.
        let _ = self.order(Order::End);
        self.orders = None;
        // An error means that the socket is already disconnected.
        let _ = self.requests.shutdown(Shutdown::Both);
    }
}

impl Drop for Process {
    /// Ends the child: with SIGKILL if it does not exit at the end of its input. Reaps it if it has
    /// exited.
    fn drop(&mut self) {
        self.disconnect();
        if !self.killed && !self.ends_within(EXIT_TIMEOUT) {
            self.end();
        }
        if self.has_ended() {
            self.reap();
        }
    }
}

/// Starts the helper's program.
fn spawn(helper: &Helper, ends: Ends, library: Option<PathBuf>) -> std::io::Result<Pid> {
    let mut command = Command::new(from_root(&helper.program)?);
    command.args(&helper.arguments).args(library);
    command.stdin(ends.requests).stdout(ends.replies).stderr(ends.orders);
    let child = command.current_dir("/").process_group(0).spawn()?;
    Ok(Pid::from_child(&child))
}

fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 2);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Returns the absolute path. Leaves a program name without a slash unchanged, for a search in
/// `PATH`.
fn from_root(path: &Path) -> std::io::Result<PathBuf> {
    match path.components().count() {
        1 if path.file_name() == Some(OsStr::new(path)) => Ok(path.to_owned()),
        _ => std::path::absolute(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_is_found_from_any_directory() {
        let here = std::env::current_dir().unwrap();
        for (path, found) in [
            ("helper", PathBuf::from("helper")),
            ("./helper", here.join("helper")),
            ("bin/helper", here.join("bin/helper")),
            ("/bin/helper", "/bin/helper".into()),
        ] {
            assert_eq!(from_root(Path::new(path)).unwrap(), found, "{path}");
        }
    }
}
