//! What happened in a replay, kept for a picture.

use crate::replay::{Level, Witness};
use crate::workload::{Held, Step, StepKind, Workload};
use gpu_allocator_policy::{Allocation, ModelMemory};
use std::sync::Arc;

/// Memory from when the job got it until nothing used it any more. A time is a number of steps done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) size: u64,
    pub(super) from: usize,
    /// `None` where it outlived the replay.
    pub(super) to: Option<usize>,
    pub(super) origin: Origin,
}

/// Where a piece of memory comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// The job had it when the recording began; its place in [`Workload::held`].
    Start(usize),
    /// This step asked for it.
    Step(usize),
}

/// Something that is marked in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) time: usize,
    pub(super) kind: MarkKind,
    /// What was given back, or asked for in vain.
    pub(super) size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MarkKind {
    /// The allocator gave back what it had cached, to have room for a request.
    MadeRoom,
    /// The program had the cache emptied.
    Emptied,
    /// A request failed in the recording.
    Failed,
    /// The job ended here for lack of memory.
    Ended,
}

/// What a picture is drawn from.
#[derive(Clone, Debug)]
pub(super) struct History {
    memory: Arc<ModelMemory>,
    pub(super) lives: Vec<Life>,
    /// Handed out and not yet free, after each time.
    pub(super) used: Vec<u64>,
    /// Held of the device, after each time.
    pub(super) reserved: Vec<u64>,
    pub(super) marks: Vec<Mark>,
    /// The life of what each slot has.
    slots: Vec<usize>,
    now: u64,
    given_back: u64,
}

impl History {
    pub(super) fn of(workload: &Workload, memory: Arc<ModelMemory>) -> Self {
        History {
            memory,
            lives: Vec::new(),
            used: Vec::new(),
            reserved: Vec::new(),
            marks: Vec::new(),
            slots: vec![usize::MAX; workload.slots as usize],
            now: 0,
            given_back: 0,
        }
    }

    fn begin(&mut self, slot: u32, size: u64, from: usize, origin: Origin) {
        self.slots[slot as usize] = self.lives.len();
        self.lives.push(Life { size, from, to: None, origin });
        self.now += size;
    }

    fn end(&mut self, slot: u32, time: usize) {
        if let Some(life) = self.lives.get_mut(self.slots[slot as usize])
            && life.to.is_none()
        {
            life.to = Some(time);
            self.now -= life.size;
        }
    }

    /// Notes what was handed out and held before the first step.
    pub(super) fn note_start(&mut self) {
        if self.used.is_empty() {
            self.used.push(self.now);
            self.reserved.push(self.memory.used().0);
            self.given_back = self.memory.given_back().0;
        }
    }
}

impl Witness for History {
    fn begun(&mut self, place: usize, held: Held, given: &Allocation) {
        self.begin(held.slot, given.size().0, 0, Origin::Start(place));
    }

    fn before(&mut self, _number: usize, _step: Step) {
        self.note_start();
    }

    fn after(&mut self, number: usize, step: Step, given: Option<&Allocation>, now: Level) {
        let time = number + 1;
        match step.kind {
            StepKind::Allocate => {
                if let Some(given) = given {
                    self.begin(step.slot, given.size().0, time, Origin::Step(number));
                }
            }
            StepKind::Free | StepKind::Complete => self.end(step.slot, time),
            StepKind::Retire | StepKind::EmptyCache | StepKind::Fail => {}
        }
        self.used.push(self.now);
        self.reserved.push(now.reserved.0);
        let given_back = self.memory.given_back().0;
        let size = given_back - std::mem::replace(&mut self.given_back, given_back);
        let kind = match step.kind {
            StepKind::Allocate if size > 0 => MarkKind::MadeRoom,
            StepKind::EmptyCache => MarkKind::Emptied,
            StepKind::Fail => MarkKind::Failed,
            _ => return,
        };
        let size = if kind == MarkKind::Failed { step.size } else { size };
        self.marks.push(Mark { time, kind, size });
    }
}
