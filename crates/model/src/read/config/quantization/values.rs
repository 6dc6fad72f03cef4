//! Lenient access to the values of a quantization configuration: a value of an unexpected type
//! counts as absent, and the caller adds a doubt.

use serde_json::{Map, Value};

/// The largest accepted number.
const MAX: u64 = 1 << 31;

/// An object.
#[derive(Clone, Copy)]
pub(super) struct Values<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Values<'a> {
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn within(self, key: &str) -> Option<Values<'a>> {
        self.get(key)?.as_object().map(Values)
    }

    pub(super) fn text(self, key: &str) -> Option<&'a str> {
        self.get(key)?.as_str()
    }

    /// Returns a string in lower case.
    pub(super) fn lower(self, key: &str) -> String {
        self.text(key).unwrap_or_default().to_lowercase()
    }

    pub(super) fn number(self, key: &str) -> Option<u64> {
        number(self.get(key)?)
    }

    pub(super) fn flag(self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// Returns the number of weights in a group; -1 and `null` mean a whole row, which is returned
    /// as 0.
    pub(super) fn group(self, keys: &[&str], default: u64) -> u64 {
        let found = keys.iter().find_map(|key| self.0.get(*key));
        match found {
            None => default,
            Some(value) => number(value).unwrap_or(0),
        }
    }

    /// Returns the strings in a list, or a single string as a list.
    pub(super) fn texts(self, key: &str) -> impl Iterator<Item = &'a str> {
        let value = self.get(key);
        let list = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(Value::as_str).chain(value.and_then(Value::as_str))
    }

    /// Returns the two nonzero numbers in a list.
    pub(super) fn pair(self, key: &str) -> Option<(u64, u64)> {
        match self.get(key)?.as_array()?.as_slice() {
            [rows, columns] => {
                let (rows, columns) = (number(rows)?, number(columns)?);
                (rows > 0 && columns > 0).then_some((rows, columns))
            }
            _ => None,
        }
    }

    /// Returns the nested objects by key.
    pub(super) fn objects(self) -> impl Iterator<Item = (&'a str, Values<'a>)> {
        self.0.iter().filter_map(|(key, value)| Some((key.as_str(), Values(value.as_object()?))))
    }
}

fn number(value: &Value) -> Option<u64> {
    let whole = |float: f64| (float.fract() == 0.0 && float >= 0.0).then_some(float as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole)).filter(|number| *number <= MAX)
}
