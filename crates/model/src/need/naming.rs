//! Assigns tensors to layers by name.
//!
//! Two conventions cover nearly all files: GGUF's `blk.N.ffn_up.weight`, and the module paths of
//! PyTorch, `model.layers.N.mlp.up_proj.weight`, where lists of blocks have only a few different
//! names.

/// The layer of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorLayer {
    Input,
    Block(u64),
    Output,
}

/// The purpose of a tensor in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Attention or another mixer, norms, and everything not listed below.
    Attention,
    /// The router of experts.
    Router,
    /// The gate of a dense feed-forward layer, or gate and up projection combined.
    Gate,
    /// The up projection of a dense feed-forward layer.
    Up,
    /// The down projection of a dense feed-forward layer.
    Down,
    /// Gates of experts that every token uses.
    SharedGate,
    /// Up projections of experts that every token uses.
    SharedUp,
    /// Down projections of experts that every token uses.
    SharedDown,
    /// Gates of routed experts, or gate and up projection combined.
    ExpertGate,
    /// Up projections of routed experts.
    ExpertUp,
    /// Down projections of routed experts.
    ExpertDown,
}

impl Kind {
    /// Returns whether a token uses only part of it.
    pub fn is_routed(self) -> bool {
        matches!(self, Kind::ExpertGate | Kind::ExpertUp | Kind::ExpertDown)
    }
}

/// Names of lists of blocks.
const LISTS: [&str; 7] = ["layers", "layer", "blk", "h", "block", "blocks", "decoder_layers"];

/// Words in a path, before the layer number, that mark a tensor of an image or audio encoder, which
/// runs before the blocks, or of a second model next to the language model.
const ENCODERS: [&str; 16] = [
    "vision",
    "visual",
    "vit",
    "image",
    "video",
    "audio",
    "speech",
    "projector",
    "connector",
    "qformer",
    "perceiver",
    "resampler",
    "aligner",
    "talker",
    "token2wav",
    "code2wav",
];

/// The same in llama.cpp files, as the first part of a path.
const ENCODER_PREFIXES: [&str; 3] = ["v", "a", "mm"];

/// Parts of a path that mark input embeddings.
const INPUTS: [&str; 16] = [
    "token_embd",
    "token_embd_norm",
    "token_types",
    "position_embd",
    "per_layer_token_embd",
    "embed_tokens",
    "embed_tokens_per_layer",
    "embed_positions",
    "embed_in",
    "embeddings",
    "embedding",
    "tok_embeddings",
    "word_embeddings",
    "word_embeddings_layernorm",
    "wte",
    "wpe",
];

pub(crate) fn tensor_layer(name: &str) -> TensorLayer {
    let parts = || name.split('.');
    if is_encoder(name) {
        return TensorLayer::Input;
    }
    let mut before = "";
    for part in parts() {
        if LISTS.contains(&before)
            && let Ok(number) = part.parse()
        {
            return TensorLayer::Block(number);
        }
        before = part;
    }
    if parts().any(|part| INPUTS.contains(&part)) {
        TensorLayer::Input
    } else {
        TensorLayer::Output
    }
}

/// Returns whether a tensor belongs to an encoder, or to a second model.
pub(crate) fn is_encoder(name: &str) -> bool {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut outer = name.split('.').take_while(|part| !is_number(part));
    let first = name.split('.').next().unwrap_or_default();
    ENCODER_PREFIXES.contains(&first)
        || outer.any(|part| ENCODERS.iter().any(|encoder| part.contains(encoder)))
}

/// Returns whether a tensor is the output matrix.
pub(crate) fn is_output_matrix(name: &str) -> bool {
    let mut parts = name.split('.').rev();
    let last = parts.next();
    let module = parts.next().unwrap_or_default();
    last == Some("weight") && matches!(module, "output" | "lm_head" | "embed_out")
}

/// Returns whether a tensor is the input embedding matrix.
pub(crate) fn is_input_matrix(name: &str) -> bool {
    const MATRICES: [&str; 7] = [
        "token_embd",
        "embed_tokens",
        "embed_in",
        "tok_embeddings",
        "word_embeddings",
        "wte",
        "embeddings",
    ];
    let mut parts = name.split('.').rev();
    let last = parts.next();
    last == Some("weight") && parts.next().is_some_and(|module| MATRICES.contains(&module))
}

