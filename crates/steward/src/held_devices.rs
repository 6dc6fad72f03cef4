//! Devices that are held for a process and its descendants, until the job appears there.

use crate::event::Event;
use crate::grant::Grant;
use crate::handoff::{Handoff, HandoffTerms};
use crate::memory::Tally;
use crate::ports::Ports;
use crate::run::tallies;
use gpu_core::{Error, Groups, Launch, Launcher, ProcessKey, observe_users};
use std::ops::ControlFlow;
use std::time::Duration;

/// The interval between two steps.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const URGENT_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Keeps held devices from looking unused to safe-gpu.
///
/// safe-gpu's locks stay held while no process waits for them. As soon as one waits, a placeholder
/// is started on each device that no descendant of the root uses, and the locks are released when
/// all of them have appeared.
pub struct HeldDevices<'a> {
    handoff: Handoff<'a>,
    tallies: Vec<Tally>,
    ports: &'a Ports<'a>,
}

impl<'a> HeldDevices<'a> {
    /// Starts with the locks that the grant holds.
    pub fn new(
        grant: &mut Grant,
        root: ProcessKey,
        placeholder: &'a Launch,
        ports: &'a Ports<'a>,
        launcher: &'a dyn Launcher,
    ) -> Self {
        let terms = HandoffTerms { root, timeout: Duration::ZERO, placeholder: Some(placeholder) };
        let tallies = tallies(grant);
        HeldDevices { handoff: Handoff::new(terms, ports, launcher, grant), tallies, ports }
    }

    /// Takes the next step, and returns when the next one is due; `None` within another lease,
    /// where no step is needed. Calls `uncovered` if no placeholder can be kept: safe-gpu may take
    /// the devices.
    pub fn step(&mut self, uncovered: &mut dyn FnMut(&Error)) -> Option<Duration> {
        if !self.handoff.concerns_safe_gpu() {
            return None;
        }
        if !self.handoff.is_idle() {
            let Ports { backend, host, clock, .. } = *self.ports;
            let snapshot = observe_users(backend, host, clock, Groups::NONE);
            let mut watch = |event: Event<'_>| {
                if let Event::NotCovered(error) = event {
                    uncovered(error);
                }
                ControlFlow::Continue(())
            };
            self.handoff.step(&snapshot, &self.tallies, &mut watch);
        }
        let is_urgent = self.handoff.is_urgent();
        Some(if is_urgent { URGENT_POLL_INTERVAL } else { POLL_INTERVAL })
    }
}

impl Drop for HeldDevices<'_> {
    fn drop(&mut self) {
        self.handoff.end();
    }
}
