//! The port [`Supervisors`]: this program, started again.
//!
//! Between the caller and the supervisor runs a guard, which is this program as well: the caller
//! must not become a subreaper, and some process has to end the job if the supervisor is killed.
//! The guard is a [`Front`] without a user; it watches the caller, and the supervisor watches it.
//!
//! The supervisor and its job send their output through pipes that they open as `/proc/PID/fd/N` of
//! the caller. So no descriptor has to be inherited, and neither process keeps one open that it
//! does not use. The caller keeps both ends of each pipe until the supervisor has ended, so the
//! output ends with the last of them.

use super::frontend::{Front, Relation, parse_words};
use super::orphans::Orphans;
use super::shared::Watched;
use crate::fault;
use crate::proc_dir::ProcRoot;
use crate::roots::Roots;
use gpu_core::{Error, ErrorKind, JobExit, ProcessKey, Result, Sent, Supervised, Supervisors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The argument that makes a program a guard, and the one that makes it a supervisor.
const GUARD: &str = "isolated-guard";
const SUPERVISOR: &str = "isolated-supervisor";

/// The maximum length of an order.
const ORDER_LIMIT: u64 = 1 << 20;

/// The maximum length of a report.
const REPORT_LIMIT: usize = 4 << 20;

/// Remaining processes of a job whose supervisor was killed may keep a pipe open indefinitely.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Starts a program again as the supervisor of a job.
///
/// The program must call [`ReexecRole::find`] before anything else, and take the role that it
/// returns.
#[derive(Clone, Debug)]
pub struct Reexec {
    roots: Roots,
    program: PathBuf,
    result_limit: usize,
}

impl Reexec {
    /// Returns a starter of `program` that keeps this many bytes of a job's output.
    pub fn new(roots: Roots, program: PathBuf, result_limit: usize) -> Self {
        Reexec { roots, program, result_limit }
    }
}

impl Supervisors for Reexec {
    fn start(&self, order: &[u8], input: &[u8]) -> Result<Box<dyn Supervised>> {
        let what = || format!("start '{}' as a supervisor", self.program.display());
        let failed = |error: io::Error| Error::new(ErrorKind::Io, what()).with_source(error);
        if order.len() as u64 > ORDER_LIMIT {
            return Err(failed(io::Error::other("the request is too long")));
        }
        let (report, report_end) = io::pipe().map_err(failed)?;
        let (result, result_end) = io::pipe().map_err(failed)?;
        let [pid, start] = Front::words(&self.roots)?;
        let dir = self.roots.proc.join(&pid).join("fd");
        let ends = [&report_end, &result_end].map(|end| dir.join(end.as_raw_fd().to_string()));
        let mut child = Command::new(&self.program)
            .args([&GUARD.into(), &pid, &start])
            .args(ends)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| fault::start(what(), error))?;
        let pidfd = pidfd_open(rustix::process::Pid::from_child(&child), PidfdFlags::empty());
        let pidfd = pidfd.map_err(|errno| fault::pidfd(what(), errno))?;
        if let Some(mut stdin) = child.stdin.take() {
            let mut text = (order.len() as u64).to_le_bytes().to_vec();
            text.extend_from_slice(order);
            text.extend_from_slice(input);
            // It ends if the job does not read all input, or if the supervisor is gone.
            std::thread::spawn(move || stdin.write_all(&text));
        }
        Ok(Box::new(Supervisor {
            child,
            pidfd,
            ends: Some((report_end, result_end)),
            report: Drain::new(report, REPORT_LIMIT),
            result: Drain::new(result, self.result_limit),
        }))
    }
}

struct Supervisor {
    child: Child,
    pidfd: OwnedFd,
    ends: Option<(PipeWriter, PipeWriter)>,
    report: Drain,
    result: Drain,
}

impl Supervised for Supervisor {
    fn end(&self) -> Result<()> {
        let failed = |errno| fault::process("end a supervisor", errno);
        pidfd_send_signal(&self.pidfd, Signal::TERM).map_err(failed)
    }

    fn is_over_within(&self, patience: Duration) -> Result<bool> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, "wait for a supervisor").with_source(error)
        };
        let patience =
            Timespec::try_from(patience).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&patience)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    fn wait(&mut self) -> Result<Sent> {
        let status = self.child.wait().map_err(|error| {
            Error::new(ErrorKind::Io, "wait for a supervisor").with_source(error)
        })?;
        self.ends = None;
        // If the guard was killed, the supervisor ends the job, and no other process has the report
        // open.
        let (report, _) = self.report.take((!status.success()).then_some(Duration::MAX));
        let (result, cut) = self.result.take(None);
        Ok(Sent { complete: status.success(), report, result, cut })
    }
}

/// The data from a pipe, read so that no writer has to wait.
struct Drain {
    kept: Arc<Mutex<(Vec<u8>, bool)>>,
    ended: Receiver<()>,
}

