//! The pickle machine, without the ability to execute code.

use super::super::budget::Budget;
use super::super::error::{Location, Problem, TraceError, shown};
use super::cursor::Cursor;
use super::{Pickle, Ref, Value, scalar, text};

/// An unused entry of the memo.
const EMPTY: Ref = Ref(u32::MAX);

/// The maximum number of lists and dictionaries; this keeps [`EMPTY`] distinct from them.
const MAX_CONTAINERS: u32 = Ref::DICT - 1;

/// The overhead of this process's allocator for a table.
const ALLOCATION: usize = 28;

/// The kind of a container.
const SEQUENCE: u32 = Ref::CONTAINER;
const DICT: u32 = Ref::CONTAINER | Ref::DICT;

/// The state of the machine: a stack of values with marks, and the memo.
pub(super) struct Reader<'a, 'b> {
    cursor: Cursor<'a>,
    budget: &'b Budget,
    contents: Vec<Vec<Ref>>,
    stack: Vec<Ref>,
    /// The stack height at each mark.
    marks: Vec<u32>,
    memo: Vec<Ref>,
    memoized: usize,
}

impl<'a, 'b> Reader<'a, 'b> {
    /// Returns a reader with this memory budget.
    pub(super) fn new(input: &'a [u8], budget: &'b Budget) -> Self {
        Reader {
            cursor: Cursor::new(input),
            budget,
            contents: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            memoized: 0,
        }
    }

