//! The one place through which NVML is called.
//!
//! Each call has its name here before it begins and until it has returned, so that another thread
//! can tell what the driver is waiting for; it is counted; and what it returned becomes a
//! [`Failure`] that knows the question. Nothing is locked while the driver works.

use crate::code::{Cause, Code};
use gpu_core::{Error, ErrorKind, Reach, Reading, Result};
use nvml_wrapper::error::NvmlError;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What NVML is being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentCall {
    /// The function of NVML.
    pub function: &'static str,
    /// The device it is asked about, by index; `None` for the machine as a whole.
    pub device: Option<u32>,
}

impl fmt::Display for CurrentCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function)?;
        self.device.map_or(Ok(()), |index| write!(f, " of GPU {index}"))
    }
}

/// Names and counts the calls of one library.
#[derive(Default)]
pub(crate) struct Caller {
    made: AtomicU64,
    serial: AtomicU64,
    /// The calls that have not returned, the oldest first.
    running: Mutex<Vec<(u64, CurrentCall)>>,
}

impl Caller {
    /// Returns how many calls were made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Returns the oldest call that has not returned.
    pub(crate) fn current(&self) -> Option<CurrentCall> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.first().map(|(_, call)| *call)
    }

    /// Calls a function about a device, or about the machine as a whole; `run` calls it and does
    /// nothing else. `wish` is what it is called for; it completes 'failed to ask GPU 0 …'.
    ///
    /// # Errors
    /// `FUNCTION_NOT_FOUND` where the library does not have it, which then is no call; else the
    /// code that it returned.
    pub(crate) fn call<T>(
        &self,
        function: &'static str,
        wish: &'static str,
        device: Option<u32>,
        run: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Answer<T> {
        let question = CurrentCall { function, device };
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let running = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running().push((serial, question));
        let answer = run();
        running().retain(|(other, _)| *other != serial);
        if !matches!(answer, Err(NvmlError::FailedToLoadSymbol(_))) {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        answer.map_err(|error| Failure { cause: error.into(), question, wish })
    }
}

/// What a call has to say.
pub(crate) type Answer<T> = std::result::Result<T, Failure>;

/// A call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    question: CurrentCall,
    wish: &'static str,
}

impl Failure {
    /// Returns the failure of a question that nobody put.
    #[cfg(test)]
    pub(crate) fn of(code: Code) -> Self {
        let question = CurrentCall { function: "f", device: None };
        Failure { cause: code.into(), question, wish: "for it" }
    }

    /// Returns the failure as an error of the kind that the question gives to its code.
    pub(crate) fn error(self, kind: impl FnOnce(Code) -> ErrorKind) -> Error {
        let CurrentCall { function, device } = self.question;
        let whom = device.map_or_else(|| "NVML".to_owned(), |index| format!("GPU {index}"));
        let verb = if self.wish.starts_with("for ") { "query" } else { "ask" };
        let what = format!("{verb} {whom} {} ({function})", self.wish);
        Error::new(self.cause.kind(kind), what).with_source(format!("NVML says: {}", self.cause))
    }

    /// Returns the failure as that of this function, of several that a call may make.
    pub(crate) fn of_function(mut self, function: &'static str) -> Self {
        self.question.function = function;
        self
    }

    /// Tells whether this is the code that was returned.
    pub(crate) fn is(self, code: Code) -> bool {
        self.cause == code.into()
    }

    /// Tells whether the driver does not know the function, or not in this version.
    pub(crate) fn is_too_old(self) -> bool {
        self.is(Code::FUNCTION_NOT_FOUND) || self.is(Code::ARGUMENT_VERSION_MISMATCH)
    }

    /// Tells whether the driver answered with a value that nvml-wrapper has no name for.
    pub(crate) fn is_unknown_value(self) -> bool {
        matches!(self.cause, Cause::UnknownValue(_))
    }
}

/// Returns one value of a device, or why it is absent.
///
/// # Errors
/// The failure of the device or the machine, when the code tells of one.
pub(crate) fn reading<T>(answer: Answer<T>) -> Result<Reading<T>> {
    reading_by(answer, Code::of_value)
}

/// Returns one value, or why it is absent, by what `kind` says that a code means.
///
/// # Errors
/// The failure, when it reaches farther than the value.
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

    /// Makes a call that returns a code.
    fn call(caller: &Caller, device: Option<u32>, code: u32) -> Answer<()> {
        caller.call("nvmlOfToday", "to be there", device, || nvml_try(code))
    }

    #[test]
    fn current_call_is_oldest_running_call() {
        let caller = Caller::default();
        let (entered, enters) = channel();
        let (let_go, gate) = channel::<()>();
        std::thread::scope(|scope| {
            let hanging = &caller;
            scope.spawn(move || {
                let answer = hanging.call("nvmlOfToday", "to be there", Some(3), || {
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
    }

    #[test]
    fn missing_function_is_not_counted_as_call() {
        let caller = Caller::default();
        let missing = || Err::<(), _>(NvmlError::FailedToLoadSymbol("undefined symbol".into()));
        let answer = caller.call("nvmlOfTomorrow", "to be there", None, missing);
        assert!(answer.unwrap_err().is_too_old());
        assert_eq!(caller.made(), 0);
    }

    #[test]
    fn failed_call_names_its_operation() {
        let failed = call(&Caller::default(), Some(3), 15).unwrap_err();
        assert_eq!(
            failed.error(Code::of_device).fault().text,
            "ask GPU 3 to be there (nvmlOfToday): NVML says: the GPU is lost (code 15)"
        );
        let lacking = Failure::of(Code(15)).error(Code::of_device).fault().text;
        assert_eq!(lacking, "query NVML for it (f): NVML says: the GPU is lost (code 15)");
        assert_eq!(reading::<()>(Err(failed)).unwrap_err().kind(), Code(15).of_device());
        let absent = call(&Caller::default(), Some(3), 3);
        assert_eq!(reading(absent).unwrap(), Err(gpu_core::Absent::NotSupported));
    }
}
