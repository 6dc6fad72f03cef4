//! The process that the caller started: it represents the supervisor and does nothing else.

use super::detach::DetachPipe;
use super::input::EndOfInput;
use super::orphans::Orphans;
use super::shared::Watched;
use super::signals::{ASKING, FREE, ignored, is_in};
use super::terminal::{Terminal, own_group};
use super::tree::own_children;
use super::{end_as, has_ended, pause};
use crate::limits::ignore_file_size_signal;
use crate::proc_dir::ProcRoot;
use crate::roots::Roots;
use crate::{fault, process};
use gpu_core::{Error, ErrorKind, JobExit, Pid, ProcessKey, Result, StartTime};
use nix::libc::SI_KERNEL;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{
    PidfdFlags, getpid, kill_current_process_group, kill_process, pidfd_open, pidfd_send_signal,
    set_child_subreaper,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// No system allows longer command lines (execve(2)).
const COMMAND_LINE_LIMIT: usize = 8 << 20;

/// The relation of a started program to the one that starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// In its own process group, so that killing this one does not kill it; if it is killed itself,
    /// this process ends everything that it started.
    Guarded,
    /// In its own process group; its descendants continue without it.
    Apart,
    /// In this process group, as a second frontend in place of this one.
    SameGroup,
}

/// A program that this one started to represent it.
///
/// It receives the signals that request an end, the free ones, and those that stop and continue
/// this process; but not those that a terminal sends to a whole process group, if it belongs to
/// that group.
#[derive(Debug)]
pub struct Front {
    child: Child,
    pidfd: OwnedFd,
    signals: SignalFd,
    stands: Relation,
    /// The children of this process before the start.
    own_children: HashSet<ProcessKey>,
    /// Ctrl-C was pressed while the whole process group could receive it.
    interrupted: bool,
    dismissal: Option<DetachPipe>,
    /// The input whose end ends the supervisor, until it has ended.
    input: Option<EndOfInput>,
    /// How to end if the supervisor stays.
    dismissed: Option<JobExit>,
}

impl Front {
    /// Returns the two arguments that identify the calling process to a supervisor: its PID and its
    /// start time. [`parse_words`] parses them.
    ///
    /// # Errors
    /// `Process` when `/proc` does not show the calling process.
    pub fn words(roots: &Roots) -> Result<[OsString; 2]> {
        let failed = |errno| fault::process("inspect this process", errno);
        let root = ProcRoot::open(&roots.proc).map_err(failed)?;
        let own = root.process(std::process::id()).and_then(|dir| process::read_key(&dir));
        let own = own.map_err(failed)?;
        let start = own.start.ok_or_else(|| failed(rustix::io::Errno::INVAL))?;
        Ok([own.pid.to_string().into(), start.0.to_string().into()])
    }

    /// Returns whether the calling process already has children, for example because it replaced a
    /// shell. Their children could be re-parented to it too, and be taken for those of its
    /// supervisor.
    ///
    /// # Errors
    /// `Process` when `/proc` does not show the calling process.
    pub fn has_children(roots: &Roots) -> Result<bool> {
        let failed = |errno| fault::process("list the child processes of this process", errno);
        let root = ProcRoot::open(&roots.proc).map_err(failed)?;
        Ok(!own_children(&root).map_err(failed)?.is_empty())
    }

    /// Returns the last arguments of a frontend, this many: its supervisor's command line need not
    /// repeat them for programs that search command lines.
    ///
    /// # Errors
    /// `Process(Gone)` when the frontend is gone.
    pub fn arguments(roots: &Roots, front: ProcessKey, count: usize) -> Result<Vec<OsString>> {
        let failed = |errno| fault::process("read the supervisor's request", errno);
        let root = ProcRoot::open(&roots.proc).map_err(failed)?;
        let dir = root.process(front.pid.0).map_err(failed)?;
        let same = process::read_key(&dir).map_err(failed)?.definitely_same(&front);
        let text = dir.read("cmdline", COMMAND_LINE_LIMIT).map_err(failed)?;
        // The kernel may show only a part for a process that is ending.
        let words = split_words(text).filter(|words| same && words.len() == count);
        words.ok_or_else(|| failed(rustix::io::Errno::SRCH))
    }

