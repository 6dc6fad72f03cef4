//! Where in the program: the same few frames and stacks, met again and again.

use super::super::error::TraceError;
use super::super::pickle::{Pickle, Ref};
use super::super::stacks::{Collector, StackId, Stacks};
use super::entry::{Entries, Spot};
use std::collections::HashMap;
use std::sync::Arc;

/// A value that was not met yet.
const UNMET: u32 = u32::MAX;

/// The frames, stacks and texts that were met, by the values that they are.
pub(super) struct Frames {
    collector: Collector,
    /// The frame that each value is, [`UNMET`] where it is none.
    frames: Vec<u32>,
    stacks: HashMap<Ref, Option<StackId>>,
    texts: HashMap<Ref, u32>,
    scratch: Vec<u32>,
}

impl Frames {
    pub(super) fn new(pickle: &Pickle<'_>) -> Self {
        Frames {
            collector: Collector::default(),
            frames: vec![UNMET; pickle.values()],
            stacks: HashMap::new(),
            texts: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> Stacks {
        self.collector.finish()
    }

    /// Returns a text; `None` for anything else.
    pub(super) fn text(&mut self, pickle: &Pickle<'_>, at: Ref) -> Option<Arc<str>> {
        let number = self.text_number(pickle, at)?;
        Some(self.collector.text_of(number))
    }

    fn text_number(&mut self, pickle: &Pickle<'_>, at: Ref) -> Option<u32> {
        if let Some(&known) = self.texts.get(&at) {
            return Some(known);
        }
        let number = self.collector.text(&pickle.text(at)?);
        self.texts.insert(at, number);
        Some(number)
    }

    /// Returns the stack that a list of frames is; `None` for an empty one.
    pub(super) fn stack(
        &mut self,
        entries: &Entries<'_>,
        list: Ref,
        spot: Spot,
    ) -> Result<Option<StackId>, TraceError> {
        if let Some(&known) = self.stacks.get(&list) {
            return Ok(known);
        }
        let mut numbers = std::mem::take(&mut self.scratch);
        numbers.clear();
        for &frame in entries.list(list, spot)? {
            numbers.push(match self.frames[frame.index()] {
                UNMET => self.frame(entries, frame, spot)?,
                known => known,
            });
        }
        let stack = self.collector.stack(&numbers);
        self.scratch = numbers;
        self.stacks.insert(list, stack);
        Ok(stack)
    }

    fn frame(&mut self, entries: &Entries<'_>, at: Ref, spot: Spot) -> Result<u32, TraceError> {
        let (mut function, mut file, mut line) = (None, None, 0);
        for (key, value) in entries.dict(at, spot)? {
            match entries.key(key) {
                b"name" => function = self.text_number(entries.pickle, value),
                b"filename" => file = self.text_number(entries.pickle, value),
                // Functions of C++ have line 0, code that was made at run time has -1 or 2^64 - 1.
                b"line" => line = entries.pickle.int(value).map_or(0, |line| line.max(0) as u64),
                _ => {}
            }
        }
        let function = function.ok_or_else(|| spot.wrong("a frame without a 'name'"))?;
        let file = file.ok_or_else(|| spot.wrong("a frame without a 'filename'"))?;
        let number = self.collector.frame(function, file, line);
        self.frames[at.index()] = number;
        Ok(number)
    }
}
