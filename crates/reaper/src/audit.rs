//! The audit log: each action, before it is taken.

use crate::plan::{Membership, Target};
use crate::ports::Ports;
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
    outcome: Option<&'static str>,
}

/// Writes that a signal is about to be sent.
///
/// # Errors
/// Those of the journal; the signal must then not be sent.
pub(crate) fn intent(ports: Ports<'_>, target: &Target, signal: Signal) -> Result<()> {
    write(ports, target, "signal", Some(signal), None)
}

/// Writes the outcome of a target.
///
/// # Errors
/// Those of the journal.
pub(crate) fn outcome(
    ports: Ports<'_>,
    target: &Target,
    outcome: &crate::report::Outcome,
) -> Result<()> {
    write(ports, target, "outcome", None, Some(outcome.name()))
}

fn write(
    ports: Ports<'_>,
    target: &Target,
    event: &str,
    signal: Option<Signal>,
    outcome: Option<&'static str>,
) -> Result<()> {
    let line = Line {
        schema: 1,
        time: ports.clock.wall().to_string(),
        machine: machine(ports),
        event,
        signal,
        pid: target.key.pid.0,
        start_ticks: target.key.start.map(|start| start.0),
        uid: target.process.uid.ok(),
        name: &target.process.name,
        membership: &target.membership,
        why: &target.why,
        outcome,
    };
    let line = serde_json::to_string(&line).map_err(|error| {
        Error::new(ErrorKind::Invalid, "format an audit record").with_source(error)
    })?;
    ports.journal.append(&ascii(&line))
}

/// Returns the name of the machine; without a name, a real machine is still distinguished from a
/// simulated one.
fn machine(ports: Ports<'_>) -> String {
    match ports.host.origin() {
        Origin::Live => ports.host.hostname().unwrap_or_else(|_| Origin::Live.to_string()),
        origin => origin.to_string(),
    }
}

/// Escapes non-ASCII characters, so that a process's name cannot control the terminal of a reader
/// of the log; a JSON parser returns the same text.
pub(crate) fn ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn audit_names_are_ascii_escaped() {
        let name = "a\u{202e}\u{9b}é\u{e0041}\u{7f}";
        let escaped = super::ascii(&serde_json::to_string(name).unwrap());
        assert!(escaped.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), name);
    }
}
