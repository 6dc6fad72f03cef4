//! Call stacks of events.

use super::budget::{Budget, Exceeded};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// A call stack in [`Recording::stacks`](super::Recording::stacks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(NonZeroU32);

impl StackId {
    pub(crate) fn new(index: usize) -> Option<Self> {
        NonZeroU32::new(u32::try_from(index).ok()?.checked_add(1)?).map(StackId)
    }

    /// Returns its index among the stacks.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The name of the function; untrusted text.
    pub function: Arc<str>,
    /// The source file; untrusted text.
    pub file: Arc<str>,
    /// The line in the file; 0 if unknown.
    pub line: u64,
}

/// All stacks of a recording, deduplicated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    frames: Vec<Frame>,
    stacks: Vec<Arc<[u32]>>,
}

impl Stacks {
    /// Returns the number of different stacks.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Returns whether the recording has none.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    pub(super) fn all_frames(&self) -> &[Frame] {
        &self.frames
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &[u32]> {
        self.stacks.iter().map(|stack| &**stack)
    }

    /// Returns the frames of a stack, innermost first; none for a stack of another recording.
    pub fn frames(
        &self,
        stack: StackId,
    ) -> impl DoubleEndedIterator<Item = &Frame> + ExactSizeIterator {
        let frames = self.stacks.get(stack.index()).map_or(&[][..], |frames| frames);
        frames.iter().map(|&frame| &self.frames[frame as usize])
    }
}

/// The maximum overhead of storing a string, frame or stack: one entry in a list and one in a map,
/// either of which may have twice the capacity it needs.
const KEPT: usize = 160;

/// The memory for storing the stack of a block: one entry in a map that may be half empty, and one
/// in the list that precedes it.
pub(super) const BLOCK_STACK: usize = 64;

/// A collection of stacks under construction.
#[derive(Debug)]
pub(super) struct Collector<'b> {
    budget: &'b Budget,
    stacks: Stacks,
    texts: Vec<Arc<str>>,
    known_texts: HashMap<Arc<str>, u32>,
    known_frames: HashMap<(u32, u32, u64), u32>,
    known_stacks: HashMap<Arc<[u32]>, StackId>,
}

impl<'b> Collector<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Collector {
            budget,
            stacks: Stacks::default(),
            texts: Vec::new(),
            known_texts: HashMap::new(),
            known_frames: HashMap::new(),
            known_stacks: HashMap::new(),
        }
    }

    /// Returns the index of a string; equal strings share an index.
    pub(super) fn text(&mut self, text: &str) -> Result<u32, Exceeded> {
        if let Some(&known) = self.known_texts.get(text) {
            return Ok(known);
        }
        self.budget.take(KEPT + text.len())?;
        let (number, text) = (self.texts.len() as u32, Arc::<str>::from(text));
        self.texts.push(text.clone());
        self.known_texts.insert(text, number);
        Ok(number)
    }

    /// Returns the string with this index.
    pub(super) fn text_of(&self, number: u32) -> Arc<str> {
        self.texts[number as usize].clone()
    }

    /// Returns the index of a frame; `function` and `file` are indexes of strings.
    pub(super) fn frame(&mut self, function: u32, file: u32, line: u64) -> Result<u32, Exceeded> {
        if let Some(&known) = self.known_frames.get(&(function, file, line)) {
            return Ok(known);
        }
        self.budget.take(KEPT)?;
        let number = self.stacks.frames.len() as u32;
        let (function_text, file_text) = (self.text_of(function), self.text_of(file));
        self.stacks.frames.push(Frame { function: function_text, file: file_text, line });
        self.known_frames.insert((function, file, line), number);
        Ok(number)
    }

    /// Returns the stack of these frames; `None` if there are none.
    pub(super) fn stack(&mut self, frames: &[u32]) -> Result<Option<StackId>, Exceeded> {
        if frames.is_empty() {
            return Ok(None);
        }
        if let Some(&known) = self.known_stacks.get(frames) {
            return Ok(Some(known));
        }
        self.budget.take(KEPT + size_of_val(frames))?;
        let Some(id) = StackId::new(self.stacks.stacks.len()) else { return Ok(None) };
        let frames: Arc<[u32]> = frames.into();
        self.stacks.stacks.push(frames.clone());
        self.known_stacks.insert(frames, id);
        Ok(Some(id))
    }

    pub(super) fn finish(self) -> Stacks {
        self.stacks
    }
}
