//! The tensors of a model without files.

use super::ConfigError;
use super::table::{self, Node, Type};
use crate::read::name::shown;
use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;
use serde_json::{Map, Value};

/// The classes of a model and its configuration: the whole, or the part that is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Classes {
    /// The class of the configuration.
    config: String,
    /// The class of the model.
    model: String,
    /// The configuration.
    object: Map<String, Value>,
    /// The part of the model that is unknown.
    pub(super) doubt: Option<String>,
}

impl Classes {
    /// Returns the classes of a configuration; `None` if neither its type nor the type of its
    /// language model is known.
    pub(super) fn of(root: &Map<String, Value>) -> Option<Classes> {
        let nested = ["text_config", "llm_config", "language_config", "thinker_config"];
        let inner = nested.iter().find_map(|key| root.get(*key)?.as_object());
        let name = |object: &Map<String, Value>| {
            object.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let whole = Classes::named(&name(root), root);
        let Some(text) = inner.filter(|_| whole.is_none()) else { return whole };
        let mut found = Classes::named(&name(text), text)?;
        let kind = shown(&name(root));
        found.doubt = Some(format!("for model type '{kind}', only the language model is known"));
        Some(found)
    }

    fn named(name: &str, object: &Map<String, Value>) -> Option<Classes> {
        let kind = Type::named(name)?;
        let (config, model) = (kind.config?, kind.model.or(kind.base)?);
        Some(Classes { config, model, object: object.clone(), doubt: None })
    }

    /// Returns the configuration of the language model with the defaults of its class.
    pub(super) fn text(&self) -> Option<Map<String, Value>> {
        let empty = Map::new();
        Some(Node::new(&self.object, &empty, &self.config)?.text().complete())
    }

    /// Returns what the table does not know about the configuration.
    pub(super) fn unknown(&self) -> Vec<String> {
        let empty = Map::new();
        Node::new(&self.object, &empty, &self.config).map(|node| node.doubts()).unwrap_or_default()
    }

    /// Derives the tensors in an encoding, and what the table does not know about them.
    pub(super) fn tensors(
        &self,
        encoding: Encoding,
    ) -> Result<(Vec<Tensor>, Vec<String>), ConfigError> {
        let empty = Map::new();
        let node = Node::new(&self.object, &empty, &self.config);
        let node = node.ok_or_else(|| ConfigError::Underived(self.config.clone()))?;
        let (plain, doubts) = table::tensors(&node, &self.model)?;
        let tensors = plain.into_iter().map(|table::Plain { name, shape }| {
            let elements = shape.iter().try_fold(1u64, |product, n| product.checked_mul(*n));
            match elements.and_then(|elements| encoding.bytes(elements)) {
                Some(bytes) => Ok(Tensor { name, encoding, shape, bytes: Bytes(bytes) }),
                None => Err(ConfigError::Overflow(name)),
            }
        });
        Ok((tensors.collect::<Result<Vec<Tensor>, ConfigError>>()?, doubts))
    }
}
