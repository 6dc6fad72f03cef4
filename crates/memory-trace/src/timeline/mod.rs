//! A job's memory as a picture: every large allocation as a band over time, the reserved memory
//! above them, and the blocks of the segments at the peak.
//!
//! The picture is one SVG without scripts, readable without colour. The page is that SVG with its
//! own script, and loads no resources. All text from a recording goes through
//! [`gpu_core::escape_markup`].

mod bands;
mod graph;
mod history;
mod map;
mod marks;
mod page;
mod scale;
mod spans;
mod svg;

pub use page::page;

use crate::replay::{Outcome, Replay};
use crate::trace::{DeviceTrace, Stacks};
use crate::workload::Workload;
use gpu_allocator_policy::{Failure, PolicyConfig, SegmentMap};
use gpu_core::Bytes;
use history::History;

/// A picture of a job's memory.
#[derive(Debug)]
pub struct Timeline<'a> {
    /// The name of the job, such as that of its file; untrusted text.
    pub name: String,
    /// The name of the allocator.
    pub allocator: String,
    trace: &'a DeviceTrace,
    stacks: &'a Stacks,
    workload: &'a Workload,
    history: History,
    outcome: Outcome,
    /// The limit of the allocator.
    limit: Option<Bytes>,
    /// The segments after [`Timeline::map_time`].
    segments: Vec<SegmentMap>,
}

impl<'a> Timeline<'a> {
    /// Runs a job under a policy on a modelled device with this much memory, and records the data
    /// of the picture; `None` means a device that never refuses.
    ///
    /// The job runs twice, because the peak is known only after the first run.
    ///
    /// # Errors
    /// If the policy cannot be created.
    pub fn new(
        trace: &'a DeviceTrace,
        stacks: &'a Stacks,
        workload: &'a Workload,
        choice: &PolicyConfig,
        device: Option<Bytes>,
    ) -> Result<Self, Failure> {
        let total = device.unwrap_or(PolicyConfig::ENDLESS);
        let (memory, mut policy) = choice.model(total)?;
        let mut history = History::of(workload, memory);
        let outcome = Replay::new(workload).run(policy.as_mut(), &mut history)?;
        history.note_start();
        let mut timeline = Timeline {
            name: String::new(),
            allocator: choice.title().to_owned(),
            trace,
            stacks,
            workload,
            history,
            outcome,
            limit: device,
            segments: Vec::new(),
        };
        let (_, mut policy) = choice.model(total)?;
        let until = timeline.map_time();
        Replay::until(workload, until).run(policy.as_mut(), &mut ())?;
        timeline.segments = policy.segments();
        Ok(timeline)
    }

    /// Returns the picture as SVG.
    pub fn svg(&self) -> String {
        graph::draw(self)
    }

    /// Returns the step for which segments are shown: where memory ran out, or otherwise the peak.
    fn map_time(&self) -> usize {
        match self.outcome.stop {
            Some(stop) => stop.step.map_or(0, |step| step + 1),
            None => self.peak_time(),
        }
    }

    /// Returns the step at which the held memory first reached its maximum.
    fn peak_time(&self) -> usize {
        self.outcome.peak_step.map_or(0, |step| step + 1)
    }

    /// Returns the event of the recording after this many steps, counted from 0.
    fn event_at(&self, time: usize) -> usize {
        let step = time.checked_sub(1);
        let event = step.and_then(|step| self.workload.events.get(step));
        event.map_or(0, |event| *event as usize)
    }
}

#[cfg(test)]
mod tests;
