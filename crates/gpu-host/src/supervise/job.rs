//! The port [`Job`]: one started program and all its descendants.

use super::members::members;
use super::shared::{Shared, Watched};
use super::signals::{FREE, is_pending};
use super::suspend::{send, suspend_new};
use super::terminal::Terminal;
use super::tree::{ProcessTree, reap};
use super::tree_kill::kill_tree;
use super::{moment, pause, program};
use crate::fault;
use gpu_core::{
    ActToken, Error, ErrorKind, Job, JobEvent, JobExit, KilledTree, Launch, ProcessFault,
    ProcessInfo, ProcessKey, Result, SuspendedProcesses,
};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open,
    waitid,
};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGTSTP, SIGTTIN, SIGTTOU};
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;

/// A program in its own process group, and its tree.
///
/// It is not reaped before this value is dropped: until then its PID, and its group, are not
/// reused, and no signal to the group can reach another one.
pub(crate) struct LinuxJob {
    shared: Rc<Shared>,
    pid: Pid,
    pidfd: OwnedFd,
    terminal: Option<Terminal>,
    /// It has the terminal for itself, or has requested it.
    wants_terminal: bool,
    lent: bool,
    stopped: bool,
    /// The signal that stopped it, until that is handled.
    stopped_by: Option<i32>,
    /// The hang-up was already reported: no process can continue it.
    hung_up: bool,
    ended: Option<JobExit>,
    reported_end: bool,
    reported_abandoned: bool,
}

