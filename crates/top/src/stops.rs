//! Being stopped, and losing the terminal, with the terminal given back.
//!
//! SIGTSTP keeps its default effect, because only the kernel knows whether a shell waits that could
//! continue the program: a process group without one is not stopped (`setpgid(2)`, orphaned process
//! groups). So it is blocked in all threads, and one waits for it, gives the terminal back and then
//! lets it through.

use crate::terminal;
use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{getpid, kill_current_process_group, kill_process};
use std::io;

/// The signal that a thread waits for.
pub(crate) struct Stops(SigSet);

impl Stops {
    /// Blocks the signal in this thread and those that it starts from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn block() -> io::Result<Self> {
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTSTP);
        stop.thread_block()?;
        Ok(Stops(stop))
    }

    /// Stops the program whenever it is asked to, and calls `continued` when it goes on.
    pub(crate) fn watch(self, continued: impl Fn()) {
        while self.0.wait().is_ok() {
            // A main loop that handles an earlier SIGCONT must not take the terminal over meanwhile.
            let restored = terminal::restore_between_frames();
            // Everybody else in the group has had the signal; this is for this program alone, in
            // this thread alone. It returns when the program is continued, or at once if nobody
            // could continue it.
            let stopped = kill_process(getpid(), rustix::process::Signal::TSTP);
            if stopped.is_err()
                || self.0.thread_unblock().is_err()
                || self.0.thread_block().is_err()
            {
                return;
            }
            drop(restored);
            continued();
        }
    }
}

/// Stops the process group, as the terminal does at ^Z. The terminal is given back by the thread
/// that waits for it.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn stop_group() -> io::Result<()> {
    Ok(kill_current_process_group(rustix::process::Signal::TSTP)?)
}

/// Waits until the terminal is gone, and then ends the program as the kernel does for a terminal
/// that it controls: crossterm would read from such a terminal without end.
pub(crate) fn watch_hangup() {
    if has_hung_up(None) {
        // It fails only without the right to signal this program itself.
        let _ = kill_process(getpid(), rustix::process::Signal::HUP);
    }
}

/// Returns whether the terminal is gone, and waits for it for this time; `None` for ever.
pub(crate) fn has_hung_up(limit: Option<Timespec>) -> bool {
    let stdin = io::stdin();
    // Nothing is waited for but what is always told: a hang-up, or an error.
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    loop {
        match poll(&mut fds, limit.as_ref()) {
            Err(Errno::INTR) => {}
            Ok(count) => return count > 0,
            Err(_) => return false,
        }
    }
}
