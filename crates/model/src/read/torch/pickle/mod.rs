//! The names and shapes in `data.pkl`: a walk over its opcodes without any calls.
//!
//! A call that rebuilds a tensor is recognized by name and read as data; any other call results in
//! a value without content. Source of the forms: `torch/_utils.py` and `torch/serialization.py` of
//! PyTorch.

mod rebuilt;

use std::collections::HashMap;

/// The maximum number of values, and of references to them in the stack, the memo and the marks. A
/// tensor takes about 20.
const MAX_VALUES: usize = 1 << 21;

/// The index of a value.
type Ref = usize;

/// A tensor as described by the pickle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The keys that lead to it, joined by dots.
    pub(super) name: String,
    /// The key of the storage: the file `data/KEY`.
    pub(super) storage: String,
    /// The element type, as a name of [`crate::Encoding`].
    pub(super) encoding: &'static str,
    /// The offset in the storage, in elements.
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Value<'a> {
    Integer(i64),
    Text(&'a str),
    Global(&'a str, &'a str),
    Tuple(Vec<Ref>),
    /// A dictionary: keys and values alternate.
    Dictionary(Vec<Ref>),
    Storage {
        kind: &'a str,
        key: &'a str,
    },
    Tensor {
        kind: &'a str,
        key: &'a str,
        offset: u64,
        size: Ref,
    },
    Opaque,
}

/// Reads the tensors of a pickle.
///
/// # Errors
/// A sentence about what is unknown. The pickle is then not used at all.
pub(super) fn read(pickle: &[u8]) -> Result<Vec<View>, String> {
    let mut machine = Machine { input: pickle, at: 0, ..Machine::default() };
    let root = machine.run()?;
    machine.tensors(root)
}

#[derive(Default)]
struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Ref>,
    /// The stack height at each mark.
    marks: Vec<usize>,
    memo: HashMap<u64, Ref>,
}

