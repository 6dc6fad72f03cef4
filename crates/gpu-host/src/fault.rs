//! What the kernel's error numbers mean for processes and files.

use gpu_core::{Absent, Error, ErrorKind, ProcessFault};
use rustix::io::Errno;

/// Returns a failure to do something with a file.
pub(crate) fn file(what: impl Into<String>, errno: Errno) -> Error {
    Error::new(ErrorKind::Io, what).with_source(errno)
}

/// Returns a failure to do something with a process.
pub(crate) fn process(what: impl Into<String>, errno: Errno) -> Error {
    let kind = match errno {
        Errno::NOENT | Errno::SRCH => ProcessFault::Gone.into(),
        Errno::ACCESS | Errno::PERM => ProcessFault::NotPermitted.into(),
        _ => ErrorKind::Io,
    };
    Error::new(kind, what).with_source(errno)
}

/// Returns why a value below `/proc/PID` is missing.
pub(crate) fn absent(errno: Errno) -> Absent {
    match errno {
        Errno::NOENT | Errno::SRCH => Absent::NotFound,
        Errno::ACCESS | Errno::PERM => Absent::NotPermitted,
        _ => Absent::Failed,
    }
}
