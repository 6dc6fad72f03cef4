//! Pickles as data: reading never imports, constructs or calls anything.
//!
//! A snapshot refers to the same few frames a hundred thousand times. The result is therefore a
//! table of lists and dictionaries that refer to each other by index, and to numbers and strings by
//! offset in the file. A value is stored once, regardless of how many references it has, and
//! neither this module nor its users follow references to an unbounded depth. Values that contain
//! themselves, or whose expansion would be enormous, are harmless. Because two bytes can refer to
//! megabytes, [words](Pickle::word) and numbers are read only up to their maximum length. Each
//! table charges a [`Budget`] before it grows.
//!
//! Source: the opcodes as CPython's `pickletools` documents them, protocols 0 to 5.

mod cursor;
mod opcode;
mod reader;
mod scalar;
mod text;

use super::budget::Budget;
use super::error::{Location, Problem, TraceError};
use std::borrow::Cow;

/// The maximum size in bytes of a number or of a name of the format in the file. The longest name
/// has 20 characters, and protocol 0 may use ten bytes for each.
const MAX_WORD_BYTES: usize = 256;

/// A value of a pickle: the offset of its opcode in the input, or the index of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ref(u32);

impl Ref {
    /// Set for a container; otherwise, the rest is an offset.
    const CONTAINER: u32 = 1 << 31;
    /// Set for a dictionary; otherwise, a container is a list, tuple or set.
    const DICT: u32 = 1 << 30;

    /// Returns the index of a container, below [`Pickle::containers`]; `None` for anything else.
    #[inline]
    pub(crate) fn container(self) -> Option<usize> {
        let number = self.0 & !(Ref::CONTAINER | Ref::DICT);
        (self.0 & Ref::CONTAINER != 0).then_some(number as usize)
    }

    #[inline]
    fn is_dict(self) -> bool {
        self.0 & (Ref::CONTAINER | Ref::DICT) == Ref::CONTAINER | Ref::DICT
    }
}

/// A value, as its opcode represents it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// A number of 2^63 or more: an unsigned −1, as in the line numbers of some frames, but never a
    /// size.
    Huge(u64),
    Float(f64),
    /// UTF-8 text, or bytes; owned only if written with escapes.
    Text(Cow<'a, [u8]>),
    /// A list, tuple or set.
    Sequence,
    Dict,
}

/// The content of a pickle.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    input: &'a [u8],
    contents: Vec<Vec<Ref>>,
    root: Ref,
}

impl<'a> Pickle<'a> {
    /// Parses a pickle that takes up all of `input`.
    ///
    /// # Errors
    /// At the first opcode that is truncated, unknown, misplaced, that requires code execution, or
    /// that exceeds the memory limit.
    pub(crate) fn read(input: &'a [u8], budget: &Budget) -> Result<Self, TraceError> {
        let limit = u64::from(Ref::CONTAINER);
        if input.len() as u64 > limit {
            return Err(TraceError::new(
                Location::Whole,
                Problem::TooMuch { what: "bytes", limit },
            ));
        }
        reader::Reader::new(input, budget).read()
    }

    /// Returns the top-level value.
    pub(crate) fn root(&self) -> Ref {
        self.root
    }

    /// Returns the number of lists and dictionaries.
    pub(crate) fn containers(&self) -> usize {
        self.contents.len()
    }

    /// Returns the total number of references in lists and dictionaries: the number that a walk
    /// follows if it enters each container once.
    pub(crate) fn references(&self) -> u64 {
        self.contents.iter().map(|contents| contents.len() as u64).sum()
    }

