//! Ends processes for the view, as `gpuws reap` does.

use crate::failure::Failure;
use crate::source::Source;
use gpu_core::{ActToken, Error, Pid, look_up_processes};
use gpu_reaper::{Event, Guard, Report, Request};
use gpu_top::ending::{Aim, Ender, Proposal};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The reaper of a machine.
pub(super) struct Reaper(pub(super) Arc<Source>);

impl Reaper {
    fn proposal(&self, aim: &Aim) -> Result<Proposal, Failure> {
        let mut snapshots = self.0.two_snapshots();
        let mut request = Request::default();
        match aim {
            Aim::Processes(seen) => {
                request.pids = seen.iter().map(|key| key.pid).collect::<Vec<Pid>>();
                request.seen.clone_from(seen);
            }
            Aim::Unlisted(device) => request.devices = vec![device.clone()],
        }
        if let Some(last) = snapshots.last_mut() {
            look_up_processes(&*self.0.host, last, &request.pids);
            if let (Err(fault), true) = (&last.driver, request.pids.is_empty()) {
                return Err(Error::new(fault.kind, fault.text.clone()).into());
            }
        }
        let diagnosis = gpu_reaper::diagnose(&snapshots);
        let guard = Guard::new(&*self.0.host, Vec::new())?;
        let plan = gpu_reaper::plan(&snapshots, &diagnosis, &guard, &request);
        let now = snapshots.pop().unwrap_or_else(|| self.0.snapshot());
        Ok(Proposal { now, diagnosis, plan, guard })
    }

    fn carry_out(
        &self,
        proposal: &Proposal,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Report, Failure> {
        let journal = self.0.journal()?;
        // The view calls this only after the user has confirmed the plan that it showed.
        let token = ActToken::user_confirmed();
        let ports = self.0.ports(&*journal);
        Ok(gpu_reaper::execute(&proposal.plan, &proposal.guard, ports, &token, watch))
    }
}

impl Ender for Reaper {
    fn plan(&mut self, aim: &Aim) -> Result<Proposal, String> {
        self.proposal(aim).map_err(said)
    }

    fn obstacle(&self) -> Option<String> {
        let why = "to act on real placeholder processes, use gpuws sim --live";
        (!self.0.can_end_processes).then(|| why.to_owned())
    }

    fn execute(
        &mut self,
        proposal: &Proposal,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Report, String> {
        self.carry_out(proposal, watch).map_err(said)
    }
}

/// Returns the text of a failure with its hint as one line.
pub(super) fn said(failure: Failure) -> String {
    failure.to_string().trim_start_matches("gpuws: ").replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{ProcessKey, StartTime};
    use gpu_reaper::Refusal;
    use gpu_sim::Simulation;

    fn machine() -> (Reaper, ProcessKey) {
        let source = Source::simulated(Simulation::embedded("labbox").unwrap());
        let key = source.snapshot().process(Pid(18250)).unwrap().key;
        (Reaper(Arc::new(source)), key)
    }

    #[test]
    fn chosen_process_is_ended_and_its_memory_comes_back() {
        let (mut reaper, key) = machine();
        let proposal = reaper.plan(&Aim::Processes(vec![key])).unwrap();
        assert_eq!(proposal.plan.targets.len(), 1);
        let report = reaper.execute(&proposal, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_complete() && report.memory.len() == 1, "{report:?}");
    }

    #[test]
    fn process_with_reused_pid_of_the_chosen_one_is_refused() {
        let (mut reaper, key) = machine();
        let start = key.start.map(|StartTime(start)| StartTime(start + 1));
        let proposal = reaper.plan(&Aim::Processes(vec![ProcessKey { start, ..key }])).unwrap();
        assert_eq!(proposal.plan.targets, []);
        assert_eq!(proposal.plan.refused[0].why, Refusal::NotTheSame);
    }

    #[test]
    fn unlisted_memory_leads_to_the_plan_of_its_device_alone() {
        let (mut reaper, _) = machine();
        let device = reaper.0.snapshot().devices[3].id().clone();
        let proposal = reaper.plan(&Aim::Unlisted(device)).unwrap();
        let pids: Vec<Pid> = proposal.plan.targets.iter().map(|target| target.key.pid).collect();
        assert_eq!(pids, [Pid(19777)]);
        let device = reaper.0.snapshot().devices[0].id().clone();
        let proposal = reaper.plan(&Aim::Unlisted(device)).unwrap();
        assert_eq!(proposal.plan.targets, []);
    }
}
