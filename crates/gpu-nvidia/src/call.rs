//! All NVML calls go through this module.
//!
//! It registers the name of each call while it runs, so that another thread can report what the
//! driver is waiting for; it counts the calls; and it converts errors to a [`Failure`] that names
//! the call. It holds no lock during a call.

use crate::code::{Cause, Code};
use gpu_core::{Error, ErrorKind, Reach, Reading, Result};
use nvml_wrapper::error::NvmlError;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A running NVML call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentCall {
    /// The NVML function.
    pub function: &'static str,
    /// The index of the device; `None` for a call that concerns the machine.
    pub device: Option<u32>,
}

impl fmt::Display for CurrentCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function)?;
        self.device.map_or(Ok(()), |index| write!(f, " of GPU {index}"))
    }
}

/// Registers and counts the calls of one library.
#[derive(Default)]
pub(crate) struct Caller {
    made: AtomicU64,
    serial: AtomicU64,
    /// The running calls, oldest first.
    running: Mutex<Vec<(u64, CurrentCall)>>,
}

impl Caller {
    /// Returns the number of calls.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Returns the oldest running call.
    pub(crate) fn current(&self) -> Option<CurrentCall> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.first().map(|(_, call)| *call)
    }

    /// Calls a function on a device or the machine; `run` makes only the call. `purpose` is for
    /// error messages: `for its memory` becomes 'query GPU 0 for its memory', anything else is a
    /// verb phrase before the device, such as `register events of`.
    ///
    /// # Errors
    /// `FUNCTION_NOT_FOUND` if the library lacks the function, which does not count as a call;
    /// otherwise the code returned by the function.
    pub(crate) fn call<T>(
        &self,
        function: &'static str,
        purpose: &'static str,
        device: Option<u32>,
        run: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Answer<T> {
        let call = CurrentCall { function, device };
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let running = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running().push((serial, call));
        let answer = run();
        running().retain(|(other, _)| *other != serial);
        if !matches!(answer, Err(NvmlError::FailedToLoadSymbol(_))) {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        answer.map_err(|error| Failure { cause: error.into(), call, purpose })
    }
}

/// The result of a call.
pub(crate) type Answer<T> = std::result::Result<T, Failure>;

/// A failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    call: CurrentCall,
    purpose: &'static str,
}

impl Failure {
    /// Returns a failure without a call.
    #[cfg(test)]
    pub(crate) fn of(code: Code) -> Self {
        let call = CurrentCall { function: "f", device: None };
        Failure { cause: code.into(), call, purpose: "for it" }
    }

    /// Returns the failure as an error, with the kind that `kind` assigns to its code.
    pub(crate) fn error(self, kind: impl FnOnce(Code) -> ErrorKind) -> Error {
        let CurrentCall { function, device } = self.call;
        let subject = device.map_or_else(|| "NVML".to_owned(), |index| format!("GPU {index}"));
        let purpose = self.purpose;
        let what = if purpose.starts_with("for ") {
            format!("query {subject} {purpose} ({function})")
        } else {
            format!("{purpose} {subject} ({function})")
        };
        Error::new(self.cause.kind(kind), what).with_source(format!("NVML reports: {}", self.cause))
    }

    /// Replaces the name of the function, for a wrapper that calls several.
    pub(crate) fn of_function(mut self, function: &'static str) -> Self {
        self.call.function = function;
        self
    }

    /// Returns whether the function returned this code.
    pub(crate) fn is(self, code: Code) -> bool {
        self.cause == code.into()
    }

    /// Returns whether the driver lacks the function or this version of it.
    pub(crate) fn is_too_old(self) -> bool {
        self.is(Code::FUNCTION_NOT_FOUND) || self.is(Code::ARGUMENT_VERSION_MISMATCH)
    }

    /// Returns whether the driver returned a value unknown to nvml-wrapper.
    pub(crate) fn is_unknown_value(self) -> bool {
        matches!(self.cause, Cause::UnknownValue(_))
    }
}

/// Returns a value of a device, or the reason for its absence.
///
/// # Errors
/// The failure, if its code concerns the device or the machine.
pub(crate) fn reading<T>(answer: Answer<T>) -> Result<Reading<T>> {
    reading_by(answer, Code::of_value)
}

/// Returns a value, or the reason for its absence; `kind` maps the code.
///
/// # Errors
/// The failure, if it affects more than the value.
pub(crate) fn reading_by<T>(
    answer: Answer<T>,
    kind: impl FnOnce(Code) -> ErrorKind,
) -> Result<Reading<T>> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(failure) => {
            let kind = failure.cause.kind(kind);
            match kind.reach() {
                Reach::Field => Ok(Err(kind.absent())),
                _ => Err(failure.error(|_| kind)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper::error::nvml_try;
    use std::sync::mpsc::channel;

    /// Makes a call that fails with this code.
    fn call(caller: &Caller, device: Option<u32>, code: u32) -> Answer<()> {
        caller.call("nvmlOfToday", "for its age", device, || nvml_try(code))
    }

    #[test]
    fn current_call_is_oldest_running_call() {
        let caller = Caller::default();
        let (entered, enters) = channel();
        let (let_go, gate) = channel::<()>();
        std::thread::scope(|scope| {
            let hanging = &caller;
            scope.spawn(move || {
                let answer = hanging.call("nvmlOfToday", "for its age", Some(3), || {
                    entered.send(()).unwrap();
                    gate.recv().unwrap();
                    Ok(())
                });
                assert_eq!(answer, Ok(()));
            });
            enters.recv().unwrap();
            assert_eq!(call(&caller, None, 0), Ok(()));
            let current = caller.current().unwrap();
            assert_eq!(current, CurrentCall { function: "nvmlOfToday", device: Some(3) });
            assert_eq!(current.to_string(), "nvmlOfToday of GPU 3");
            let_go.send(()).unwrap();
        });
        assert_eq!((caller.current(), caller.made()), (None, 2));
        let of_machine = CurrentCall { function: "nvmlOfToday", device: None };
        assert_eq!(of_machine.to_string(), "nvmlOfToday");
    }

    #[test]
    fn missing_function_is_not_counted_as_call() {
        let caller = Caller::default();
        let missing = || Err::<(), _>(NvmlError::FailedToLoadSymbol("undefined symbol".into()));
        let answer = caller.call("nvmlOfTomorrow", "for its age", None, missing);
        assert!(answer.unwrap_err().is_too_old());
        assert_eq!(caller.made(), 0);
    }

    #[test]
    fn failed_call_names_its_operation() {
        let failed = call(&Caller::default(), Some(3), 15).unwrap_err();
        assert_eq!(
            failed.error(Code::of_device).fault().text,
            "query GPU 3 for its age (nvmlOfToday): NVML reports: the GPU is lost (code 15)"
        );
        let lacking = Failure::of(Code(15)).error(Code::of_device).fault().text;
        assert_eq!(lacking, "query NVML for it (f): NVML reports: the GPU is lost (code 15)");
        let registration = Failure { purpose: "register events of", ..failed }.of_function("f");
        assert_eq!(
            registration.error(Code::of_device).fault().text,
            "register events of GPU 3 (f): NVML reports: the GPU is lost (code 15)"
        );
        assert_eq!(reading::<()>(Err(failed)).unwrap_err().kind(), Code(15).of_device());
        let absent = call(&Caller::default(), Some(3), 3);
        assert_eq!(reading(absent).unwrap(), Err(gpu_core::Absent::NotSupported));
    }
}
