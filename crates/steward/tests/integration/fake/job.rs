//! The job and its observer.

use super::{JOB, SELF, World, companion, process};
use gpu_core::*;
use std::time::Duration;

impl Launcher for World {
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Job>> {
        let mut state = self.state();
        state.launched.push(launch.clone());
        if let Some(kind) = state.launch_fault {
            return Err(Error::new(kind, "start 'train'"));
        }
        state.add(process(JOB, SELF, "train"));
        Ok(Box::new(Started(self.clone())))
    }

    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        companion::start(self, launch)
    }
}

struct Started(World);

impl Job for Started {
    fn next(&mut self, at_most: Duration) -> Result<Option<JobEvent>> {
        let mut state = self.0.state();
        let until = state.now + at_most;
        loop {
            if let Some(kind) = state.watch_fault {
                let is_asked = |event: &JobEvent| matches!(event, JobEvent::EndRequested(_));
                return match state.events.iter().position(is_asked) {
                    Some(index) => Ok(Some(state.events.remove(index))),
                    None => Err(Error::new(kind, "watch job 60")),
                };
            }
            if !state.events.is_empty() {
                return Ok(Some(state.events.remove(0)));
            }
            if state.now >= until {
                return Ok(None);
            }
            state.step(until);
        }
    }

    fn pass(&self, signal: i32) -> Result<()> {
        let mut state = self.0.state();
        state.info(Pid(JOB))?;
        if let Some(kind) = state.pass_fault {
            return Err(Error::new(kind, format!("send signal {signal} to job {JOB}")));
        }
        state.signal(JOB, signal);
        Ok(())
    }

    fn members(&self) -> Result<Vec<ProcessInfo>> {
        let mut state = self.0.state();
        let members = state.members();
        state.hand_over();
        Ok(members)
    }

    fn suspend_new(
        &self,
        known: &[ProcessKey],
        helpers: &[Pid],
        at_most: Duration,
        _: &ActToken,
    ) -> Result<SuspendedProcesses> {
        let mut state = self.0.state();
        if state.no_arrest {
            state.pass(at_most);
            return Ok(SuspendedProcesses { stopped: Vec::new(), still_forking: true });
        }
        let mut stopped = state.members();
        stopped.retain(|info| !known.contains(&info.key) && !helpers.contains(&info.key.pid));
        state.stopped.extend(stopped.iter().map(|info| info.key.pid.0));
        Ok(SuspendedProcesses { stopped, still_forking: false })
    }

    fn resume(&self, stopped: &[ProcessKey], _: &ActToken) {
        let mut state = self.0.state();
        state.stopped.retain(|pid| !stopped.iter().any(|key| key.pid.0 == *pid));
    }

    /// Kills no process, so that the scans have to find them.
    fn kill_tree(&self, _: &[Pid], _: Duration, _: &ActToken) -> Result<KilledTree> {
        let none_left = self.0.state().members().is_empty();
        Ok(KilledTree { none_left, ..KilledTree::default() })
    }
}
