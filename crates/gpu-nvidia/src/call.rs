//! The one place through which NVML is called.
//!
//! Each call has its name here before it begins and until it has returned, so that another thread
//! can tell what the driver is waiting for; it is counted; and what it returned becomes a
//! [`Failure`] that knows the question. Nothing is locked while the driver works.

use crate::code::Code;
use crate::functions::{Function, Functions};
use gpu_core::{Error, ErrorKind, Reach, Reading, Result};
use libloading::Library;
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

/// Makes the calls of one library.
pub(crate) struct Caller {
    pub(crate) functions: Functions,
    made: AtomicU64,
    /// The calls that have not returned, the oldest first.
    running: Mutex<Vec<(u64, CurrentCall)>>,
    library: Library,
}

impl Caller {
    pub(crate) fn new(library: Library) -> Self {
        Caller {
            functions: Functions::new(),
            made: AtomicU64::new(0),
            running: Mutex::default(),
            library,
        }
    }

    /// Returns how many calls were made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Returns the oldest call that has not returned.
    pub(crate) fn current(&self) -> Option<CurrentCall> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.first().map(|(_, call)| *call)
    }

    /// Tells whether the library has a function.
    pub(crate) fn has<F: Copy>(&self, function: &Function<F>) -> bool {
        function.find(&self.library).is_some()
    }

    /// Calls a function about a device, or about the machine as a whole; `run` does nothing but to
    /// call what it is given.
    ///
    /// # Errors
    /// `FUNCTION_NOT_FOUND` where the library does not have it, which then is no call; else the
    /// code that it returned.
    pub(crate) fn call<F: Copy>(
        &self,
        function: &Function<F>,
        device: Option<u32>,
        run: impl FnOnce(F) -> u32,
    ) -> Answer<()> {
        let question = CurrentCall { function: function.name(), device };
        let failure = |code| Failure { code, question, wish: function.wish };
        let Some(address) = function.find(&self.library) else {
            return Err(failure(Code::FUNCTION_NOT_FOUND));
        };
        let serial = self.made.fetch_add(1, Ordering::Relaxed);
        let running = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running().push((serial, question));
        let code = run(address);
        running().retain(|(other, _)| *other != serial);
        if code == 0 { Ok(()) } else { Err(failure(Code(code))) }
    }
}

/// What a call has to say.
pub(crate) type Answer<T> = std::result::Result<T, Failure>;

/// A call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    question: CurrentCall,
    wish: &'static str,
}

impl Failure {
    /// Returns the failure of a question that nobody put.
    #[cfg(test)]
    pub(crate) fn of(code: Code) -> Self {
        Failure { code, question: CurrentCall { function: "f", device: None }, wish: "for it" }
    }

    /// Returns the failure as an error of the kind that the question gives to its code.
    pub(crate) fn error(self, kind: impl FnOnce(Code) -> ErrorKind) -> Error {
        let CurrentCall { function, device } = self.question;
        let whom = device.map_or_else(|| "NVML".to_owned(), |index| format!("GPU {index}"));
        let verb = if self.wish.starts_with("for ") { "query" } else { "ask" };
        let what = format!("{verb} {whom} {} ({function})", self.wish);
        Error::new(kind(self.code), what).with_source(format!("NVML says: {}", self.code))
    }

    /// Tells whether the driver does not know the function, or not in this version.
    pub(crate) fn is_too_old(self) -> bool {
        matches!(self.code, Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION_MISMATCH)
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
            let kind = kind(failure.code);
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
    use crate::functions::tests::{MISSING, PRESENT};
    use std::sync::mpsc::channel;

    fn caller() -> Caller {
        Caller::new(libloading::os::unix::Library::this().into())
    }

    #[test]
    fn current_call_is_oldest_running_call() {
        let caller = caller();
        let (entered, enters) = channel();
        let (let_go, gate) = channel::<()>();
        std::thread::scope(|scope| {
            let hanging = &caller;
            scope.spawn(move || {
                let answer = hanging.call(&PRESENT, Some(3), |_| {
                    entered.send(()).unwrap();
                    gate.recv().unwrap();
                    0
                });
                assert_eq!(answer, Ok(()));
            });
            enters.recv().unwrap();
            assert_eq!(caller.call(&PRESENT, None, |_| 0), Ok(()));
            let current = caller.current().unwrap();
            assert_eq!(current, CurrentCall { function: "getpid", device: Some(3) });
            assert_eq!(current.to_string(), "getpid of GPU 3");
            let_go.send(()).unwrap();
        });
        assert_eq!((caller.current(), caller.made()), (None, 2));
    }

    #[test]
    fn missing_function_is_not_counted_as_call() {
        let caller = caller();
        let answer = caller.call(&MISSING, None, |_| unreachable!());
        assert!(answer.unwrap_err().is_too_old());
        assert_eq!(caller.made(), 0);
    }

    #[test]
    fn failed_call_names_its_operation() {
        let failed = caller().call(&PRESENT, Some(3), |_| 15).unwrap_err();
        assert_eq!(
            failed.error(Code::of_device).fault().text,
            "ask GPU 3 to be there (getpid): NVML says: the GPU is lost (code 15)"
        );
        let lacking = Failure::of(Code(15)).error(Code::of_device).fault().text;
        assert_eq!(lacking, "query NVML for it (f): NVML says: the GPU is lost (code 15)");
        assert_eq!(reading::<()>(Err(failed)).unwrap_err().kind(), Code(15).of_device());
        let absent = caller().call(&PRESENT, Some(3), |_| 3);
        assert_eq!(reading(absent).unwrap(), Err(gpu_core::Absent::NotSupported));
    }
}
