//! The program's end of the child: started, asked, heard, and ended, never waited for without a
//! bound.

use super::fork::{Ends, fork};
use super::wire::{self, ANSWER_LIMIT, LINE_LIMIT, Lines, Order, Said};
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
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a child may take to end after it was told to.
const ENDING: Duration = Duration::from_millis(100);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nothing was said until the given moment.
    Silent,
    /// The child has ended; how, as in 'it was ended by signal 11'.
    Ended(String),
    /// The child says what it must not.
    Nonsense,
    /// The kernel refused something.
    Refused(Errno),
}

/// A child that was started.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    /// Its standard input. A socket, not a pipe: writing to a pipe that nobody reads sends
    /// SIGPIPE, which ends a program that has not chosen to ignore it.
    orders: UnixStream,
    /// Its standard output.
    answers: OwnedFd,
    heard: Lines,
    /// How much was heard since the last order to ask.
    amount: usize,
    line: Vec<u8>,
    killed: bool,
}

impl Process {
    /// Starts the child with nothing but the two ends of its conversation: no terminal's input or
    /// output, a process group of its own, so that Ctrl-C is for the program alone to answer, and
    /// a current directory that keeps no file system busy.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn start(helper: &Helper) -> Result<Self> {
        let what = || format!("start the NVML helper '{}'", helper.program.display());
        let failed = |error: std::io::Error| Error::new(ErrorKind::Io, what()).with_source(error);
        let begun = || {
            let library = helper.library.as_deref().map(from_root).transpose()?;
            let (orders, input) = UnixStream::pair()?;
            orders.set_nonblocking(true)?;
            let (answers, output) = pipe_with(PipeFlags::CLOEXEC)?;
            fcntl_setfl(&answers, fcntl_getfl(&answers)? | OFlags::NONBLOCK)?;
            let ends = Ends { input: input.into(), output };
            // Where no copy can be made, a program can still be started.
            let copy = helper.forks.then(|| fork(&ends, library.as_deref()).ok().flatten());
            let pid = match copy.flatten() {
                Some(pid) => pid,
                None => spawn(helper, ends, library)?,
            };
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
                // Without a pidfd nothing of it is known but its number, which it has until it is
                // waited for; its input ends now in any case.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            })?;
            Ok((pid, pidfd, orders, answers))
        };
        let (pid, pidfd, orders, answers) = begun().map_err(failed)?;
        let (heard, line) = (Lines::default(), Vec::new());
        Ok(Process { pid, pidfd, orders, answers, heard, amount: 0, line, killed: false })
    }

    /// Says something. The child's input has room for it, or the child does not read.
    pub(crate) fn tell(&mut self, order: &Order) -> Result<(), Trouble> {
        if matches!(order, Order::Ask { .. }) {
            self.amount = 0;
        }
        let short =
            wire::write(&mut self.line, order).is_ok() && self.line.len() <= wire::ORDER_LIMIT;
        if !short {
            return Err(Trouble::Refused(Errno::TOOBIG));
        }
        let mut rest = &self.line[..];
        while !rest.is_empty() {
            match send(&self.orders, rest, SendFlags::NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Trouble::Silent),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(self.ended()),
                Err(errno) => return Err(Trouble::Refused(errno)),
            }
        }
        Ok(())
    }

    /// Returns what the child says next, `Silent` when it says nothing until `until`. What it has
    /// said already is heard even then.
    pub(crate) fn hear(&mut self, until: Duration) -> Result<Said, Trouble> {
        let mut has_ended = false;
        loop {
            if let Some(line) = self.heard.take() {
                return serde_json::from_slice(line).map_err(|_| Trouble::Nonsense);
            }
            if self.heard.pending() > LINE_LIMIT || self.amount > ANSWER_LIMIT {
                return Err(Trouble::Nonsense);
            }
            let mut piece = [0; 16 << 10];
            match rustix::io::read(&self.answers, &mut piece) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => {
                    self.amount += count;
                    self.heard.add(&piece[..count]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if has_ended => return Err(self.ended()),
                // It may have said something between the two looks: read once more.
                Err(Errno::AGAIN) if self.has_ended() => has_ended = true,
                Err(Errno::AGAIN) => self.wait(until)?,
                Err(errno) => return Err(Trouble::Refused(errno)),
            }
        }
    }

    /// Waits until there is something to hear, or the child ends: a process that it started may
    /// keep its output open.
    fn wait(&self, until: Duration) -> Result<(), Trouble> {
        let left = until.saturating_sub(moment());
        let mut question =
            [PollFd::new(&self.answers, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
        match poll(&mut question, Some(&timespec(left))) {
            Ok(0) if moment() >= until => Err(Trouble::Silent),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Trouble::Refused(errno)),
        }
    }

    /// Returns its number, its own as long as it lives.
    pub(crate) fn pid(&self) -> gpu_core::Pid {
        gpu_core::Pid(self.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Tells whether it has ended; then it can be waited for without waiting.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let until = moment().saturating_add(patience);
        loop {
            let left = until.saturating_sub(moment());
            match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timespec(left))) {
                Err(Errno::INTR) => {}
                ended => return ended.is_ok_and(|count| count > 0),
            }
        }
    }

    /// Says how it has ended, once its output has.
    fn ended(&self) -> Trouble {
        let how = match self.ends_within(ENDING) {
            true => self.reap(),
            false => None,
        };
        Trouble::Ended(how.unwrap_or_else(|| "it stopped answering".to_owned()))
    }

    /// Waits for one that has ended, so that no zombie stays, and says how it ended.
    fn reap(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options).ok()??;
        match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Some(format!("it was terminated by signal {signal}")),
            (None, Some(code)) => Some(format!("it exited with code {code}")),
            (None, None) => None,
        }
    }

    /// Ends it; gives it back when it has not ended in a tenth of a second. It is in an
    /// uninterruptible wait then, and ends when that does.
    pub(crate) fn kill(mut self) -> Option<Self> {
        self.end();
        match self.has_ended() {
            true => None,
            false => Some(self),
        }
    }

    fn end(&mut self) {
        self.close_input();
        // It may have ended by itself by now.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.killed = true;
        self.ends_within(ENDING);
    }

    /// Ends the conversation, which ends the child unless it misbehaves.
    pub(crate) fn close_input(&self) {
        // A socket that is not connected any more is what is wanted.
        let _ = self.orders.shutdown(Shutdown::Both);
    }
}

impl Drop for Process {
    /// Ends the child, by force if it does not end with the conversation, and waits for it if it
    /// has ended.
    fn drop(&mut self) {
        self.close_input();
        if !self.killed && !self.ends_within(ENDING) {
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
    command.stdin(ends.input).stdout(ends.output).stderr(Stdio::null());
    let child = command.current_dir("/").process_group(0).spawn()?;
    Ok(Pid::from_child(&child))
}

fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 2);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Returns the path as it is from `/`. A program's name alone is looked for where programs are.
fn from_root(path: &Path) -> std::io::Result<PathBuf> {
    match path.components().count() {
        1 if path.file_name() == Some(OsStr::new(path)) => Ok(path.to_owned()),
        _ => std::path::absolute(path),
    }
}