/// Returns the purpose of a tensor in a block.
pub(crate) fn kind(name: &str) -> Kind {
    let has = |text: &str| name.contains(text);
    let has_part = |text: &str| name.split('.').any(|part| part == text);
    if has("self_attn") || has("attention") || has("attn_") || has_part("attn") {
        return Kind::Attention;
    }
    if has("ffn_gate_inp") || has_part("gate") || has_part("router") || has("shared_expert_gate") {
        return Kind::Router;
    }
    let shared = has("shexp") || has("shared_expert") || has("shared_mlp");
    let routed = !shared && (has("exps") || has_part("experts") || has_part("block_sparse_moe"));
    let pick = |dense, all, some| match (shared, routed) {
        (true, _) => all,
        (_, true) => some,
        _ => dense,
    };
    if has("ffn_gate")
        || has("gate_proj")
        || has("gate_up")
        || has("input_linear")
        || has_part("w1")
    {
        pick(Kind::Gate, Kind::SharedGate, Kind::ExpertGate)
    } else if ["ffn_up", "up_proj", "fc1", "c_fc", "h_to_4h", "fc_in", "intermediate.dense"]
        .iter()
        .any(|text| has(text))
        || has_part("w3")
    {
        pick(Kind::Up, Kind::SharedUp, Kind::ExpertUp)
    } else if [
        "ffn_down",
        "down_proj",
        "fc2",
        "mlp.c_proj",
        "4h_to_h",
        "fc_out",
        "output.dense",
        "output_linear",
    ]
    .iter()
    .any(|text| has(text))
        || has_part("w2")
    {
        pick(Kind::Down, Kind::SharedDown, Kind::ExpertDown)
    } else {
        Kind::Attention
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_follows_from_name() {
        for (name, layer) in [
            ("blk.31.attn_q.weight", TensorLayer::Block(31)),
            ("model.layers.7.mlp.experts.12.up_proj.weight", TensorLayer::Block(7)),
            ("transformer.h.3.attn.c_attn.weight", TensorLayer::Block(3)),
            ("bert.encoder.layer.11.output.dense.bias", TensorLayer::Block(11)),
            ("token_embd.weight", TensorLayer::Input),
            ("model.embed_tokens.weight", TensorLayer::Input),
            ("bert.embeddings.position_embeddings.weight", TensorLayer::Input),
            ("model.visual.blocks.4.norm1.weight", TensorLayer::Input),
            ("vision_tower.vision_model.encoder.layers.0.fc1.weight", TensorLayer::Input),
            ("model.language_model.layers.3.mlp.up_proj.weight", TensorLayer::Block(3)),
            ("model.multi_modal_projector.linear_1.weight", TensorLayer::Input),
            ("talker.model.layers.2.mlp.up_proj.weight", TensorLayer::Input),
            ("model.layers.2.mlp.vision_experts.up_proj", TensorLayer::Block(2)),
            ("model.embed_tokens_per_layer.weight", TensorLayer::Input),
            ("output_norm.weight", TensorLayer::Output),
            ("lm_head.weight", TensorLayer::Output),
            ("bert.pooler.dense.weight", TensorLayer::Output),
        ] {
            assert_eq!(tensor_layer(name), layer, "{name}");
        }
        assert_eq!(tensor_layer("blk.99999999999999999999999.x"), TensorLayer::Output);
        assert_eq!(tensor_layer(""), TensorLayer::Output);
    }

    #[test]
    fn kind_follows_from_name() {
        for (name, expected) in [
            ("blk.0.attn_output.weight", Kind::Attention),
            ("blk.0.ffn_norm.weight", Kind::Attention),
            ("blk.0.ffn_gate_inp.weight", Kind::Router),
            ("blk.0.ffn_gate_exps.weight", Kind::ExpertGate),
            ("blk.0.ffn_gate_up_exps.weight", Kind::ExpertGate),
            ("blk.0.ffn_down_shexp.weight", Kind::SharedDown),
            ("model.layers.0.mlp.gate.weight", Kind::Router),
            ("model.layers.0.mlp.gate_proj.weight", Kind::Gate),
            ("model.layers.0.block_sparse_moe.experts.3.w2.weight", Kind::ExpertDown),
            ("model.layers.0.block_sparse_moe.input_linear.weight", Kind::ExpertGate),
            ("model.layers.0.block_sparse_moe.router.layer.weight", Kind::Router),
            ("model.layers.0.mlp.experts.gate_up_proj", Kind::ExpertGate),
            ("model.layers.0.mlp.gate.e_score_correction_bias", Kind::Router),
            ("model.layers.0.mlp.shared_mlp.down_proj.weight", Kind::SharedDown),
            ("bert.encoder.layer.0.attention.output.dense.weight", Kind::Attention),
            ("bert.encoder.layer.0.intermediate.dense.weight", Kind::Up),
            ("bert.encoder.layer.0.output.dense.weight", Kind::Down),
            ("transformer.h.0.mlp.c_proj.weight", Kind::Down),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }
}