impl<'a> Machine<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let length = usize::try_from(length).map_err(|_| self.cut())?;
        let end = self.at.checked_add(length).ok_or_else(|| self.cut())?;
        let bytes = self.input.get(self.at..end).ok_or_else(|| self.cut())?;
        self.at = end;
        Ok(bytes)
    }

    fn cut(&self) -> String {
        format!("it ends within the opcode before byte {}", self.at)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.take(N as u64)?;
        bytes.try_into().map_err(|_| self.cut())
    }

    fn text(&mut self, length: u64) -> Result<&'a str, String> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map_err(|_| format!("a text before byte {} is not UTF-8", self.at))
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| self.cut())?;
        let line = self.text(length as u64)?;
        self.at += 1;
        Ok(line)
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), String> {
        if self.values.len() >= MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values"));
        }
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Ref, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = if self.stack.len() > floor { self.stack.pop() } else { None };
        top.ok_or_else(|| format!("no value is left before byte {}", self.at))
    }

    fn marked(&mut self) -> Result<Vec<Ref>, String> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        let mark = mark.ok_or_else(|| format!("no mark is left before byte {}", self.at))?;
        Ok(self.stack.split_off(mark))
    }

    fn value(&self, at: Ref) -> &Value<'a> {
        self.values.get(at).unwrap_or(&Value::Opaque)
    }

    fn remember(&mut self, index: u64) -> Result<(), String> {
        let top = self.pop()?;
        self.stack.push(top);
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u64) -> Result<(), String> {
        let found = self.memo.get(&index).copied();
        self.stack.push(found.ok_or_else(|| format!("the memo has no entry {index}"))?);
        Ok(())
    }

    fn run(&mut self) -> Result<Ref, String> {
        loop {
            let [opcode] = self.array()?;
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode)?;
            // One-byte opcodes add references without a value.
            if self.stack.len().max(self.memo.len()).max(self.marks.len()) > MAX_VALUES {
                return Err(format!("it has more than {MAX_VALUES} references"));
            }
        }
    }

    fn step(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            0x80 => match self.array()? {
                [0..=5] => Ok(()),
                [version] => Err(format!("protocol {version} is newer than 5")),
            },
            // A frame only states how much to read at once.
            0x95 => self.array::<8>().map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b'1' => self.marked().map(drop),
            b'2' => {
                let top = self.pop()?;
                self.stack.extend([top, top]);
                Ok(())
            }
            b'q' => {
                let [index] = self.array()?;
                self.remember(index.into())
            }
            b'r' => {
                let index = u32::from_le_bytes(self.array()?);
                self.remember(index.into())
            }
            0x94 => self.remember(self.memo.len() as u64),
            b'h' => {
                let [index] = self.array()?;
                self.recall(index.into())
            }
            b'j' => {
                let index = u32::from_le_bytes(self.array()?);
                self.recall(index.into())
            }
            b'N' => self.push(Value::Opaque),
            0x88 => self.push(Value::Integer(1)),
            0x89 => self.push(Value::Integer(0)),
            b'G' => self.array::<8>().and_then(|_| self.push(Value::Opaque)),
            b'K' => {
                let [value] = self.array()?;
                self.push(Value::Integer(value.into()))
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(Value::Integer(value.into()))
            }
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Value::Integer(value.into()))
            }
            0x8a => {
                let [length] = self.array()?;
                let bytes = self.take(length.into())?;
                let value = long(bytes).map_or(Value::Opaque, Value::Integer);
                self.push(value)
            }
            b'X' => {
                let length = u32::from_le_bytes(self.array()?);
                let text = self.text(length.into())?;
                self.push(Value::Text(text))
            }
            0x8c => {
                let [length] = self.array()?;
                let text = self.text(length.into())?;
                self.push(Value::Text(text))
            }
            b'B' | b'T' => {
                let length = u32::from_le_bytes(self.array()?);
                self.take(length.into())?;
                self.push(Value::Opaque)
            }
            b'C' | b'U' => {
                let [length] = self.array()?;
                self.take(length.into())?;
                self.push(Value::Opaque)
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Global(module, name))
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let global = match (self.value(module), self.value(name)) {
                    (Value::Text(module), Value::Text(name)) => Value::Global(module, name),
                    _ => Value::Opaque,
                };
                self.push(global)
            }
            b')' => self.push(Value::Tuple(Vec::new())),
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0x84..opcode {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push(Value::Tuple(items))
            }
            b't' => {
                let items = self.marked()?;
                self.push(Value::Tuple(items))
            }
            b']' => self.push(Value::Opaque),
            b'l' => self.marked().and_then(|_| self.push(Value::Opaque)),
            b'a' => self.pop().map(drop),
            b'e' => self.marked().map(drop),
            b'}' => self.push(Value::Dictionary(Vec::new())),
            b'd' => {
                let items = self.marked()?;
                self.push(Value::Dictionary(items))
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![key, value])
            }
            b'u' => {
                let items = self.marked()?;
                self.set(items)
            }
            // The state of an object is not a tensor in a dictionary.
            b'b' => self.pop().map(drop),
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(id);
                self.push(storage)
            }
            b'R' | 0x81 => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                let result = self.call(callable, arguments);
                self.push(result)
            }
            unknown => Err(format!("opcode {unknown:#04x} before byte {} is not known", self.at)),
        }
    }

    fn set(&mut self, items: Vec<Ref>) -> Result<(), String> {
        let target = self.pop()?;
        self.stack.push(target);
        if let Some(Value::Dictionary(entries)) = self.values.get_mut(target) {
            entries.extend(items);
        }
        Ok(())
    }
}

/// Reads a little-endian two's complement integer; `None` if it has more than 64 bits.
fn long(bytes: &[u8]) -> Option<i64> {
    let negative = bytes.last().is_some_and(|last| *last >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}
