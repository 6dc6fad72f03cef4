//! Protobuf's binary form, read in place.
//!
//! A decoder that builds each message first spends 24 to 200 bytes on a field of two bytes. This
//! one reads fields in place and skips the contents of tensors.

use super::Form;
use super::error::{Location, ReadError, Reason};
use super::limit::{Budget, Limits};
use super::message::{Fields, Kind, Message};
use crate::dtype::ValueType;

/// A file in protobuf's binary form.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    file: &'a [u8],
    form: Form,
    at: usize,
    /// The ends of the messages around this position.
    ends: Vec<usize>,
    /// The field with packed items up to an end.
    packed: Option<Packed>,
    value: Value<'a>,
    budget: Budget,
}

#[derive(Clone, Copy, Debug)]
struct Packed {
    field: u32,
    kind: Kind,
    end: usize,
}

/// The value of the field at this position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes { bytes: &'a [u8], start: usize },
}

impl<'a> Wire<'a> {
    /// Starts at the first field of a file.
    ///
    /// # Errors
    /// If the file is too large.
    pub(super) fn new(file: &'a [u8], form: Form, limits: &Limits) -> Result<Self, ReadError> {
        let failed = |reason| ReadError { form: Some(form), location: Location::Whole, reason };
        let budget = Budget::new(file, limits).map_err(failed)?;
        let ends = vec![file.len()];
        Ok(Wire { file, form, at: 0, ends, packed: None, value: Value::Number(0), budget })
    }

    /// Returns the bytes of the value of the field; none if it is a number.
    pub(super) fn raw(&self) -> &'a [u8] {
        match self.value {
            Value::Number(_) => &[],
            Value::Bytes { bytes, .. } => bytes,
        }
    }

    fn end(&self) -> usize {
        let message = self.ends.last().copied().unwrap_or(self.file.len());
        self.packed.map_or(message, |packed| packed.end)
    }

    fn malformed<T>(&self, text: &str) -> Result<T, ReadError> {
        Err(self.error(Reason::malformed(text)))
    }

    fn varint(&mut self) -> Result<u64, ReadError> {
        let bytes = self.file.get(self.at..self.end()).unwrap_or_default();
        let mut number = 0u64;
        for (index, byte) in bytes.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if index == 9 && *byte > 1 {
                return self.malformed("a number of more than 64 bits");
            }
            number |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.at += index + 1;
                return Ok(number);
            }
        }
        self.malformed("the message ends in the middle of a number")
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ReadError> {
        let bytes = self.file.get(self.at..self.end()).unwrap_or_default();
        let taken = usize::try_from(length).ok().and_then(|length| bytes.get(..length));
        let Some(taken) = taken else {
            let left = bytes.len();
            return self.malformed(&format!("a value of {length} bytes where {left} are left"));
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn number(&mut self, kind: Kind) -> Result<u64, ReadError> {
        let Some(size) = kind.size() else {
            return self.varint();
        };
        let bytes = self.take(size)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// Moves to the next field of any number, and returns its number and its encoding.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Kind)>, ReadError> {
        if self.at >= self.end() {
            self.ends.pop();
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).unwrap_or_default();
        if number == 0 || number >= 1 << 29 {
            return self.malformed("a field without a valid number");
        }
        let kind = match key & 7 {
            0 => Kind::Varint,
            1 => Kind::Fixed64,
            2 => Kind::Length,
            5 => Kind::Fixed32,
            wire => return self.malformed(&format!("field {number} has the wire type {wire}")),
        };
        self.value = match kind {
            Kind::Length => {
                let length = self.varint()?;
                let start = self.at;
                Value::Bytes { bytes: self.take(length)?, start }
            }
            _ => Value::Number(self.number(kind)?),
        };
        Ok(Some((number, kind)))
    }
}

impl Message for Wire<'_> {
    fn next(&mut self, fields: Fields) -> Result<Option<u32>, ReadError> {
        loop {
            if let Some(packed) = self.packed {
                if self.at < packed.end {
                    self.value = Value::Number(self.number(packed.kind)?);
                    return Ok(Some(packed.field));
                }
                self.packed = None;
            }
            let Some((field, kind)) = self.field()? else {
                return Ok(None);
            };
            let Some((_, name, expected)) = fields.iter().find(|(known, ..)| *known == field)
            else {
                // A newer version of the form has this field.
                continue;
            };
            match (self.value, *expected) {
                (_, single) if kind == single => return Ok(Some(field)),
                (Value::Number(_), Kind::Repeated(item)) if kind == *item => {
                    return Ok(Some(field));
                }
                (Value::Bytes { bytes, start }, Kind::Repeated(item)) => {
                    // Check this before the items, which `skip` skips.
                    if item.size().is_some_and(|size| !(bytes.len() as u64).is_multiple_of(size)) {
                        return self.malformed(&format!("{name} ends in the middle of a number"));
                    }
                    self.packed = Some(Packed { field, kind: *item, end: start + bytes.len() });
                    self.at = start;
                }
                _ => return self.malformed(&format!("{name} has the wrong encoding")),
            }
        }
    }

    fn enter(&mut self) -> Result<(), ReadError> {
        let Value::Bytes { bytes, start } = self.value else {
            return self.malformed("a number instead of a message");
        };
        if self.ends.len() > self.budget.depth() {
            let limit = self.budget.depth() as u64;
            return Err(self.error(Reason::Limit { what: "nested messages", limit }));
        }
        self.ends.push(start + bytes.len());
        self.at = start;
        Ok(())
    }

    fn text(&mut self) -> Result<String, ReadError> {
        match std::str::from_utf8(self.raw()) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.malformed("text that is not UTF-8"),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, ReadError> {
        Ok(self.raw().to_vec())
    }

    fn int(&mut self) -> Result<i64, ReadError> {
        match self.value {
            Value::Number(number) => Ok(number.cast_signed()),
            Value::Bytes { .. } => self.malformed("bytes instead of a number"),
        }
    }

    fn float(&mut self) -> Result<f64, ReadError> {
        let bits = u32::try_from(self.int()?).unwrap_or_default();
        Ok(f64::from(f32::from_bits(bits)))
    }

    fn double(&mut self) -> Result<f64, ReadError> {
        Ok(f64::from_bits(self.int()?.cast_unsigned()))
    }

    fn flag(&mut self) -> Result<bool, ReadError> {
        Ok(self.int()? != 0)
    }

    fn dtype(&mut self) -> Result<Result<ValueType, i64>, ReadError> {
        let number = self.int()?;
        let known = u32::try_from(number).ok().and_then(ValueType::numbered);
        Ok(known.ok_or(number))
    }

    fn skip(&mut self) -> Result<(), ReadError> {
        if let Some(packed) = self.packed.take() {
            self.at = packed.end;
        }
        Ok(())
    }

    fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    fn error(&self, reason: Reason) -> ReadError {
        ReadError { form: Some(self.form), location: Location::Offset(self.at as u64), reason }
    }
}
