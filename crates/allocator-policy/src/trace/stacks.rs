//! Where in a program memory was asked for.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// The calls that led to an event, in [`Recording::stacks`](super::Recording::stacks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(NonZeroU32);

impl StackId {
    pub(crate) fn new(index: usize) -> Option<Self> {
        NonZeroU32::new(u32::try_from(index).ok()?.checked_add(1)?).map(StackId)
    }

    /// Returns its place among the stacks, from 0.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// One call of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function, as the program calls it; text from outside.
    pub function: Arc<str>,
    /// The file of its source; text from outside.
    pub file: Arc<str>,
    /// The line in it; 0 where it is not known.
    pub line: u64,
}

/// All stacks of a recording; each is kept once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    frames: Vec<Frame>,
    stacks: Vec<Arc<[u32]>>,
}

impl Stacks {
    /// Returns how many different stacks there are.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Tells whether the recording has none.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    pub(crate) fn all_frames(&self) -> &[Frame] {
        &self.frames
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &[u32]> {
        self.stacks.iter().map(|stack| &**stack)
    }

    /// Returns the calls of a stack, the innermost first; none for a stack of another recording.
    pub fn frames(
        &self,
        stack: StackId,
    ) -> impl DoubleEndedIterator<Item = &Frame> + ExactSizeIterator {
        let frames = self.stacks.get(stack.index()).map_or(&[][..], |frames| frames);
        frames.iter().map(|&frame| &self.frames[frame as usize])
    }
}

/// Stacks while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    stacks: Stacks,
    texts: Vec<Arc<str>>,
    known_texts: HashMap<Arc<str>, u32>,
    known_frames: HashMap<(u32, u32, u64), u32>,
    known_stacks: HashMap<Arc<[u32]>, StackId>,
}

impl Collector {
    /// Returns the number of a text: equal texts have one.
    pub(crate) fn text(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.known_texts.get(text) {
            return known;
        }
        let (number, text) = (self.texts.len() as u32, Arc::<str>::from(text));
        self.texts.push(text.clone());
        self.known_texts.insert(text, number);
        number
    }

    /// Returns the text of a number.
    pub(crate) fn text_of(&self, number: u32) -> Arc<str> {
        self.texts[number as usize].clone()
    }

    /// Returns the number of a frame: the function and the file by the numbers of their texts.
    pub(crate) fn frame(&mut self, function: u32, file: u32, line: u64) -> u32 {
        *self.known_frames.entry((function, file, line)).or_insert_with(|| {
            let text = |number: u32| self.texts[number as usize].clone();
            let frame = Frame { function: text(function), file: text(file), line };
            self.stacks.frames.push(frame);
            self.stacks.frames.len() as u32 - 1
        })
    }

    /// Returns the stack of the frames of these numbers; `None` where there are none.
    pub(crate) fn stack(&mut self, frames: &[u32]) -> Option<StackId> {
        if frames.is_empty() {
            return None;
        }
        if let Some(&known) = self.known_stacks.get(frames) {
            return Some(known);
        }
        let id = StackId::new(self.stacks.stacks.len())?;
        let frames: Arc<[u32]> = frames.into();
        self.stacks.stacks.push(frames.clone());
        self.known_stacks.insert(frames, id);
        Some(id)
    }

    pub(crate) fn finish(self) -> Stacks {
        self.stacks
    }
}
