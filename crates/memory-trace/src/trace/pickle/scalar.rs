//! Scalar values: numbers and strings.

use super::super::error::{TraceError, shown};
use super::cursor::Cursor;
use super::{Value, text};
use std::borrow::Cow;

/// The maximum length in bytes of a line with a number: Python writes 21 for a 64-bit integer and
/// 24 for a float.
const MAX_NUMBER_BYTES: usize = 64;

/// Reads the argument of an opcode that pushes a number or a string; `None` for any other opcode.
///
/// # Errors
/// If the argument is truncated or invalid.
#[inline]
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    opcode: u8,
) -> Option<Result<Value<'a>, TraceError>> {
    Some(match opcode {
        b'K' => cursor.byte().map(|number| Value::Int(number.into())),
        b'M' => cursor.u16().map(|number| Value::Int(number.into())),
        b'J' => cursor.array().map(|bytes| Value::Int(i32::from_le_bytes(bytes).into())),
        0x8a => cursor.byte().and_then(|length| long(cursor, length.into())),
        0x8b => cursor.signed_length().and_then(|length| long(cursor, length)),
        0x8c | b'C' | b'U' => cursor.byte().and_then(|length| plain(cursor, length.into())),
        b'X' | b'B' => cursor.u32().and_then(|length| plain(cursor, length.into())),
        b'T' => cursor.signed_length().and_then(|length| plain(cursor, length)),
        0x8d | 0x8e | 0x96 => cursor.u64().and_then(|length| plain(cursor, length)),
        b'G' => cursor.array().map(|bytes| Value::Float(f64::from_be_bytes(bytes))),
        b'N' => Ok(Value::None),
        0x88 => Ok(Value::Bool(true)),
        0x89 => Ok(Value::Bool(false)),
        b'I' | b'L' | b'F' | b'S' | b'V' => written(cursor, opcode),
        _ => return None,
    })
}

/// Returns the number or string whose opcode is at this offset, which was read before; `None` if
/// the input now ends within it.
#[inline]
pub(super) fn at(input: &[u8], offset: usize) -> Option<Value<'_>> {
    let mut cursor = Cursor::new(input);
    let opcode = cursor.opcode(offset)?;
    read(&mut cursor, opcode)?.ok()
}

fn plain<'a>(cursor: &mut Cursor<'a>, length: u64) -> Result<Value<'a>, TraceError> {
    cursor.take(length).map(|text| Value::Text(Cow::Borrowed(text)))
}

/// Reads a little-endian two's complement integer of `length` bytes.
fn long<'a>(cursor: &mut Cursor<'a>, length: u64) -> Result<Value<'a>, TraceError> {
    let bytes = cursor.take(length)?;
    if let [low @ .., 0] = bytes
        && let Ok(low) = low.try_into().map(u64::from_le_bytes)
    {
        return Ok(i64::try_from(low).map_or(Value::Huge(low), Value::Int));
    }
    if bytes.len() > 8 {
        return Err(cursor
            .wrong(format!("is a number of {length} bytes; no size or address has more than 8")));
    }
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut number = [if negative { 0xff } else { 0 }; 8];
    number[..bytes.len()].copy_from_slice(bytes);
    Ok(Value::Int(i64::from_le_bytes(number)))
}

/// Reads an argument that is a line of text.
#[cold]
fn written<'a>(cursor: &mut Cursor<'a>, opcode: u8) -> Result<Value<'a>, TraceError> {
    let line = cursor.line()?;
    if matches!(opcode, b'I' | b'L' | b'F') && line.len() > MAX_NUMBER_BYTES {
        let length = line.len();
        return Err(cursor.wrong(format!(
            "is a number on a line of {length} bytes; no number needs more than {MAX_NUMBER_BYTES}"
        )));
    }
    let value = match (opcode, line) {
        (b'I', b"00") => Some(Value::Bool(false)),
        (b'I', b"01") => Some(Value::Bool(true)),
        (b'I' | b'L', _) => text::number(line),
        (b'F', _) => text::float(line).map(Value::Float),
        (b'S', _) => text::quoted(line).map(Value::Text),
        _ => text::raw_unicode(line).map(Value::Text),
    };
    value.ok_or_else(|| unreadable(cursor, line))
}

/// Returns the error that the current opcode has an invalid argument.
pub(super) fn unreadable(cursor: &Cursor<'_>, argument: &[u8]) -> TraceError {
    cursor.wrong(format!("has the argument '{}'", shown(argument)))
}
