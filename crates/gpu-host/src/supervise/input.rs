//! Standard input as the sign that the caller is still there.

use super::pause;
use crate::fault;
use gpu_core::Result;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read};
use rustix::stdio::{dup2_stdin, stdin};
use std::time::Duration;

/// The standard input of a job that ends with its caller: when it ends, so does the job.
///
/// ssh does not end a command whose connection broke, but its input ends then.
#[derive(Debug)]
pub struct EndOfInput(OwnedFd);

impl EndOfInput {
    /// Takes standard input away from this process and from the programs that it starts; they get
    /// an empty input.
    ///
    /// # Errors
    /// `Io` when the kernel refuses.
    pub fn take() -> Result<Self> {
        let failed = |errno| fault::file("take over standard input", errno);
        // At a number above those of the standard files, because one of these may be closed.
        let input = fcntl_dupfd_cloexec(stdin(), 3).map_err(failed)?;
        let empty = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        dup2_stdin(empty.map_err(failed)?).map_err(failed)?;
        Ok(EndOfInput(input))
    }

    /// Returns whether the input has ended; what arrived is discarded.
    pub(super) fn has_ended(&self) -> rustix::io::Result<bool> {
        let mut file = [PollFd::new(&self.0, PollFlags::IN)];
        pause(&mut file, Some(Duration::ZERO))?;
        if file[0].revents().is_empty() {
            return Ok(false);
        }
        match read(&self.0, &mut [0; 4096]) {
            Ok(size) => Ok(size == 0),
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            // A terminal that hung up.
            Err(Errno::IO) => Ok(true),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for EndOfInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
