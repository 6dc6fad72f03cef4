//! The machine that a pickle is a program for, without its means to run code.

use super::super::error::{Place, Problem, TraceError, shown};
use super::cursor::Cursor;
use super::{Contents, Pickle, Ref, Text, Value, text};

/// Values that need no entry of their own each time.
const NONE: Ref = Ref(0);
const FALSE: Ref = Ref(1);
const TRUE: Ref = Ref(2);

/// A place of the memo where nothing was put.
const EMPTY: Ref = Ref(u32::MAX);

/// The state of reading: a stack of values, of which some are marked, and the memo.
pub(super) struct Reader<'a> {
    cursor: Cursor<'a>,
    values: Vec<Value>,
    most: usize,
    contents: Vec<Vec<Ref>>,
    texts: Vec<Box<[u8]>>,
    stack: Vec<Ref>,
    marks: Vec<usize>,
    memo: Vec<Ref>,
    memoized: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader that makes at most `most` values.
    pub(super) fn new(input: &'a [u8], most: u64) -> Self {
        Reader {
            cursor: Cursor::new(input),
            values: vec![Value::None, Value::Bool(false), Value::Bool(true)],
            most: usize::try_from(most).unwrap_or(usize::MAX).min(EMPTY.index()),
            contents: Vec::new(),
            texts: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            memoized: 0,
        }
    }

    /// Reads to the end.
    pub(super) fn read(mut self) -> Result<Pickle<'a>, TraceError> {
        loop {
            let at = self.cursor.at;
            let Some(&opcode) = self.cursor.input.get(at) else {
                let what = "there is no STOP".to_owned();
                return Err(TraceError::new(Place::Byte(at as u64), Problem::Truncated { what }));
            };
            self.cursor.at += 1;
            self.cursor.opcode = (at, opcode);
            if opcode == b'.' {
                return self.stop();
            }
            self.step(opcode)?;
        }
    }

    fn stop(mut self) -> Result<Pickle<'a>, TraceError> {
        let root = self.pop()?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err(self.cursor.wrong("leaves values that belong to nothing"));
        }
        let after = self.cursor.input.len() - self.cursor.at;
        if after > 0 {
            return Err(self.cursor.wrong(format!("is followed by {after} bytes")));
        }
        let Reader { cursor: Cursor { input, .. }, values, contents, texts, .. } = self;
        Ok(Pickle { input, values, contents, texts, root })
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
                self.marks.push(self.stack.len());
                Ok(())
            }
            b']' | b')' | 0x8f => self.open(Value::Sequence),
            b'}' => self.open(Value::Dict),
            b'e' => self.extend("list", 1),
            b'a' => self.append(),
            b'u' => self.extend("dictionary", 2),
            b's' => self.set_item(),
            0x90 => self.extend("set", 1),
            b'K' => {
                let number = self.cursor.byte()?;
                self.push(Value::Int(number.into()))
            }
            b'M' => {
                let number = self.cursor.u16()?;
                self.push(Value::Int(number.into()))
            }
            b'J' => {
                let number = self.cursor.array().map(i32::from_le_bytes)?;
                self.push(Value::Int(number.into()))
            }
            0x8a => {
                let length = self.cursor.byte()?;
                self.long(length.into())
            }
            0x8b => {
                let length = self.cursor.signed_length()?;
                self.long(length)
            }
            0x8c | b'C' | b'U' => {
                let length = self.cursor.byte()?;
                self.text(length.into())
            }
            b'X' | b'B' => {
                let length = self.cursor.u32()?;
                self.text(length.into())
            }
            b'T' => {
                let length = self.cursor.signed_length()?;
                self.text(length)
            }
            0x8d | 0x8e | 0x96 => {
                let length = self.cursor.u64()?;
                self.text(length)
            }
            b'G' => {
                let number = self.cursor.array().map(f64::from_be_bytes)?;
                self.push(Value::Float(number))
            }
            b'N' => self.refer(NONE),
            0x88 => self.refer(TRUE),
            0x89 => self.refer(FALSE),
            0x85 => self.tuple(1),
            0x86 => self.tuple(2),
            0x87 => self.tuple(3),
            b't' | b'l' | 0x91 => {
                let items = self.marked()?;
                self.close(items, Value::Sequence)
            }
            b'd' => {
                let items = self.marked()?;
                self.even(&items)?;
                self.close(items, Value::Dict)
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
                // A frame is only a hint of how much to read at once; one that is cut off tells
                // where the file ends.
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
            b'I' | b'L' | b'F' | b'S' | b'V' | b'g' | b'p' => self.written(opcode),
            _ => Err(self.refused(opcode)),
        }
    }

    /// Carries out an opcode whose argument is a line of text.
    #[cold]
    fn written(&mut self, opcode: u8) -> Result<(), TraceError> {
        let line = self.cursor.line()?;
        match opcode {
            b'I' if line == b"00" => self.refer(FALSE),
            b'I' if line == b"01" => self.refer(TRUE),
            b'I' | b'L' => {
                let number = text::number(line).ok_or_else(|| self.unreadable(line))?;
                self.push(number)
            }
            b'F' => {
                let number = text::float(line).ok_or_else(|| self.unreadable(line))?;
                self.push(Value::Float(number))
            }
            b'g' | b'p' => {
                let index = match text::number(line) {
                    Some(Value::Int(index)) => usize::try_from(index).ok(),
                    _ => None,
                };
                let index = index.ok_or_else(|| self.unreadable(line))?;
                if opcode == b'g' { self.recall(index) } else { self.memoize(index) }
            }
            _ => {
                let undone = if opcode == b'S' { text::quoted } else { text::raw_unicode };
                self.texts.push(undone(line).ok_or_else(|| self.unreadable(line))?);
                self.push(Value::Text(Text::Apart(self.texts.len() as u32 - 1)))
            }
        }
    }

    fn unreadable(&self, argument: &[u8]) -> TraceError {
        self.cursor.wrong(format!("has the argument '{}'", shown(argument)))
    }

    /// Returns the error of an opcode that is not carried out.
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
                Some([module, name]) => {
                    let text = |at: &Ref| match self.values[at.index()] {
                        Value::Text(Text::Input { start, length }) => {
                            shown(&self.cursor.input[start as usize..][..length as usize])
                        }
                        Value::Text(Text::Apart(text)) => shown(&self.texts[text as usize]),
                        _ => "?".to_owned(),
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
                let at = Place::Byte(self.cursor.opcode.0 as u64);
                return TraceError::malformed(at, format!("{unknown:#04x} is no opcode"));
            }
        };
        self.cursor.code(wanted)
    }

    /// Makes a value and pushes it.
    #[inline]
    fn push(&mut self, value: Value) -> Result<(), TraceError> {
        let index = self.values.len();
        if index >= self.most {
            let problem = Problem::TooMuch { what: "values", limit: self.most as u64 };
            return Err(TraceError::new(Place::Byte(self.cursor.opcode.0 as u64), problem));
        }
        self.values.push(value);
        self.refer(Ref(index as u32))
    }

    /// Pushes a value that there is.
    #[inline]
    fn refer(&mut self, value: Ref) -> Result<(), TraceError> {
        self.stack.push(value);
        Ok(())
    }

    fn open(&mut self, kind: fn(Contents) -> Value) -> Result<(), TraceError> {
        self.close(Vec::new(), kind)
    }

    fn close(&mut self, items: Vec<Ref>, kind: fn(Contents) -> Value) -> Result<(), TraceError> {
        self.contents.push(items);
        self.push(kind(Contents(self.contents.len() as u32 - 1)))
    }

    fn text(&mut self, length: u64) -> Result<(), TraceError> {
        let start = self.cursor.at as u32;
        self.cursor.take(length)?;
        self.push(Value::Text(Text::Input { start, length: length as u32 }))
    }

    /// Reads a whole number of `length` bytes, the lowest first, in two's complement.
    fn long(&mut self, length: u64) -> Result<(), TraceError> {
        let bytes = self.cursor.take(length)?;
        if let [low @ .., 0] = bytes
            && let Ok(low) = low.try_into().map(u64::from_le_bytes)
        {
            let small = i64::try_from(low).map(Value::Int);
            return self.push(small.unwrap_or(Value::Huge(low)));
        }
        if bytes.len() > 8 {
            return Err(self.cursor.wrong(format!(
                "is a number of {length} bytes; no size or address has more than 8"
            )));
        }
        let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
        let mut number = [if negative { 0xff } else { 0 }; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(number)))
    }

    /// Returns where what is above the last mark begins.
    #[inline]
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Ref, TraceError> {
        match self.stack[self.floor()..].last() {
            Some(&top) => Ok(top),
            None => Err(self.cursor.wrong("finds no value to work on")),
        }
    }

    fn pop(&mut self) -> Result<Ref, TraceError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Removes the top value, or the mark that is there.
    fn discard(&mut self) -> Result<(), TraceError> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    /// Removes the last mark and returns where the values above it begin.
    fn mark(&mut self) -> Result<usize, TraceError> {
        self.marks.pop().ok_or_else(|| self.cursor.wrong("finds no MARK"))
    }

    /// Takes the values above the last mark.
    fn marked(&mut self) -> Result<Vec<Ref>, TraceError> {
        let mark = self.mark()?;
        let items = self.stack[mark..].to_vec();
        self.stack.truncate(mark);
        Ok(items)
    }

    fn tuple(&mut self, length: usize) -> Result<(), TraceError> {
        let above = self.stack.len() - self.floor();
        if above < length {
            return Err(self.cursor.wrong(format!("finds only {above} values")));
        }
        let items = self.stack.split_off(self.stack.len() - length);
        self.close(items, Value::Sequence)
    }

    fn even(&self, items: &[Ref]) -> Result<(), TraceError> {
        match items.len() % 2 {
            0 => Ok(()),
            _ => Err(self.cursor.wrong("has a key without a value")),
        }
    }

    /// Returns the contents that the value on top may be given more of.
    fn container(&self, kind: &str, width: usize) -> Result<usize, TraceError> {
        match (self.values[self.top()?.index()], width) {
            (Value::Sequence(contents), 1) | (Value::Dict(contents), 2) => Ok(contents.0 as usize),
            _ => Err(self.cursor.wrong(format!("finds no {kind} to add to"))),
        }
    }

    /// Moves what is above the last mark into the container below it.
    fn extend(&mut self, kind: &str, width: usize) -> Result<(), TraceError> {
        let mark = self.mark()?;
        if width == 2 {
            self.even(&self.stack[mark..])?;
        }
        let above = mark..self.stack.len();
        let floor = self.floor();
        if mark <= floor {
            return Err(self.cursor.wrong(format!("finds no {kind} to add to")));
        }
        let into = match (self.values[self.stack[mark - 1].index()], width) {
            (Value::Sequence(contents), 1) | (Value::Dict(contents), 2) => contents.0 as usize,
            _ => return Err(self.cursor.wrong(format!("finds no {kind} to add to"))),
        };
        let contents = &mut self.contents[into];
        if contents.is_empty() {
            contents.reserve_exact(above.len());
        }
        contents.extend_from_slice(&self.stack[above]);
        self.stack.truncate(mark);
        Ok(())
    }

    fn append(&mut self) -> Result<(), TraceError> {
        let item = self.pop()?;
        let into = self.container("list", 1)?;
        self.contents[into].push(item);
        Ok(())
    }

    fn set_item(&mut self) -> Result<(), TraceError> {
        let value = self.pop()?;
        let key = self.pop()?;
        let into = self.container("dictionary", 2)?;
        self.contents[into].extend([key, value]);
        Ok(())
    }

    #[inline]
    fn recall(&mut self, index: usize) -> Result<(), TraceError> {
        match self.memo.get(index) {
            Some(&value) if value != EMPTY => self.refer(value),
            _ => Err(self.cursor.wrong(format!("finds nothing in the memo at {index}"))),
        }
    }

    /// Puts the value on top into the memo. Picklers count from 0, so an index is never larger than
    /// the offset at which it is used; one that is would only make the memo large.
    #[inline]
    fn memoize(&mut self, index: usize) -> Result<(), TraceError> {
        let top = self.top()?;
        if index > self.cursor.opcode.0 {
            return Err(self.cursor.wrong(format!("has the index {index}, which is not its turn")));
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, EMPTY);
        }
        self.memoized += usize::from(self.memo[index] == EMPTY);
        self.memo[index] = top;
        Ok(())
    }
}
