//! The port that starts programs in a tree of their own.

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
    /// What follows its name.
    pub arguments: Vec<OsString>,
    /// Variables of the environment that are set; all others are as here.
    pub set: Vec<(OsString, OsString)>,
    /// Variables that are taken out.
    pub unset: Vec<OsString>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobExit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl JobExit {
    /// Returns the code that a shell gives to it: 128 and the signal's number.
    pub fn code(self) -> i32 {
        match self {
            JobExit::Code(code) => code,
            JobExit::Signal(signal) => 128 + signal,
        }
    }
}

/// What happens while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// It has ended. What it started may live on.
    Ended(JobExit),
    /// Whoever asked for it is gone: nobody waits for it any more.
    Abandoned,
    /// Somebody asks by this signal that it ends.
    Asked(i32),
}

/// Starts programs in a tree that nothing leaves: whoever loses its parent there becomes a child
/// of the calling process (`PR_SET_CHILD_SUBREAPER`).
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Launcher {
    /// Starts a program in a process group of its own; on a terminal it is in the foreground.
    ///
    /// # Errors
    /// `Process(Gone)` where there is no such program, `Process(NotPermitted)` when it may not be
    /// run, `Io` for anything else.
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Job>>;

    /// Starts a program for the caller's own use beside its job, in a process group of its own. It
    /// is no member of the job, and has neither the job's standard streams nor its terminal.
    ///
    /// # Errors
    /// `Unsupported` where no such program can be kept apart from the job, `Io` when it cannot be
    /// started.
    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        let program = launch.program.to_string_lossy();
        Err(Error::new(ErrorKind::Unsupported, format!("start '{program}' beside a job")))
    }
}

/// A program beside a job. When it is dropped the program is killed; should it survive that, it is
/// a member of the job from then on, so that it is named with the others that do.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Companion {
    /// Returns its process.
    fn pid(&self) -> Pid;

    /// Returns what it wrote to its standard output once it has ended; `None` while it runs.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn ended(&mut self) -> Result<Option<String>>;

    /// Kills it, without waiting for its end.
    fn kill(&mut self);
}

/// A program that was started, and its tree.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Job {
    /// Returns what happens next; `None` when nothing did for `at_most`.
    ///
    /// What a terminal does to it, stopping and going on, is done meanwhile.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer. What this process was asked meanwhile is told first.
    fn next(&mut self, at_most: Duration) -> Result<Option<JobEvent>>;

    /// Passes a signal on to its process group.
    ///
    /// # Errors
    /// `Process(Gone)` when nobody of it is left.
    fn pass(&self, signal: i32) -> Result<()>;

    /// Returns the processes of its tree that live, without those that have ended and wait to be
    /// waited for.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn members(&self) -> Result<Vec<ProcessInfo>>;

    /// Kills whoever of its tree is a child of the calling process and is not `spared`, waits for
    /// those that have ended, and does so again, until there are none, or no others come, or the
    /// time is over.
    ///
    /// Who loses its parent by that is a child next, so that all of the tree has its turn, even one
    /// that forks faster than it can be looked through.
    ///
    /// # Errors
    /// `Unsupported` where nobody keeps a list of children, `Io` when it cannot be read.
    fn fell(&self, spared: &[Pid], at_most: Duration, token: &ActToken) -> Result<KilledTree> {
        let _ = (spared, at_most, token);
        Err(Error::new(ErrorKind::Unsupported, "kill a job by its child list"))
    }

    /// Stops (SIGSTOP) every process of its tree that is neither `known` nor `spared`, as soon as
    /// it is seen, until no new one has appeared for a moment or the time is over.
    ///
    /// A process that hands over to a fork of itself cannot do so while it is stopped, so that a
    /// tree of such processes can be inspected at leisure. [`resume`](Job::resume) is the reverse.
    ///
    /// # Errors
    /// `Unsupported` where the kernel keeps no list of children, `Io` when it cannot be read.
    fn arrest(
        &self,
        known: &[ProcessKey],
        spared: &[Pid],
        at_most: Duration,
        token: &ActToken,
    ) -> Result<SuspendedProcesses> {
        let _ = (known, spared, at_most, token);
        Err(Error::new(ErrorKind::Unsupported, "stop the new processes of a job"))
    }

    /// Continues (SIGCONT) processes that [`arrest`](Job::arrest) stopped. Those that have ended
    /// are skipped.
    fn resume(&self, stopped: &[ProcessKey], token: &ActToken) {
        let _ = (stopped, token);
    }

    /// Takes the terminal back from the job for good: nobody at it waits for the job any more.
    fn detach(&mut self) {}
}

/// The processes that [`Job::arrest`] stopped.
#[derive(Clone, Debug, Default)]
pub struct SuspendedProcesses {
    /// The stopped processes that still live.
    pub stopped: Vec<ProcessInfo>,
    /// New processes kept appearing until the time was over.
    pub restless: bool,
}

/// What became of a tree that was killed from its top.
#[derive(Clone, Debug, Default)]
pub struct KilledTree {
    /// Those who were killed, as they were when they had ended, and the time that they took.
    pub killed: Vec<(ProcessInfo, Duration)>,
    /// No child was left.
    pub none_left: bool,
}

/// What a supervisor sent before it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// It ended as it should.
    pub complete: bool,
    /// Its report.
    pub report: Vec<u8>,
    /// What its job sent.
    pub result: Vec<u8>,
    /// The job sent more, which was not kept.
    pub cut: bool,
}

/// Starts the calling program once more, to supervise a job for it.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Supervisors {
    /// Starts it, with an order for itself and standard input for its job.
    ///
    /// # Errors
    /// `Io` when it cannot be started.
    fn start(&self, order: &[u8], input: &[u8]) -> Result<Box<dyn Supervised>>;
}

/// A supervisor at work. When the caller ends, whatever way, so does the job.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Supervised: Send {
    /// Asks it to end its job, and then itself.
    ///
    /// # Errors
    /// `Process(Gone)` when it has ended.
    fn end(&self) -> Result<()>;

    /// Waits until it has ended, and returns what was sent; nothing more at a second time.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn wait(&mut self) -> Result<Sent>;
}
