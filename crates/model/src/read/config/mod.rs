//! Configurations of models (`config.json`), and the architecture that they describe.
//!
//! Each family of models has its own keys, defaults and layers; what a model keeps of a token
//! follows from them alone. With no tensors at hand, those of the common families are derived, so
//! that the need of a model is known before it is downloaded.

mod family;
mod feeds;
mod keys;
mod layer;
mod layers;
mod quantization;
mod tensors;

pub use quantization::Quantization;

use crate::model::{Architecture, Doubt, Model};
use crate::read::name::shown;
use crate::tensor::{Encoding, Tensor};
use family::{Family, known};
use keys::Keys;
use layer::Layer;
use layers::Reader;
use serde_json::Value;

/// The longest configuration that is read, in bytes.
pub const MAX_CONFIG_BYTES: u64 = 8 << 20;

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not a JSON object.
    #[error("parse the configuration")]
    Json(#[from] serde_json::Error),
    /// The configuration has more bytes than are read.
    #[error("read the configuration: {0} bytes are more than 8 MiB")]
    TooLarge(u64),
    /// A key is missing, and its class has no default.
    #[error("read the configuration: '{0}' is missing")]
    Missing(&'static str),
    /// A value is not what its key requires.
    #[error("read '{key}' of the configuration: it is not {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wanted.
        wanted: &'static str,
    },
    /// The number of layers is 0 or above the limit.
    #[error("read the configuration: {0} layers are not from 1 to 4096")]
    Layers(u64),
    /// A layer has an unknown type.
    #[error("read the types of layers in the configuration: unknown type '{0}'")]
    LayerType(String),
    /// The model type is unknown, and its keys are not those of most models.
    #[error("read the configuration: unknown model type '{name}'; known are {known}")]
    Unknown {
        /// The model type.
        name: String,
        /// The types that are known.
        known: String,
    },
    /// The matrices of the family do not follow from its configuration.
    #[error("derive the tensors of model type '{0}': they do not follow from the configuration")]
    Underived(String),
    /// A tensor is larger than can be counted, or its elements fill no whole number of bytes.
    #[error("derive tensor '{0}': its size cannot be counted")]
    Overflow(String),
}

/// A configuration, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The type of the (language) model, such as `llama`, without `_text`.
    pub model_type: String,
    /// Whether the type is unknown, and the keys that most models share were read as those of
    /// Llama: attention may be misjudged.
    pub generic: bool,
    /// The architecture.
    pub architecture: Architecture,
    /// How the weights are quantized, if the configuration says so.
    pub quantization: Option<Quantization>,
    /// What is not understood of the configuration.
    pub doubts: Vec<Doubt>,
    family: Family,
    head: u64,
    bias: bool,
    feed_bias: bool,
    /// Whether experts work on a narrower stream, by matrices that are not derived.
    narrowed: bool,
    layers: Vec<Layer>,
}

/// Reads a configuration.
///
/// # Errors
/// If the text is not a configuration, a number is missing or implausible, or the model type is
/// unknown and has not the keys that most models share.
pub fn read(text: &[u8]) -> Result<Config, ConfigError> {
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge(text.len() as u64));
    }
    let root: serde_json::Map<String, Value> = serde_json::from_slice(text)?;
    let keys = Keys::new(&root);
    let model_type = keys.model_type();
    let family = Family::named(&model_type).unwrap_or(Family::Generic);
    let generic = family == Family::Generic;
    let reader = Reader { keys: &keys, family, defaults: family.defaults() };
    let read = || -> Result<Config, ConfigError> {
        let widths = reader.widths()?;
        let layers = reader.layers(&widths)?;
        let defaults = reader.defaults;
        // The class of Falcon-H1 and others read `tie_word_embeddings` beside `text_config` too.
        let tied = keys.flag("tie_word_embeddings", defaults.tied)?;
        let context = keys.integer(&[
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
            "max_seq_len",
            "seq_length",
        ])?;
        let architecture = Architecture {
            hidden: widths.hidden,
            feed_forward: widths.feed_forward,
            heads: widths.heads,
            vocabulary: keys.number(&["vocab_size"], defaults.vocabulary)?,
            context,
            tied,
            experts: reader.experts(&widths)?,
            encoding: encoding(&keys),
            layers: layers.iter().map(|layer| layer.mixer(widths.hidden)).collect(),
        };
        let mut doubts = Vec::new();
        if generic {
            doubts.push(Doubt::of_weights(format!(
                "model type '{model_type}' is unknown and read as Llama's"
            )));
            doubts.push(Doubt::of_context(format!("the attention of '{model_type}' is unknown")));
        }
        let mut config = Config {
            model_type: model_type.clone(),
            generic,
            architecture,
            quantization: None,
            doubts,
            family,
            head: widths.head,
            bias: keys.flag("attention_bias", false)?,
            feed_bias: keys.flag("mlp_bias", false)?,
            narrowed: keys.integer(&["moe_latent_size", "routed_expert_hidden_size"])?.is_some(),
            layers,
        };
        if let Some(quantization) = Quantization::read(&keys) {
            config.set_quantization(quantization);
        }
        Ok(config)
    };
    match read() {
        Err(ConfigError::Missing(_)) if generic => {
            Err(ConfigError::Unknown { name: model_type, known: known() })
        }
        other => other,
    }
}

/// Returns the element type that the weights have, if the configuration says so.
fn encoding(keys: &Keys<'_>) -> Option<Encoding> {
    let name = keys.text("dtype").or_else(|| keys.text("torch_dtype"))?;
    Encoding::named(match name.strip_prefix("torch.").unwrap_or(name) {
        "bfloat16" => "BF16",
        "float16" | "half" => "F16",
        "float32" | "float" => "F32",
        "float8_e4m3fn" => "F8_E4M3",
        _ => return None,
    })
}

impl Config {
    /// Derives the tensors that the model has, one per matrix and vector; the experts of a layer
    /// are one tensor per matrix.
    ///
    /// Names are those of Llama in transformers (`model.layers.0.self_attn.q_proj.weight`), in
    /// every family. Elements are of the type that the configuration states, else `F32` as
    /// transformers assumes. A quantized matrix keeps its shape; its bytes are those of the weights,
    /// scales and tables that the files hold for it.
    ///
    /// # Errors
    /// If the family's matrices do not follow from its configuration, or a size overflows.
    pub fn tensors(&self) -> Result<Vec<Tensor>, ConfigError> {
        let tensors = tensors::derive(self)?;
        Ok(match &self.quantization {
            Some(quantization) => {
                tensors.into_iter().map(|tensor| quantization.stored(tensor)).collect()
            }
            None => tensors,
        })
    }

    /// Sets how weights are quantized, with what is not understood of that.
    pub(crate) fn set_quantization(&mut self, quantization: Quantization) {
        self.doubts.extend(quantization.doubts.iter().map(Doubt::of_weights));
        self.quantization = Some(quantization);
    }

    /// Returns the model with the tensors that [`Config::tensors`] derives.
    ///
    /// # Errors
    /// If the tensors cannot be derived.
    pub fn model(&self) -> Result<Model, ConfigError> {
        Ok(Model {
            name: self.model_type.clone(),
            architecture: self.model_type.clone(),
            tensors: self.tensors()?,
            shape: Some(self.architecture.clone()),
            method: self.quantization.as_ref().map(|quantization| quantization.method.clone()),
            doubts: self.doubts.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
