//! Deduplicates frames and stacks.

use super::super::budget::{Budget, Exceeded};
use super::super::error::TraceError;
use super::super::pickle::{Pickle, Ref};
use super::super::stacks::{Collector, StackId, Stacks};
use super::entry::{Entries, Spot};
use std::collections::HashMap;
use std::sync::Arc;

/// A value that has not been visited.
const UNMET: u32 = u32::MAX;

/// The maximum memory for caching a stack or string.
const REMEMBERED: usize = 40;

/// The frames, stacks and strings visited so far, by value.
pub(super) struct Frames<'b> {
    budget: &'b Budget,
    collector: Collector<'b>,
    /// The frame of each list or dictionary; [`UNMET`] if it has not been read as a frame.
    frames: Vec<u32>,
    stacks: HashMap<Ref, Option<StackId>>,
    texts: HashMap<Ref, u32>,
    scratch: Vec<u32>,
}

impl<'b> Frames<'b> {
    /// Returns an empty cache for a pickle.
    ///
    /// # Errors
    /// If the cache exceeds the memory budget.
    pub(super) fn new(pickle: &Pickle<'_>, budget: &'b Budget) -> Result<Self, Exceeded> {
        let mut frames = Vec::new();
        budget.room(&mut frames, pickle.containers())?;
        frames.resize(pickle.containers(), UNMET);
        Ok(Frames {
            budget,
            collector: Collector::new(budget),
            frames,
            stacks: HashMap::new(),
            texts: HashMap::new(),
            scratch: Vec::new(),
        })
    }

    pub(super) fn finish(self) -> Stacks {
        self.collector.finish()
    }

    /// Returns a string; `None` for anything else.
    pub(super) fn text(
        &mut self,
        pickle: &Pickle<'_>,
        at: Ref,
        spot: Spot,
    ) -> Result<Option<Arc<str>>, TraceError> {
        let number = self.text_number(pickle, at).map_err(|full| spot.full(full))?;
        Ok(number.map(|number| self.collector.text_of(number)))
    }

    fn text_number(&mut self, pickle: &Pickle<'_>, at: Ref) -> Result<Option<u32>, Exceeded> {
        if let Some(&known) = self.texts.get(&at) {
            return Ok(Some(known));
        }
        let Some(text) = pickle.text(at) else { return Ok(None) };
        let number = self.collector.text(&text)?;
        self.budget.take(REMEMBERED)?;
        self.texts.insert(at, number);
        Ok(Some(number))
    }

    /// Returns the stack of a list of frames; `None` for an empty one.
    pub(super) fn stack(
        &mut self,
        entries: &Entries<'_>,
        list: Ref,
        spot: Spot,
    ) -> Result<Option<StackId>, TraceError> {
        if let Some(&known) = self.stacks.get(&list) {
            return Ok(known);
        }
        let items = entries.list(list, spot)?;
        let mut numbers = std::mem::take(&mut self.scratch);
        numbers.clear();
        self.budget.room(&mut numbers, items.len()).map_err(|full| spot.full(full))?;
        for &frame in items {
            let known = frame.container().map_or(UNMET, |number| self.frames[number]);
            numbers.push(match known {
                UNMET => self.frame(entries, frame, spot)?,
                known => known,
            });
        }
        let stack = self.collector.stack(&numbers).map_err(|full| spot.full(full))?;
        self.scratch = numbers;
        self.budget.take(REMEMBERED).map_err(|full| spot.full(full))?;
        self.stacks.insert(list, stack);
        Ok(stack)
    }

    fn frame(&mut self, entries: &Entries<'_>, at: Ref, spot: Spot) -> Result<u32, TraceError> {
        let (mut function, mut file, mut line) = (None, None, 0);
        let mut text =
            |value| self.text_number(entries.pickle, value).map_err(|full| spot.full(full));
        for (key, value) in entries.dict(at, spot)? {
            match &*entries.key(key) {
                b"name" => function = text(value)?,
                b"filename" => file = text(value)?,
                // C++ functions have line 0; generated code has -1 or 2^64 - 1.
                b"line" => line = entries.pickle.int(value).map_or(0, |line| line.max(0) as u64),
                _ => {}
            }
        }
        let function = function.ok_or_else(|| spot.wrong("a frame without a 'name'"))?;
        let file = file.ok_or_else(|| spot.wrong("a frame without a 'filename'"))?;
        let number = self.collector.frame(function, file, line).map_err(|full| spot.full(full))?;
        if let Some(container) = at.container() {
            self.frames[container] = number;
        }
        Ok(number)
    }
}
