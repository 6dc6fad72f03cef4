//! Handles stops and the loss of the terminal, restoring the terminal first.
//!
//! SIGTSTP keeps its default effect, because only the kernel knows whether there is a shell that
//! could continue the program: a process group without one is not stopped (`setpgid(2)`, orphaned
//! process groups). So it is blocked in all threads; one thread waits for it, restores the terminal
//! and then lets it through.

use crate::terminal;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{getpid, kill_current_process_group, kill_process};
use std::io;

/// The signal that a thread waits for.
pub(crate) struct Stops {
    signal: SigSet,
    /// The descriptor at which it arrives.
    queue: SignalFd,
}

impl Stops {
    /// Blocks the signal in this thread and in those that it starts from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn block() -> io::Result<Self> {
        let mut signal = SigSet::empty();
        signal.add(Signal::SIGTSTP);
        signal.thread_block()?;
        let queue = SignalFd::with_flags(&signal, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Stops { signal, queue })
    }

    /// Stops the program whenever a stop is requested, and calls `continued` when it continues. If
    /// the terminal is gone, ends the program as the kernel does for its controlling terminal:
    /// crossterm would read from such a terminal without end.
    pub(crate) fn watch(self, continued: impl Fn()) {
        let stdin = io::stdin();
        loop {
            let (gone, stop) = (PollFlags::empty(), PollFlags::IN);
            let mut fds = [PollFd::new(&stdin, gone), PollFd::new(&self.queue, stop)];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) if !fds[0].revents().is_empty() => {
                    // It fails only without permission to signal this program itself.
                    let _ = kill_process(getpid(), rustix::process::Signal::HUP);
                    return;
                }
                Ok(_) => {}
            }
            match self.queue.read_signal() {
                // SIGCONT has cancelled it (signal(7)).
                Ok(None) => {}
                Ok(Some(_)) if self.stop().is_ok() => continued(),
                _ => return,
            }
        }
    }

    /// Stops the program with the terminal restored; returns when it is continued.
    fn stop(&self) -> io::Result<()> {
        // A main loop that handles an earlier SIGCONT must not take the terminal over meanwhile.
        let _restored = terminal::restore_between_frames();
        // All others in the group have received the signal; this one is for this program alone, in
        // this thread alone. It returns at once if no process could continue it.
        kill_process(getpid(), rustix::process::Signal::TSTP)?;
        self.signal.thread_unblock()?;
        Ok(self.signal.thread_block()?)
    }
}

/// Stops the process group, as the terminal does at ^Z. The thread that waits for the signal
/// restores the terminal.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn stop_group() -> io::Result<()> {
    Ok(kill_current_process_group(rustix::process::Signal::TSTP)?)
}

/// Returns whether the terminal is gone.
pub(crate) fn has_hung_up() -> bool {
    let stdin = io::stdin();
    // No events are requested; poll(2) always reports a hang-up or an error.
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}
