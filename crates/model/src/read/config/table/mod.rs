//! The shapes of the tensors of every model type of transformers, as a table.
//!
//! `data/observe.py` builds small models on torch's meta device, with numbers that record which
//! configuration keys they came from. `data/derive.py` derives the expression for each dimension,
//! the condition for each tensor of a layer, and the meaning of missing keys. This module evaluates
//! the table.
//!
//! A line consists of `type`, `config` or `model`, a name, and JSON. A type names the classes of
//! its configuration and its models. A configuration has defaults and nested configurations. A
//! model has rules (list, condition, shape, counts of inner lists, names) and parts that are
//! models.

mod derive;
mod expression;
mod node;

pub(super) use derive::{Plain, tensors};
pub(super) use node::Node;

use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

const TABLE: &str = include_str!("../../../../data/architectures.txt");

/// Model types that transformers lacks, each with a transformers type that has the same layers.
///
/// Sources: the code published with the weights, and the classes that vLLM maps them to.
const SAME: &[(&str, &str)] = &[
    ("aquila", "llama"),
    ("baichuan", "llama"),
    ("chatglm", "glm"),
    ("deepseek", "deepseek_v2"),
    ("dream", "qwen2"),
    ("ernie4_5_vl", "ernie4_5_vl_moe"),
    ("hunyuan", "hunyuan_v1_moe"),
    ("internlm2", "llama"),
    ("internvl_chat", "internvl"),
    ("kimi_k2", "deepseek_v3"),
    ("orion", "llama"),
    ("pangu_pro_moe", "qwen2_moe"),
    ("phi4mm", "phi4_multimodal"),
    ("xverse", "llama"),
    ("yi", "llama"),
];

/// A model type.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Type {
    /// The class of its configuration.
    pub(super) config: Option<String>,
    /// The class of the whole model, including the output matrix.
    pub(super) model: Option<String>,
    /// The class without the output matrix, as a part of other models.
    pub(super) base: Option<String>,
}

/// The default of a key.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Missing {
    /// An expression over other keys.
    Is {
        is: String,
    },
    /// The value of the first true condition.
    Cases {
        cases: Vec<(String, serde_json::Value)>,
    },
    /// The same value for each layer.
    Layers {
        layers: Vec<(String, serde_json::Value)>,
    },
    /// The indices of the layers that satisfy a condition.
    Indices {
        indices: String,
    },
    Constant(serde_json::Value),
}

/// A configuration class.
#[derive(Clone, Debug, Default, Deserialize)]
struct Class {
    defaults: BTreeMap<String, Missing>,
    /// Alternative names of keys.
    #[serde(default)]
    alias: BTreeMap<String, String>,
    /// The classes of nested configurations; `*type` means the class for its own `model_type`.
    #[serde(default)]
    subs: BTreeMap<String, String>,
    #[serde(default)]
    doubts: Vec<String>,
}

/// A model class.
#[derive(Clone, Debug, Default, Deserialize)]
struct Rules {
    /// The number of layers in each list.
    #[serde(default)]
    counts: BTreeMap<String, String>,
    rules: Vec<Rule>,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    doubts: Vec<String>,
}

/// The list of layers, the condition, the shape, the counts of inner lists, and the names.
type Rule = (String, String, String, String, String);
/// The module path, the nested configuration, the class (`*` for the base of the nested type,
/// `*causal` for its whole model), and the condition.
type Part = (String, String, String, String);

/// Returns the JSON of a line.
fn line(kind: &str, name: &str) -> Option<&'static str> {
    static LINES: OnceLock<HashMap<(&str, &str), &str>> = OnceLock::new();
    let lines = LINES.get_or_init(|| {
        let split = |line: &'static str| {
            let (kind, rest) = line.split_once(' ')?;
            let (name, json) = rest.split_once(' ')?;
            Some(((kind, name), json))
        };
        TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(split).collect()
    });
    lines.get(&(kind, name)).copied()
}

fn parse<T: for<'a> Deserialize<'a>>(kind: &str, name: &str) -> Option<T> {
    serde_json::from_str(line(kind, name)?).ok()
}

impl Type {
    /// Returns a model type of transformers, including for types with the same layers as another
    /// type.
    pub(super) fn named(name: &str) -> Option<Type> {
        let same = SAME.iter().find(|(other, _)| *other == name).map_or(name, |(_, same)| *same);
        parse("type", same)
    }
}

/// Returns how many model types are known as whole models.
pub(super) fn known() -> usize {
    let is_known = |line: &&str| line.starts_with("type ") && line.contains("\"model\"");
    TABLE.lines().filter(is_known).count()
}

#[cfg(test)]
mod tests {
    use super::expression::Expression;
    use super::*;

    /// Every line can be parsed, every expression is valid, and every named class exists.
    #[test]
    fn table_is_complete() {
        let expression = |text: &str, line: &str| {
            assert!(Expression::parse_list(text).is_ok(), "{text} in {line}");
        };
        let mut lines = 0;
        for text in TABLE.lines().filter(|line| !line.starts_with('#')) {
            lines += 1;
            let (kind, rest) = text.split_once(' ').unwrap();
            let (name, json) = rest.split_once(' ').unwrap();
            match kind {
                "type" => {
                    let entry: Type = serde_json::from_str(json).unwrap();
                    for class in [entry.model, entry.base].into_iter().flatten() {
                        assert!(line("model", &class).is_some(), "{class} of {name}");
                    }
                    if let Some(class) = entry.config {
                        assert!(line("config", &class).is_some(), "{class} of {name}");
                    }
                }
                "config" => {
                    let class: Class = serde_json::from_str(json).unwrap();
                    for sub in class.subs.values().filter(|sub| !sub.starts_with('*')) {
                        assert!(line("config", sub).is_some(), "{sub} of {name}");
                    }
                    for default in class.defaults.values() {
                        match default {
                            Missing::Is { is } => expression(is, name),
                            Missing::Cases { cases } | Missing::Layers { layers: cases } => {
                                cases.iter().for_each(|(when, _)| expression(when, name));
                            }
                            Missing::Indices { indices } => expression(indices, name),
                            Missing::Constant(_) => {}
                        }
                    }
                }
                "model" => {
                    let rules: Rules = serde_json::from_str(json).unwrap();
                    for (list, when, shape, inner, _) in &rules.rules {
                        assert!(list.is_empty() || rules.counts.contains_key(list), "{name}");
                        [when, shape, inner].into_iter().for_each(|text| expression(text, name));
                    }
                    rules.counts.values().for_each(|count| expression(count, name));
                    for (_, _, class, when) in &rules.parts {
                        expression(when, name);
                        assert!(
                            class.starts_with('*') || line("model", class).is_some(),
                            "{class}"
                        );
                    }
                }
                other => panic!("{other}"),
            }
        }
        assert!(lines > 300, "{lines}");
    }
}
