//! The state that a launcher, its job and its companions share.

use super::has_ended;
use super::signals::Signals;
use crate::handle::raw;
use crate::limits::OpenFiles;
use crate::proc_dir::ProcRoot;
use crate::process::read_key;
use crate::users::Users;
use gpu_core::ProcessKey;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;

/// Shared by a launcher and its job.
pub(crate) struct Shared {
    pub(crate) root: ProcRoot,
    pub(crate) users: Users,
    pub(crate) signals: RefCell<Signals>,
    pub(crate) front: Watched,
    /// The frontend's process group, or this process's own without a frontend; `None` if it is
    /// outside this PID namespace.
    pub(crate) group: Option<Pid>,
    /// The original signal mask of this thread, for the job.
    pub(crate) mask: SigSet,
    /// The original limit on open files, for the job.
    pub(crate) files: OpenFiles,
    /// The children of this process before the first job.
    pub(crate) own_children: OnceCell<HashSet<ProcessKey>>,
    /// The helper programs next to the job, which are also this process's own children.
    pub(crate) companions: RefCell<HashSet<ProcessKey>>,
}

impl Shared {
    /// Returns whether a child existed before the first job, or is a helper. The kernel does not
    /// reveal the starter of an orphaned process; but no process is adopted before the first job.
    pub(crate) fn is_own(&self, child: &ProcessKey) -> bool {
        self.own_children.get().is_some_and(|own| own.contains(child))
            || self.companions.borrow().contains(child)
    }

    /// Runs an action with the original signal mask and the original limit on open files, which a
    /// child inherits.
    pub(crate) fn as_before<T>(&self, act: impl FnOnce() -> T) -> T {
        let now = self.mask.thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let done = self.files.as_before(act);
        if let Ok(now) = now {
            // A mask that was set before can be set again.
            let _ = now.thread_set_mask();
        }
        done
    }
}

/// A process whose end is watched.
pub(crate) enum Watched {
    /// No process.
    None,
    /// This process lived when it was opened.
    Opened(OwnedFd),
    /// The process has ended before.
    Gone,
}

impl Watched {
    /// Opens the process that `key` identifies, and no other that reuses its PID: the pidfd comes
    /// first, and while the process behind it lives, its PID is not reused.
    pub(crate) fn open(root: &ProcRoot, key: ProcessKey) -> rustix::io::Result<Self> {
        let opened = raw(key.pid.0).ok_or(Errno::SRCH).and_then(|number| {
            let pidfd = pidfd_open(number, PidfdFlags::empty())?;
            let same = read_key(&root.process(key.pid.0)?)?.definitely_same(&key);
            let lives = same && !has_ended(&pidfd)?;
            Ok(lives.then_some(pidfd))
        });
        match opened {
            Ok(Some(pidfd)) => Ok(Watched::Opened(pidfd)),
            Ok(None) | Err(Errno::SRCH | Errno::NOENT) => Ok(Watched::Gone),
            Err(errno) => Err(errno),
        }
    }

    /// Returns whether it is gone.
    pub(crate) fn is_gone(&self) -> rustix::io::Result<bool> {
        match self {
            Watched::None => Ok(false),
            Watched::Opened(pidfd) => has_ended(pidfd),
            Watched::Gone => Ok(true),
        }
    }
}
