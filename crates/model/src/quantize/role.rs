//! The role of a tensor in the rules of quantization.

use crate::need::{Kind, TensorLayer, is_input_matrix, is_output_matrix, kind, tensor_layer};
use crate::tensor::Tensor;

/// The role of a tensor in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A matrix of a block that is multiplied by a batch.
    Linear,
    /// A matrix, or a stack of matrices, of routed experts.
    Expert,
    /// The output matrix.
    Output,
    /// The input embedding matrix.
    Embedding,
    /// A norm, bias, router or convolution, which is never quantized.
    Other,
}

/// Parts of tensor names that no method quantizes.
const KEPT: [&str; 11] = [
    "conv",
    "A_log",
    ".ssm_a",
    ".ssm_d",
    "rotary",
    "embed_positions",
    "position_embd",
    "token_types",
    ".wpe.",
    "rg_lru",
    ".bias",
];

impl Role {
    /// Returns the role of a tensor, from its name and shape.
    pub(crate) fn of(tensor: &Tensor) -> Role {
        let name = tensor.name.as_str();
        let is_matrix = tensor.shape.len() > 1 && tensor.shape.iter().rev().take(2).all(|n| *n > 1);
        if is_output_matrix(name) {
            return Role::Output;
        }
        if is_input_matrix(name) || name == "per_layer_token_embd.weight" {
            return Role::Embedding;
        }
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let is_norm = module.rsplit('.').next().is_some_and(|last| last.contains("norm"));
        match kind(name) {
            _ if !is_matrix || is_norm || KEPT.iter().any(|part| name.contains(part)) => {
                Role::Other
            }
            Kind::Router => Role::Other,
            kind if kind.is_routed() => Role::Expert,
            _ if matches!(tensor_layer(name), TensorLayer::Block(_)) => Role::Linear,
            _ => Role::Other,
        }
    }
}
