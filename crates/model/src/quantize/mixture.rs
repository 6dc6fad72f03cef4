//! The mixtures of llama.cpp, which determine the encoding of each matrix.
//!
//! Source: `llama_tensor_get_type_impl`, `tensor_allows_quantization` and `tensor_type_fallback` of
//! `src/llama-quant.cpp`, with an importance matrix, which nearly all published files use.

use super::role::Role;
use crate::model::{Architecture, Mixer};
use crate::need::{Kind, TensorLayer, kind, tensor_layer};
use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;
use std::collections::BTreeSet;

/// A mixture, by the name that llama-quantize uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mixture {
    /// The name of the rules, such as `Q4_K_M`.
    pub(super) rules: &'static str,
    /// The encoding of most matrices.
    pub(super) base: &'static str,
    /// The encoding of embedding and output, if it differs from that of the rules.
    pub(super) ends: Option<&'static str>,
}

/// The matrices that the rules distinguish.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Query,
    Key,
    /// Values, or queries, keys and values combined.
    Value,
    AttentionOutput,
    Up,
    Gate,
    Down,
    Other,
}

impl Part {
    fn of(name: &str) -> Part {
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let module = name.strip_suffix(".weight").unwrap_or(name);
        match kind(name) {
            Kind::Gate | Kind::SharedGate | Kind::ExpertGate => return Part::Gate,
            Kind::Up | Kind::SharedUp | Kind::ExpertUp => return Part::Up,
            Kind::Down | Kind::SharedDown | Kind::ExpertDown => return Part::Down,
            Kind::Router | Kind::Attention => {}
        }
        let ends = |parts: &[&str]| parts.iter().any(|part| module.ends_with(part));
        if has(&["attn_qkv", "qkv_proj", "query_key_value", "Wqkv", "attn.c_attn"])
            || ends(&["attn_v", ".v_proj", ".wv", "attention.self.value"])
        {
            Part::Value
        } else if ends(&["attn_k", ".k_proj", ".wk", "attention.self.key"]) {
            Part::Key
        } else if ends(&["attn_q", ".q_proj", ".wq", "attention.self.query"]) {
            Part::Query
        } else if ends(&[
            "attn_output",
            ".o_proj",
            ".wo",
            "attn.c_proj",
            "self_attn.out_proj",
            "attention.dense",
            "self_attention.dense",
        ]) {
            Part::AttentionOutput
        } else {
            Part::Other
        }
    }
}

/// The dimensions of a model that the rules depend on.
pub(super) struct Facts {
    layers: u64,
    /// The layers that have values, in order.
    values: BTreeSet<u64>,
    /// The number of heads that share a key head.
    sharing: u64,
    experts: u64,
    is_falcon: bool,
    has_output: bool,
}

impl Facts {
    pub(super) fn of(architecture: &str, shape: &Architecture, tensors: &[Tensor]) -> Facts {
        let has_values = |tensor: &&Tensor| Part::of(&tensor.name) == Part::Value;
        let kv = shape.layers.iter().flat_map(|mixer| mixer.parts()).find_map(|part| match part {
            Mixer::Attention { kv_heads, .. } => Some(kv_heads),
            Mixer::Latent { .. } => Some(1),
            _ => None,
        });
        Facts {
            layers: shape.layers.len() as u64,
            values: tensors.iter().filter(has_values).filter_map(layer).collect(),
            sharing: shape.heads.checked_div(kv.unwrap_or(0)).unwrap_or(1),
            experts: shape.experts.map_or(0, |experts| experts.count),
            is_falcon: architecture == "falcon",
            has_output: tensors.iter().any(|tensor| Role::of(tensor) == Role::Output),
        }
    }
}

fn layer(tensor: &Tensor) -> Option<u64> {
    match tensor_layer(&tensor.name) {
        TensorLayer::Block(number) => Some(number),
        TensorLayer::Input | TensorLayer::Output => None,
    }
}

/// Returns whether a layer, out of this many, gets more bits: the first and last eighth, and every
/// third layer.
fn more_bits(layer: u64, layers: u64) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || layer.saturating_sub(layers / 8) % 3 == 2
}

