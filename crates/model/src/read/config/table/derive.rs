//! Derives the tensors of a model from its rules.

use super::expression::{Expression, Value};
use super::node::{Layered, Node};
use super::{Rules, Type, parse};
use crate::need::{TensorLayer, tensor_layer};
use crate::read::config::ConfigError;
use crate::read::config::keys::MAX_LAYERS;
use crate::read::name::shown;
use std::collections::HashSet;

/// The maximum number of tensors in a model.
const MAX_TENSORS: usize = 1 << 18;
/// The largest dimension.
const MAX_DIMENSION: i128 = 1 << 40;
/// The maximum nesting depth of parts.
const MAX_PARTS: u32 = 6;

/// A tensor without an encoding.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::read::config) struct Plain {
    pub(in crate::read::config) name: String,
    /// The dimensions, starting with those of lists within a layer, such as experts.
    pub(in crate::read::config) shape: Vec<u64>,
}

/// Returns the tensors of a class of models, and what the table does not know about it.
pub(in crate::read::config) fn tensors(
    node: &Node<'_>,
    class: &str,
) -> Result<(Vec<Plain>, Vec<String>), ConfigError> {
    let mut list = List { tensors: Vec::new(), doubts: node.doubts() };
    list.doubts.extend(node.assumed());
    list.model(node, class, "", 0)?;
    list.keep_one_of_each_name();
    list.doubts.sort();
    list.doubts.dedup();
    // Embeddings come first, as in the files.
    list.tensors.sort_by_key(|tensor| !matches!(tensor_layer(&tensor.name), TensorLayer::Input));
    Ok((list.tensors, list.doubts))
}

struct List {
    tensors: Vec<Plain>,
    doubts: Vec<String>,
}

/// A parsed rule.
struct Ready<'a> {
    list: &'a str,
    when: Expression,
    shape: Vec<Expression>,
    names: &'a str,
}

impl List {
    /// Drops tensors with duplicate names: at most one rule for a name is right.
    fn keep_one_of_each_name(&mut self) {
        let mut names = HashSet::new();
        let mut twice = None;
        self.tensors.retain(|tensor| {
            let is_new = names.insert(tensor.name.clone());
            if !is_new {
                twice.get_or_insert_with(|| tensor.name.clone());
            }
            is_new
        });
        self.doubts.extend(twice.map(|name| format!("tensor '{name}' may have another size")));
    }

    fn model(
        &mut self,
        node: &Node<'_>,
        class: &str,
        prefix: &str,
        depth: u32,
    ) -> Result<(), ConfigError> {
        let broken = || ConfigError::Underived(shown(class));
        let rules: Rules = parse("model", class).ok_or_else(broken)?;
        if let Some(tensor) = rules.doubts.first().and_then(|doubt| doubt.split(':').next()) {
            let part = if prefix.is_empty() { class } else { prefix };
            self.doubts
                .push(format!("some tensors of '{part}' may have other sizes, such as '{tensor}'"));
        }
        let mut ready = Vec::with_capacity(rules.rules.len());
        for (list, when, shape, inner, names) in &rules.rules {
            let mut dimensions = Expression::parse_list(inner).map_err(|_| broken())?;
            dimensions.extend(Expression::parse_list(shape).map_err(|_| broken())?);
            let when = Expression::parse(when).map_err(|_| broken())?;
            ready.push(Ready { list, when, shape: dimensions, names });
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}.") };
        for rule in ready.iter().filter(|rule| rule.list.is_empty()) {
            self.push(&Layered { node, layer: None }, rule, &prefix)?;
        }
        for (name, kind) in rules.parts.iter().map(|part| (part, part.2.as_str())) {
            let (path, config, _, when) = name;
            let when = Expression::parse(when).map_err(|_| broken())?;
            let present = when.evaluate(&Layered { node, layer: None }).is_true();
            let Some(inner) = node.within(config).filter(|_| present && depth < MAX_PARTS) else {
                continue;
            };
            let own = || inner.model_type.as_deref().and_then(Type::named);
            let class = match kind {
                "*causal" => own().and_then(|found| found.model),
                "*" => own().and_then(|found| found.base),
                class => Some(class.to_owned()),
            };
            match class {
                Some(class) => self.model(inner, &class, &format!("{prefix}{path}"), depth + 1)?,
                None => self.doubts.push(format!("the part '{path}' is omitted")),
            }
        }
        for (list, count) in &rules.counts {
            let count = Expression::parse(count).map_err(|_| broken())?;
            let count = match count.dimension(&Layered { node, layer: None }) {
                Value::Integer(count) if count <= i128::from(MAX_LAYERS) => count.max(0),
                Value::Integer(count) => {
                    return Err(ConfigError::Layers(u64::try_from(count).unwrap_or(u64::MAX)));
                }
                Value::Null => 0,
                _ => return Err(ConfigError::Size(format!("{prefix}{list}"))),
            };
            for i in 0..count {
                let layered = Layered { node, layer: Some((i, count)) };
                for rule in ready.iter().filter(|rule| rule.list == list) {
                    self.push(&layered, rule, &format!("{prefix}{list}.{i}."))?;
                }
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        scope: &Layered<'_, '_>,
        rule: &Ready<'_>,
        prefix: &str,
    ) -> Result<(), ConfigError> {
        if !rule.when.evaluate(scope).is_true() {
            return Ok(());
        }
        let mut shape = Vec::with_capacity(rule.shape.len());
        for dimension in &rule.shape {
            match dimension.dimension(scope) {
                Value::Integer(value @ 0..=MAX_DIMENSION) => shape.push(value as u64),
                _ => {
                    let first = rule.names.split(' ').next().unwrap_or_default();
                    return Err(ConfigError::Size(format!("{prefix}{first}")));
                }
            }
        }
        // A matrix without rows or columns does not exist.
        if shape.contains(&0) {
            return Ok(());
        }
        for name in rule.names.split(' ') {
            if self.tensors.len() >= MAX_TENSORS {
                return Err(ConfigError::Overflow(format!("{prefix}{name}")));
            }
            let name = format!("{prefix}{}", name.replace("*.", ""));
            // An entry of a list may itself be a tensor.
            let name = name.trim_end_matches('.').to_owned();
            self.tensors.push(Plain { name, shape: shape.clone() });
        }
        Ok(())
    }
}
