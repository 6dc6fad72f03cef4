//! Being stopped, and losing the terminal, with the terminal given back.
//!
//! SIGTSTP keeps its default effect, because only the kernel knows whether a shell waits that could
//! continue the program: a process group without one is not stopped (`setpgid(2)`, orphaned process
//! groups). So it is blocked in all threads, and one waits for it, gives the terminal back and then
//! lets it through.

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
    /// Where it arrives.
    queue: SignalFd,
}

impl Stops {
    /// Blocks the signal in this thread and those that it starts from now on.
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

    /// Stops the program whenever it is asked to, and calls `continued` when it goes on. If the
    /// terminal is gone, ends the program as the kernel does for a terminal that it controls:
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
                    // It fails only without the right to signal this program itself.
                    let _ = kill_process(getpid(), rustix::process::Signal::HUP);
                    return;
                }
                Ok(_) => {}
            }
            match self.queue.read_signal() {
                // SIGCONT has taken it back (signal(7)).
                Ok(None) => {}
                Ok(Some(_)) if self.stop().is_ok() => continued(),
                _ => return,
            }
        }
    }

    /// Stops the program with the terminal given back; returns when it is continued.
    fn stop(&self) -> io::Result<()> {
        // A main loop that handles an earlier SIGCONT must not take the terminal over meanwhile.
        let _restored = terminal::restore_between_frames();
        // Everybody else in the group has had the signal; this is for this program alone, in this
        // thread alone. It returns at once if nobody could continue it.
        kill_process(getpid(), rustix::process::Signal::TSTP)?;
        self.signal.thread_unblock()?;
        Ok(self.signal.thread_block()?)
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

/// Returns whether the terminal is gone.
pub(crate) fn has_hung_up() -> bool {
    let stdin = io::stdin();
    // Nothing is asked for but what is always told: a hang-up, or an error.
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}
