//! The port that starts programs in their own process tree.

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Pid, ProcessKey};
use crate::process::ProcessInfo;
use crate::token::ActToken;
use std::ffi::OsString;
use std::time::Duration;

/// A program to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The program, found by `PATH` where it has no slash.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Environment variables to set; all others are inherited.
    pub set: Vec<(OsString, OsString)>,
    /// Environment variables to remove.
    pub unset: Vec<OsString>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobExit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl JobExit {
    /// Returns the code that a shell reports: 128 plus the signal number.
    pub fn code(self) -> i32 {
        match self {
            JobExit::Code(code) => code,
            JobExit::Signal(signal) => 128 + signal,
        }
    }
}

/// Events while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// It has ended. Its descendants may still live.
    Ended(JobExit),
    /// The caller is gone: no process waits for the program any more.
    Abandoned,
    /// This signal requested its end.
    EndRequested(i32),
}

/// Starts programs in a tree that no process can leave: orphans in it are re-parented to the
/// calling process (`PR_SET_CHILD_SUBREAPER`).
pub trait Launcher {
    /// Starts a program in its own process group; on a terminal it is in the foreground.
    ///
    /// # Errors
    /// `Process(Gone)` if there is no such program, `Process(NotPermitted)` if it may not be run,
    /// `Io` for anything else.
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Job>>;

    /// Starts a helper program next to the job, in its own process group. It is not a member of the
    /// job, and has neither the job's standard streams nor its terminal.
    ///
    /// # Errors
    /// `Unsupported` if no such program can be kept apart from the job, `Io` when it cannot be
    /// started.
    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        let program = launch.program.to_string_lossy();
        Err(Error::new(ErrorKind::Unsupported, format!("start '{program}' next to a job")))
    }
}

/// A helper program next to a job. Dropping it kills the program; if the program survives that, it
/// becomes a member of the job, so that it is reported with other survivors.
pub trait Companion {
    /// Returns its process.
    fn pid(&self) -> Pid;

    /// Returns its standard output once it has ended; `None` while it runs.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn ended(&mut self) -> Result<Option<String>>;

    /// Kills it, without waiting for its end.
    fn kill(&mut self);
}

/// A started program and its process tree.
pub trait Job {
    /// Returns the next event; `None` if there was none for `at_most`.
    ///
    /// It also handles job control (stop and continue) meanwhile.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer. Requests to this process during that time are returned
    /// first.
    fn next(&mut self, at_most: Duration) -> Result<Option<JobEvent>>;

    /// Forwards a signal to its process group.
    ///
    /// # Errors
    /// `Process(Gone)` when no process of it is left.
    fn pass(&self, signal: i32) -> Result<()>;

    /// Returns the live processes of its tree, without zombies.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn members(&self) -> Result<Vec<ProcessInfo>>;

    /// Kills every process of its tree that is a child of the calling process and not `spared`,
    /// reaps those that have ended, and repeats until there are none, no new ones appear, or time
    /// runs out.
    ///
    /// Orphans become children of the caller next, so the whole tree is covered, even one that
    /// forks faster than it can be scanned.
    ///
    /// # Errors
    /// `Unsupported` if there is no list of children, `Io` when it cannot be read.
    fn kill_tree(&self, spared: &[Pid], at_most: Duration, token: &ActToken) -> Result<KilledTree> {
        let _ = (spared, at_most, token);
        Err(Error::new(ErrorKind::Unsupported, "kill a job by its child list"))
    }

    /// Stops (SIGSTOP) every process of its tree that is neither `known` nor `spared`, as soon as
    /// it is seen, until no new one has appeared for a moment or time runs out.
    ///
    /// A stopped process cannot hand over to a fork of itself, so a tree of such processes can be
    /// inspected without a race. [`resume`](Job::resume) is the reverse.
    ///
    /// # Errors
    /// `Unsupported` if the kernel keeps no list of children, `Io` when it cannot be read.
    fn suspend_new(
        &self,
        known: &[ProcessKey],
        spared: &[Pid],
        at_most: Duration,
        token: &ActToken,
    ) -> Result<SuspendedProcesses> {
        let _ = (known, spared, at_most, token);
        Err(Error::new(ErrorKind::Unsupported, "stop the new processes of a job"))
    }

    /// Continues (SIGCONT) processes that [`suspend_new`](Job::suspend_new) stopped. Those that
    /// have ended are skipped.
    fn resume(&self, stopped: &[ProcessKey], token: &ActToken) {
        let _ = (stopped, token);
    }

    /// Takes the terminal back from the job permanently: its user no longer waits for the job.
    fn detach(&mut self) {}
}

/// The processes that [`Job::suspend_new`] stopped.
#[derive(Clone, Debug, Default)]
pub struct SuspendedProcesses {
    /// The stopped processes that still live.
    pub stopped: Vec<ProcessInfo>,
    /// New processes kept appearing until time ran out.
    pub still_forking: bool,
}

/// The result of killing a tree from its top.
#[derive(Clone, Debug, Default)]
pub struct KilledTree {
    /// The killed processes, as they were at their end, and the duration.
    pub killed: Vec<(ProcessInfo, Duration)>,
    /// No child is left.
    pub none_left: bool,
}

/// What a supervisor sent before it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// It ended normally.
    pub complete: bool,
    /// Its report.
    pub report: Vec<u8>,
    /// The output of its job.
    pub result: Vec<u8>,
    /// The job sent more, which was discarded.
    pub cut: bool,
}

/// Starts the calling program again, to supervise a job.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Supervisors {
    /// Starts it, with an order for itself and standard input for its job.
    ///
    /// # Errors
    /// `Io` when it cannot be started.
    fn start(&self, order: &[u8], input: &[u8]) -> Result<Box<dyn Supervised>>;
}

/// A running supervisor. When the caller ends, in whatever way, so does the job.
pub trait Supervised: Send {
    /// Asks it to end its job, and then itself.
    ///
    /// # Errors
    /// `Process(Gone)` when it has ended.
    fn end(&self) -> Result<()>;

    /// Waits for at most `patience` until it has ended, and returns whether it has.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn is_over_within(&self, patience: Duration) -> Result<bool>;

    /// Waits until it has ended, and returns what it sent; a second call returns no more data.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn wait(&mut self) -> Result<Sent>;
}