    /// Returns a value, in time proportional to its length. Callers that need a value repeatedly
    /// should cache it, or use [brief](Pickle::brief).
    pub(crate) fn value(&self, at: Ref) -> Value<'a> {
        self.brief(at, self.input.len()).expect("it was read before")
    }

    /// Returns a value that takes at most `most` bytes in the file, including its opcode; `None`
    /// for a longer value, without reading the rest. Lists and dictionaries are always brief.
    #[inline]
    pub(crate) fn brief(&self, at: Ref, most: usize) -> Option<Value<'a>> {
        if at.container().is_some() {
            return Some(if at.is_dict() { Value::Dict } else { Value::Sequence });
        }
        let offset = at.0 as usize;
        let end = self.input.len().min(offset.saturating_add(most));
        scalar::at(&self.input[..end], offset)
    }

    fn contents(&self, at: Ref, dict: bool) -> Option<&[Ref]> {
        let container = at.container().filter(|_| at.is_dict() == dict);
        container.map(|container| &*self.contents[container])
    }

    /// Returns the items of a list, tuple or set; `None` for anything else.
    pub(crate) fn items(&self, at: Ref) -> Option<&[Ref]> {
        self.contents(at, false)
    }

    /// Returns the keys and values of a dictionary, in order; `None` for anything else.
    pub(crate) fn pairs(
        &self,
        at: Ref,
    ) -> Option<impl DoubleEndedIterator<Item = (Ref, Ref)> + ExactSizeIterator> {
        let pairs = self.contents(at, true)?.chunks_exact(2);
        Some(pairs.map(|pair| (pair[0], pair[1])))
    }

    /// Returns the bytes of a string that is at most as long as a name of the format; `None` for
    /// anything else.
    #[inline]
    pub(crate) fn word(&self, at: Ref) -> Option<Cow<'a, [u8]>> {
        match self.brief(at, MAX_WORD_BYTES) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns a string, with invalid UTF-8 replaced, in time proportional to its length; `None`
    /// for anything else.
    pub(crate) fn text(&self, at: Ref) -> Option<Cow<'a, str>> {
        Some(match self.value(at) {
            Value::Text(Cow::Borrowed(bytes)) => String::from_utf8_lossy(bytes),
            Value::Text(Cow::Owned(bytes)) => {
                Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => return None,
        })
    }

    /// Returns an integer below 2^63; `None` for anything else.
    #[inline]
    pub(crate) fn int(&self, at: Ref) -> Option<i64> {
        match self.brief(at, MAX_WORD_BYTES) {
            Some(Value::Int(number)) => Some(number),
            Some(Value::Bool(bit)) => Some(i64::from(bit)),
            _ => None,
        }
    }

    /// Returns a value for an error message.
    pub(crate) fn shown(&self, at: Ref) -> String {
        match self.value(at) {
            Value::None => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Int(number) => number.to_string(),
            Value::Huge(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Text(text) => format!("'{}'", super::error::shown(&text)),
            Value::Sequence => "a list".to_owned(),
            Value::Dict => "a dictionary".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    /// Reads a pickle and returns its value, and the number of its items or pairs.
    fn read(bytes: &[u8]) -> (String, usize) {
        let budget = Budget::new(bytes.len(), Limits::default());
        let pickle = Pickle::read(bytes, &budget).unwrap_or_else(|error| panic!("{error}"));
        let root = pickle.root();
        let items = pickle.items(root).map(<[Ref]>::len);
        (pickle.shown(root), items.or(pickle.pairs(root).map(|pairs| pairs.len())).unwrap_or(0))
    }

    #[test]
    fn reads_every_form_of_number_and_string() {
        for (bytes, shown) in [
            (&b"K\x07."[..], "7"),
            (b"M\x07\x01.", "263"),
            (b"J\xfe\xff\xff\xff.", "-2"),
            (b"\x8a\x00.", "0"),
            (b"\x8a\x01\xff.", "-1"),
            (b"\x8a\x01\x80.", "-128"),
            (b"\x8a\x01\x7f.", "127"),
            (b"\x8a\x02\xff\x00.", "255"),
            (b"\x8b\x02\0\0\0\x00\x01.", "256"),
            (b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.", "18446744073709551615"),
            (b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\0.", "9223372036854775807"),
            (b"\x8c\x01a.", "'a'"),
            (b"C\x01a.", "'a'"),
            (b"U\x01a.", "'a'"),
            (b"X\x01\0\0\0a.", "'a'"),
            (b"B\x01\0\0\0a.", "'a'"),
            (b"T\x01\0\0\0a.", "'a'"),
            (b"\x8d\x01\0\0\0\0\0\0\0a.", "'a'"),
            (b"\x8e\x01\0\0\0\0\0\0\0a.", "'a'"),
            (b"\x96\x01\0\0\0\0\0\0\0a.", "'a'"),
            (b"G\x3f\xf8\0\0\0\0\0\0.", "1.5"),
            (b"N.", "None"),
            (b"\x88.", "True"),
            (b"\x89.", "False"),
            (b"I00\n.", "False"),
            (b"I01\n.", "True"),
            (b"I7\r\n.", "7"),
            (b"L7L\n.", "7"),
            (b"F1.5\n.", "1.5"),
            (b"S'a'\n.", "'a'"),
            (b"S\"\\t\\r\\\\\"\n.", "'\\t\\r\\\\'"),
            (b"Va\n.", "'a'"),
            (b"\x80\x05\x95\x02\0\0\0\0\0\0\0N.", "None"),
        ] {
            assert_eq!(read(bytes), (shown.to_owned(), 0), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn reads_every_form_of_container() {
        let (list, dict) = ("a list", "a dictionary");
        for (bytes, shown, length) in [
            (&b"]."[..], list, 0),
            (b").", list, 0),
            (b"\x8f.", list, 0),
            (b"}.", dict, 0),
            (b"(NNt.", list, 2),
            (b"(NNl.", list, 2),
            (b"(NN\x91.", list, 2),
            (b"(NNNNd.", dict, 2),
            (b"N\x85.", list, 1),
            (b"NN\x86.", list, 2),
            (b"NNN\x87.", list, 3),
            (b"](NNe.", list, 2),
            (b"\x8f(NN\x90.", list, 2),
            (b"]NaNa.", list, 2),
            (b"}(NNNNu.", dict, 2),
            (b"}NNsNNs.", dict, 2),
        ] {
            assert_eq!(read(bytes), (shown.to_owned(), length), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn memo_dup_and_pop_opcodes_work() {
        for (bytes, shown) in [
            (&b"K\x07q\0Nh\0\x87."[..], &["7", "None", "7"][..]),
            (b"K\x07q\x01Nh\x01\x87.", &["7", "None", "7"]),
            (b"K\x07r\0\0\0\0Nj\0\0\0\0\x87.", &["7", "None", "7"]),
            (b"K\x07p0\nNg0\n\x87.", &["7", "None", "7"]),
            (b"K\x07\x94K\x08\x94h\0\x87.", &["7", "8", "7"]),
            (b"K\x072\x86.", &["7", "7"]),
            (b"K\x07N0\x85.", &["7"]),
            (b"K\x07(NN1\x85.", &["7"]),
            (b"K\x07(0\x85.", &["7"]),
        ] {
            let budget = Budget::new(bytes.len(), Limits::default());
            let pickle = Pickle::read(bytes, &budget).unwrap_or_else(|error| panic!("{error}"));
            let items = pickle.items(pickle.root()).expect("it is a tuple");
            let items: Vec<_> = items.iter().map(|item| pickle.shown(*item)).collect();
            assert_eq!(items, shown, "{}", bytes.escape_ascii());
        }
    }
}
