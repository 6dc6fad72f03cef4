//! The keys of a configuration, with those of the language model first.

use super::{ConfigError, brief};
use crate::read::name::shown;
use serde_json::{Map, Value};

/// The largest valid number in a configuration. The product of two fits 64 bits.
const MAX: u64 = 1 << 31;
/// The maximum number of layers, and therefore of entries in a list.
pub(super) const MAX_LAYERS: u64 = 4096;

/// The objects of a configuration.
pub(super) struct Keys<'a> {
    /// The language model's object, which is nested in multimodal models.
    text: &'a Map<String, Value>,
    root: &'a Map<String, Value>,
}

impl<'a> Keys<'a> {
    /// Returns the keys of a configuration. `text` is the object of the language model, with the
    /// defaults of its class if the class is known.
    pub(super) fn new(root: &'a Map<String, Value>, text: Option<&'a Map<String, Value>>) -> Self {
        let nested = ["text_config", "llm_config", "language_config", "thinker_config"];
        let given = || nested.iter().find_map(|key| root.get(*key)?.as_object());
        Keys { text: text.or_else(given).unwrap_or(root), root }
    }

    /// Returns at most four keys that contain a word, in quotation marks.
    pub(super) fn naming(&self, word: &str) -> Vec<String> {
        let named = self.text.keys().filter(|key| key.contains(word));
        named.take(4).map(|key| format!("'{}'", shown(key))).collect()
    }

    /// Returns a value as given, including `null`.
    pub(super) fn given(&self, name: &str) -> Option<&'a Value> {
        self.text.get(name).or_else(|| self.root.get(name))
    }

    /// Returns the first of these keys that is present and not `null`.
    fn value(&self, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        let found = |name: &'static str| Some((name, self.given(name)?));
        names.iter().filter_map(|name| found(name)).find(|(_, value)| !value.is_null())
    }

    /// Returns an integer under the first of these names that is present.
    pub(super) fn integer(&self, names: &[&'static str]) -> Result<Option<u64>, ConfigError> {
        let Some((key, value)) = self.value(names) else { return Ok(None) };
        let whole = |float: f64| (float.fract() == 0.0 && float >= 0.0).then_some(float as u64);
        let number = |value: &Value| {
            let number = value.as_u64().or_else(|| value.as_f64().and_then(whole))?;
            (number <= MAX).then_some(number)
        };
        // Of per-layer numbers, the largest represents all layers.
        let largest = |list: &[Value]| -> Option<u64> {
            let numbers: Option<Vec<u64>> = list.iter().map(number).collect();
            numbers?.into_iter().max()
        };
        let found = match value {
            Value::Array(list) if list.len() as u64 <= MAX_LAYERS => largest(list),
            value => number(value),
        };
        found.map(Some).ok_or_else(|| invalid(key, value, "an integer from 0 to 2^31"))
    }

    /// Returns an integer, or the default of the class; 0 means that there is no default.
    pub(super) fn number(&self, names: &[&'static str], default: u64) -> Result<u64, ConfigError> {
        let number = self.integer(names)?;
        let key = names.first().copied().unwrap_or_default();
        number.or((default > 0).then_some(default)).ok_or(ConfigError::Missing(key))
    }

    pub(super) fn flag(&self, name: &'static str, default: bool) -> Result<bool, ConfigError> {
        match self.value(&[name]) {
            None => Ok(default),
            Some((_, Value::Bool(flag))) => Ok(*flag),
            Some((_, Value::Number(number))) if number.as_u64().is_some_and(|n| n < 2) => {
                Ok(number.as_u64() == Some(1))
            }
            Some((key, value)) => Err(invalid(key, value, "true or false")),
        }
    }

    pub(super) fn text(&self, name: &'static str) -> Option<&'a str> {
        self.given(name)?.as_str()
    }

    /// Returns the model type of the language model, without `_text`.
    pub(super) fn model_type(&self) -> String {
        let found =
            [self.text, self.root].into_iter().find_map(|map| map.get("model_type")?.as_str());
        let name = found.unwrap_or_default();
        shown(name.strip_suffix("_text").unwrap_or(name))
    }

    fn list(&self, key: &'static str) -> Result<Option<&'a [Value]>, ConfigError> {
        match self.value(&[key]) {
            None => Ok(None),
            Some((_, Value::Array(list))) if list.len() as u64 <= MAX_LAYERS => Ok(Some(list)),
            Some((key, value)) => Err(invalid(key, value, "a list of at most 4096 entries")),
        }
    }

    /// Returns a list of integers.
    pub(super) fn integers(&self, key: &'static str) -> Result<Option<Vec<u64>>, ConfigError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let plausible = |value: &Value| {
            let number = value.as_u64().filter(|value| *value <= MAX);
            number.ok_or_else(|| invalid(key, value, "an integer in a list"))
        };
        list.iter().map(plausible).collect::<Result<_, _>>().map(Some)
    }

    /// Returns a list of strings.
    pub(super) fn texts(&self, key: &'static str) -> Result<Option<Vec<&'a str>>, ConfigError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let text = |value: &'a Value| {
            value.as_str().ok_or_else(|| invalid(key, value, "a string in a list"))
        };
        list.iter().map(text).collect::<Result<_, _>>().map(Some)
    }
}

/// Returns an error about a value.
fn invalid(key: &'static str, value: &Value, wanted: &'static str) -> ConfigError {
    ConfigError::Value { key, found: brief(value), wanted }
}
