//! The port [`Launcher`], implemented by the supervisor.

use super::companion::LinuxCompanion;
use super::has_ended;
use super::job::LinuxJob;
use super::signals::Signals;
use super::terminal::own_group;
use super::tree::{own_children, place};
use crate::fault;
use crate::handle::raw;
use crate::host::{Roots, require_own_namespace};
use crate::limits::{OpenFiles, ignore_file_size_signal};
use crate::proc_dir::ProcRoot;
use crate::process::read_key;
use crate::users::Users;
use gpu_core::{Companion, Error, ErrorKind, Job, Launch, Launcher, ProcessKey, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::io;
use std::rc::Rc;

/// Starts a job that cannot leave this process's tree.
///
/// The supervisor creates it: a separate process that starts one job at a time. From then on,
/// signals that request an end no longer end the process; it has to query them. They reach it even
/// if it was started with them blocked; a job gets the original signal mask. On a panic, it ends by
/// SIGABRT without unwinding: otherwise it would release what it holds for its job, and its caller
/// would take its exit code for the job's.
///
/// The children that this process has when it starts its first job are its own. Every later child
/// belongs to a job: it is a member, and is reaped when it has ended.
pub struct LinuxLauncher {
    shared: Rc<Shared>,
}

/// Shared by a launcher and its job.
pub(crate) struct Shared {
    pub(crate) root: ProcRoot,
    pub(crate) users: Users,
    pub(crate) signals: RefCell<Signals>,
    pub(crate) front: Watched,
    /// The frontend's process group, this process's own without one; none if it is outside this PID
    /// namespace.
    pub(crate) group: Option<Pid>,
    /// The original signal mask of this thread, for the job.
    mask: SigSet,
    /// The original limit on open files, for the job.
    files: OpenFiles,
    /// The children from before the first job.
    own_children: OnceCell<HashSet<ProcessKey>>,
    /// The helper programs beside the job, which are also this process's own children.
    pub(crate) companions: RefCell<HashSet<ProcessKey>>,
}

impl Shared {
    /// Returns whether a child existed before the first job, or is a helper. The kernel does not
    /// reveal who started an orphaned process; but no process is adopted before there is a job.
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
    /// There is none.
    Nobody,
    /// This process lived when it was opened.
    Opened(OwnedFd),
    /// It has ended before.
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
            Watched::Nobody => Ok(false),
            Watched::Opened(pidfd) => has_ended(pidfd),
            Watched::Gone => Ok(true),
        }
    }
}

impl LinuxLauncher {
    /// Makes the calling process the root of the tree: it becomes the parent of all orphaned
    /// descendants (`PR_SET_CHILD_SUBREAPER`, prctl(2)), catches signals and watches `front`, the
    /// process that it works for; without one, `Abandoned` never occurs.
    ///
    /// From now on it may open as many files as its hard limit allows, and a write beyond the file
    /// size limit fails; a job has the original limits.
    ///
    /// This outlasts the launcher. As long as the process lives, it adopts orphaned descendants,
    /// signals that request an end do not end it, and a panic of any thread, even one that would be
    /// caught, calls the previous panic hook and then aborts the process. To end differently on a
    /// panic, set a hook afterwards.
    ///
    /// # Errors
    /// `Unsupported` if `/proc` shows another PID namespace than the caller's, or the kernel lacks
    /// pidfd (Linux 5.3); `Io` when the kernel refuses something else.
    pub fn new(roots: &Roots, front: Option<ProcessKey>) -> Result<Self> {
        let what = "supervise processes";
        let failed = |errno| fault::file(what, errno);
        let root = ProcRoot::open(&roots.proc).map_err(failed)?;
        require_own_namespace(&root, &roots.proc, what)?;
        // Before the signals: one that arrives now still ends this process.
        let front = front.map(|key| Ok((Watched::open(&root, key)?, group_of(&root, key))));
        let watched = |errno| fault::pidfd("watch the front end", errno);
        let (front, group) = front.transpose().map_err(watched)?.unzip();
        set_child_subreaper(Some(getpid())).map_err(failed)?;
        let failed = |error: io::Error| Error::new(ErrorKind::Io, what).with_source(error);
        let signals = RefCell::new(Signals::catch(&root).map_err(failed)?);
        ignore_file_size_signal(&roots.proc).map_err(failed)?;
        let files = OpenFiles::raise();
        // This process writes its messages from a background process group, whatever the terminal
        // setting (`tostop`, stty(1)).
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let mask = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let mask = mask.map_err(|errno| failed(errno.into()))?;
        Signals::let_through().map_err(|errno| failed(errno.into()))?;
        end_by_panics();
        let front = front.unwrap_or(Watched::Nobody);
        let group = group.unwrap_or_else(own_group);
        Ok(LinuxLauncher {
            shared: Rc::new(Shared {
                root,
                users: Users::default(),
                signals,
                front,
                group,
                mask,
                files,
                own_children: OnceCell::new(),
                companions: RefCell::default(),
            }),
        })
    }

    /// Returns a signal that requests an end, each once; while there is a job, this is its
    /// [`JobEvent::EndRequested`](gpu_core::JobEvent::EndRequested).
    pub fn asked(&self) -> Option<i32> {
        let mut signals = self.shared.signals.borrow_mut();
        signals.look();
        signals.next_asked()
    }

    /// Returns the process group of the frontend, this process's own without one: if that has the
    /// terminal, this process may write to it.
    pub fn group(&self) -> Option<gpu_core::Pid> {
        self.shared.group.map(|group| gpu_core::Pid(group.as_raw_nonzero().get().unsigned_abs()))
    }

    /// Returns whether the process that this one works for is gone.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    pub fn is_abandoned(&self) -> Result<bool> {
        let failed = |errno| fault::file("watch the parent process", errno);
        self.shared.front.is_gone().map_err(failed)
    }
}

/// Makes any panic end this process, after the panic is reported: the frontend
/// ([`Front::was_killed`](super::Front::was_killed)) sees that it did not end by itself.
fn end_by_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Returns the process group of a process, which it has as long as it lives.
fn group_of(root: &ProcRoot, key: ProcessKey) -> Option<Pid> {
    let place = place(root, key.pid.0).ok().filter(|place| place.key.definitely_same(&key))?;
    raw(place.group)
}

impl Launcher for LinuxLauncher {
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Job>> {
        if self.shared.own_children.get().is_none() {
            let failed = |errno| fault::file("list the own child processes", errno);
            let own = own_children(&self.shared.root).map_err(failed)?;
            self.shared.own_children.get_or_init(|| own);
        }
        Ok(Box::new(LinuxJob::start(launch, Rc::clone(&self.shared))?))
    }

    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        Ok(Box::new(LinuxCompanion::start(launch, Rc::clone(&self.shared))?))
    }
}
