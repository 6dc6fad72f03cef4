//! Failures as exceptions. The classes are in `gpuws/_errors.py`; each has a kind and a hint.

use gpu_core::{ErrorKind, MachineFault, ProcessFault};
use gpu_machine::MachineError;
use gpu_report::fault::{meaning, remedy};
use pyo3::prelude::*;

/// A failure: its kind, which selects the class of the exception, the failed action, and the
/// remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    what: String,
    hint: Option<String>,
}

/// The result of a fallible operation.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Returns a failure; `what` completes 'failed to …'.
    pub(crate) fn new(kind: &'static str, what: impl Into<String>) -> Self {
        Failure { kind, what: what.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// Returns a failure of invalid arguments.
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Failure::new("invalid", what)
    }
}

/// Returns the kind of an error, which selects a Python class.
fn kind_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Machine(MachineFault::NotPermitted)
        | ErrorKind::Process(ProcessFault::NotPermitted) => "not-permitted",
        ErrorKind::Machine(_) | ErrorKind::Device(_) => "driver",
        ErrorKind::TimedOut => "timed-out",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Unsupported | ErrorKind::NotRequested => "unsupported",
        ErrorKind::Process(ProcessFault::Gone) => "process",
        _ => "failed",
    }
}

impl From<gpu_core::Error> for Failure {
    fn from(error: gpu_core::Error) -> Self {
        Failure::from(&error.fault())
    }
}

impl From<&gpu_core::Fault> for Failure {
    fn from(fault: &gpu_core::Fault) -> Self {
        let meaning = meaning(fault.kind).map_or(String::new(), |text| format!(" ({text})"));
        let hint = remedy(fault.kind).map(str::to_owned);
        Failure { kind: kind_of(fault.kind), what: format!("{}{meaning}", fault.text), hint }
    }
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        let hint = error.hint().map(str::to_owned);
        let own = Failure::from(error.into_error());
        Failure { hint: hint.or(own.hint), ..own }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::new("failed", format!("format a result: {error}"))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let Failure { kind, what, hint } = failure;
        let clean = |text: String| gpu_core::clean(&text).into_owned();
        let text = format!("failed to {}", clean(what));
        Python::attach(|py| {
            let module = py.import("gpuws._errors")?;
            module.call_method1("error", (kind, text, hint.map(clean))).map(PyErr::from_value)
        })
        .unwrap_or_else(|error| error)
    }
}
