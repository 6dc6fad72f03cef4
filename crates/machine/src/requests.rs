//! Requests by signals to a program that keeps running.

use crate::MachineError;
use gpu_host::supervise::end_signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use signal_hook::consts::SIGHUP;
use std::io::{IsTerminal, Read};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What to do after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on: the time is over, or an event has occurred.
    GoOn,
    /// Read the configuration again.
    Reload,
    /// End.
    End,
}

/// The [`end_signals`] as requests.
#[derive(Debug)]
pub struct Requests {
    pipe: UnixStream,
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Requests {
    /// Takes these signals from now on. If standard input or output is a terminal, SIGHUP requests
    /// the end, because the terminal is gone then; otherwise it requests to read the configuration
    /// again.
    ///
    /// # Errors
    /// When the signals cannot be taken.
    pub fn take() -> Result<Self, MachineError> {
        let failed = |error| MachineError::io("watch for signals", error);
        let (pipe, sender) = UnixStream::pair().map_err(failed)?;
        pipe.set_nonblocking(true).map_err(failed)?;
        let (end, reload) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let has_terminal = std::io::stdout().is_terminal() || std::io::stdin().is_terminal();
        for signal in end_signals() {
            let flag = if signal == SIGHUP && !has_terminal { &reload } else { &end };
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed)?;
            let sender = sender.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
        }
        Ok(Requests { pipe, end, reload })
    }

    /// Returns whether no signal has requested the end.
    pub fn go_on(&self) -> ControlFlow<()> {
        if self.end.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Returns a descriptor that becomes readable when a signal has arrived.
    /// [`wait`](Requests::wait) then returns what it requests.
    pub fn arrival(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Waits for this long, or for a signal.
    ///
    /// # Errors
    /// When the kernel refuses the wait.
    pub fn wait(&self, time: Duration) -> Result<Next, MachineError> {
        let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let waits = !self.end.load(Ordering::Relaxed) && !self.reload.load(Ordering::Relaxed);
        if waits {
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&time)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(MachineError::io("wait for signals", errno.into())),
            }
        }
        while (&self.pipe).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        if self.go_on().is_break() {
            return Ok(Next::End);
        }
        Ok(if self.reload.swap(false, Ordering::Relaxed) { Next::Reload } else { Next::GoOn })
    }
}
