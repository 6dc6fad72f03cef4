//! A configuration with the defaults of its class.

use super::expression::{Expression, Scope, Value};
use super::{Class, Missing, Type, parse};
use crate::read::config::keys::MAX_LAYERS;
use serde_json::{Map, Value as Json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

/// The maximum nesting depth of configurations.
const MAX_NESTED: u32 = 5;
/// The maximum length of a chain of defaults.
const MAX_STEPS: u32 = 12;
/// The keys for the number of layers.
const COUNTS: [&str; 5] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"];
/// The keys for the configuration of the language model.
const TEXTS: [&str; 4] = ["text_config", "llm_config", "language_config", "thinker_config"];
/// Layer type names that transformers replaces when it reads them.
const RENAMED: [(&str, &str); 4] = [
    ("mamba", "linear_attention"),
    ("attention", "full_attention"),
    ("deepseek_sparse_attention", "indexed_attention"),
    ("qwen_sparse_attention", "indexed_attention"),
];

/// A configuration, its class, and its nested configurations.
pub(in crate::read::config) struct Node<'a> {
    object: &'a Map<String, Json>,
    class: Class,
    /// The type that the configuration names.
    pub(super) model_type: Option<String>,
    pub(super) nested: BTreeMap<String, Node<'a>>,
    /// Nested configurations of unknown types.
    pub(super) unknown: Vec<(String, String)>,
    cache: RefCell<HashMap<String, Value>>,
    steps: Cell<u32>,
}

