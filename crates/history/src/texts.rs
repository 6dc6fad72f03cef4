//! The table of the texts of a frame.

use std::collections::HashMap;
use std::sync::Arc;

/// The most texts in a table.
pub(crate) const MAX_TEXTS: usize = 1 << 19;

/// Texts by position. A table starts with the texts of the key frame; the texts that a frame adds
/// are removed after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    positions: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    /// Positions of names that are part of the program, by their address.
    names: HashMap<(usize, usize), u32>,
}

impl Texts {
    /// Returns how many texts there are.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the position of a text, which is added if it is new.
    pub(crate) fn position(&mut self, text: &str) -> u32 {
        if let Some(position) = self.positions.get(text) {
            return *position;
        }
        let position = self.texts.len() as u32;
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.positions.insert(text, position);
        position
    }

    /// Returns the position of a name that is part of the program, like
    /// [`position`](Texts::position) but faster.
    pub(crate) fn position_of_name(&mut self, name: &'static str) -> u32 {
        let address = (name.as_ptr() as usize, name.len());
        if let Some(position) = self.names.get(&address) {
            return *position;
        }
        let position = self.position(name);
        self.names.insert(address, position);
        position
    }

    /// Removes all texts after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        if self.texts.len() == len {
            return;
        }
        for text in self.texts.drain(len..) {
            self.positions.remove(&text);
        }
        self.names.retain(|_, position| (*position as usize) < len);
    }

    /// Returns the texts after the first `len`.
    pub(crate) fn since(&self, len: usize) -> &[Arc<str>] {
        &self.texts[len..]
    }
}
