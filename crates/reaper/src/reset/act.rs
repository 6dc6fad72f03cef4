//! The reset, and its records in the audit log.

use super::Check;
use crate::audit::ascii;
use crate::ports::Ports;
use gpu_core::{ActToken, DeviceFault, DeviceState, Error, ErrorKind, Fault, Origin, Result};
use serde::Serialize;

/// The driver's answer to a reset, and the device after it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The driver's answer.
    pub answer: Result<(), Fault>,
    /// The device; `None` if it is no longer visible.
    pub after: Option<DeviceState>,
}

/// Resets the device and observes it again. The first audit record precedes the reset.
///
/// # Errors
/// If the audit log cannot be written. If the first record cannot be written, the device is not
/// reset.
pub fn reset(check: &Check<'_>, ports: Ports<'_>, token: &ActToken) -> Result<Outcome> {
    let id = check.device.id();
    note(check, ports, "reset", None)?;
    // NVIDIA's driver refuses while a process has the device open. The kernel resets other devices
    // in use as well, and their work is lost.
    let answer = if check.device.lists_clients() && !check.blockers.is_clear() {
        let error = Error::new(DeviceFault::InUse, format!("reset {id}"));
        Err(error.with_source("a process has the device open, or may have"))
    } else {
        ports.backend.reset(id, token)
    };
    let answer = answer.map_err(|error| error.fault());
    let after = gpu_core::observe(ports.backend, ports.host, ports.clock).device(id).cloned();
    note(check, ports, "outcome", Some(if answer.is_ok() { "reset" } else { "failed" }))?;
    Ok(Outcome { answer, after })
}

/// A record in the audit log. Field names are a stable contract (docs/safety.md).
#[derive(Serialize)]
struct AuditLine<'a> {
    schema: u32,
    time: String,
    machine: String,
    event: &'a str,
    gpu_index: u32,
    gpu_uuid: Option<&'a str>,
    gpu_bus_id: Option<String>,
    outcome: Option<&'a str>,
}

fn note(check: &Check<'_>, ports: Ports<'_>, event: &str, outcome: Option<&str>) -> Result<()> {
    let id = check.device.id();
    let line = AuditLine {
        schema: 1,
        time: ports.clock.wall().to_string(),
        machine: match &check.now.origin {
            Origin::Live => check.now.hostname.clone().unwrap_or_else(|_| Origin::Live.to_string()),
            origin => origin.to_string(),
        },
        event,
        gpu_index: id.index,
        gpu_uuid: id.uuid.as_ref().ok().map(|uuid| uuid.0.as_str()),
        gpu_bus_id: id.bus.ok().map(|bus| bus.to_string()),
        outcome,
    };
    let line = serde_json::to_string(&line).map_err(|error| {
        Error::new(ErrorKind::Invalid, "write an audit record").with_source(error)
    })?;
    ports.journal.append(&ascii(&line))
}