impl LinuxJob {
    /// Starts a program.
    pub(crate) fn start(launch: &Launch, shared: Rc<Shared>) -> Result<Self> {
        let program = launch.program.to_string_lossy();
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Io, format!("watch '{program}'")).with_source(error)
        };
        let mut terminal = Terminal::open(shared.group);
        shared.signals.borrow().catch_stop().map_err(failed)?;
        let child = shared.as_before(|| program::start(launch))?;
        let pid = Pid::from_child(&child);
        // At once: it may already read from the terminal.
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let lent = is_terminal && terminal.as_mut().is_some_and(|terminal| lend(terminal, pid));
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| {
            // No process could report how it continues.
            let _ = kill_process_group(pid, Signal::KILL);
            fault::pidfd(format!("watch '{program}'"), errno)
        })?;
        Ok(LinuxJob {
            shared,
            pid,
            pidfd,
            terminal,
            wants_terminal: is_terminal,
            lent,
            stopped: false,
            stopped_by: None,
            hung_up: false,
            ended: None,
            reported_end: false,
            reported_abandoned: false,
        })
    }

    /// Checks for events, and handles those that need no caller.
    fn check_events(&mut self) -> Result<Option<JobEvent>> {
        let came = {
            let mut signals = self.shared.signals.borrow_mut();
            signals.record_received();
            signals.take_other()
        };
        // Signals come before its new state: an earlier stop has been handled by now.
        for signal in &came {
            match *signal {
                SIGCONT => self.go_on(),
                SIGTSTP => self.send(SIGTSTP),
                signal if FREE.contains(&signal) => self.send(signal),
                _ => {}
            }
        }
        if self.ended.is_none() {
            self.check_job()?;
        }
        if came.contains(&SIGCHLD) {
            // A process that stays a zombie is reaped at the next end of a child, or when this
            // process ends.
            let Shared { root, .. } = &*self.shared;
            let _ = reap(root, |key| self.shared.is_own(key), Some(self.pid));
        }
        if let Some(ending) = self.ended.filter(|_| !self.reported_end) {
            self.reported_end = true;
            return Ok(Some(JobEvent::Ended(ending)));
        }
        if !self.reported_abandoned && self.shared.front.is_gone().map_err(self.failed())? {
            self.reported_abandoned = true;
            return Ok(Some(JobEvent::Abandoned));
        }
        let asked = self.shared.signals.borrow_mut().next_asked();
        Ok(asked.map(JobEvent::EndRequested))
    }

    fn check_job(&mut self) -> Result<()> {
        let ask = |options| waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        let end = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let end = ask(end).map_err(self.failed())?;
        if let Some(status) = end {
            let code = status.exit_status().map(JobExit::Code);
            let signal = status.terminating_signal().map(JobExit::Signal);
            self.ended = signal.or(code);
            self.take_terminal(true);
            return Ok(());
        }
        let change = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let change = match ask(change) {
            // It has ended since.
            Err(Errno::CHILD) => None,
            change => change.map_err(self.failed())?,
        };
        if let Some(signal) = change.as_ref().and_then(WaitIdStatus::stopping_signal) {
            self.stopped = true;
            self.stopped_by = Some(signal);
        } else if change.is_some_and(|change| change.continued()) {
            self.stopped = false;
            self.stopped_by = None;
        }
        if let Some(signal) = self.stopped_by {
            match self.stop(signal) {
                // Without a free descriptor or memory, the others cannot be checked now; they are
                // checked next time. The job is not lost for that.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {}
                answered => {
                    self.stopped_by = None;
                    answered.map_err(self.failed())?;
                }
            }
        }
        // Another process, for example `fg`, may have moved it to the foreground without a
        // notification.
        self.lend_terminal();
        Ok(())
    }

    /// Lends it the terminal, if it runs. In a pipeline, others of the frontend's group may need
    /// the terminal, for example a pager: the job then has to request it by being stopped for it.
    fn lend_terminal(&mut self) {
        let may = self.wants_terminal && !self.stopped;
        if let Some(terminal) = self.terminal.as_mut().filter(|_| may) {
            self.lent |= lend(terminal, self.pid);
        }
    }

    /// Takes the terminal back from it and its descendants. Any other group owns it rightfully: a
    /// shell that took it while this process was stopped.
    fn take_terminal(&mut self, for_good: bool) {
        let Some(terminal) = self.terminal.as_ref().filter(|_| self.lent) else { return };
        let Some(group) = terminal.foreground() else { return };
        if Some(group) != self.shared.group && !self.is_of_tree(group) {
            return;
        }
        // A failure here means that the terminal is gone.
        let _ = terminal.take_back();
        if for_good {
            let _ = terminal.restore();
            self.lent = false;
        }
    }

    /// Returns whether no process outside the tree is in a process group.
    fn is_of_tree(&self, group: Pid) -> bool {
        group == self.pid
            || ProcessTree::read(&self.shared.root).is_ok_and(|tree| {
                let below = tree.below(std::process::id());
                let mut in_it = tree.all().iter().filter(|entry| is(entry.group, group));
                in_it.all(|entry| below.iter().any(|below| below.key == entry.key))
            })
    }

    /// Does what a shell does when its job has stopped, and what the kernel does if no shell can
    /// continue it.
    fn stop(&mut self, mut signal: i32) -> rustix::io::Result<()> {
        let (Some(terminal), Some(group)) = (&self.terminal, self.shared.group) else {
            return Ok(());
        };
        let tree = ProcessTree::read(&self.shared.root)?;
        let number = u32::try_from(group.as_raw_nonzero().get()).unwrap_or_default();
        let mut wants_terminal = [SIGTTIN, SIGTTOU].contains(&signal);
        // Last: a shell may give the terminal to the frontend's process group at any time.
        let foreground = terminal.foreground();
        if wants_terminal && (foreground == Some(self.pid) || foreground == Some(group)) {
            // It requested the terminal before it was lent.
            self.wants_terminal = true;
            if !self.is_pending(SIGTSTP) {
                self.go_on();
                return Ok(());
            }
            // SIGCONT would discard a Ctrl-Z pressed since (signal(7)).
            (signal, wants_terminal) = (SIGTSTP, false);
        }
        // While the frontend lives, its group ID is not reused.
        if tree.is_orphaned(number) || self.shared.front.is_gone()? {
            // Ctrl-Z does not stop an orphaned group; if it is stopped already, it is hung up.
            if wants_terminal && !std::mem::replace(&mut self.hung_up, true) {
                self.send(SIGHUP);
                self.go_on();
            } else if signal == SIGTSTP {
                self.go_on();
            }
            return Ok(());
        }
        self.take_terminal(false);
        // The whole group, including a shell script that waits for the frontend, as Ctrl-Z does.
        // The frontend reports when it continues.
        let _ = kill_process_group(group, Signal::STOP);
        Ok(())
    }

    /// Continues it, in the foreground if the frontend's process group is there.
    fn go_on(&mut self) {
        if self.ended.is_none() {
            self.stopped = false;
            self.lend_terminal();
            self.send(SIGCONT);
        }
    }

    /// Sends a signal to the remaining processes of the group.
    fn send(&self, signal: i32) {
        // Another check handles a group without processes.
        let _ = self.pass(signal);
    }

    /// Returns whether a signal waits until the stopped job continues.
    fn is_pending(&self, signal: i32) -> bool {
        let pid = self.pid.as_raw_nonzero().get().unsigned_abs();
        is_pending(&self.shared.root, pid, signal).unwrap_or(false)
    }

    fn failed(&self) -> impl Fn(Errno) -> Error + use<> {
        let what = format!("watch job {}", self.pid.as_raw_nonzero());
        move |errno| fault::file(what.clone(), errno)
    }
}

