//! The audit log: what is about to be done, before it is done.

use crate::act::Ports;
use crate::plan::{Membership, Target, start_ticks};
use gpu_core::{Error, ErrorKind, Origin, Result, Signal};
use serde::Serialize;

/// A line of the audit log. Field names are a stable contract (docs/safety.md).
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    time: String,
    machine: String,
    event: &'a str,
    signal: Option<Signal>,
    pid: u32,
    start_ticks: Option<u64>,
    uid: Option<u32>,
    name: &'a str,
    membership: &'a Membership,
    why: &'a str,
    outcome: Option<String>,
}

/// Writes that a signal is about to be sent.
///
/// # Errors
/// The journal's; then the signal must not be sent.
pub(crate) fn intent(ports: Ports<'_>, target: &Target, signal: Signal) -> Result<()> {
    write(ports, target, "signal", Some(signal), None)
}

/// Writes what became of a target.
///
/// # Errors
/// The journal's.
pub(crate) fn outcome(
    ports: Ports<'_>,
    target: &Target,
    outcome: &crate::report::Outcome,
) -> Result<()> {
    let text = serde_json::to_value(outcome).ok();
    let kind = text.and_then(|value| Some(value.get("kind")?.as_str()?.to_owned()));
    write(ports, target, "outcome", None, kind)
}

fn write(
    ports: Ports<'_>,
    target: &Target,
    event: &str,
    signal: Option<Signal>,
    outcome: Option<String>,
) -> Result<()> {
    let line = Line {
        schema: 1,
        time: ports.clock.wall().to_string(),
        machine: machine(ports),
        event,
        signal,
        pid: target.key.pid.0,
        start_ticks: start_ticks(target.key),
        uid: target.process.uid.ok(),
        name: &target.process.name,
        membership: &target.membership,
        why: &target.why,
        outcome,
    };
    let line = serde_json::to_string(&line)
        .map_err(|error| Error::new(ErrorKind::Invalid, "word an audit line").with_source(error))?;
    ports.journal.append(&line)
}

/// The name of the machine; one that does not tell its name is still told from a simulated one.
fn machine(ports: Ports<'_>) -> String {
    match ports.host.origin() {
        Origin::Live => ports.host.hostname().unwrap_or_else(|_| Origin::Live.to_string()),
        origin => origin.to_string(),
    }
}