impl Mixture {
    /// Returns the bytes of a tensor in a file of this mixture.
    pub(super) fn bytes(self, tensor: &Tensor, facts: &Facts) -> Bytes {
        let elements = tensor.elements();
        let of = |encoding: Encoding| encoding.bytes(elements).map(Bytes);
        let role = Role::of(tensor);
        let dimensions = tensor.shape.iter().filter(|n| **n > 1).count();
        if role == Role::Other || dimensions < 2 {
            // Vectors, routers and convolutions stay in 32 bits.
            return of(Encoding::F32).unwrap_or(tensor.bytes);
        }
        let row = tensor.shape.last().copied().unwrap_or_default();
        let chosen = Encoding::named(self.encoding(tensor, role, row, facts));
        let fits = |to: &Encoding| row.is_multiple_of(to.block());
        let chosen = chosen.filter(fits).or_else(|| narrower(chosen?).filter(fits));
        chosen.and_then(of).or(of(Encoding::F16)).unwrap_or(tensor.bytes)
    }

    fn encoding(self, tensor: &Tensor, role: Role, row: u64, facts: &Facts) -> &'static str {
        let is_whole =
            Encoding::named(self.base).is_none_or(|base| row.is_multiple_of(base.block()));
        let is_plain = matches!(self.base, "F32" | "F16" | "BF16");
        match role {
            _ if is_plain => self.base,
            Role::Output | Role::Embedding if self.ends.is_some() => self.ends.unwrap_or(self.base),
            Role::Embedding if facts.has_output => match self.rules {
                "MXFP4_MOE" => "Q8_0",
                "IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M" => "Q2_K",
                "IQ2_S" | "IQ2_M" | "IQ3_XXS" => "IQ3_S",
                "TQ1_0" | "TQ2_0" => "Q4_K",
                _ => self.base,
            },
            Role::Output | Role::Embedding => match self.rules {
                "MXFP4_MOE" | "Q8_0" => "Q8_0",
                _ if facts.is_falcon || !is_whole => "Q8_0",
                "IQ1_S" | "IQ1_M" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ2_M" | "IQ3_XXS" => "Q5_K",
                _ => "Q6_K",
            },
            Role::Expert if self.rules == "MXFP4_MOE" => "MXFP4",
            Role::Linear if self.rules == "MXFP4_MOE" => "Q8_0",
            _ => self.matrix(Part::of(&tensor.name), layer(tensor).unwrap_or(0), facts),
        }
    }

    /// Returns the encoding of a matrix of a block.
    fn matrix(self, part: Part, layer: u64, facts: &Facts) -> &'static str {
        let &Facts { layers, sharing, experts, is_falcon, .. } = facts;
        let is_first = layer < layers / 8;
        let (is_grouped, is_mixtral) = (sharing >= 4, experts == 8);
        if self.rules.starts_with("IQ1") || self.rules.starts_with("IQ2") {
            let is_wide = matches!(self.rules, "IQ2_S" | "IQ2_M");
            return match part {
                Part::Value if is_grouped || experts >= 4 => "Q4_K",
                Part::Value => {
                    if is_wide {
                        "IQ3_S"
                    } else {
                        "Q2_K"
                    }
                }
                Part::Key if is_mixtral => "Q4_K",
                Part::Down if is_first => {
                    if is_wide {
                        "IQ3_S"
                    } else {
                        "Q2_K"
                    }
                }
                Part::AttentionOutput if is_mixtral => "Q5_K",
                Part::AttentionOutput if self.rules.starts_with("IQ1") => "IQ2_XXS",
                Part::AttentionOutput if is_wide => "IQ3_S",
                _ => self.base,
            };
        }
        match (part, self.rules) {
            (Part::Value, _) => self.values(layer, facts),
            (Part::Key, _) if is_mixtral => "Q8_0",
            (Part::Key | Part::Query, "IQ3_XS") => "IQ3_XXS",
            (Part::Key | Part::Query, "IQ3_XXS") => "IQ2_S",
            (Part::Down, "Q2_K") => "Q3_K",
            (Part::Down, "Q2_K_S") if is_first => "Q4_K",
            (Part::Down, "Q3_K_M") if layer < layers / 16 => "Q5_K",
            (Part::Down, "Q3_K_M") if !is_falcon || more_bits(layer, layers) => "Q4_K",
            (Part::Down, "IQ3_M") if is_first || is_mixtral && more_bits(layer, layers) => "Q4_K",
            (Part::Down, "Q3_K_L") => {
                if is_falcon {
                    "Q4_K"
                } else {
                    "Q5_K"
                }
            }
            (Part::Down, "Q4_K_M") if is_falcon && layer < layers / 16 => "Q6_K",
            (Part::Down, "Q4_K_M") if more_bits(layer, layers) => {
                if is_falcon {
                    "Q5_K"
                } else {
                    "Q6_K"
                }
            }
            (Part::Down, "Q5_K_M") if more_bits(layer, layers) => "Q6_K",
            (Part::Down, "Q4_K_S") if is_first && !is_falcon => "Q5_K",
            (Part::Down, "Q4_0") if is_first => "Q4_1",
            (Part::Down, "Q5_0") if is_first => "Q5_1",
            (Part::AttentionOutput, "Q3_K_L") if is_falcon => "Q4_K",
            (Part::AttentionOutput, _) if is_falcon => self.base,
            (
                Part::AttentionOutput,
                "Q2_K" | "IQ3_XS" | "IQ3_XXS" | "Q3_K_S" | "Q3_K_M" | "IQ4_NL" | "Q4_K_S"
                | "Q4_K_M" | "IQ3_S" | "IQ3_M" | "IQ4_XS",
            ) if is_mixtral => "Q5_K",
            (Part::AttentionOutput, _) if is_mixtral => self.base,
            (Part::AttentionOutput, "Q2_K") => "Q3_K",
            (Part::AttentionOutput, "IQ3_XXS") => "IQ3_S",
            (Part::AttentionOutput, "Q3_K_M" | "IQ3_M") => "Q4_K",
            (Part::AttentionOutput, "Q3_K_L") => "Q5_K",
            (Part::Gate | Part::Up, "IQ3_XS") if !is_first && layer < 7 * layers / 8 => "IQ3_XXS",
            _ => self.base,
        }
    }

    /// Returns the encoding of attention values.
    fn values(self, layer: u64, facts: &Facts) -> &'static str {
        if facts.experts == 8 {
            return "Q8_0";
        }
        let (at, count) = (facts.values.range(..layer).count() as u64, facts.values.len() as u64);
        let is_grouped = facts.sharing >= 4;
        let chosen = match self.rules {
            "Q2_K" if is_grouped => "Q4_K",
            "Q2_K" => "Q3_K",
            "Q2_K_S" | "IQ3_XXS" | "IQ3_XS" | "IQ3_S" if is_grouped => "Q4_K",
            "IQ3_M" => "Q4_K",
            "Q3_K_M" => {
                if at < 2 {
                    "Q5_K"
                } else {
                    "Q4_K"
                }
            }
            "Q3_K_L" => "Q5_K",
            "IQ4_NL" | "IQ4_XS" if is_grouped => "Q5_K",
            "Q4_K_M" | "Q5_K_M" if more_bits(at, count) => "Q6_K",
            "Q4_K_S" if at < 4 => "Q5_K",
            _ => self.base,
        };
        // The 70B models have 80 layers and share each key head.
        match chosen {
            "Q3_K" | "Q4_K" if facts.layers == 80 && facts.sharing > 1 => "Q5_K",
            chosen => chosen,
        }
    }
}

/// Returns the encoding with blocks of 32, for a matrix with rows that are not a multiple of 256.
fn narrower(to: Encoding) -> Option<Encoding> {
    Encoding::named(match to.name() {
        "Q6_K" => "Q8_0",
        "Q5_K" => "Q5_1",
        "Q4_K" => "Q5_0",
        "Q2_K" | "Q3_K" | "TQ1_0" | "TQ2_0" => "Q4_0",
        _ if to.block() == 256 => "IQ4_NL",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
