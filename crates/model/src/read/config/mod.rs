//! Configurations of models (`config.json`), and the architecture that they describe.
//!
//! A table made from transformers says which tensors a model of each type has, and what a missing
//! key means, so that the need of a model is known before it is downloaded. What a layer keeps of a
//! token does not follow from tensors: it is read here, by the keys of each family.

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
    #[error("read '{key}' of the configuration: {found} is not {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, shortened.
        found: String,
        /// What is wanted.
        wanted: &'static str,
    },
    /// The configuration names no type.
    #[error("read the configuration: 'model_type' is missing")]
    Nameless,
    /// The number of layers is 0 or above the limit.
    #[error("read the configuration: {0} layers are not from 1 to 4096")]
    Layers(u64),
    /// The model type is unknown, and its keys are not those of most models.
    #[error(
        "read the configuration: model type '{name}' is none of the {known} known types, and has not the keys that most models share"
    )]
    Unknown {
        /// The model type.
        name: String,
        /// How many types are known.
        known: usize,
    },
    /// The table does not have the tensors of the type.
    #[error("derive the tensors of model type '{0}': the type is unknown")]
    Underived(String),
    /// A key that a tensor's shape depends on is missing, or no number that can be a dimension.
    #[error("derive tensor '{0}': the configuration has no valid numbers for its shape")]
    Size(String),
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
    /// Notes about the derived tensors.
    pub notes: Vec<String>,
    /// Its classes in the table, if the type is known.
    classes: Option<Classes>,
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
            "model type '{model_type}' is unknown and read as Llama's"
        )));
        let experts = keys.naming("expert").join(", ");
        if architecture.experts.is_none() && !experts.is_empty() {
            doubts.push(Doubt::of_weights(format!("the experts are not counted: {experts}")));
        }
        doubts.push(Doubt::of_context(format!("the attention of '{model_type}' is unknown")));
    } else if let Ok((tensors, unknown)) = config.plain() {
        doubts.extend(unknown.into_iter().map(Doubt::of_weights));
        config.notes = notes(&tensors, keys)?;
        // What is derived says whether the output has a matrix of its own.
        architecture.tied = !tensors.iter().any(|tensor| is_output_matrix(&tensor.name));
    } else {
        // The error of `tensors` names what is missing; a part of an unknown type is why.
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

/// Returns notes about the derived tensors: what is counted beside the language model, and what is
/// left out.
fn notes(tensors: &[Tensor], keys: &Keys<'_>) -> Result<Vec<String>, ConfigError> {
    let encoders = tensors.iter().filter(|tensor| is_encoder(&tensor.name));
    let bytes: Bytes = encoders.map(|tensor| tensor.bytes).sum();
    let counted = (bytes > Bytes(0)).then(|| {
        format!("the parts for images and sound are counted: {bytes}, before quantization")
    });
    let names = ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"];
    let more = keys.integer(&names)?.filter(|count| *count > 0);
    let left = more.map(|count| {
        format!("the layers that predict further tokens are left out (modules: {count}); engines load them for speculative decoding alone")
    });
    Ok(counted.into_iter().chain(left).collect())
}

/// Returns the element type that the weights have, if the configuration says so.
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

/// Returns the doubt about an element type that is not understood.
fn unknown_type(keys: &Keys<'_>) -> Option<String> {
    let given = |key| Some((key, keys.given(key).filter(|value| !value.is_null())?));
    let (key, value) = given("dtype").or_else(|| given("torch_dtype"))?;
    (encoding(keys).is_none() && value != "auto").then(|| {
        format!("'{key}' is {}, which is no element type; 16 bits are assumed", brief(value))
    })
}

/// Returns a value of a configuration for a message: shortened, without control characters.
fn brief(value: &Value) -> String {
    const LONGEST: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", shown(text.get(..end).unwrap_or_default())),
        None => shown(&text),
    }
}

impl Config {
    /// Derives the tensors that the model has, one per matrix and vector; the experts of a layer
    /// are one tensor per matrix.
    ///
    /// Names are those of transformers. Elements are of the type that the configuration states, else
    /// `F16`: engines load a model in 16 bits, and files have what they load. A quantized matrix keeps its shape; its bytes are those of the
    /// weights, scales and tables that the files hold for it. Layers that predict several tokens are
    /// not among them, because no engine loads them by default.
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

    /// Returns the tensors that most models with these numbers have, where the type's own do not
    /// follow from the configuration.
    pub(crate) fn assumed(&self) -> Vec<Tensor> {
        let tensors = assumed_tensors(&self.architecture).into_iter();
        match &self.quantization {
            Some(quantization) => tensors.map(|tensor| quantization.stored(tensor)).collect(),
            None => tensors.collect(),
        }
    }

    /// Sets how weights are quantized, with what is not understood of that.
    pub(crate) fn set_quantization(&mut self, quantization: Quantization) {
        self.doubts.extend(quantization.doubts.iter().map(Doubt::of_weights));
        self.quantization = Some(quantization);
    }

    /// Returns the tensors before they are quantized, and what the table does not know of them.
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
