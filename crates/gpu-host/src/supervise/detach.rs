//! How a supervisor dismisses its frontend before it ends itself.
//!
//! A frontend ends when its supervisor does. A supervisor that stays to keep a lease, because a
//! process of its job cannot be ended, has nothing more to report to the caller of the frontend. It
//! sends the job's exit status through a pipe of the frontend, which it opens as `/proc/PID/fd/N`
//! of the frontend, so that no job inherits a descriptor of it. Another program of the same user
//! can also write into the pipe. It can end or mislead a frontend that way, as it could with a
//! signal, but cannot make it wait.

use super::shared::Watched;
use crate::fault;
use crate::proc_dir::ProcRoot;
use crate::roots::Roots;
use gpu_core::{Error, ErrorKind, JobExit, ProcessKey, Result};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;

/// One byte for the kind, and a number.
const LENGTH: usize = 5;
const CODE: u8 = b'c';
const SIGNAL: u8 = b's';

/// The frontend's end of it.
#[derive(Debug)]
pub struct DetachPipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl DetachPipe {
    /// Creates its pipe.
    ///
    /// # Errors
    /// `Io` when the kernel refuses.
    pub fn new() -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Io, "create a pipe").with_source(error);
        let (reader, writer) = io::pipe().map_err(failed)?;
        fcntl_setfl(&reader, OFlags::NONBLOCK).map_err(|errno| failed(errno.into()))?;
        Ok(DetachPipe { reader, writer })
    }

    /// Returns the argument for the supervisor; [`dismiss`] takes it.
    pub fn word(&self) -> OsString {
        self.writer.as_raw_fd().to_string().into()
    }

    /// Reads the message, once the pipe is readable; `None` for anything else. The kernel writes
    /// such a short message atomically.
    pub(super) fn read(&self) -> Option<JobExit> {
        let mut message = [0; LENGTH];
        (&self.reader).read_exact(&mut message).ok()?;
        parse(message)
    }
}

impl AsFd for DetachPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Dismisses a frontend, which then ends as [`end_as`](super::end_as) does for this exit status.
/// Returns whether it was there: a frontend that is gone needs no message.
///
/// # Errors
/// `Invalid` for an argument that is not from [`DetachPipe::word`], `Io` when the frontend cannot
/// be reached.
pub fn dismiss(roots: &Roots, front: ProcessKey, word: &OsStr, ending: JobExit) -> Result<bool> {
    let what = "notify the front end that it may exit";
    let failed = |errno| fault::file(what, errno);
    let number: Option<u32> = word.to_str().and_then(|word| word.parse().ok());
    let number = number.ok_or_else(|| Error::new(ErrorKind::Invalid, what))?;
    let root = ProcRoot::open(&roots.proc).map_err(failed)?;
    let watched = Watched::open(&root, front).map_err(failed)?;
    if watched.is_gone().map_err(failed)? {
        return Ok(false);
    }
    let dir = match root.process(front.pid.0) {
        Err(Errno::NOENT | Errno::SRCH) => return Ok(false),
        dir => dir.map_err(failed)?,
    };
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let pipe = rustix::fs::openat(&dir, format!("fd/{number}"), flags, Mode::empty());
    // The directory was opened by PID: while the frontend lives, that PID is its own.
    if watched.is_gone().map_err(failed)? {
        return Ok(false);
    }
    let sent = rustix::io::write(pipe.map_err(failed)?, &message(ending)).map_err(failed)?;
    match sent {
        LENGTH => Ok(true),
        _ => Err(Error::new(ErrorKind::Io, what)),
    }
}

/// Encodes an exit status as the supervisor itself would end: by a signal if it re-raises that one,
/// and otherwise with the exit code for it.
fn message(ending: JobExit) -> [u8; LENGTH] {
    let (kind, number) = match ending {
        JobExit::Signal(signal @ (SIGINT | SIGTERM | SIGHUP)) => (SIGNAL, signal),
        ending => (CODE, ending.code()),
    };
    let [a, b, c, d] = number.to_le_bytes();
    [kind, a, b, c, d]
}

fn parse([kind, a, b, c, d]: [u8; LENGTH]) -> Option<JobExit> {
    let number = i32::from_le_bytes([a, b, c, d]);
    match kind {
        CODE => Some(JobExit::Code(number)),
        SIGNAL => Some(JobExit::Signal(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Front;
    use super::super::parse_words;
    use super::*;
    use gpu_core::{Pid, StartTime};

    #[test]
    fn exit_status_survives_message_encoding() {
        for (ending, arrives) in [
            (JobExit::Code(7), JobExit::Code(7)),
            (JobExit::Signal(SIGTERM), JobExit::Signal(SIGTERM)),
            (JobExit::Signal(9), JobExit::Code(137)),
        ] {
            assert_eq!(parse(message(ending)), Some(arrives));
        }
        assert_eq!(parse([0; LENGTH]), None);
    }

    #[test]
    fn detach_message_reaches_only_its_frontend() {
        let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
        let [pid, start] = Front::words(&roots).unwrap();
        let own = parse_words(&pid, &start).unwrap();
        let dismissal = DetachPipe::new().unwrap();
        assert!(dismiss(&roots, own, &dismissal.word(), JobExit::Code(3)).unwrap());
        assert_eq!(dismissal.read(), Some(JobExit::Code(3)));
        let earlier = ProcessKey { start: Some(StartTime(1)), ..own };
        assert!(!dismiss(&roots, earlier, &dismissal.word(), JobExit::Code(3)).unwrap());
        let missing = ProcessKey { pid: Pid(4_194_304), ..own };
        assert!(!dismiss(&roots, missing, &dismissal.word(), JobExit::Code(3)).unwrap());
        // A partial message is ignored, without waiting.
        rustix::io::write(&dismissal.writer, b"c").unwrap();
        assert_eq!(dismissal.read(), None);
        let wrong = dismiss(&roots, own, "-1".as_ref(), JobExit::Code(3)).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::Invalid);
    }
}
