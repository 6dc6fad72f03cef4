//! Model configurations (`config.json`), and the architecture that they describe.
//!
//! A table generated from transformers defines which tensors a model of each type has, and what a
//! missing key means, so that a model's memory is known before it is downloaded. The memory that a
//! layer keeps per token does not follow from tensors; it is read here, using the keys of each
//! family.

mod family;
mod keys;
mod layer;
mod layers;
mod older;
mod quantization;
mod rope;
mod table;
mod tensors;

pub use quantization::Quantization;

use crate::model::{Architecture, Doubt, Model};
use crate::need::assumed_tensors;
use crate::need::{is_encoder, is_output_matrix};
use crate::read::name::shown;
use crate::tensor::{Encoding, Tensor};
use family::Family;
use gpu_core::Bytes;
use keys::Keys;
use layers::Reader;
use serde_json::{Map, Value};
use tensors::Classes;

/// The maximum size of a configuration in bytes.
pub const MAX_CONFIG_BYTES: u64 = 8 << 20;

/// Why a configuration was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not a JSON object.
    #[error("parse the configuration")]
    Json(#[from] serde_json::Error),
    /// The configuration has more bytes than the limit.
    #[error("read the configuration: {0} bytes are more than 8 MiB")]
    TooLarge(u64),
    /// A key is missing, and its class has no default.
    #[error("read the configuration: '{0}' is missing")]
    Missing(&'static str),
    /// A value is not valid for its key.
    #[error("read '{key}' of the configuration: {found} is not {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, shortened.
        found: String,
        /// The expected value.
        wanted: &'static str,
    },
    /// The configuration does not name a type.
    #[error("read the configuration: 'model_type' is missing")]
    Nameless,
    /// The number of layers is 0 or above the limit.
    #[error("read the configuration: {0} layers, expected 1 to 4096")]
    Layers(u64),
    /// The model type is unknown, and it lacks the keys that most models share.
    #[error(
        "read the configuration: model type '{name}' is not one of the {known} known types, and \
         lacks the keys that most models share"
    )]
    Unknown {
        /// The model type.
        name: String,
        /// The number of known types.
        known: usize,
    },
    /// The table lacks the tensors of the type.
    #[error("derive the tensors of model type '{0}': the type is unknown")]
    Underived(String),
    /// A key that determines a tensor's shape is missing, or is not a valid dimension.
    #[error("derive tensor '{0}': the configuration has no valid numbers for its shape")]
    Size(String),
    /// A tensor is too large to count, or its elements do not fill whole bytes.
    #[error("derive tensor '{0}': its size cannot be counted")]
    Overflow(String),
}

/// A parsed configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The type of the (language) model, such as `llama`, without `_text`.
    pub model_type: String,
    /// Whether the type is unknown, so that the keys that most models share were interpreted like
    /// Llama's. Attention may then be wrong.
    pub generic: bool,
    /// The architecture.
    pub architecture: Architecture,
    /// How the weights are quantized, if the configuration states it.
    pub quantization: Option<Quantization>,
    /// Parts of the configuration that are not understood.
    pub doubts: Vec<Doubt>,
    /// Notes about the derived tensors.
    pub notes: Vec<String>,
    /// Its classes in the table, if the type is known.
    classes: Option<Classes>,
}

/// Reads a configuration.
///
/// # Errors
/// If the text is not a configuration, a number is missing or implausible, or the model type is
/// unknown and lacks the keys that most models share.
pub fn read(text: &[u8]) -> Result<Config, ConfigError> {
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge(text.len() as u64));
    }
    let root = older::modern(&serde_json::from_slice(text)?);
    let classes = Classes::of(&root);
    let complete = classes.as_ref().and_then(Classes::text);
    let keys = Keys::new(&root, complete.as_ref());
    let model_type = keys.model_type();
    match known(&root, classes, &keys, &model_type) {
        Err(ConfigError::Missing(_)) if complete.is_none() && model_type.is_empty() => {
            Err(ConfigError::Nameless)
        }
        Err(ConfigError::Missing(_)) if complete.is_none() => {
            Err(ConfigError::Unknown { name: model_type, known: table::known() })
        }
        other => other,
    }
}

fn known(
    root: &Map<String, Value>,
    classes: Option<Classes>,
    keys: &Keys<'_>,
    model_type: &str,
) -> Result<Config, ConfigError> {
    let generic = classes.is_none();
    let reader = Reader { keys, family: Family::named(model_type), is_known: !generic };
    let widths = reader.widths()?;
    let mut architecture = Architecture {
        hidden: widths.hidden,
        feed_forward: widths.feed_forward,
        heads: widths.heads,
        vocabulary: keys.number(&["vocab_size"], 0)?,
        context: rope::context(keys, model_type)?,
        tied: keys.flag("tie_word_embeddings", false)?,
        experts: reader.experts(&widths)?,
        encoding: encoding(keys),
        layers: reader.layers(&widths)?,
    };
    let mut doubts = Vec::new();
    let mut config = Config {
        model_type: model_type.to_owned(),
        generic,
        quantization: None,
        architecture: architecture.clone(),
        doubts: Vec::new(),
        notes: Vec::new(),
        classes,
    };
    if generic {
        doubts.push(Doubt::of_weights(format!(
            "model type '{model_type}' is unknown; it is read like Llama"
        )));
        let experts = keys.naming("expert").join(", ");
        if architecture.experts.is_none() && !experts.is_empty() {
            doubts.push(Doubt::of_weights(format!("the experts are not counted: {experts}")));
        }
        doubts.push(Doubt::of_context(format!("the attention of '{model_type}' is unknown")));
    } else if let Ok((tensors, unknown)) = config.plain() {
        doubts.extend(unknown.into_iter().map(Doubt::of_weights));
        config.notes = notes(&tensors, keys)?;
        // The derived tensors show whether the output has its own matrix.
        architecture.tied = !tensors.iter().any(|tensor| is_output_matrix(&tensor.name));
    } else {
        // The error of `tensors` names the missing part; the cause is a part of unknown type.
        let unknown = config.classes.as_ref().map(Classes::unknown).unwrap_or_default();
        doubts.extend(unknown.into_iter().map(Doubt::of_weights));
    }
    doubts.extend(reader.doubts(model_type).into_iter().map(Doubt::of_context));
    doubts.extend(rope::doubt(keys).map(Doubt::of_context));
    doubts.extend(unknown_type(keys).map(Doubt::of_element));
    config.architecture = architecture;
    config.doubts = doubts;
    let own = Keys::new(root, None);
    if let Some(quantization) = Quantization::read(&own) {
        config.set_quantization(quantization);
    }
    config.doubts.extend(Quantization::unread(&own).map(Doubt::of_weights));
    Ok(config)
}

