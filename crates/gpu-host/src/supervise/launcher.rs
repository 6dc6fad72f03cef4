//! The port [`Launcher`], implemented by the supervisor.

use super::companion::LinuxCompanion;
use super::job::LinuxJob;
use super::shared::{Shared, Watched};
use super::signals::Signals;
use super::terminal::own_group;
use super::tree::{entry, own_children};
use crate::fault;
use crate::handle::raw;
use crate::limits::{OpenFiles, ignore_file_size_signal};
use crate::namespace::require_own_namespace;
use crate::proc_dir::ProcRoot;
use crate::roots::Roots;
use crate::users::Users;
use gpu_core::{Companion, Error, ErrorKind, Job, Launch, Launcher, ProcessKey, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpid, set_child_subreaper};
use std::cell::{OnceCell, RefCell};
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
        let front = front.unwrap_or(Watched::None);
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

    /// Returns a signal that requests an end, each once; while a job runs, this is its
    /// [`JobEvent::EndRequested`](gpu_core::JobEvent::EndRequested).
    pub fn asked(&self) -> Option<i32> {
        let mut signals = self.shared.signals.borrow_mut();
        signals.record_received();
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
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        previous(panic);
        std::process::abort();
    }));
}

/// Returns the process group of a process, which it has as long as it lives.
fn group_of(root: &ProcRoot, key: ProcessKey) -> Option<Pid> {
    let entry = entry(root, key.pid.0).ok().filter(|entry| entry.key.definitely_same(&key))?;
    raw(entry.group)
}

impl Launcher for LinuxLauncher {
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Job>> {
        if self.shared.own_children.get().is_none() {
            let failed = |errno| fault::file("list the child processes of this process", errno);
            let own = own_children(&self.shared.root).map_err(failed)?;
            self.shared.own_children.get_or_init(|| own);
        }
        Ok(Box::new(LinuxJob::start(launch, Rc::clone(&self.shared))?))
    }

    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        Ok(Box::new(LinuxCompanion::start(launch, Rc::clone(&self.shared))?))
    }
}