impl<'a> Node<'a> {
    /// Returns the configuration of a class; `None` if the class is unknown.
    pub(in crate::read::config) fn new(
        object: &'a Map<String, Json>,
        empty: &'a Map<String, Json>,
        class: &str,
    ) -> Option<Node<'a>> {
        Node::at(object, empty, class, 0)
    }

    fn at(
        object: &'a Map<String, Json>,
        empty: &'a Map<String, Json>,
        class: &str,
        depth: u32,
    ) -> Option<Node<'a>> {
        let class: Class = parse("config", class)?;
        let (mut nested, mut unknown) = (BTreeMap::new(), Vec::new());
        let subs = class.subs.iter().filter(|_| depth < MAX_NESTED);
        for (key, class) in subs {
            let others = TEXTS.iter().filter(|_| TEXTS.contains(&key.as_str()));
            let mut keys = std::iter::once(key.as_str()).chain(others.copied());
            let inner = keys.find_map(|key| object.get(key)).and_then(Json::as_object);
            // Older configurations mix the language model's keys with other keys.
            let flat = if TEXTS.contains(&key.as_str()) { object } else { empty };
            let inner = inner.unwrap_or(flat);
            let own = inner.get("model_type").and_then(Json::as_str);
            let class = match class.strip_prefix('*') {
                None => Some(class.clone()),
                Some(default) => {
                    let name = own.filter(|_| !std::ptr::eq(inner, object)).unwrap_or(default);
                    let found = Type::named(name).and_then(|known| known.config);
                    if found.is_none() {
                        unknown.push((key.clone(), name.to_owned()));
                    }
                    found
                }
            };
            let node = class.and_then(|class| Node::at(inner, empty, &class, depth + 1));
            if let Some(node) = node {
                nested.insert(key.clone(), node);
            }
        }
        let model_type = object.get("model_type").and_then(Json::as_str).map(str::to_owned);
        Some(Node {
            object,
            class,
            model_type,
            nested,
            unknown,
            cache: RefCell::default(),
            steps: Cell::new(0),
        })
    }

    /// Returns the configuration of the language model: this one, or a nested one.
    pub(in crate::read::config) fn text(&self) -> &Node<'a> {
        let nested = TEXTS.iter().find_map(|key| self.nested.get(*key));
        nested.map_or(self, Node::text)
    }

    /// Returns a nested configuration by its path; an empty path is this configuration.
    pub(super) fn within(&self, path: &str) -> Option<&Node<'a>> {
        path.split('.')
            .filter(|key| !key.is_empty())
            .try_fold(self, |node, key| node.nested.get(key))
    }

    /// Returns the keys with their values: those of the configuration, plus defaults for the rest.
    pub(in crate::read::config) fn complete(&self) -> Map<String, Json> {
        let mut complete = self.object.clone();
        for (other, name) in &self.class.alias {
            if let (None, Some(value)) = (self.object.get(name), self.object.get(other)) {
                complete.insert(name.clone(), value.clone());
            }
        }
        for (key, default) in self.class.defaults.iter().filter(|(key, _)| !key.contains('.')) {
            let given = complete.get(key).filter(|value| !value.is_null());
            let value = match (self.value(key), given, default) {
                (Value::Null, ..) => Json::Null,
                (Value::List(list), ..) => list.iter().map(json).collect(),
                (_, Some(_), _) => continue,
                (_, None, Missing::Constant(value)) => value.clone(),
                (value, None, _) => json(&value),
            };
            complete.insert(key.clone(), value);
        }
        // Readers may use either name.
        for (other, name) in &self.class.alias {
            if let (None, Some(value)) = (complete.get(other), complete.get(name)) {
                complete.insert(other.clone(), value.clone());
            }
        }
        complete
    }

    /// Returns the value of a key, or its default in the class.
    pub(super) fn value(&self, key: &str) -> Value {
        if let Some((nested, rest)) = key.split_once('.')
            && let Some(node) = self.nested.get(nested)
        {
            return node.value(rest);
        }
        if let Some(known) = self.cache.borrow().get(key) {
            return known.clone();
        }
        if self.steps.get() >= MAX_STEPS {
            return Value::Null;
        }
        self.steps.set(self.steps.get() + 1);
        let value = self.found(key);
        self.steps.set(self.steps.get() - 1);
        self.cache.borrow_mut().insert(key.to_owned(), value.clone());
        value
    }

    fn found(&self, key: &str) -> Value {
        // Multimodal files state in the language model whether the output is tied.
        if key == "tie_word_embeddings"
            && self.given(key).is_none()
            && let text = self.text()
            && !std::ptr::eq(text, self)
        {
            return text.value(key);
        }
        // Classes drop an unused window.
        if key == "sliding_window" && self.value("use_sliding_window") == Value::Integer(0) {
            return Value::Null;
        }
        let default = self.class.defaults.get(key);
        let follows = default.is_some_and(|default| !matches!(default, Missing::Constant(_)));
        match self.given(key) {
            Some(Json::Null) if !follows => Value::Null,
            // In some classes, -1 means the default.
            Some(Json::Number(number)) if follows && number.as_i64().is_some_and(|n| n < 0) => {
                self.default(default)
            }
            Some(Json::Null) | None => self.default(default),
            Some(json) => renamed(key, Value::of(json)),
        }
    }

    fn given(&self, key: &str) -> Option<&Json> {
        if let Some((outer, inner)) = key.split_once('.') {
            return self.object.get(outer)?.as_object()?.get(inner);
        }
        self.object.get(key).or_else(|| {
            let mut others = self.class.alias.iter().filter(|(_, name)| *name == key);
            others.find_map(|(other, _)| self.object.get(other))
        })
    }

    fn default(&self, default: Option<&Missing>) -> Value {
        let first = |cases: &[(String, Json)], scope: &Layered<'_, '_>| {
            let holds = |when: &str| {
                Expression::parse(when).is_ok_and(|when| when.evaluate(scope).is_true())
            };
            let case = cases.iter().find(|(when, _)| holds(when));
            case.map_or(Value::Null, |(_, value)| Value::of(value))
        };
        match default {
            None => Value::Null,
            Some(Missing::Constant(value)) => Value::of(value),
            Some(Missing::Is { is }) => match Expression::parse(is) {
                Ok(expression) => expression.evaluate(&Layered { node: self, layer: None }),
                Err(_) => Value::Null,
            },
            Some(Missing::Cases { cases }) => first(cases, &Layered { node: self, layer: None }),
            Some(Missing::Layers { layers }) => {
                let count = self.count();
                let entry = |i| first(layers, &Layered { node: self, layer: Some((i, count)) });
                Value::List((0..count).map(entry).collect())
            }
            Some(Missing::Indices { indices }) => {
                let Ok(when) = Expression::parse(indices) else { return Value::Null };
                let count = self.count();
                let is_in = |i: &i128| {
                    when.evaluate(&Layered { node: self, layer: Some((*i, count)) }).is_true()
                };
                Value::List((0..count).filter(is_in).map(Value::Integer).collect())
            }
        }
    }

    /// Returns the number of layers, up to the limit.
    fn count(&self) -> i128 {
        let count = COUNTS.iter().find_map(|key| match self.value(key) {
            Value::Integer(count) => Some(count.clamp(0, i128::from(MAX_LAYERS))),
            _ => None,
        });
        count.unwrap_or(0)
    }

    /// Returns what the table does not know about the configurations.
    pub(in crate::read::config) fn doubts(&self) -> Vec<String> {
        let unknown = (self.unknown.iter())
            .map(|(key, name)| format!("'{key}' has the unknown type '{name}' and is omitted"));
        // The unknown meaning of a missing key matters only if the key is missing.
        let open = |doubt: &String| {
            let key = doubt.strip_prefix("default of ").and_then(|rest| rest.split(':').next())?;
            self.given(key)
                .is_none()
                .then(|| format!("'{key}' is missing, and its default is unknown"))
        };
        let own = self.class.doubts.iter().filter_map(open);
        unknown.chain(own).chain(self.nested.values().flat_map(Node::doubts)).collect()
    }

    /// Returns doubts about a width or number of layers that only the class states. Configurations
    /// of nested language models usually omit them.
    pub(super) fn assumed(&self) -> Vec<String> {
        let is_whole = std::ptr::eq(self.text(), self);
        let missing = ["hidden_size", "num_hidden_layers"].into_iter().filter(|key| {
            let stored = self.class.alias.get(*key).map_or(*key, String::as_str);
            is_whole && self.class.defaults.contains_key(stored) && self.given(stored).is_none()
        });
        missing.map(|key| format!("'{key}' is missing: the default of its class is used")).collect()
    }
}

fn renamed(key: &str, value: Value) -> Value {
    match value {
        Value::List(list) if key.contains("type") => {
            let rename = |entry| match entry {
                Value::Text(text) => {
                    let known = RENAMED.iter().find(|(old, _)| *old == text);
                    Value::Text(known.map_or(text, |(_, new)| (*new).to_owned()))
                }
                other => other,
            };
            Value::List(list.iter().cloned().map(rename).collect())
        }
        other => other,
    }
}

fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(value) => i64::try_from(*value).map_or(Json::Null, Json::from),
        Value::Float(value) => Json::from(*value),
        Value::Text(text) => Json::from(text.as_str()),
        Value::List(list) => list.iter().map(json).collect(),
    }
}

/// A configuration, and one of its layers.
pub(super) struct Layered<'n, 'a> {
    pub(super) node: &'n Node<'a>,
    pub(super) layer: Option<(i128, i128)>,
}

impl Scope for Layered<'_, '_> {
    fn key(&self, key: &str) -> Value {
        self.node.value(key)
    }

    fn layer(&self) -> Option<(i128, i128)> {
        self.layer
    }
}
