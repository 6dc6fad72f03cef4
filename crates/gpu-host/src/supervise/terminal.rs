//! The controlling terminal, and which process group may read from it.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal that controls this process's session, whatever its standard input is.
pub(crate) struct Terminal {
    file: OwnedFd,
    /// The group that lends it: the frontend's.
    lender: Pid,
    /// Its settings when it was lent.
    settings: Option<Termios>,
}

impl Terminal {
    /// Opens the terminal, to be lent by a group of this session; `None` if there is no terminal
    /// (tty(4)), or if that group has no number here ([`own_group`]).
    pub(crate) fn open(lender: Option<Pid>) -> Option<Self> {
        let lender = lender?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        Some(Terminal { file, lender, settings: None })
    }

    /// Returns the foreground group; `None` if it has no number here, or the terminal is gone.
    pub(crate) fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.file).ok()
    }

    /// Returns whether the group that lends it is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(self.lender)
    }

    /// Lends the terminal to a group of the same session.
    ///
    /// # Errors
    /// Those of tcsetpgrp(3).
    pub(crate) fn lend(&mut self, group: Pid) -> Result<()> {
        if self.settings.is_none() {
            self.settings = tcgetattr(&self.file).ok();
        }
        unstopped(|| tcsetpgrp(&self.file, group))
    }

    /// Moves the lending group to the foreground.
    ///
    /// # Errors
    /// Those of tcsetpgrp(3).
    pub(crate) fn take_back(&self) -> Result<()> {
        unstopped(|| tcsetpgrp(&self.file, self.lender))
    }

    /// Restores the settings from when the terminal was first lent.
    ///
    /// # Errors
    /// Those of tcsetattr(3).
    pub(crate) fn restore(&self) -> Result<()> {
        let Some(settings) = &self.settings else { return Ok(()) };
        // At once: pending output may wait indefinitely for Ctrl-Q.
        unstopped(|| tcsetattr(&self.file, OptionalActions::Now, settings))
    }
}

/// Returns this process's group; `None` if its leader is outside this PID namespace, as for the
/// first program of `unshare --pid --fork`: the kernel calls such a group 0.
pub(super) fn own_group() -> Option<Pid> {
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
}

/// Changes the terminal from the background, for which the kernel stops a process that does not
/// block SIGTTOU. Blocked, not ignored: every program that is started meanwhile would inherit
/// ignoring.
fn unstopped<T>(act: impl FnOnce() -> T) -> T {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let before = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = act();
    if let Ok(before) = before {
        // A mask that was set before can be set again.
        let _ = before.thread_set_mask();
    }
    done
}