impl Job for LinuxJob {
    fn next(&mut self, at_most: Duration) -> Result<Option<JobEvent>> {
        let until = moment().saturating_add(at_most);
        loop {
            match self.check_events() {
                Ok(None) => {}
                Ok(event) => return Ok(event),
                // A failure must not hide a request to end.
                Err(error) => {
                    let asked = self.shared.signals.borrow_mut().next_asked();
                    return asked.map(|signal| Some(JobEvent::EndRequested(signal))).ok_or(error);
                }
            }
            let left = until.saturating_sub(moment());
            if left.is_zero() {
                return Ok(None);
            }
            let signals = self.shared.signals.borrow();
            let mut files = vec![PollFd::new(&*signals, PollFlags::IN)];
            if self.ended.is_none() {
                files.push(PollFd::new(&self.pidfd, PollFlags::IN));
            }
            if let Watched::Opened(front) = &self.shared.front
                && !self.reported_abandoned
            {
                files.push(PollFd::new(front, PollFlags::IN));
            }
            pause(&mut files, Some(left)).map_err(self.failed())?;
        }
    }

    fn pass(&self, signal: i32) -> Result<()> {
        let what = || format!("send signal {signal} to job {}", self.pid.as_raw_nonzero());
        let number = Signal::from_named_raw(signal);
        let number = number.ok_or_else(|| Error::new(ErrorKind::Invalid, what()))?;
        let failed = |errno| fault::process(what(), errno);
        if self.ended.is_some() {
            let tree = ProcessTree::read(&self.shared.root).map_err(failed)?;
            let mut in_it = tree.all().iter().filter(|entry| is(entry.group, self.pid));
            if in_it.all(|entry| entry.has_ended) {
                return Err(Error::new(ProcessFault::Gone, what()));
            }
        }
        kill_process_group(self.pid, number).map_err(failed)
    }

    /// Excludes the children that this process had before its first job, such as the one that calls
    /// NVML. Their descendants are included.
    fn members(&self) -> Result<Vec<ProcessInfo>> {
        let Shared { root, users, .. } = &*self.shared;
        members(root, users, |key| self.shared.is_own(key), Some(self.pid))
    }

    fn kill_tree(
        &self,
        spared: &[gpu_core::Pid],
        at_most: Duration,
        _: &ActToken,
    ) -> Result<KilledTree> {
        let Shared { root, users, .. } = &*self.shared;
        kill_tree(root, users, |key| self.shared.is_own(key), Some(self.pid), spared, at_most)
    }

    fn suspend_new(
        &self,
        known: &[ProcessKey],
        spared: &[gpu_core::Pid],
        at_most: Duration,
        _: &ActToken,
    ) -> Result<SuspendedProcesses> {
        let Shared { root, users, .. } = &*self.shared;
        suspend_new(
            root,
            users,
            |key| self.shared.is_own(key),
            known,
            spared,
            Some(self.pid),
            at_most,
        )
    }

    fn resume(&self, stopped: &[ProcessKey], _: &ActToken) {
        for key in stopped {
            send(&self.shared.root, key, Signal::CONT);
        }
    }

    fn detach(&mut self) {
        self.take_terminal(true);
        self.wants_terminal = false;
        self.terminal = None;
    }
}

impl Drop for LinuxJob {
    fn drop(&mut self) {
        self.take_terminal(true);
        if self.ended.is_some() {
            // It has ended: there is nothing to wait for.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        }
    }
}

/// Lends the terminal to a group if the frontend's group can lend it; returns whether it was lent.
fn lend(terminal: &mut Terminal, group: Pid) -> bool {
    // A group that has ended by now needs none.
    terminal.is_ours() && terminal.lend(group).is_ok()
}

/// Returns whether a number is a process group ID.
fn is(number: u32, group: Pid) -> bool {
    i32::try_from(number) == Ok(group.as_raw_nonzero().get())
}
