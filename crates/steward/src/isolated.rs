//! A program, or an entry point of this one, in a process tree of its own on claimed devices.
//!
//! Three processes take part. The *caller* embeds this crate; it starts itself once more as the
//! *supervisor* ([`Supervisors`]), which claims devices, starts the *job* and ends all that comes
//! of it ([`isolate`](crate::isolate)). So the caller becomes no subreaper and loses none of its
//! signals, and when it is killed the supervisor still ends the job. What the job has to say comes
//! back through a pipe; how it went, and the proof that nothing is left, in the supervisor's report.

use crate::ports::{Ports, Request};
use crate::run::{DeviceUse, Event, NotRun, OnDeath, RunOrder, RunReport, isolate};
use gpu_claim::Wait;
use gpu_core::visible::Form;
use gpu_core::{
    ActToken, Bytes, Claim, Error, ErrorKind, Fault, Launch, Launcher, Pid, Reading, Result,
    Supervised, Supervisors,
};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// The variable that names the file to which a job writes its result.
pub const RESULT: &str = "GPUWS_RESULT";

/// The word that makes a program run one of its entry points.
const ENTRY: &str = "gpuws-entry";

/// What an entry point's result begins with.
const VALUE: u8 = 0;
const FAILURE: u8 = 1;
const PANIC: u8 = 2;

/// A job to run in isolation.
///
/// ```no_run
/// # fn wants(supervisors: &dyn gpu_core::Supervisors) -> Result<(), gpu_steward::IsolatedError> {
/// use gpu_core::Claim;
/// use gpu_steward::Isolated;
/// use std::time::Duration;
///
/// let program = std::env::current_exe().unwrap_or_default();
/// let outcome = Isolated::entry(program, "train")
///     .claim(Claim::whole(1))
///     .time_limit(Duration::from_secs(3600))
///     .run(supervisors)?;
/// assert!(outcome.report.is_clean());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Isolated {
    order: Order,
    input: Vec<u8>,
}

/// What the supervisor is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    claim: Claim,
    /// `None` to wait for ever, 0 not to wait.
    wait_ms: Option<u64>,
    needs_topology: bool,
    command: String,
    program: OsString,
    arguments: Vec<OsString>,
    set: Vec<(OsString, OsString)>,
    unset: Vec<OsString>,
    by_index: bool,
    time_limit_ms: Option<u64>,
    grace_ms: u64,
    handoff_ms: u64,
    is_entry: bool,
}

impl Isolated {
    /// Returns a job that runs a program; its result is what it writes to the file that the
    /// variable [`RESULT`] names.
    pub fn program(launch: Launch) -> Self {
        let Launch { program, arguments, set, unset } = launch;
        let order = Order {
            claim: Claim::whole(1),
            wait_ms: None,
            needs_topology: false,
            command: program.to_string_lossy().into_owned(),
            program,
            arguments,
            set,
            unset,
            by_index: false,
            time_limit_ms: None,
            grace_ms: 10_000,
            handoff_ms: 30_000,
            is_entry: false,
        };
        Isolated { order, input: Vec::new() }
    }

    /// Returns a job that runs an entry point of `program`, which calls [`serve_entry`]; its result
    /// is what the entry point returns.
    pub fn entry(program: impl Into<OsString>, name: &str) -> Self {
        let arguments = vec![ENTRY.into(), name.into()];
        let launch = Launch { program: program.into(), arguments, ..Launch::default() };
        let mut isolated = Isolated::program(launch);
        isolated.order.is_entry = true;
        isolated.order.command = name.to_owned();
        isolated
    }

    /// Sets what it claims; one whole device unless set.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.order.needs_topology = claim.count > 1;
        self.order.claim = claim;
        self
    }

    /// Sets how long it waits for its devices; for ever unless set.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.order.wait_ms = match wait {
            Wait::No => Some(0),
            Wait::For(patience) => Some(millis(patience).max(1)),
            Wait::Ever => None,
        };
        self
    }

    /// Sets how long it may run; as long as it likes unless set.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.order.time_limit_ms = Some(millis(limit));
        self
    }

    /// Sets the time from SIGTERM to SIGKILL; ten seconds unless set.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.order.grace_ms = millis(grace);
        self
    }

    /// Sets how devices are named to it; by UUID unless set.
    #[must_use]
    pub fn visible(mut self, form: Form) -> Self {
        self.order.by_index = form == Form::Index;
        self
    }

    /// Sets its standard input; empty unless set.
    #[must_use]
    pub fn input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// `Io` when the supervisor cannot be started.
    pub fn start(&self, supervisors: &dyn Supervisors) -> Result<Isolation> {
        let order = serde_json::to_vec(&self.order)
            .map_err(|error| Error::new(ErrorKind::Invalid, "word an order").with_source(error))?;
        let supervisor = supervisors.start(&order, &self.input)?;
        Ok(Isolation { supervisor: Some(supervisor), is_entry: self.order.is_entry })
    }

    /// Runs it, and returns when nothing of it is left.
    ///
    /// # Errors
    /// [`IsolatedError`].
    pub fn run(&self, supervisors: &dyn Supervisors) -> Result<Outcome, IsolatedError> {
        self.start(supervisors).map_err(IsolatedError::Lost)?.wait()
    }
}

