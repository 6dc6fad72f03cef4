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

/// Returns a failure of pidfd_open(2). The kernel requires no permission for this call (kernels
/// before Linux 5.3 lack it), so a refusal comes from a seccomp filter, which applies to root as
/// well.
pub(crate) fn pidfd(what: impl Into<String>, errno: Errno) -> Error {
    let what = what.into();
    match errno {
        Errno::NOSYS | Errno::PERM | Errno::ACCESS => {
            let what = format!("{what}: pidfd_open is not available");
            Error::new(ErrorKind::Unsupported, what).with_source(errno)
        }
        errno => process(what, errno),
    }
}

/// Returns a failure to start a program of gpuws. The C library does not say whether the kernel
/// refused the process or the program, so the failure names both calls.
pub(crate) fn start(what: impl Into<String>, error: std::io::Error) -> Error {
    let what = format!("{} (clone3 and execve)", what.into());
    Error::new(ErrorKind::Io, what).with_source(error)
}

/// Returns why a value below `/proc/PID` is missing.
pub(crate) fn absent(errno: Errno) -> Absent {
    match errno {
        Errno::NOENT | Errno::SRCH => Absent::NotFound,
        Errno::ACCESS | Errno::PERM => Absent::NotPermitted,
        _ => Absent::Failed,
    }
}
