//! The fields of a protobuf message, in text or in binary form.
//!
//! A reader of a message requests one field after the other and reads each value in place, so it
//! builds only what the result needs. Thus one reader serves both forms.

use super::error::{ReadError, Reason};
use super::limit::Budget;
use crate::dtype::ValueType;

/// The binary encoding of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number, a flag or an enumeration: a variable number of bytes.
    Varint,
    /// Four bytes.
    Fixed32,
    /// Eight bytes.
    Fixed64,
    /// Text, bytes or a message, with their length.
    Length,
    /// Numbers: each as a separate field, or many packed into one value with its length.
    Repeated(&'static Kind),
}

impl Kind {
    /// Returns the bytes of a number of a fixed size.
    pub(super) fn size(self) -> Option<u64> {
        match self {
            Kind::Fixed32 => Some(4),
            Kind::Fixed64 => Some(8),
            Kind::Varint | Kind::Length | Kind::Repeated(_) => None,
        }
    }
}

/// The fields of a message: number, name and encoding.
pub(super) type Fields = &'static [(u32, &'static str, Kind)];

/// A file of nested messages, at one position.
pub(super) trait Message {
    /// Moves to the next field of the message, or to the next item of a repeated field, and returns
    /// its number. At the end of the message, returns to the enclosing one.
    fn next(&mut self, fields: Fields) -> Result<Option<u32>, ReadError>;

    /// Enters the message that is the value of the field.
    fn enter(&mut self) -> Result<(), ReadError>;

    /// Takes text.
    fn text(&mut self) -> Result<String, ReadError>;

    /// Takes bytes.
    fn bytes(&mut self) -> Result<Vec<u8>, ReadError>;

    /// Takes an integer.
    fn int(&mut self) -> Result<i64, ReadError>;

    /// Takes a number of 32 bits.
    fn float(&mut self) -> Result<f64, ReadError>;

    /// Takes a number of 64 bits.
    fn double(&mut self) -> Result<f64, ReadError>;

    /// Takes a truth value.
    fn flag(&mut self) -> Result<bool, ReadError>;

    /// Takes an element type; if it is unknown, its number.
    fn dtype(&mut self) -> Result<Result<ValueType, i64>, ReadError>;

    /// Skips the value.
    fn skip(&mut self) -> Result<(), ReadError>;

    /// Returns the remaining limits.
    fn budget(&mut self) -> &mut Budget;

    /// Returns an error at this position.
    fn error(&self, reason: Reason) -> ReadError;

    /// Counts against the limits.
    fn charge(
        &mut self,
        charge: impl FnOnce(&mut Budget) -> Result<(), Reason>,
    ) -> Result<(), ReadError> {
        charge(self.budget()).map_err(|reason| self.error(reason))
    }
}
