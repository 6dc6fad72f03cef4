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
        let mut looks = self.0.two_snapshots();
        let mut request = Request::default();
        match aim {
            Aim::Processes(seen) => {
                request.pids = seen.iter().map(|key| key.pid).collect::<Vec<Pid>>();
                request.seen.clone_from(seen);
            }
            Aim::Unlisted(device) => request.devices = vec![device.clone()],
        }
        if let Some(last) = looks.last_mut() {
            look_up_processes(&*self.0.host, last, &request.pids);
            if let (Err(fault), true) = (&last.driver, request.pids.is_empty()) {
                return Err(Error::new(fault.kind, fault.text.clone()).into());
            }
        }
        let diagnosis = gpu_reaper::diagnose(&looks);
        let guard = Guard::new(&*self.0.host, Vec::new())?;
        let plan = gpu_reaper::plan(&looks, &diagnosis, &guard, &request);
        let now = looks.pop().unwrap_or_else(|| self.0.snapshot());
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
fn said(failure: Failure) -> String {
    failure.to_string().trim_start_matches("gpuws: ").replace('\n', "; ")
}
