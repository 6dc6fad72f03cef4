//! The processes that a killed supervisor leaves to the frontend.

use super::members::members;
use super::tree_kill::kill_tree;
use super::{moment, pause};
use crate::fault;
use crate::proc_dir::ProcRoot;
use crate::roots::Roots;
use crate::users::Users;
use gpu_core::{
    ActToken, Error, ErrorKind, Job, JobEvent, KilledTree, Pid, ProcessInfo, ProcessKey, Result,
};
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use std::collections::HashSet;
use std::time::Duration;

/// A job without a supervisor, whose tree the frontend has adopted. Its exit status is unknown,
/// because another process started it.
pub struct Orphans<'f> {
    root: ProcRoot,
    users: Users,
    signals: &'f SignalFd,
    own_children: &'f HashSet<ProcessKey>,
}

impl<'f> Orphans<'f> {
    pub(super) fn of(
        roots: &Roots,
        signals: &'f SignalFd,
        own_children: &'f HashSet<ProcessKey>,
    ) -> Result<Self> {
        let root = ProcRoot::open(&roots.proc);
        let root =
            root.map_err(|errno| fault::file("list processes left by the supervisor", errno))?;
        Ok(Orphans { root, users: Users::default(), signals, own_children })
    }
}

impl Job for Orphans<'_> {
    fn next(&mut self, at_most: Duration) -> Result<Option<JobEvent>> {
        let until = moment().saturating_add(at_most);
        loop {
            let reported = self.signals.read_signal().map_err(|error| {
                Error::new(ErrorKind::Io, "subscribe to signals").with_source(error)
            })?;
            let signal = reported.and_then(|reported| i32::try_from(reported.ssi_signo).ok());
            if let Some(signal) = signal.filter(|n| [SIGINT, SIGQUIT, SIGTERM].contains(n)) {
                return Ok(Some(JobEvent::EndRequested(signal)));
            }
            let left = until.saturating_sub(moment());
            if left.is_zero() && signal.is_none() {
                return Ok(None);
            }
            let failed = |errno| fault::file("watch processes left by the supervisor", errno);
            pause(&mut [PollFd::new(self.signals, PollFlags::IN)], Some(left)).map_err(failed)?;
        }
    }

    /// Forwards no signal: its original configuration is unknown.
    fn pass(&self, signal: i32) -> Result<()> {
        let what = format!("send signal {signal} to a job without a supervisor");
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    fn members(&self) -> Result<Vec<ProcessInfo>> {
        let is_own = |key: &ProcessKey| self.own_children.contains(key);
        members(&self.root, &self.users, is_own, None)
    }

    fn kill_tree(&self, spared: &[Pid], at_most: Duration, _: &ActToken) -> Result<KilledTree> {
        let is_own = |key: &ProcessKey| self.own_children.contains(key);
        kill_tree(&self.root, &self.users, is_own, None, spared, at_most)
    }
}
