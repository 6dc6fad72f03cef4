//! The supervisor's part.

use super::report::{IsolatedReport, Said};
use super::{Order, RESULT};
use crate::event::Event;
use crate::grant::NotGranted;
use crate::order::{OnDeath, RunOrder};
use crate::outcome::NotRun;
use crate::ports::{Ports, Request};
use crate::run::isolate;
use gpu_claim::Wait;
use gpu_core::visible::Form;
use gpu_core::{ActToken, Error, ErrorKind, Launch, Launcher, Result};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// The interval at which a wait checks whether its caller still exists.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the supervisor: claims, runs the job, cleans up; returns the report to send. `result` is
/// the file to which the job writes its result, and `inherited` returns the value of a variable in
/// its environment. `asks_to_stop` returns, before the job runs,
/// whether the job is to end; while it runs, its own events do.
///
/// # Errors
/// `Invalid` for a malformed order; `Process` if this process itself cannot be read.
pub fn supervise(
    order: &[u8],
    result: &Path,
    ports: &Ports<'_>,
    launcher: &dyn Launcher,
    token: &ActToken,
    inherited: fn(&str) -> Option<String>,
    asks_to_stop: &mut dyn FnMut() -> bool,
) -> Result<Vec<u8>> {
    let invalid = |error| Error::new(ErrorKind::Invalid, "read an order").with_source(error);
    let order: Order = serde_json::from_slice(order).map_err(invalid)?;
    let itself = || Error::new(ErrorKind::Invalid, "find this process");
    let root = *ports.host.own_ancestry()?.first().ok_or_else(itself)?;
    let mut set = order.set;
    set.push((RESULT.into(), result.into()));
    let run = RunOrder {
        request: Request {
            claim: order.claim,
            wait: match order.wait_ms {
                None => Wait::Forever,
                Some(0) => Wait::No,
                Some(patience) => Wait::For(Duration::from_millis(patience)),
            },
            pace: POLL_INTERVAL,
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
        inherited,
        bounding: None,
        time_limit: order.time_limit_ms.map(Duration::from_millis),
        grace: Duration::from_millis(order.grace_ms),
        on_death: OnDeath::End,
        handoff: Duration::from_millis(order.handoff_ms),
        placeholder: None,
    };
    let mut watch = |event: Event<'_>| match event {
        Event::Waiting(_) | Event::Granted(_) if asks_to_stop() => ControlFlow::Break(()),
        // The caller waits for the report, and the report waits for this process.
        Event::Keeping(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let said = match isolate(&run, ports, launcher, token, &mut watch) {
        Ok(report) => Said::Ran(IsolatedReport::from(&report)),
        Err(NotRun::NotGranted(NotGranted::Silent(fault))) => Said::NotStarted(fault),
        Err(NotRun::NotGranted(NotGranted::Failed(error))) => Said::NotStarted(error.fault()),
        Err(NotRun::NotGranted(why @ NotGranted::Never(_))) => Said::NeverGranted(why.to_string()),
        Err(NotRun::NotGranted(why)) => Said::NotGranted(why.to_string()),
        Err(NotRun::NotStarted(error) | NotRun::Lost(error, _)) => Said::NotStarted(error.fault()),
        Err(NotRun::Stopped) => Said::NotGranted("it was asked to stop".to_owned()),
    };
    worded(&said)
}

/// Returns the report of a supervisor that could not open its machine.
///
/// # Errors
/// `Invalid` if the error cannot be serialized.
pub fn not_started(error: &Error) -> Result<Vec<u8>> {
    worded(&Said::NotStarted(error.fault()))
}

fn worded(said: &Said) -> Result<Vec<u8>> {
    serde_json::to_vec(said)
        .map_err(|error| Error::new(ErrorKind::Invalid, "format a report").with_source(error))
}
