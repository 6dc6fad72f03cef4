//! Runs a program, or an entry point of this one, in its own process tree on claimed devices.
//!
//! Three processes take part. The *caller* embeds this crate. It starts itself again as the
//! *supervisor* ([`Supervisors`]), which claims devices, starts the *job* and ends everything that
//! descends from it ([`isolate`](crate::isolate)). The caller therefore does not become a subreaper
//! and loses none of its signals, and if it is killed, the supervisor still ends the job. The job
//! returns its result through a pipe. The supervisor's report contains the outcome and the
//! verification that nothing is left.

mod entry;
mod report;
mod supervisor;

pub use entry::{EntryPoint, serve_entry};
pub use report::{IsolatedError, IsolatedReport, IsolatedUse};
pub use supervisor::{not_started, supervise};

use entry::{ENTRY, FAILURE, PANIC, VALUE};
use gpu_claim::Wait;
use gpu_core::visible::Form;
use gpu_core::{Claim, Error, ErrorKind, Launch, Result, Supervised, Supervisors};
use report::Said;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

/// The variable with the name of the file to which a job writes its result.
pub const RESULT: &str = "GPUWS_RESULT";

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

/// The supervisor's order.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    claim: Claim,
    /// `None` to wait forever, 0 not to wait.
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
    /// Creates a job that runs a program; its result is what the program writes to the file in the
    /// variable [`RESULT`].
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

    /// Creates a job that runs an entry point of `program`, which must call [`serve_entry`]; its
    /// result is what the entry point returns.
    pub fn entry(program: impl Into<OsString>, name: &str) -> Self {
        let arguments = vec![ENTRY.into(), name.into()];
        let launch = Launch { program: program.into(), arguments, ..Launch::default() };
        let mut isolated = Isolated::program(launch);
        isolated.order.is_entry = true;
        isolated.order.command = name.to_owned();
        isolated
    }

    /// Sets the command that others see in its lease; default: that of the program.
    #[must_use]
    pub fn command(mut self, command: String) -> Self {
        self.order.command = command;
        self
    }

    /// Sets its claim; default: one whole device.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.order.needs_topology = claim.count > 1;
        self.order.claim = claim;
        self
    }

    /// Sets how long it waits for its devices; default: forever.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.order.wait_ms = match wait {
            Wait::No => Some(0),
            Wait::For(patience) => Some(millis(patience).max(1)),
            Wait::Forever => None,
        };
        self
    }

    /// Sets its time limit; default: none.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.order.time_limit_ms = Some(millis(limit));
        self
    }

    /// Sets the time from SIGTERM to SIGKILL; default: ten seconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.order.grace_ms = millis(grace);
        self
    }

    /// Sets how devices are named in its environment; default: by UUID.
    #[must_use]
    pub fn visible(mut self, form: Form) -> Self {
        self.order.by_index = form == Form::Index;
        self
    }

    /// Sets its standard input; default: empty.
    #[must_use]
    pub fn input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// `Io` if the supervisor cannot be started.
    pub fn start(&self, supervisors: &dyn Supervisors) -> Result<Isolation> {
        let order = serde_json::to_vec(&self.order).map_err(|error| {
            Error::new(ErrorKind::Invalid, "format an order").with_source(error)
        })?;
        let supervisor = supervisors.start(&order, &self.input)?;
        Ok(Isolation { supervisor: Some(supervisor), is_entry: self.order.is_entry })
    }

    /// Runs the job, and returns once all its processes are gone.
    ///
    /// # Errors
    /// [`IsolatedError`].
    pub fn run(&self, supervisors: &dyn Supervisors) -> Result<Outcome, IsolatedError> {
        self.start(supervisors).map_err(IsolatedError::Lost)?.wait()
    }
}

/// A job that runs in isolation. Dropping this ends the job and everything that it started, and
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
            // If the supervisor has already ended, there is no process to end, and the wait is
            // short.
            let _ = supervisor.end();
            let _ = supervisor.wait();
        }
    }
}

/// The outcome of an isolated job.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its result.
    pub value: Vec<u8>,
    /// The report.
    pub report: IsolatedReport,
}

impl Isolation {
    /// Waits for at most `patience` until all processes of the job are gone, and returns whether
    /// they are; [`wait`](Isolation::wait) then returns at once.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    pub fn is_over_within(&self, patience: Duration) -> Result<bool> {
        self.supervisor.as_ref().map_or(Ok(true), |supervisor| supervisor.is_over_within(patience))
    }

    /// Waits until all processes of the job are gone, and returns its result.
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
            return Err(lost("it was killed externally"));
        }
        let said = serde_json::from_slice(&sent.report);
        let report = match said.map_err(|error| lost(&error.to_string()))? {
            Said::Ran(report) => Box::new(report),
            Said::NotGranted(why) => return Err(IsolatedError::NotGranted(why)),
            Said::NeverGranted(why) => return Err(IsolatedError::NeverGranted(why)),
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
            Some(_) => Err(IsolatedError::Failed("no further output".to_owned(), report)),
            None => Err(IsolatedError::Failed("it sent no result".to_owned(), report)),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
