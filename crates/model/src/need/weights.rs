//! The weights of each layer, by purpose.

use super::naming::{self, Kind, TensorLayer};
use super::product;
use crate::model::{Architecture, Mixer, Model};
use crate::quantize::Scheme;
use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;

/// A part of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its purpose.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Bytes,
    /// Its number of parameters.
    pub elements: u64,
    /// The bytes that are read per token; for routed experts, only those in use.
    pub reads: Bytes,
    /// The operations per token.
    pub operations: u64,
}

/// The weights of a model by layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    pub(super) input: Sum,
    pub(super) blocks: Vec<Vec<Part>>,
    pub(super) output: Sum,
    /// The input embedding matrix.
    pub(super) embedding: Sum,
    pub(super) has_output_matrix: bool,
}

/// A sum of tensors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) bytes: Bytes,
    pub(super) elements: u64,
}

impl Sum {
    pub(super) fn add(&mut self, other: Sum) {
        self.bytes += other.bytes;
        self.elements = self.elements.saturating_add(other.elements);
    }
}

/// Returns the weights by layer, as stored or converted to a scheme. Numbered blocks beyond the
/// layers of the architecture, such as those for multi-token prediction, count as output.
pub(super) fn weights(model: &Model, shape: &Architecture, to: Option<Scheme>) -> Weights {
    let assumed;
    let tensors = if model.tensors.is_empty() {
        assumed = assumed_tensors(shape);
        &assumed
    } else {
        &model.tensors
    };
    let converter = to.map(|to| to.converter(model, shape, tensors));
    let mut weights =
        Weights { blocks: vec![Vec::new(); shape.layers.len()], ..Weights::default() };
    for tensor in tensors {
        let bytes = converter.as_ref().map_or(tensor.bytes, |to| to.bytes(tensor));
        let size = Sum { bytes, elements: tensor.elements() };
        weights.has_output_matrix |= naming::is_output_matrix(&tensor.name);
        match naming::tensor_layer(&tensor.name) {
            TensorLayer::Input => {
                weights.input.add(size);
                if naming::is_input_matrix(&tensor.name) {
                    weights.embedding.add(size);
                }
            }
            TensorLayer::Block(number) => {
                let block = usize::try_from(number).ok();
                match block.and_then(|block| weights.blocks.get_mut(block)) {
                    Some(parts) => add_part(parts, naming::kind(&tensor.name), size),
                    None => weights.output.add(size),
                }
            }
            TensorLayer::Output => weights.output.add(size),
        }
    }
    weights
}

fn add_part(parts: &mut Vec<Part>, kind: Kind, size: Sum) {
    match parts.iter_mut().find(|part| part.kind == kind) {
        Some(part) => {
            part.bytes += size.bytes;
            part.elements = part.elements.saturating_add(size.elements);
        }
        None => parts.push(Part {
            kind,
            bytes: size.bytes,
            elements: size.elements,
            reads: Bytes(0),
            operations: 0,
        }),
    }
}

/// Returns assumed tensors for a model of which only the configuration is known: attention with
/// four projections, feed-forward layers with gate, up and down projections, and norms without
/// bias.
pub(crate) fn assumed_tensors(shape: &Architecture) -> Vec<Tensor> {
    let encoding = shape.encoding.unwrap_or(Encoding::F16);
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: &[u64]| {
        let elements = product(shape);
        let bytes = encoding.bytes(elements).map_or(Bytes(elements.saturating_mul(2)), Bytes);
        tensors.push(Tensor { name, encoding, shape: shape.to_vec(), bytes });
    };
    let hidden = shape.hidden;
    add("model.embed_tokens.weight".to_owned(), &[shape.vocabulary, hidden]);
    for (layer, mixer) in shape.layers.iter().enumerate() {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        add(name("input_layernorm"), &[hidden]);
        add(name("post_attention_layernorm"), &[hidden]);
        for part in mixer.parts() {
            match part {
                Mixer::Attention { kv_heads, key, value, .. } => {
                    add(name("self_attn.q_proj"), &[product(&[shape.heads, key]), hidden]);
                    add(name("self_attn.k_proj"), &[product(&[kv_heads, key]), hidden]);
                    add(name("self_attn.v_proj"), &[product(&[kv_heads, value]), hidden]);
                    add(name("self_attn.o_proj"), &[hidden, product(&[shape.heads, value])]);
                }
                // The width of a head is unknown, except that DeepSeek's is a quarter of the rank.
                Mixer::Latent { rank, rope } => {
                    let head = rank / 4;
                    let wide = head.saturating_add(rope);
                    add(name("self_attn.q_proj"), &[product(&[shape.heads, wide]), hidden]);
                    add(name("self_attn.kv_a_proj_with_mqa"), &[rank.saturating_add(rope), hidden]);
                    add(name("self_attn.kv_b_proj"), &[product(&[shape.heads, head, 2]), rank]);
                    add(name("self_attn.o_proj"), &[hidden, product(&[shape.heads, head])]);
                }
                Mixer::Recurrent { .. } => {
                    add(name("mamba.in_proj"), &[product(&[hidden, 4]), hidden]);
                    add(name("mamba.out_proj"), &[hidden, product(&[hidden, 2])]);
                }
                Mixer::Parallel { .. } | Mixer::Nothing => {}
            }
        }
        let routed = shape.experts.filter(|experts| layer as u64 >= experts.dense_layers);
        match routed {
            Some(experts) => {
                let wide = experts.feed_forward;
                add(name("mlp.gate"), &[experts.count, hidden]);
                add(name("mlp.experts.gate_proj"), &[experts.count, wide, hidden]);
                add(name("mlp.experts.up_proj"), &[experts.count, wide, hidden]);
                add(name("mlp.experts.down_proj"), &[experts.count, hidden, wide]);
                if experts.shared > 0 {
                    let wide = product(&[wide, experts.shared]);
                    add(name("mlp.shared_experts.gate_proj"), &[wide, hidden]);
                    add(name("mlp.shared_experts.up_proj"), &[wide, hidden]);
                    add(name("mlp.shared_experts.down_proj"), &[hidden, wide]);
                }
            }
            None => {
                add(name("mlp.gate_proj"), &[shape.feed_forward, hidden]);
                add(name("mlp.up_proj"), &[shape.feed_forward, hidden]);
                add(name("mlp.down_proj"), &[hidden, shape.feed_forward]);
            }
        }
    }
    add("model.norm.weight".to_owned(), &[hidden]);
    if !shape.tied {
        add("lm_head.weight".to_owned(), &[shape.vocabulary, hidden]);
    }
    tensors
}
