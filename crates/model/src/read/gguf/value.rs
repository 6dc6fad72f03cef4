//! The key-value pairs of a header. Pairs that describe the architecture are kept; the rest are
//! skipped.

use super::cursor::Cursor;
use super::error::GgufError;
use super::shown;
use std::collections::{BTreeMap, HashSet};
use std::io::Read;

/// The maximum length of a key in bytes.
const MAX_KEY_BYTES: u64 = 65_535;
/// The maximum length in bytes of a string that is kept.
const MAX_TEXT_BYTES: u64 = 256;
/// The maximum length of a string in bytes, and the maximum number of elements in an array.
const MAX_LENGTH: u64 = 1 << 30;
/// The maximum number of elements in an array that is kept, which has one per layer.
pub(super) const MAX_KEPT: u64 = 4096;
/// The maximum total number of elements in arrays that are kept.
const MAX_KEPT_IN_ALL: u64 = 1 << 18;

/// A value of a header.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer of any width, or a boolean as 0 or 1.
    Integer(i128),
    /// A floating-point number.
    Float(f64),
    /// A string of at most 256 bytes.
    Text(String),
    /// An array of at most 4096 integers or booleans.
    Integers(Vec<i128>),
    /// A longer string or another array. Only its length is kept.
    Passed {
        /// The number of bytes in a string, or of elements in an array.
        length: u64,
    },
}

/// The key-value pairs of a header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(BTreeMap<String, Value>);

impl Values {
    /// Reads this many pairs.
    pub(super) fn read<R: Read>(cursor: &mut Cursor<R>, count: u64) -> Result<Self, GgufError> {
        let mut values = BTreeMap::new();
        let mut room = MAX_KEPT_IN_ALL;
        for _ in 0..count {
            let key = cursor.text(MAX_KEY_BYTES, "a key")?;
            if key.is_empty() {
                return Err(GgufError::Name { name: key, problem: "is empty" });
            }
            let kind = cursor.u32("the type of a value")?;
            let value = value(cursor, &key, kind, room)?;
            if let Value::Integers(kept) = &value {
                room = room.saturating_sub(kept.len() as u64);
            }
            if values.contains_key(&key) {
                return Err(GgufError::Name { name: shown(&key), problem: "occurs twice" });
            }
            values.insert(key, value);
        }
        Ok(Values(values))
    }

    /// Returns a value.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Returns a string, if it is present and short.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns a nonnegative integer; `None` if it is absent.
    ///
    /// # Errors
    /// If the value is something else.
    pub fn integer(&self, key: &str) -> Result<Option<u64>, GgufError> {
        let wanted = "a nonnegative integer";
        let wrong = || GgufError::Value { key: shown(key), wanted };
        match self.get(key) {
            None => Ok(None),
            Some(Value::Integer(value)) => u64::try_from(*value).map(Some).map_err(|_| wrong()),
            Some(_) => Err(wrong()),
        }
    }

    /// Returns one number per layer, from a value for each layer or one for all; `None` if absent.
    ///
    /// # Errors
    /// If the value has another type, or has numbers for fewer layers.
    pub fn per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<u64>>, GgufError> {
        let wanted = "an integer, or one for each layer";
        let wrong = || GgufError::Value { key: shown(key), wanted };
        match self.get(key) {
            Some(Value::Integers(values)) => {
                let values: Result<Vec<u64>, _> =
                    values.iter().map(|value| u64::try_from(*value)).collect();
                let mut values = values.map_err(|_| wrong())?;
                if values.len() < layers {
                    return Err(wrong());
                }
                values.truncate(layers);
                Ok(Some(values))
            }
            _ => Ok(self.integer(key)?.map(|value| vec![value; layers])),
        }
    }

    /// Returns the number of elements in an array, or of bytes in a string.
    pub fn length(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Passed { length } => Some(*length),
            Value::Integers(values) => Some(values.len() as u64),
            Value::Text(text) => Some(text.len() as u64),
            Value::Integer(_) | Value::Float(_) => None,
        }
    }
}

