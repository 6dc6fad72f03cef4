//! Why rows are missing.

use super::Subject;
use crate::wording::{by_reason, numbered};
use gpu_core::{DeviceState, ErrorKind, Fault};

/// Returns a line for each reason that rows of `query`, `dmon` or `pmon` are missing, such as `GPUs
/// 0, 1 did not answer: failed to …`, and whether one of them is a deadline that has passed.
pub fn missing_rows(devices: &[DeviceState], subject: Subject) -> (Vec<String>, bool) {
    let faults = devices.iter().filter_map(|device| {
        let fault = match subject {
            Subject::ComputeApp => device.processes.as_ref().err(),
            Subject::AccountedApp => device.details.as_ref().err(),
            // The row shows any other missing reading.
            _ => {
                let fault = device.sample.as_ref().err();
                fault.filter(|fault| fault.kind == ErrorKind::TimedOut)
            }
        };
        Some((device.id().index, fault?))
    });
    let reasons = by_reason(faults, |one, other| one == other);
    let is_late = reasons.iter().any(|(fault, _)| fault.kind == ErrorKind::TimedOut);
    let line = |(fault, indexes): (&Fault, Vec<u32>)| {
        format!("{} did not answer: failed to {}", numbered(&indexes), gpu_core::clean(&fault.text))
    };
    (reasons.into_iter().map(line).collect(), is_late)
}
