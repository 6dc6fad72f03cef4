//! What a person started and sees: it stands for the supervisor and does nothing else.

use super::signals::{ASKING, FREE, ignored, is_in};
use super::terminal::Terminal;
use super::{end_as, has_ended, pause};
use crate::host::Roots;
use crate::proc_dir::ProcRoot;
use crate::{fault, process};
use gpu_core::{Ending, Error, ErrorKind, Pid, ProcessKey, Result, StartTime};
use nix::libc::SI_KERNEL;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::process::{PidfdFlags, kill_current_process_group, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A program that was started in the place of this one.
///
/// The signals by which somebody asks for an end, and the free ones, go on to it; but not what a
/// terminal sends, since that reaches the whole process group.
#[derive(Debug)]
pub struct Front {
    child: Child,
    pidfd: OwnedFd,
    signals: SignalFd,
    /// Ctrl-C was pressed while all of the process group could hear it.
    interrupted: bool,
}

impl Front {
    /// Returns the two words that name the calling process to a supervisor: its number, and when
    /// it started. [`parse_words`] reads them.
    ///
    /// # Errors
    /// `Process` when `/proc` does not show the calling process.
    pub fn words(roots: &Roots) -> Result<[OsString; 2]> {
        let failed = |errno| fault::process("look at this very process", errno);
        let root = ProcRoot::open(&roots.proc).map_err(failed)?;
        let own = root.process(std::process::id()).and_then(|dir| process::read_key(&dir));
        let own = own.map_err(failed)?;
        let start = own.start.ok_or_else(|| failed(rustix::io::Errno::INVAL))?;
        Ok([own.pid.to_string().into(), start.0.to_string().into()])
    }

    /// Starts the supervisor, in the same process group and with the same standard input and
    /// output.
    ///
    /// From here on the calling thread has the signals blocked that go on to the supervisor; no
    /// other thread may be there, or it would take them.
    ///
    /// # Errors
    /// `Process(Gone)` and `Process(NotPermitted)` when there is no such program or it may not be
    /// run, `Io` for anything else.
    pub fn start(roots: &Roots, program: &Path, arguments: &[OsString]) -> Result<Self> {
        let what = || format!("start '{}' as the supervisor", program.display());
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(number) => fault::process(what(), rustix::io::Errno::from_raw_os_error(number)),
            None => Error::new(ErrorKind::Io, what()).with_source(error),
        };
        let root = ProcRoot::open(&roots.proc).map_err(|errno| failed(errno.into()))?;
        let ignored = ignored(&root).map_err(failed)?;
        // Where SIGCHLD is ignored, nobody is told how a child ended.
        signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(failed)?;
        // A child has the same signals blocked as its parent, so they are blocked only once it is
        // there. What comes before is remembered.
        let (mut wanted, mut early) = (SigSet::empty(), Vec::new());
        for signal in ASKING.into_iter().chain(FREE).filter(|signal| !is_in(ignored, *signal)) {
            wanted.add(Signal::try_from(signal).map_err(|errno| failed(errno.into()))?);
            let came = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&came)).map_err(failed)?;
            early.push((signal, came));
        }
        let child = Command::new(program).args(arguments).spawn().map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = wanted.thread_block().and_then(|()| SignalFd::with_flags(&wanted, flags));
        let signals = signals.map_err(|errno| failed(errno.into()))?;
        let pidfd = pidfd_open(rustix::process::Pid::from_child(&child), PidfdFlags::empty());
        let pidfd = pidfd.map_err(|errno| failed(errno.into()))?;
        let front = Front { child, pidfd, signals, interrupted: false };
        for (signal, _) in early.iter().filter(|(_, came)| came.load(Ordering::Relaxed)) {
            front.tell(*signal);
        }
        Ok(front)
    }

    /// Passes signals on until the supervisor has ended, and returns how it did.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    pub fn wait(&mut self) -> Result<Ending> {
        let failed = |errno| fault::file("wait for the supervisor", errno);
        while !has_ended(&self.pidfd).map_err(failed)? {
            self.pass_on().map_err(failed)?;
            let mut files = [
                PollFd::new(&self.pidfd, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            pause(&mut files, None).map_err(failed)?;
        }
        let status = self.child.wait().map_err(|error| {
            Error::new(ErrorKind::Io, "wait for the supervisor").with_source(error)
        })?;
        Ok(match status.signal() {
            Some(signal) => Ending::Signal(signal),
            // Who was not ended by a signal has a code.
            None => Ending::Code(status.code().unwrap_or_default()),
        })
    }

    fn pass_on(&mut self) -> rustix::io::Result<()> {
        let read = |signals: &SignalFd| {
            let errno = |errno: nix::Error| rustix::io::Errno::from_raw_os_error(errno as i32);
            signals.read_signal().map_err(errno)
        };
        while let Some(told) = read(&self.signals)? {
            let signal = i32::try_from(told.ssi_signo).unwrap_or_default();
            if told.ssi_code == SI_KERNEL && [SIGINT, SIGQUIT].contains(&signal) {
                self.interrupted = true;
            } else {
                self.tell(signal);
            }
        }
        Ok(())
    }

    fn tell(&self, signal: i32) {
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
            // It may have ended by now.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Ends the calling process as the supervisor did, as [`end_as`] does it.
    ///
    /// Where Ctrl-C ended the job alone, which had the terminal, the rest of this process group
    /// hears of it now: a shell script stops only if the interrupt reached it too.
    pub fn end_as(&self, ending: Ending) -> i32 {
        let job_alone = ending == Ending::Signal(SIGINT) && !self.interrupted;
        if job_alone && Terminal::open().is_some_and(|terminal| terminal.is_ours()) {
            // This process is one of the group: there is no failure but that it is gone.
            let _ = kill_current_process_group(rustix::process::Signal::INT);
        }
        end_as(ending)
    }
}

/// Reads the two words of [`Front::words`]: who the front is.
///
/// # Errors
/// `Invalid` when they are not two numbers.
pub fn parse_words(pid: &OsStr, start: &OsStr) -> Result<ProcessKey> {
    let number = |word: &OsStr| word.to_str()?.parse::<u64>().ok();
    let key = || {
        let pid = u32::try_from(number(pid)?).ok().filter(|pid| *pid > 0)?;
        Some(ProcessKey { pid: Pid(pid), start: Some(StartTime(number(start)?)) })
    };
    key().ok_or_else(|| Error::new(ErrorKind::Invalid, "read who the supervisor works for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_two_numbers() {
        let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
        let [pid, start] = Front::words(&roots).unwrap();
        let own = parse_words(&pid, &start).unwrap();
        assert_eq!(own.pid, Pid(std::process::id()));
        assert!(own.start.is_some_and(|start| start.0 > 0));
        for (pid, start) in [("", "1"), ("0", "1"), ("-1", "1"), ("1", ""), ("1", "x")] {
            let wrong = parse_words(pid.as_ref(), start.as_ref()).unwrap_err();
            assert_eq!(wrong.kind(), ErrorKind::Invalid, "{pid} {start}");
        }
    }
}