/// Returns the bytes of a fixed-size type.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

fn value<R: Read>(
    cursor: &mut Cursor<R>,
    key: &str,
    kind: u32,
    room: u64,
) -> Result<Value, GgufError> {
    match kind {
        8 => {
            let length = cursor.u64("a text")?;
            cursor.limit(length, MAX_LENGTH, "a text")?;
            if length > MAX_TEXT_BYTES {
                cursor.skip(length, "a text")?;
                return Ok(Value::Passed { length });
            }
            let bytes = short(cursor, length)?;
            Ok(Value::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        9 => array(cursor, key, room),
        _ => match width(kind) {
            Some(_) => number(cursor, kind),
            None => Err(GgufError::ValueType { key: shown(key), found: kind }),
        },
    }
}

/// Reads at most [`MAX_TEXT_BYTES`] bytes.
fn short<R: Read>(cursor: &mut Cursor<R>, length: u64) -> Result<Vec<u8>, GgufError> {
    (0..length).map(|_| cursor.array::<1>("a text").map(|[byte]| byte)).collect()
}

fn number<R: Read>(cursor: &mut Cursor<R>, kind: u32) -> Result<Value, GgufError> {
    let what = "a value";
    Ok(match kind {
        0 => Value::Integer(u8::from_le_bytes(cursor.array(what)?).into()),
        1 => Value::Integer(i8::from_le_bytes(cursor.array(what)?).into()),
        2 => Value::Integer(u16::from_le_bytes(cursor.array(what)?).into()),
        3 => Value::Integer(i16::from_le_bytes(cursor.array(what)?).into()),
        4 => Value::Integer(cursor.u32(what)?.into()),
        5 => Value::Integer(i32::from_le_bytes(cursor.array(what)?).into()),
        6 => Value::Float(f32::from_le_bytes(cursor.array(what)?).into()),
        7 => Value::Integer((cursor.array(what)? != [0]).into()),
        10 => Value::Integer(cursor.u64(what)?.into()),
        11 => Value::Integer(i64::from_le_bytes(cursor.array(what)?).into()),
        _ => Value::Float(f64::from_le_bytes(cursor.array(what)?)),
    })
}

/// Reads an array, and keeps it if it contains integers and there is room.
fn array<R: Read>(cursor: &mut Cursor<R>, key: &str, room: u64) -> Result<Value, GgufError> {
    let kind = cursor.u32("the type of an array")?;
    let length = cursor.u64("the length of an array")?;
    cursor.limit(length, MAX_LENGTH, "the length of an array")?;
    match (kind, width(kind)) {
        (8, _) => {
            cursor.fits(length * 8, "an array of strings")?;
            for _ in 0..length {
                let bytes = cursor.u64("a string in an array")?;
                cursor.limit(bytes, MAX_LENGTH, "a string in an array")?;
                cursor.skip(bytes, "a string in an array")?;
            }
            Ok(Value::Passed { length })
        }
        (0..=5 | 7 | 10 | 11, Some(_)) if length <= MAX_KEPT.min(room) => {
            let mut values = Vec::new();
            for _ in 0..length {
                if let Value::Integer(value) = number(cursor, kind)? {
                    values.push(value);
                }
            }
            Ok(Value::Integers(values))
        }
        (_, Some(width)) => {
            cursor.skip(length * width, "an array")?;
            Ok(Value::Passed { length })
        }
        // Arrays of arrays are not supported.
        _ => Err(GgufError::ValueType { key: shown(key), found: kind }),
    }
}

/// Rejects a duplicate name.
pub(super) fn unique(names: &mut HashSet<String>, name: &str) -> Result<(), GgufError> {
    if names.insert(name.to_owned()) {
        Ok(())
    } else {
        Err(GgufError::Name { name: shown(name), problem: "occurs twice" })
    }
}
