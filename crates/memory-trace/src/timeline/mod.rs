//! A job's memory as a picture: every large allocation as a band over time, what is held of the
//! device above them, and how the segments were divided at the peak.
//!
//! The picture is one SVG without scripts, and is readable without colour; the page is that SVG with
//! a script of its own, and loads nothing. All text of a recording is escaped on its one way into
//! them, [`svg::escape`].

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
use gpu_allocator_policy::{Choice, Failure, SegmentMap};
use gpu_core::Bytes;
use history::History;

/// What a picture of a job's memory shows.
#[derive(Debug)]
pub struct Timeline<'a> {
    /// What the job is called, such as the name of its file; text from outside.
    pub name: String,
    /// What the allocator is called.
    pub allocator: String,
    trace: &'a DeviceTrace,
    stacks: &'a Stacks,
    workload: &'a Workload,
    history: History,
    outcome: Outcome,
    /// The most that the allocator may take.
    limit: Option<Bytes>,
    /// What is held after [`Timeline::map_time`].
    segments: Vec<SegmentMap>,
}

impl<'a> Timeline<'a> {
    /// Runs a job under a policy on a modelled device of so much memory, and notes what a picture
    /// shows; `None` is a device that never refuses.
    ///
    /// The job is run twice: how the segments are divided at the peak can be asked only then.
    ///
    /// # Errors
    /// When the policy cannot be had.
    pub fn new(
        trace: &'a DeviceTrace,
        stacks: &'a Stacks,
        workload: &'a Workload,
        choice: &Choice,
        device: Option<Bytes>,
    ) -> Result<Self, Failure> {
        let total = device.unwrap_or(Choice::ENDLESS);
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

    /// After how many steps the segments are shown: where memory ran out, else at the peak.
    fn map_time(&self) -> usize {
        match self.outcome.stop {
            Some(stop) => stop.step.map_or(0, |step| step + 1),
            None => self.peak_time(),
        }
    }

    /// After how many steps what is held first was most.
    fn peak_time(&self) -> usize {
        self.outcome.peak_step.map_or(0, |step| step + 1)
    }

    /// Returns the event of the recording that so many steps lead to, counted from 0.
    fn place(&self, time: usize) -> usize {
        let step = time.checked_sub(1);
        let event = step.and_then(|step| self.workload.events.get(step));
        event.map_or(0, |event| *event as usize)
    }
}

#[cfg(test)]
mod tests;
