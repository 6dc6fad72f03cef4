//! The port [`Launcher`], answered by the supervisor.

use super::companion::LinuxCompanion;
use super::has_ended;
use super::job::LinuxJob;
use super::signals::Signals;
use super::terminal::own_group;
use super::tree::{children, place};
use crate::fault;
use crate::host::{Roots, shows_own_namespace};
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

/// Starts a job of which nothing leaves this process's tree.
///
/// It is made by the supervisor, a process of its own that starts one job at a time. From then on
/// the signals that ask for an end do not end it any more: it has to ask for them. They reach it
/// also where it was started with them blocked; a job has the same signals blocked as it had.
/// Where it panics, it ends by SIGABRT and nothing is unwound: what it holds for its job would be
/// let go of, and whoever waits for it would take its code for the job's.
///
/// The children that this process has when it starts its first job are its own. Whoever is its
/// child later is of a job: it is a member of it, and is waited for when it has ended.
pub struct LinuxLauncher {
    shared: Rc<Shared>,
}

/// What a launcher and its job have in common.
pub(crate) struct Shared {
    pub(crate) root: ProcRoot,
    pub(crate) users: Users,
    pub(crate) signals: RefCell<Signals>,
    pub(crate) front: Watched,
    /// The front's process group, this process's own without one; none that is outside of this PID
    /// namespace.
    pub(crate) group: Option<Pid>,
    /// What this thread blocked before, and a job is to block.
    mask: SigSet,
    /// What this process may have open, and a job is to.
    files: OpenFiles,
    /// The children of before the first job.
    own_children: OnceCell<HashSet<ProcessKey>>,
    /// The programs beside the job, which are this process's own children too.
    pub(crate) companions: RefCell<HashSet<ProcessKey>>,
}

impl Shared {
    /// Returns whether a child was there before the first job, or accompanies one. No kernel tells
    /// who started a process whose parent is gone; but nobody is adopted before there is a job.
    pub(crate) fn is_own(&self, child: &ProcessKey) -> bool {
        self.own_children.get().is_some_and(|own| own.contains(child))
            || self.companions.borrow().contains(child)
    }

    /// Does something with the signals blocked that were blocked before, and under the limit on
    /// open files of before: a child has the same.
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

/// Somebody whose end is to be seen.
pub(crate) enum Watched {
    /// There is nobody.
    Nobody,
    /// This one lived when it was opened.
    Opened(OwnedFd),
    /// It has ended before.
    Gone,
}

impl Watched {
    /// Opens the process that `key` names, and no other that has its number now: the pidfd comes
    /// first, and while the process behind it lives, its number is its own.
    pub(crate) fn open(root: &ProcRoot, key: ProcessKey) -> rustix::io::Result<Self> {
        let number = i32::try_from(key.pid.0).ok().and_then(Pid::from_raw);
        let opened = number.ok_or(Errno::SRCH).and_then(|number| {
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
    /// Makes the calling process the one that keeps the tree together: it becomes the parent of
    /// all descendants that lose theirs (`PR_SET_CHILD_SUBREAPER`, prctl(2)), catches signals and
    /// watches `front`, the process that it works for; without one nothing is ever `Abandoned`.
    ///
    /// It may have as many files open as its hard limit allows from now on, and a write beyond the
    /// limit on the size of files fails; a job has both limits as they were.
    ///
    /// That does not end with the launcher. For as long as the process lives, it stays the parent of
    /// those who lose theirs, the signals that ask for an end do not end it, and a panic of any
    /// thread, also one that somebody would catch, calls the panic hook of before and then aborts
    /// the process. Who wants another end for panics has to set a hook afterwards.
    ///
    /// # Errors
    /// `Unsupported` where `/proc` shows another PID namespace than the caller's, or the kernel
    /// lacks pidfd (Linux 5.3); `Io` when the kernel refuses something else.
    pub fn new(roots: &Roots, front: Option<ProcessKey>) -> Result<Self> {
        let what = "supervise processes";
        let failed = |errno| match errno {
            Errno::NOSYS => Error::new(ErrorKind::Unsupported, what).with_source(errno),
            errno => fault::file(what, errno),
        };
        let root = ProcRoot::open(&roots.proc).map_err(failed)?;
        if !shows_own_namespace(&root).map_err(failed)? {
            let path = roots.proc.display();
            let what = format!("{what}: '{path}' belongs to a different PID namespace");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        // Before the signals: one that comes now still ends this process.
        let front = front.map(|key| Ok((Watched::open(&root, key)?, group_of(&root, key))));
        let (front, group) = front.transpose().map_err(failed)?.unzip();
        set_child_subreaper(Some(getpid())).map_err(failed)?;
        let failed = |error: io::Error| Error::new(ErrorKind::Io, what).with_source(error);
        let signals = RefCell::new(Signals::catch(&root).map_err(failed)?);
        ignore_file_size_signal(&roots.proc).map_err(failed)?;
        let files = OpenFiles::raise();
        // What this process has to say, it says from behind the front, whatever the terminal makes
        // of that (`tostop`, stty(1)).
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

    /// Returns a signal by which somebody asks for an end, each once: what a job's
    /// [`JobEvent::Asked`](gpu_core::JobEvent::Asked) is while there is one.
    pub fn asked(&self) -> Option<i32> {
        let mut signals = self.shared.signals.borrow_mut();
        signals.look();
        signals.next_asked()
    }

    /// Returns the process group of the front, this process's own without one: where that has the
    /// terminal, this process may show something on it.
    pub fn group(&self) -> Option<gpu_core::Pid> {
        self.shared.group.map(|group| gpu_core::Pid(group.as_raw_nonzero().get().unsigned_abs()))
    }

    /// Returns whether whoever this process works for is gone.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    pub fn is_abandoned(&self) -> Result<bool> {
        let failed = |errno| fault::file("watch the parent process", errno);
        self.shared.front.is_gone().map_err(failed)
    }
}

/// Makes any panic the end of this process, once it is told: what stands for it
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
    Pid::from_raw(i32::try_from(place.group).ok()?)
}

impl Launcher for LinuxLauncher {
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Job>> {
        if self.shared.own_children.get().is_none() {
            let failed = |errno| fault::file("list the own child processes", errno);
            let root = &self.shared.root;
            let own = place(root, std::process::id()).and_then(|own| children(root, &own));
            let own = own.map_err(failed)?.into_iter().map(|child| child.key).collect();
            self.shared.own_children.get_or_init(|| own);
        }
        Ok(Box::new(LinuxJob::start(launch, Rc::clone(&self.shared))?))
    }

    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        Ok(Box::new(LinuxCompanion::start(launch, Rc::clone(&self.shared))?))
    }
}