    /// Starts a program that stands for this one, with the same standard input and output; `name`
    /// is its process name.
    ///
    /// From here on, the calling thread blocks the signals that are forwarded to the supervisor;
    /// there must be no other thread, or that would receive them. For [`Relation::Guarded`], the
    /// calling process becomes the parent of all its orphaned descendants, unless a descendant
    /// below it does (`PR_SET_CHILD_SUBREAPER`, prctl(2)).
    ///
    /// # Errors
    /// `Unsupported` when pidfd_open(2) is not available, `Io` when the program cannot be started
    /// or the kernel refuses another call.
    pub fn start(
        roots: &Roots,
        program: &Path,
        name: &OsStr,
        arguments: &[OsString],
        stands: Relation,
    ) -> Result<Self> {
        let what = || format!("start '{}' as the supervisor", program.display());
        let failed = |error: io::Error| Error::new(ErrorKind::Io, what()).with_source(error);
        let root = ProcRoot::open(&roots.proc).map_err(|errno| failed(errno.into()))?;
        let ignored = ignored(&root).map_err(failed)?;
        let own_children = own_children(&root).map_err(|errno| failed(errno.into()))?;
        if stands == Relation::Guarded {
            set_child_subreaper(Some(getpid())).map_err(|errno| failed(errno.into()))?;
        }
        ignore_file_size_signal(&roots.proc).map_err(failed)?;
        // If SIGCHLD is ignored, the kernel discards the exit status of children.
        signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(failed)?;
        // A child inherits the blocked signals of its parent, so block them only once it exists.
        // Earlier signals stay pending.
        let (mut wanted, mut early) = (SigSet::empty(), Vec::new());
        for signal in ASKING.into_iter().chain(FREE).filter(|signal| !is_in(ignored, *signal)) {
            wanted.add(Signal::try_from(signal).map_err(|errno| failed(errno.into()))?);
            let came = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&came)).map_err(failed)?;
            early.push((signal, came));
        }
        let mut command = Command::new(program);
        command.arg0(name).args(arguments);
        if stands != Relation::SameGroup {
            command.process_group(0);
            wanted.add(Signal::SIGCONT);
            if !is_in(ignored, SIGTSTP) {
                wanted.add(Signal::SIGTSTP);
            }
        }
        let child = command.spawn().map_err(|error| fault::start(what(), error))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = wanted.thread_block().and_then(|()| SignalFd::with_flags(&wanted, flags));
        let signals = signals.map_err(|errno| failed(errno.into()))?;
        let pidfd = pidfd_open(rustix::process::Pid::from_child(&child), PidfdFlags::empty());
        let pidfd = pidfd.map_err(|errno| fault::pidfd(what(), errno))?;
        let front = Front {
            child,
            pidfd,
            signals,
            stands,
            own_children,
            interrupted: false,
            dismissal: None,
            input: None,
            dismissed: None,
        };
        for (signal, _) in early.iter().filter(|(_, came)| came.load(Ordering::Relaxed)) {
            front.forward(*signal);
        }
        Ok(front)
    }

    /// Lets the supervisor, which received the arguments of `dismissal`, dismiss this frontend
    /// before it ends itself.
    pub fn detached_by(self, dismissal: DetachPipe) -> Self {
        Front { dismissal: Some(dismissal), ..self }
    }

    /// Ends the supervisor, as SIGTERM does, when this input ends.
    pub fn ended_by(self, input: Option<EndOfInput>) -> Self {
        Front { input, ..self }
    }

    /// Forwards signals until the supervisor has ended, and returns its exit status; or until it
    /// has dismissed this frontend, and returns the exit status that it sent.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    pub fn wait(&mut self) -> Result<JobExit> {
        self.watch(&Watched::None)?;
        self.ending()
    }

    /// Like [`wait`](Self::wait), for another frontend that this one replaces; `None` when that one
    /// is gone. No process then waits for this one, and the supervisor must see it end.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    pub fn wait_for(&mut self, roots: &Roots, other: ProcessKey) -> Result<Option<JobExit>> {
        let failed = |errno| fault::file("watch the parent process", errno);
        let root = ProcRoot::open(&roots.proc).map_err(failed)?;
        let other = Watched::open(&root, other).map_err(failed)?;
        if self.watch(&other)? { self.ending().map(Some) } else { Ok(None) }
    }

    fn ending(&mut self) -> Result<JobExit> {
        if let Some(ending) = self.dismissed {
            return Ok(ending);
        }
        let status = self.child.wait().map_err(|error| {
            Error::new(ErrorKind::Io, "wait for the supervisor").with_source(error)
        })?;
        Ok(match status.signal() {
            Some(signal) => JobExit::Signal(signal),
            // A process that was not ended by a signal has a code.
            None => JobExit::Code(status.code().unwrap_or_default()),
        })
    }

    /// Forwards signals until the supervisor has ended or dismissed this frontend, or the other
    /// process is gone; returns whether it was the supervisor.
    pub(super) fn watch(&mut self, other: &Watched) -> Result<bool> {
        let failed = |errno| fault::file("wait for the supervisor", errno);
        while !has_ended(&self.pidfd).map_err(failed)? {
            if other.is_gone().map_err(failed)? {
                return Ok(false);
            }
            self.pass_on().map_err(failed)?;
            let has_ended = self.input.as_ref().map_or(Ok(false), EndOfInput::has_ended);
            if has_ended.map_err(failed)? {
                self.input = None;
                self.forward(SIGTERM);
            }
            let mut files = vec![
                PollFd::new(&self.pidfd, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            if let Some(dismissal) = &self.dismissal {
                files.push(PollFd::new(dismissal, PollFlags::IN));
            }
            if let Some(input) = &self.input {
                files.push(PollFd::new(input, PollFlags::IN));
            }
            if let Watched::Opened(other) = other {
                files.push(PollFd::new(other, PollFlags::IN));
            }
            pause(&mut files, None).map_err(failed)?;
            let can_read = |dismissal: &DetachPipe| {
                let mut file = [PollFd::new(dismissal, PollFlags::IN)];
                poll(&mut file, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
            };
            if let Some(dismissal) = self.dismissal.take_if(|dismissal| can_read(dismissal)) {
                self.dismissed = dismissal.read();
            }
            if self.dismissed.is_some() {
                break;
            }
        }
        Ok(true)
    }

    fn pass_on(&mut self) -> rustix::io::Result<()> {
        let read = |signals: &SignalFd| {
            let errno = |errno: nix::Error| rustix::io::Errno::from_raw_os_error(errno as i32);
            signals.read_signal().map_err(errno)
        };
        while let Some(reported) = read(&self.signals)? {
            let signal = i32::try_from(reported.ssi_signo).unwrap_or_default();
            let typed = reported.ssi_code == SI_KERNEL && [SIGINT, SIGQUIT].contains(&signal);
            self.interrupted |= typed;
            if signal == SIGTSTP {
                stop(|| self.forward(signal))?;
            } else if !typed || self.stands != Relation::SameGroup {
                self.forward(signal);
            }
        }
        Ok(())
    }

    fn forward(&self, signal: i32) {
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
            // It may have ended by now.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Returns the processes that the supervisor left, if it was killed and is
    /// [`Relation::Guarded`].
    ///
    /// # Errors
    /// `Io` when `/proc` cannot be read.
    pub fn orphans(&self, roots: &Roots, ending: JobExit) -> Result<Option<Orphans<'_>>> {
        let left = self.dismissed.is_none() && Front::was_killed(ending);
        if self.stands == Relation::Guarded && left {
            Orphans::of(roots, &self.signals, &self.own_children).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns whether this exit status means that the supervisor was killed: it ends itself only
    /// by the signals of [`end_as`].
    pub fn was_killed(ending: JobExit) -> bool {
        matches!(ending, JobExit::Signal(signal) if ![SIGINT, SIGTERM, SIGHUP].contains(&signal))
    }

    /// Ends the calling process as the supervisor ended, like [`end_as`].
    ///
    /// If Ctrl-C ended only the job, which had the terminal, the rest of this process group gets
    /// the signal now: a shell script stops only if the interrupt reaches it too.
    pub fn end_as(&self, ending: JobExit) -> i32 {
        let job_alone = ending == JobExit::Signal(SIGINT) && !self.interrupted;
        if job_alone && Terminal::open(own_group()).is_some_and(|own| own.is_ours()) {
            // This process is a member of the group, so the signal can fail only if it is gone.
            let _ = kill_current_process_group(rustix::process::Signal::INT);
        }
        end_as(ending)
    }
}

/// Stops this process like Ctrl-Z, if some process can continue it, which the kernel knows.
///
/// Its own signal is pending before `notify` signals the supervisor, which stops this process too: a
/// SIGCONT then discards both. Sent later, its own signal would discard the SIGCONT (signal(7)).
fn stop(notify: impl FnOnce()) -> rustix::io::Result<()> {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTSTP);
    kill_process(getpid(), rustix::process::Signal::TSTP)?;
    notify();
    let stopped = stop.thread_unblock().and_then(|()| stop.thread_block());
    stopped.map_err(|errno| rustix::io::Errno::from_raw_os_error(errno as i32))
}

/// Splits a command line as `/proc` shows it: each argument ends with a zero byte.
fn split_words(mut text: Vec<u8>) -> Option<Vec<OsString>> {
    text.pop().filter(|end| *end == 0)?;
    Some(text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// Parses the two arguments of [`Front::words`], which identify the frontend.
///
/// # Errors
/// `Invalid` when they are not two numbers.
pub fn parse_words(pid: &OsStr, start: &OsStr) -> Result<ProcessKey> {
    let number = |word: &OsStr| word.to_str()?.parse::<u64>().ok();
    let key = || {
        let pid = u32::try_from(number(pid)?).ok().filter(|pid| *pid > 0)?;
        Some(ProcessKey { pid: Pid(pid), start: Some(StartTime(number(start)?)) })
    };
    key().ok_or_else(|| Error::new(ErrorKind::Invalid, "read the supervisor's client"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_parsed_completely_or_rejected() {
        let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
        let [pid, start] = Front::words(&roots).unwrap();
        let own = parse_words(&pid, &start).unwrap();
        let words: Vec<OsString> = std::env::args_os().collect();
        assert_eq!(Front::arguments(&roots, own, words.len()).unwrap(), words);
        for (key, count) in [
            (own, words.len() + 1),
            (ProcessKey { start: Some(StartTime(1)), ..own }, words.len()),
            (ProcessKey { pid: Pid(4_194_304), ..own }, words.len()),
        ] {
            let gone = Front::arguments(&roots, key, count).unwrap_err().kind();
            assert_eq!(gone, gpu_core::ProcessFault::Gone.into());
        }
        let split = |text: &[u8]| split_words(text.to_vec());
        assert_eq!(split(b"a\0\0b c\0"), Some(vec!["a".into(), "".into(), "b c".into()]));
        assert_eq!(split(b"a\0b"), None);
        assert_eq!(split(b""), None);
    }

    #[test]
    fn frontend_is_identified_by_pid_and_start_time() {
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
