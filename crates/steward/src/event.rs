//! What happens during a run.

use crate::grant::Grant;
use crate::outcome::RunReport;
use gpu_claim::Waiting;
use gpu_core::{Error, Pid};
use gpu_memory_advice::environment::Advice;
use std::ops::ControlFlow;
use std::time::Duration;

/// Events of a run, for the observer.
///
/// [`ControlFlow::Break`] ends a wait, and stops the clean-up; it does not stop a running program.
#[derive(Debug)]
pub enum Event<'a> {
    /// The claim waits for devices.
    Waiting(&'a Waiting<'a>),
    /// Devices were granted; the program starts next.
    Granted(&'a Grant),
    /// The settings that keep the program within its share. Its environment variables are set.
    Bounded(&'a Advice),
    /// safe-gpu's locks were released.
    HandedOff(HandOff),
    /// Placeholders cannot be kept on all devices that the program does not use yet.
    NotCovered(&'a Error),
    /// The program and these other processes wait for a lock of safe-gpu, and some of the others
    /// may come first. The locks are held until the others no longer wait, or until the time limit.
    Contended(&'a [Pid]),
    /// The lease may be invisible to others; publishing is retried every minute.
    Unseen(&'a Error),
    /// This signal could not be forwarded to the program, which continues.
    NotPassed(i32, &'a Error),
    /// The time limit was reached, and the program is being ended.
    LimitReached,
    /// The caller is gone.
    Abandoned,
    /// The processes that it left behind are being ended.
    CleaningUp(gpu_reaper::Event<'a>),
    /// The run waits for its memory to be freed.
    WaitingForMemory(Duration),
    /// The run is over, except for processes that could not be ended: the report, or why the
    /// program was lost. The lease is kept until these processes are gone. That may take forever,
    /// and the caller should not wait for it. With [`ControlFlow::Break`] the lease is left to the
    /// processes that inherited it instead.
    Keeping(Result<&'a RunReport, &'a Error>),
}

/// Why safe-gpu's locks were released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// The program has appeared on all of its devices, visibly for safe-gpu.
    Seen,
    /// The program itself waits for safe-gpu's lock. Placeholders keep its devices in use until it
    /// appears there.
    Wanted,
    /// The time limit was reached and another process waits. Placeholders keep the devices in use
    /// until the program appears.
    Covered,
    /// The time limit was reached, another process waits, and there are no placeholders. Until the
    /// program appears, safe-gpu may take its devices as unused.
    TimedOut,
}

/// The observer of a run.
pub(crate) type Watch<'w> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'w;