/// A job that runs in isolation. Dropping it ends the job, with all that the job started, and
/// waits for that.
pub struct Isolation {
    supervisor: Option<Box<dyn Supervised>>,
    is_entry: bool,
}

impl fmt::Debug for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolation").finish_non_exhaustive()
    }
}

impl Drop for Isolation {
    fn drop(&mut self) {
        if let Some(supervisor) = &mut self.supervisor {
            // One that has ended already needs no word, and then the wait is short.
            let _ = supervisor.end();
            let _ = supervisor.wait();
        }
    }
}

/// What an isolated job came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its result.
    pub value: Vec<u8>,
    /// How it went.
    pub report: IsolatedReport,
}

/// How an isolated job went, as its supervisor saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolatedReport {
    /// The code with which it ended, 128 and the signal's number where a signal ended it.
    pub code: i32,
    /// It was ended because its time was over.
    pub limit_hit: bool,
    /// From its start to its end, in milliseconds.
    pub elapsed_ms: u64,
    /// Its devices by index, with the most memory that was seen of it.
    pub devices: Vec<IsolatedUse>,
    /// Those of its tree that were ended after it.
    pub ended_pids: Vec<Pid>,
    /// Those of its tree that are still there.
    pub left_pids: Vec<Pid>,
    /// Its memory was seen to be free again.
    #[serde(with = "gpu_core::reading")]
    pub memory_back: Reading<bool>,
    /// Why the end of its tree was not carried through.
    pub stopped: Option<Fault>,
}

/// What an isolated job used of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolatedUse {
    /// NVML's index.
    pub index: u32,
    /// The most memory that was seen.
    #[serde(rename = "peak_bytes", with = "gpu_core::reading")]
    pub peak: Reading<Bytes>,
}

impl IsolatedReport {
    /// Tells whether nobody of the tree is left and all its memory was seen to be free again.
    pub fn is_clean(&self) -> bool {
        self.left_pids.is_empty() && self.stopped.is_none() && self.memory_back == Ok(true)
    }
}

impl From<&RunReport> for IsolatedReport {
    fn from(report: &RunReport) -> Self {
        let used = |used: &DeviceUse| IsolatedUse { index: used.device.index, peak: used.peak };
        let gone = report.left_behind.iter().filter(|action| action.outcome.is_gone());
        IsolatedReport {
            code: report.ending.code(),
            limit_hit: report.limit_hit,
            elapsed_ms: millis(report.elapsed),
            devices: report.devices.iter().map(used).collect(),
            ended_pids: gone.map(|action| action.pid).collect(),
            left_pids: report.still_there.iter().map(|info| info.key.pid).collect(),
            memory_back: report.memory_back,
            stopped: report.stopped.clone(),
        }
    }
}

/// Why there is no result.
#[derive(Debug)]
pub enum IsolatedError {
    /// It got no devices, for this reason.
    NotGranted(String),
    /// It could not be started.
    NotStarted(Fault),
    /// Its time was over.
    TimedOut(Box<IsolatedReport>),
    /// It failed: its own words, where it had any.
    Failed(String, Box<IsolatedReport>),
    /// Its entry point panicked, with these words.
    Panicked(String, Box<IsolatedReport>),
    /// It sent more than is kept.
    TooLong(Box<IsolatedReport>),
    /// The supervisor was lost: what became of the job is not known.
    Lost(Error),
}

impl fmt::Display for IsolatedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsolatedError::NotGranted(why) => write!(f, "claim devices for an isolated job: {why}"),
            IsolatedError::NotStarted(fault) => write!(f, "start an isolated job: {fault}"),
            IsolatedError::TimedOut(_) => f.write_str("run an isolated job within its time"),
            IsolatedError::Failed(why, report) => {
                write!(f, "run an isolated job, which ended with code {}: {why}", report.code)
            }
            IsolatedError::Panicked(why, _) => write!(f, "run an isolated job: panic: {why}"),
            IsolatedError::TooLong(_) => f.write_str("keep all that an isolated job sent"),
            IsolatedError::Lost(error) => write!(f, "supervise an isolated job: {error}"),
        }
    }
}

impl std::error::Error for IsolatedError {}

/// What the supervisor reports.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Ran(IsolatedReport),
    NotGranted(String),
    NotStarted(Fault),
}

