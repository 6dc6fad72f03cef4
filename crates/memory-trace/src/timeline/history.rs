//! The history of a replay, from which the picture is drawn.

use crate::replay::{Level, Observer};
use crate::workload::{InitialAllocation, Step, StepKind, Workload};
use gpu_allocator_policy::{Allocation, ModelMemory};
use std::sync::Arc;

/// The lifetime of an allocation, until work no longer uses it. Times are numbers of completed
/// steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) size: u64,
    pub(super) from: usize,
    /// `None` if it outlived the replay.
    pub(super) to: Option<usize>,
    pub(super) origin: Origin,
}

/// The origin of an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// The job had it when the recording began. The value is an index in [`Workload::held`].
    Start(usize),
    /// This step requested it.
    Step(usize),
}

/// A marked event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) time: usize,
    pub(super) kind: MarkKind,
    /// The freed or refused size.
    pub(super) size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MarkKind {
    /// The allocator freed cached memory for a request.
    MadeRoom,
    /// The program emptied the cache.
    Emptied,
    /// A request failed in the recording.
    Failed,
    /// The job ran out of memory here.
    Ended,
}

/// The data of a picture.
#[derive(Clone, Debug)]
pub(super) struct History {
    memory: Arc<ModelMemory>,
    pub(super) lives: Vec<Life>,
    /// Memory in use after each step.
    pub(super) used: Vec<u64>,
    /// Device memory held after each step.
    pub(super) reserved: Vec<u64>,
    pub(super) marks: Vec<Mark>,
    /// The index of the life in each slot.
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

    /// Records the memory in use and held before the first step.
    pub(super) fn note_start(&mut self) {
        if self.used.is_empty() {
            self.used.push(self.now);
            self.reserved.push(self.memory.used().0);
            self.given_back = self.memory.given_back().0;
        }
    }
}

impl Observer for History {
    fn begun(&mut self, index: usize, held: InitialAllocation, given: &Allocation) {
        self.begin(held.slot, given.size().0, 0, Origin::Start(index));
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