    /// Reads to the end of the input.
    pub(super) fn read(mut self) -> Result<Pickle<'a>, TraceError> {
        loop {
            let at = self.cursor.at;
            let Some(opcode) = self.cursor.opcode(at) else {
                let what = "there is no STOP".to_owned();
                return Err(TraceError::new(
                    Location::Byte(at as u64),
                    Problem::Truncated { what },
                ));
            };
            if opcode == b'.' {
                return self.stop();
            }
            self.step(opcode)?;
        }
    }

    fn stop(mut self) -> Result<Pickle<'a>, TraceError> {
        let root = self.pop()?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err(self.cursor.wrong("leaves unused values on the stack"));
        }
        let after = self.cursor.input.len() - self.cursor.at;
        if after > 0 {
            return Err(self.cursor.wrong(format!("is followed by {after} bytes")));
        }
        self.budget.dropped(self.stack);
        self.budget.dropped(self.marks);
        self.budget.dropped(self.memo);
        Ok(Pickle { input: self.cursor.input, contents: self.contents, root })
    }

    #[inline]
    fn step(&mut self, opcode: u8) -> Result<(), TraceError> {
        match opcode {
            b'h' => {
                let index = self.cursor.byte()?;
                self.recall(usize::from(index))
            }
            b'j' => {
                let index = self.cursor.u32()?;
                self.recall(index as usize)
            }
            0x94 => self.memoize(self.memoized),
            b'(' => {
                let below = self.stack.len() as u32;
                self.budget.push(&mut self.marks, below).map_err(|full| self.cursor.full(full))
            }
            b']' | b')' | 0x8f => self.close(Vec::new(), SEQUENCE),
            b'}' => self.close(Vec::new(), DICT),
            b'e' | 0x90 => self.extend(SEQUENCE),
            b'a' => self.append(1, SEQUENCE),
            b'u' => self.extend(DICT),
            b's' => self.append(2, DICT),
            0x85 => self.tuple(1),
            0x86 => self.tuple(2),
            0x87 => self.tuple(3),
            b't' | b'l' | 0x91 => {
                let items = self.marked()?;
                self.close(items, SEQUENCE)
            }
            b'd' => {
                let items = self.marked()?;
                self.even(&items)?;
                self.close(items, DICT)
            }
            b'q' => {
                let index = self.cursor.byte()?;
                self.memoize(index.into())
            }
            b'r' => {
                let index = self.cursor.u32()?;
                self.memoize(index as usize)
            }
            0x95 => {
                let length = self.cursor.u64()?;
                // A frame is only a hint for how much to read at once; a truncated frame reveals
                // the end of the file.
                let at = self.cursor.at;
                self.cursor.take(length)?;
                self.cursor.at = at;
                Ok(())
            }
            0x80 => match self.cursor.byte()? {
                0..=5 => Ok(()),
                version => Err(self.cursor.wrong(format!("{version} is newer than 5"))),
            },
            b'0' => self.discard(),
            b'1' => self.marked().map(drop),
            b'2' => {
                let top = self.top()?;
                self.refer(top)
            }
            b'g' | b'p' => self.written(opcode),
            _ => {
                let at = self.cursor.opcode.0;
                match scalar::read(&mut self.cursor, opcode) {
                    // Its offset identifies it; the value is read again when needed.
                    Some(value) => value.and_then(|_| self.refer(Ref(at as u32))),
                    None => Err(self.refused(opcode)),
                }
            }
        }
    }

    /// Executes a memo opcode with a line of text as its argument.
    #[cold]
    fn written(&mut self, opcode: u8) -> Result<(), TraceError> {
        let line = self.cursor.line()?;
        let index = match text::number(line) {
            Some(Value::Int(index)) => usize::try_from(index).ok(),
            _ => None,
        };
        let index = index.ok_or_else(|| scalar::unreadable(&self.cursor, line))?;
        if opcode == b'g' { self.recall(index) } else { self.memoize(index) }
    }

    /// Returns the error for an opcode that is not executed.
    #[cold]
    fn refused(&mut self, opcode: u8) -> TraceError {
        let named = |cursor: &mut Cursor<'a>| -> Result<String, TraceError> {
            let module = cursor.line()?;
            let name = cursor.line()?;
            Ok(format!("{}.{}", shown(module), shown(name)))
        };
        let wanted = match opcode {
            b'c' | b'i' => match named(&mut self.cursor) {
                Ok(wanted) => wanted,
                Err(cut) => return cut,
            },
            0x93 => match self.stack.last_chunk() {
                Some(&[module, name]) => {
                    let input = self.cursor.input;
                    let text = |at: Ref| match at.container() {
                        None => match scalar::at(input, at.0 as usize) {
                            Some(Value::Text(text)) => shown(&text),
                            _ => "?".to_owned(),
                        },
                        Some(_) => "?".to_owned(),
                    };
                    format!("{}.{}", text(module), text(name))
                }
                None => String::new(),
            },
            b'P' => match self.cursor.line() {
                Ok(id) => format!("the object {}", shown(id)),
                Err(cut) => return cut,
            },
            b'Q' | b'R' | b'b' | b'o' | 0x81 | 0x82 | 0x83 | 0x84 | 0x92 | 0x97 | 0x98 => {
                String::new()
            }
            unknown => {
                let at = Location::Byte(self.cursor.opcode.0 as u64);
                return TraceError::malformed(at, format!("unknown opcode {unknown:#04x}"));
            }
        };
        self.cursor.code(wanted)
    }

    /// Pushes an existing value.
    #[inline]
    fn refer(&mut self, value: Ref) -> Result<(), TraceError> {
        self.budget.push(&mut self.stack, value).map_err(|full| self.cursor.full(full))
    }

    /// Creates a container and pushes it.
    fn close(&mut self, items: Vec<Ref>, kind: u32) -> Result<(), TraceError> {
        let number = self.contents.len() as u32;
        if number >= MAX_CONTAINERS {
            let at = Location::Byte(self.cursor.opcode.0 as u64);
            let limit = MAX_CONTAINERS.into();
            return Err(TraceError::new(at, Problem::TooMuch { what: "lists", limit }));
        }
        self.budget.push(&mut self.contents, items).map_err(|full| self.cursor.full(full))?;
        self.refer(Ref(number | kind))
    }

    /// Returns the start of the values above the last mark.
    #[inline]
    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |&below| below as usize)
    }

    fn top(&self) -> Result<Ref, TraceError> {
        match self.stack[self.floor()..].last() {
            Some(&top) => Ok(top),
            None => Err(self.cursor.wrong("needs a value, but the stack is empty")),
        }
    }

    fn pop(&mut self) -> Result<Ref, TraceError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Removes the top value, or the mark there.
    fn discard(&mut self) -> Result<(), TraceError> {
        if !self.marks.is_empty() && self.floor() == self.stack.len() {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    /// Removes the last mark and returns the start of the values above it.
    fn mark(&mut self) -> Result<usize, TraceError> {
        let mark =
            self.marks.pop().ok_or_else(|| self.cursor.wrong("needs a MARK, but there is none"))?;
        Ok(mark as usize)
    }

    /// Removes the values above the last mark.
    fn marked(&mut self) -> Result<Vec<Ref>, TraceError> {
        let mark = self.mark()?;
        self.above(mark)
    }

    /// Removes the values of the stack from an index on.
    fn above(&mut self, from: usize) -> Result<Vec<Ref>, TraceError> {
        let mut items = Vec::new();
        let taken = &self.stack[from..];
        if !taken.is_empty() {
            self.budget
                .take(ALLOCATION)
                .and_then(|()| self.budget.room(&mut items, taken.len()))
                .map_err(|full| self.cursor.full(full))?;
            items.extend_from_slice(taken);
            self.stack.truncate(from);
        }
        Ok(items)
    }

    fn tuple(&mut self, length: usize) -> Result<(), TraceError> {
        let above = self.stack.len() - self.floor();
        if above < length {
            return Err(self.cursor.wrong(format!("needs more than {above} values")));
        }
        let items = self.above(self.stack.len() - length)?;
        self.close(items, SEQUENCE)
    }

    fn even(&self, items: &[Ref]) -> Result<(), TraceError> {
        match items.len() % 2 {
            0 => Ok(()),
            _ => Err(self.cursor.wrong("has a key without a value")),
        }
    }

    /// Moves the values above the last mark into the container below it.
    fn extend(&mut self, kind: u32) -> Result<(), TraceError> {
        let mark = self.mark()?;
        if kind == DICT {
            self.even(&self.stack[mark..])?;
        }
        self.give(mark, kind)
    }

    /// Moves the top `count` values into the container below them.
    fn append(&mut self, count: usize, kind: u32) -> Result<(), TraceError> {
        let above = self.stack.len() - self.floor();
        if above < count {
            return Err(self.cursor.wrong("needs a value, but the stack is empty"));
        }
        self.give(self.stack.len() - count, kind)
    }

    /// Moves the values of the stack from an index on into the container below them.
    fn give(&mut self, from: usize, kind: u32) -> Result<(), TraceError> {
        let below = self.stack[self.floor()..from].last().copied();
        let into = below.filter(|below| below.0 & DICT == kind).and_then(Ref::container);
        let Some(into) = into else {
            let kind = if kind == DICT { "dictionary" } else { "list" };
            return Err(self.cursor.wrong(format!("needs a {kind} to extend")));
        };
        let (contents, given) = (&mut self.contents[into], &self.stack[from..]);
        let allocation = if contents.capacity() == 0 { ALLOCATION } else { 0 };
        self.budget
            .take(allocation)
            .and_then(|()| self.budget.room(contents, given.len()))
            .map_err(|full| self.cursor.full(full))?;
        contents.extend_from_slice(given);
        self.stack.truncate(from);
        Ok(())
    }

    #[inline]
    fn recall(&mut self, index: usize) -> Result<(), TraceError> {
        match self.memo.get(index) {
            Some(&value) if value != EMPTY => self.refer(value),
            _ => Err(self
                .cursor
                .wrong(format!("refers to memo entry {index}, which does not exist"))),
        }
    }

    /// Stores the top value in the memo. Picklers count from 0 or 1, so an index further ahead
    /// would only enlarge the memo and is an error.
    #[inline]
    fn memoize(&mut self, index: usize) -> Result<(), TraceError> {
        let top = self.top()?;
        if index > self.memo.len() + 1 {
            return Err(self.cursor.wrong(format!("has the index {index}, out of sequence")));
        }
        while index >= self.memo.len() {
            self.budget.push(&mut self.memo, EMPTY).map_err(|full| self.cursor.full(full))?;
        }
        self.memoized += usize::from(self.memo[index] == EMPTY);
        self.memo[index] = top;
        Ok(())
    }
}