impl Isolation {
    /// Waits until nothing of the job is left, and returns its result.
    ///
    /// # Errors
    /// [`IsolatedError`].
    pub fn wait(mut self) -> Result<Outcome, IsolatedError> {
        let lost = |text: &str| {
            IsolatedError::Lost(Error::new(ErrorKind::Io, format!("read its report: {text}")))
        };
        let Some(mut supervisor) = self.supervisor.take() else { return Err(lost("it is gone")) };
        let sent = supervisor.wait().map_err(IsolatedError::Lost)?;
        if !sent.complete {
            return Err(lost("it was ended from outside"));
        }
        let said = serde_json::from_slice(&sent.report);
        let report = match said.map_err(|error| lost(&error.to_string()))? {
            Said::Ran(report) => Box::new(report),
            Said::NotGranted(why) => return Err(IsolatedError::NotGranted(why)),
            Said::NotStarted(fault) => return Err(IsolatedError::NotStarted(fault)),
        };
        let mut value = sent.result;
        let kind = match (self.is_entry, value.first().copied()) {
            (true, Some(kind)) => {
                value.remove(0);
                Some(kind)
            }
            (true, None) => None,
            (false, _) => Some(VALUE),
        };
        let words = || String::from_utf8_lossy(&value).into_owned();
        match kind {
            _ if report.limit_hit => Err(IsolatedError::TimedOut(report)),
            _ if sent.cut => Err(IsolatedError::TooLong(report)),
            Some(PANIC) => Err(IsolatedError::Panicked(words(), report)),
            Some(FAILURE) => Err(IsolatedError::Failed(words(), report)),
            Some(VALUE) if report.code == 0 => Ok(Outcome { value, report: *report }),
            Some(_) => Err(IsolatedError::Failed("it said no more".to_owned(), report)),
            None => Err(IsolatedError::Failed("it sent no result".to_owned(), report)),
        }
    }
}

/// Does the supervisor's part: claims, runs, cleans up; returns the report to send. `result` is
/// the file to which the job writes its result; `asks_to_stop` tells, before the job runs, that
/// somebody wants it to end (while it runs, the job's own events do).
///
/// # Errors
/// `Invalid` for an order that is none; `Process` when this very process cannot be seen.
pub fn supervise(
    order: &[u8],
    result: &Path,
    ports: &Ports<'_>,
    launcher: &dyn Launcher,
    token: &ActToken,
    asks_to_stop: &mut dyn FnMut() -> bool,
) -> Result<Vec<u8>> {
    let invalid = |error| Error::new(ErrorKind::Invalid, "read an order").with_source(error);
    let order: Order = serde_json::from_slice(order).map_err(invalid)?;
    let itself = || Error::new(ErrorKind::Invalid, "find this very process");
    let root = *ports.host.own_line()?.first().ok_or_else(itself)?;
    let mut set = order.set;
    set.push((RESULT.into(), result.into()));
    let run = RunOrder {
        request: Request {
            claim: order.claim,
            wait: match order.wait_ms {
                None => Wait::Ever,
                Some(0) => Wait::No,
                Some(patience) => Wait::For(Duration::from_millis(patience)),
            },
            needs_topology: order.needs_topology,
            command: order.command,
            root,
        },
        launch: Launch {
            program: order.program,
            arguments: order.arguments,
            set,
            unset: order.unset,
        },
        visible: if order.by_index { Form::Index } else { Form::Uuid },
        time_limit: order.time_limit_ms.map(Duration::from_millis),
        grace: Duration::from_millis(order.grace_ms),
        on_death: OnDeath::End,
        handoff: Duration::from_millis(order.handoff_ms),
    };
    let mut watch = |event: Event<'_>| match event {
        Event::Waiting(_) | Event::Granted(_) if asks_to_stop() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let said = match isolate(&run, ports, launcher, token, &mut watch) {
        Ok(report) => Said::Ran(IsolatedReport::from(&report)),
        Err(NotRun::NotGranted(why)) => Said::NotGranted(why.to_string()),
        Err(NotRun::NotStarted(error) | NotRun::Lost(error, _)) => Said::NotStarted(error.fault()),
        Err(NotRun::Stopped) => Said::NotGranted("it was asked to stop".to_owned()),
    };
    serde_json::to_vec(&said)
        .map_err(|error| Error::new(ErrorKind::Invalid, "word a report").with_source(error))
}

/// An entry point: from its input to its result, or to why there is none.
pub type Entry = fn(&mut dyn Read) -> Result<Vec<u8>, String>;

/// Runs the entry point that the calling program was started for, and returns the code to end
/// with; `None` when it was started for something else, and is to go on.
///
/// To be called first in `main`, with the program's arguments but its name, what it finds at
/// [`RESULT`] in its environment, and its standard input.
pub fn serve_entry(
    arguments: impl IntoIterator<Item = OsString>,
    result: Option<OsString>,
    input: &mut dyn Read,
    entries: &[(&str, Entry)],
) -> Option<i32> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != ENTRY {
        return None;
    }
    let name = arguments.next()?;
    let entry = entries.iter().find(|(known, _)| name == *known).map(|(_, entry)| entry);
    let run = || entry.map(|entry| entry(input));
    let (kind, said) = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Some(Ok(value))) => (VALUE, value),
        Ok(Some(Err(why))) => (FAILURE, why.into_bytes()),
        Ok(None) => (FAILURE, b"there is no such entry point".to_vec()),
        Err(panic) => (PANIC, words_of(&*panic)),
    };
    let send = || -> std::io::Result<()> {
        let mut file = File::options().write(true).open(result.unwrap_or_default())?;
        file.write_all(&[kind])?;
        file.write_all(&said)
    };
    Some(match (send(), kind) {
        (Ok(()), VALUE) => 0,
        _ => 1,
    })
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> Vec<u8> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it did not say why").as_bytes().to_vec()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