impl Drain {
    fn new(mut pipe: PipeReader, limit: usize) -> Self {
        let kept = Arc::new(Mutex::new((Vec::new(), false)));
        let (ends, ended) = channel();
        let filled = Arc::clone(&kept);
        std::thread::spawn(move || {
            let mut piece = vec![0; 1 << 16];
            while let Ok(length @ 1..) = pipe.read(&mut piece) {
                let mut kept = filled.lock().unwrap_or_else(PoisonError::into_inner);
                let room = limit.saturating_sub(kept.0.len());
                kept.0.extend_from_slice(&piece[..length.min(room)]);
                kept.1 |= length > room;
            }
            // The reader may be gone.
            let _ = ends.send(());
        });
        Drain { kept, ended }
    }

    /// Returns the data until the end, or until this timeout; use a short one for a pipe that may
    /// stay open indefinitely.
    fn take(&self, patience: Option<Duration>) -> (Vec<u8>, bool) {
        let _ = self.ended.recv_timeout(patience.unwrap_or(LAST_WORDS));
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The role of a program that [`Reexec`] started.
#[derive(Debug)]
pub enum ReexecRole {
    /// It is a supervisor.
    Supervisor(SupervisorOrder),
    /// It is the guard of a killed supervisor, and must end the remaining processes.
    Successor(Successor),
    /// It was a guard, and has no further task.
    Over,
}

impl ReexecRole {
    /// Returns the role of the calling program, which was started with these arguments; `None` if
    /// [`Reexec`] did not start it. A guard stays in this call until its supervisor has ended.
    ///
    /// # Errors
    /// `Invalid` when the arguments are not those of [`Reexec`]; `Io` when the caller is gone.
    pub fn find(
        roots: &Roots,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>> {
        let mut words = arguments.into_iter();
        let Some(word) = words.next() else { return Ok(None) };
        let is_guard = word == GUARD;
        if !is_guard && word != SUPERVISOR {
            return Ok(None);
        }
        let words: Vec<OsString> = words.take(5).collect();
        let what = "read the job to supervise";
        let [pid, start, report, result] = &words[..] else {
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let front = parse_words(pid, start)?;
        if is_guard {
            return ReexecRole::guard(roots, front, [report, result]).map(Some);
        }
        let failed = |error: io::Error| Error::new(ErrorKind::Io, what).with_source(error);
        let report = File::options().write(true).open(report).map_err(failed)?;
        let order = order().map_err(failed)?;
        Ok(Some(ReexecRole::Supervisor(SupervisorOrder {
            front,
            order,
            result: result.into(),
            report,
        })))
    }

    /// Guards a supervisor for a caller.
    fn guard(roots: &Roots, caller: ProcessKey, ends: [&OsString; 2]) -> Result<Self> {
        let what = "guard a supervisor";
        let failed = |error: io::Error| Error::new(ErrorKind::Io, what).with_source(error);
        let root = ProcRoot::open(&roots.proc).map_err(|errno| failed(errno.into()))?;
        let caller = Watched::open(&root, caller).map_err(|errno| failed(errno.into()))?;
        let program = std::env::current_exe().map_err(failed)?;
        let [pid, start] = Front::words(roots)?;
        let words = [SUPERVISOR.into(), pid, start, ends[0].clone(), ends[1].clone()];
        let name = OsStr::new(SUPERVISOR);
        let mut front = Front::start(roots, &program, name, &words, Relation::Guarded)?;
        if !front.watch(&caller)? {
            // The supervisor notices the end of its guard too.
            return Ok(ReexecRole::Over);
        }
        let ending = front.wait()?;
        if Front::was_killed(ending) {
            Ok(ReexecRole::Successor(Successor { front, roots: roots.clone(), ending }))
        } else if ending == JobExit::Code(0) {
            // This process ends as the supervisor did, for the caller to see.
            Ok(ReexecRole::Over)
        } else {
            Err(Error::new(ErrorKind::Io, what)
                .with_source(io::Error::other(format!("it ended with {}", ending.code()))))
        }
    }
}

/// A guard whose supervisor was killed.
#[derive(Debug)]
pub struct Successor {
    front: Front,
    roots: Roots,
    ending: JobExit,
}

impl Successor {
    /// Returns the processes that the supervisor left; `None` if there are none.
    ///
    /// # Errors
    /// `Io` when `/proc` cannot be read.
    pub fn orphans(&self) -> Result<Option<Orphans<'_>>> {
        self.front.orphans(&self.roots, self.ending)
    }
}

/// The order for a supervisor.
#[derive(Debug)]
pub struct SupervisorOrder {
    /// The process that it works for; pass it to [`LinuxLauncher`](super::LinuxLauncher).
    pub front: ProcessKey,
    /// The order itself.
    pub order: Vec<u8>,
    /// The path to which its job can write a result.
    pub result: PathBuf,
    report: File,
}

impl SupervisorOrder {
    /// Sends the report.
    ///
    /// # Errors
    /// `Io` when the caller is gone.
    pub fn report(mut self, report: &[u8]) -> Result<()> {
        let failed = |error| Error::new(ErrorKind::Io, "send a report").with_source(error);
        self.report.write_all(report).map_err(failed)
    }
}

/// Reads the order from standard input, and no byte after it: the rest belongs to the job.
fn order() -> io::Result<Vec<u8>> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut length = [0; 8];
    input.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > ORDER_LIMIT {
        return Err(io::Error::other("the request is too long"));
    }
    let mut order = Vec::new();
    input.take(length).read_to_end(&mut order)?;
    Ok(order)
}