/// Returns notes about the derived tensors: which are counted in addition to the language model,
/// and which are omitted.
fn notes(tensors: &[Tensor], keys: &Keys<'_>) -> Result<Vec<String>, ConfigError> {
    let encoders = tensors.iter().filter(|tensor| is_encoder(&tensor.name));
    let bytes: Bytes = encoders.map(|tensor| tensor.bytes).sum();
    let counted = (bytes > Bytes(0))
        .then(|| format!("the image and audio parts are included: {bytes}, before quantization"));
    let names = ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"];
    let more = keys.integer(&names)?.filter(|count| *count > 0);
    let left = more.map(|count| {
        format!(
            "the layers for multi-token prediction are omitted (modules: {count}); engines \
                 load them only for speculative decoding"
        )
    });
    Ok(counted.into_iter().chain(left).collect())
}

/// Returns the element type of the weights, if the configuration states it.
fn encoding(keys: &Keys<'_>) -> Option<Encoding> {
    let name = keys.text("dtype").or_else(|| keys.text("torch_dtype"))?;
    Encoding::named(match name.strip_prefix("torch.").unwrap_or(name) {
        "bfloat16" | "bf16" => "BF16",
        "float16" | "half" | "fp16" => "F16",
        "float32" | "float" | "fp32" => "F32",
        "float64" | "double" => "F64",
        "float8_e4m3fn" => "F8_E4M3",
        "float8_e5m2" => "F8_E5M2",
        _ => return None,
    })
}

/// Returns a doubt about an element type that is not understood.
fn unknown_type(keys: &Keys<'_>) -> Option<String> {
    let given = |key| Some((key, keys.given(key).filter(|value| !value.is_null())?));
    let (key, value) = given("dtype").or_else(|| given("torch_dtype"))?;
    (encoding(keys).is_none() && value != "auto").then(|| {
        format!("'{key}' is {}, which is not an element type; 16 bits are assumed", brief(value))
    })
}

/// Returns a configuration value for a message: shortened, without control characters.
fn brief(value: &Value) -> String {
    const MAX_CHARS: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", shown(text.get(..end).unwrap_or_default())),
        None => shown(&text),
    }
}

impl Config {
    /// Derives the model's tensors, one per matrix and vector; the experts of a layer form one
    /// tensor per matrix.
    ///
    /// Names are those of transformers. Elements have the type that the configuration states, or
    /// else `F16`, because engines load models in 16 bits and files contain what they load. A
    /// quantized matrix keeps its shape; its bytes include the weights, scales and tables that the
    /// files hold for it. Layers for multi-token prediction are omitted, because no engine loads
    /// them by default.
    ///
    /// # Errors
    /// If the type is unknown, the configuration lacks a key, or a size overflows.
    pub fn tensors(&self) -> Result<Vec<Tensor>, ConfigError> {
        let (tensors, _) = self.plain()?;
        Ok(match &self.quantization {
            Some(quantization) => {
                tensors.into_iter().map(|tensor| quantization.stored(tensor)).collect()
            }
            None => tensors,
        })
    }

    /// Returns the tensors that most models with these dimensions have, for types with tensors that
    /// cannot be derived from the configuration.
    pub(crate) fn assumed(&self) -> Vec<Tensor> {
        let tensors = assumed_tensors(&self.architecture).into_iter();
        match &self.quantization {
            Some(quantization) => tensors.map(|tensor| quantization.stored(tensor)).collect(),
            None => tensors.collect(),
        }
    }

    /// Sets how weights are quantized, including doubts about it.
    pub(crate) fn set_quantization(&mut self, quantization: Quantization) {
        self.doubts.extend(quantization.doubts.iter().map(Doubt::of_weights));
        self.quantization = Some(quantization);
    }

    /// Returns the tensors before quantization, and what the table does not know about them.
    fn plain(&self) -> Result<(Vec<Tensor>, Vec<String>), ConfigError> {
        let unknown = || ConfigError::Underived(self.model_type.clone());
        let classes = self.classes.as_ref().ok_or_else(unknown)?;
        let encoding = self.architecture.encoding.unwrap_or(Encoding::F16);
        let (tensors, mut doubts) = classes.tensors(encoding)?;
        doubts.extend(classes.doubt.clone());
        Ok((tensors, doubts))
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
