//! Signals, being stopped, and losing the terminal.
//!
//! SIGTSTP keeps its default effect, because only the kernel knows whether a shell waits that could
//! continue the program: a process group without one is not stopped (`setpgid(2)`, orphaned process
//! groups). So it is blocked in all threads as the other signals are; one thread waits for them, and
//! another one gives the terminal back and then lets SIGTSTP through to itself.

use crate::terminal;
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::kill_current_process_group;
use std::io;

/// The signals that a thread waits for.
const AWAITED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// The signals of this program.
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals in this thread and those that it starts from now on. Programs that are
    /// started later have none blocked: the standard library sees to that.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn block() -> io::Result<Self> {
        let signals: SigSet = AWAITED.into_iter().collect();
        signals.thread_block()?;
        let queue = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals(queue))
    }

    /// Waits for the next signal; `None` if there will be no more. If the terminal is gone, that is
    /// SIGHUP, as the kernel sends for a terminal that it controls: crossterm would read from such a
    /// terminal without end.
    pub(crate) fn next(&self) -> Option<Signal> {
        let stdin = io::stdin();
        loop {
            let (gone, signal) = (PollFlags::empty(), PollFlags::IN);
            let mut fds = [PollFd::new(&stdin, gone), PollFd::new(&self.0, signal)];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                Err(_) => return None,
                Ok(_) if !fds[0].revents().is_empty() => return Some(Signal::SIGHUP),
                Ok(_) => {}
            }
            match self.0.read_signal() {
                // SIGCONT has taken SIGTSTP back (signal(7)).
                Ok(None) => {}
                Ok(Some(told)) => {
                    let number = i32::try_from(told.ssi_signo).ok();
                    let signal = number.and_then(|number| Signal::try_from(number).ok());
                    if signal.is_some() {
                        return signal;
                    }
                }
                Err(_) => return None,
            }
        }
    }
}

/// Stops the program with the terminal given back; returns when it is continued.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn stop() -> io::Result<()> {
    // A main loop that handles an earlier SIGCONT must not take the terminal over meanwhile.
    let _restored = terminal::restore_between_frames();
    let signal = SigSet::from(Signal::SIGTSTP);
    // Everybody else in the group has had the signal; this is for this program alone, in this
    // thread alone. It returns at once if nobody could continue it.
    pthread_kill(pthread_self(), Signal::SIGTSTP)?;
    signal.thread_unblock()?;
    Ok(signal.thread_block()?)
}

/// Stops the process group, as the terminal does at ^Z. The terminal is given back by the thread
/// that waits for it.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn stop_group() -> io::Result<()> {
    Ok(kill_current_process_group(rustix::process::Signal::TSTP)?)
}

/// Returns whether the terminal is gone.
pub(crate) fn has_hung_up() -> bool {
    let stdin = io::stdin();
    // Nothing is asked for but what is always told: a hang-up, or an error.
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}
