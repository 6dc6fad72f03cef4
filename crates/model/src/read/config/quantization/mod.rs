//! How a configuration describes quantized weights, and how the files then store each tensor.
//!
//! A configuration is a list of rules: names or kinds of tensors, and how they are stored. The
//! first rule that matches a tensor applies; without a match, the tensor stays unquantized.

mod checks;
mod groups;
mod methods;
mod pattern;
mod regex;
mod values;

use super::keys::Keys;
use crate::quantize::{Packing, Role};
use crate::tensor::{Encoding, Tensor};
use pattern::{Names, aliases};
use values::Values;

/// How the weights of a checkpoint are quantized.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    /// The method, such as `awq`, in lower case with hyphens.
    pub method: String,
    /// Parts that are not understood: fragments that name the key.
    pub doubts: Vec<String>,
    /// The encoding of keys and values that vLLM takes from the checkpoint.
    pub cache: Option<Encoding>,
    rules: Vec<Rule>,
}

/// How tensors of a kind or with certain names are stored; `None` leaves them unquantized.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    which: Which,
    packing: Option<Packing>,
}

/// The tensors that a rule covers.
#[derive(Clone, Debug, PartialEq)]
enum Which {
    /// Matrices with these names.
    Names(Names),
    /// The matrices of blocks, except for routers, convolutions and norms.
    Linear,
    /// The matrices of routed experts.
    Experts,
    /// The output matrix.
    Output,
    /// The input embedding matrix.
    Embedding,
}

/// The keys of the quantization object.
const NAMED: [&str; 2] = ["quantization_config", "compression_config"];

impl Quantization {
    /// Reads the quantization object of a configuration; `None` if there is none.
    pub(super) fn read(keys: &Keys<'_>) -> Option<Quantization> {
        let object = |name: &str| keys.given(name)?.as_object().filter(|map| !map.is_empty());
        if let Some(map) = NAMED.iter().find_map(|name| object(name)) {
            return Some(methods::read(Values(map)));
        }
        // MLX writes `quantization`, and no method.
        object("quantization").map(|map| methods::mlx(Values(map)))
    }

    /// Returns a doubt about a value that replaces the quantization object.
    pub(super) fn unread(keys: &Keys<'_>) -> Option<String> {
        let given = |key: &'static str| Some((key, keys.given(key)?));
        let mut found = NAMED.into_iter().filter_map(given);
        let (key, value) = found.find(|(_, value)| !value.is_null() && !value.is_object())?;
        let value = super::brief(value);
        Some(format!("'{key}' is {value}, not an object: the weights count as unquantized"))
    }

    /// Reads the quantization file next to a configuration: `hf_quant_config.json` of modelopt,
    /// `quantize_config.json` of GPTQ or `quant_config.json` of AWQ.
    pub(crate) fn of_file(name: &str, text: &[u8]) -> Option<Quantization> {
        let map: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).ok()?;
        methods::of_file(name, Values(&map))
    }

    fn new(method: &str) -> Quantization {
        let method = method.to_owned();
        Quantization { method, doubts: Vec::new(), cache: None, rules: Vec::new() }
    }

    fn rule(&mut self, which: Which, packing: Option<Packing>) {
        self.rules.push(Rule { which, packing });
    }

    /// Leaves tensors with these names unquantized.
    fn keep<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.named(Names::new(names), None);
    }

    fn named(&mut self, names: Names, packing: Option<Packing>) {
        if let Some(name) = &names.unread {
            let name = super::shown(name);
            self.doubts
                .push(format!("the pattern '{name}' of quantized tensors is not understood"));
        }
        if !names.is_empty() {
            self.rule(Which::Names(names), packing);
        }
    }

    fn doubt(&mut self, text: impl Into<String>) {
        self.doubts.push(text.into());
    }

    /// Returns a tensor of the unquantized model as the files of the quantized model store it: with
    /// its own shape, and the bytes of the weights, scales and tables that replace it.
    pub(super) fn stored(&self, tensor: Tensor) -> Tensor {
        match self.packing(&tensor) {
            Some(packing) => {
                Tensor { encoding: packing.encoding, bytes: packing.bytes_of(&tensor), ..tensor }
            }
            None => tensor,
        }
    }

    fn packing(&self, tensor: &Tensor) -> Option<Packing> {
        let role = Role::of(tensor);
        if role == Role::Other {
            return None;
        }
        let names = aliases(&tensor.name);
        let means = |which: &Which| match which {
            Which::Names(list) => list.contain(&names),
            Which::Linear => matches!(role, Role::Linear | Role::Expert),
            Which::Experts => role == Role::Expert,
            Which::Output => role == Role::Output,
            Which::Embedding => role == Role::Embedding,
        };
        self.rules.iter().find(|rule| means(&rule.which))?.packing
    }
}

#[cfg(test)]
mod tests;
