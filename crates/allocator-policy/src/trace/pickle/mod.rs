//! Pickles as data: nothing in one is ever imported, built or called.
//!
//! A snapshot refers a hundred thousand times to the same few frames, so what is read is a table of
//! values that refer to each other by number. It is as large as the file, however often a value is
//! referred to, and nothing here or in its readers follows a reference to unknown depth: values
//! that contain themselves, or that would be enormous when written out, are harmless.
//!
//! Source: the opcodes as CPython's `pickletools` documents them, protocols 0 to 5.

mod cursor;
mod opcode;
mod reader;
mod text;

use super::Limits;
use super::error::{Place, Problem, TraceError};
use std::borrow::Cow;

/// A value of a pickle, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ref(u32);

impl Ref {
    /// Returns the place in the table, below [`Pickle::values`].
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value; what it consists of is in the pickle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A number from 2^63: an unsigned −1, as some lines of frames are, and never a size.
    Huge(u64),
    Float(f64),
    /// Text in UTF-8, or bytes.
    Text(Text),
    /// A list, tuple or set.
    Sequence(Contents),
    Dict(Contents),
}

/// Where a text is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Text {
    /// In the input.
    Input { start: u32, length: u32 },
    /// It was written with escapes and is kept apart.
    Apart(u32),
}

/// Which container's contents a value has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contents(u32);

/// What a pickle says.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    input: &'a [u8],
    values: Vec<Value>,
    contents: Vec<Vec<Ref>>,
    texts: Vec<Box<[u8]>>,
    root: Ref,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle that is all of `input`.
    ///
    /// # Errors
    /// At the first opcode that is cut off, unknown, out of place, or that asks for code.
    pub(crate) fn read(input: &'a [u8], limits: Limits) -> Result<Self, TraceError> {
        let most = limits.bytes.min(u64::from(u32::MAX));
        if input.len() as u64 > most {
            let problem = Problem::TooMuch { what: "bytes", limit: most };
            return Err(TraceError::new(Place::Whole, problem));
        }
        reader::Reader::new(input, limits.values).read()
    }

    /// Returns the value that the pickle is of.
    pub(crate) fn root(&self) -> Ref {
        self.root
    }

    /// Returns how many values there are.
    pub(crate) fn values(&self) -> usize {
        self.values.len()
    }

    /// Returns how many references lists and dictionaries hold together: as many as a walk meets
    /// that enters each of them once.
    pub(crate) fn references(&self) -> u64 {
        self.contents.iter().map(|contents| contents.len() as u64).sum()
    }

    /// Returns a value.
    pub(crate) fn value(&self, at: Ref) -> Value {
        self.values[at.index()]
    }

    /// Returns the items of a list, tuple or set; `None` for anything else.
    pub(crate) fn items(&self, at: Ref) -> Option<&[Ref]> {
        match self.value(at) {
            Value::Sequence(contents) => Some(&self.contents[contents.0 as usize]),
            _ => None,
        }
    }

    /// Returns the keys and values of a dictionary, in order; `None` for anything else.
    pub(crate) fn pairs(
        &self,
        at: Ref,
    ) -> Option<impl DoubleEndedIterator<Item = (Ref, Ref)> + ExactSizeIterator> {
        match self.value(at) {
            Value::Dict(contents) => {
                let pairs = self.contents[contents.0 as usize].chunks_exact(2);
                Some(pairs.map(|pair| (pair[0], pair[1])))
            }
            _ => None,
        }
    }

    /// Returns the bytes of a text; `None` for anything else.
    pub(crate) fn bytes(&self, at: Ref) -> Option<&[u8]> {
        match self.value(at) {
            Value::Text(Text::Input { start, length }) => {
                Some(&self.input[start as usize..][..length as usize])
            }
            Value::Text(Text::Apart(text)) => Some(&self.texts[text as usize]),
            _ => None,
        }
    }

    /// Returns a text, its bytes that are no UTF-8 replaced; `None` for anything else.
    pub(crate) fn text(&self, at: Ref) -> Option<Cow<'_, str>> {
        self.bytes(at).map(String::from_utf8_lossy)
    }

    /// Returns a whole number below 2^63; `None` for anything else.
    pub(crate) fn int(&self, at: Ref) -> Option<i64> {
        match self.value(at) {
            Value::Int(number) => Some(number),
            Value::Bool(bit) => Some(i64::from(bit)),
            _ => None,
        }
    }

    /// Returns what a value under a key of a dictionary is, the last where a key is there again.
    pub(crate) fn get(&self, dict: Ref, key: &str) -> Option<Ref> {
        let mut pairs = self.pairs(dict)?;
        let found = pairs.rfind(|(name, _)| self.bytes(*name) == Some(key.as_bytes()));
        found.map(|(_, value)| value)
    }

    /// Returns a value as an error shows it.
    pub(crate) fn shown(&self, at: Ref) -> String {
        match self.value(at) {
            Value::None => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Int(number) => number.to_string(),
            Value::Huge(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Text(_) => {
                format!("'{}'", super::error::shown(self.bytes(at).unwrap_or_default()))
            }
            Value::Sequence(_) => "a list".to_owned(),
            Value::Dict(_) => "a dictionary".to_owned(),
        }
    }
}
