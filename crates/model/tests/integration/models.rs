//! Models as their headers would describe them.

use gpu_core::Bytes;
use gpu_model::{Architecture, Encoding, Experts, Mixer, Model, Tensor};

pub(crate) fn encoding(name: &str) -> Encoding {
    Encoding::named(name).unwrap()
}

/// A transformer with dense layers, or with experts in all of them.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    pub(crate) layers: usize,
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head: u64,
    pub(crate) feed_forward: u64,
    pub(crate) vocabulary: u64,
    pub(crate) context: u64,
    pub(crate) tied: bool,
    /// The window, and the interval at which a layer has full attention.
    pub(crate) window: Option<(u64, usize)>,
    /// Whether queries and keys have norms.
    pub(crate) head_norms: bool,
    /// The number of full-width norms in a block.
    pub(crate) norms: usize,
    pub(crate) experts: Option<Experts>,
}

pub(crate) const LLAMA_8B: Config = Config {
    layers: 32,
    hidden: 4096,
    heads: 32,
    kv_heads: 8,
    head: 128,
    feed_forward: 14336,
    vocabulary: 128_256,
    context: 131_072,
    tied: false,
    window: None,
    head_norms: false,
    norms: 2,
    experts: None,
};

pub(crate) const LLAMA_1B: Config =
    Config { layers: 16, hidden: 2048, head: 64, feed_forward: 8192, tied: true, ..LLAMA_8B };

pub(crate) const MOE_30B: Config = Config {
    layers: 48,
    hidden: 2048,
    kv_heads: 4,
    feed_forward: 6144,
    vocabulary: 151_936,
    context: 40_960,
    head_norms: true,
    experts: Some(Experts { count: 128, used: 8, feed_forward: 768, shared: 0, dense_layers: 0 }),
    ..LLAMA_8B
};

pub(crate) const GEMMA_4B: Config = Config {
    layers: 34,
    hidden: 2560,
    heads: 8,
    kv_heads: 4,
    head: 256,
    feed_forward: 10240,
    vocabulary: 262_144,
    tied: true,
    window: Some((1024, 6)),
    head_norms: true,
    norms: 4,
    ..LLAMA_8B
};

pub(crate) const LLAMA_2_7B: Config =
    Config { kv_heads: 32, feed_forward: 11008, vocabulary: 32_000, context: 4096, ..LLAMA_8B };

pub(crate) const LLAMA_2_70B: Config = Config {
    layers: 80,
    hidden: 8192,
    heads: 64,
    feed_forward: 28672,
    vocabulary: 32_000,
    context: 4096,
    ..LLAMA_8B
};

impl Config {
    fn mixers(&self) -> Vec<Mixer> {
        let mixer = |layer: usize| {
            let window = self.window.filter(|(_, every)| !(layer + 1).is_multiple_of(*every));
            Mixer::Attention {
                kv_heads: self.kv_heads,
                key: self.head,
                value: self.head,
                window: window.map(|(tokens, _)| tokens),
            }
        };
        (0..self.layers).map(mixer).collect()
    }

    pub(crate) fn shape(&self) -> Architecture {
        Architecture {
            hidden: self.hidden,
            feed_forward: self.feed_forward,
            heads: self.heads,
            vocabulary: self.vocabulary,
            context: Some(self.context),
            tied: self.tied,
            experts: self.experts,
            encoding: None,
            layers: self.mixers(),
        }
    }

    /// Returns the model with GGUF names, and matrices in one encoding.
    pub(crate) fn gguf(&self, matrices: &str) -> Model {
        let mut model = Builder::new("llama", self.shape(), matrices);
        let (hidden, wide) = (self.hidden, self.feed_forward);
        let queries = self.heads * self.head;
        let keys = self.kv_heads * self.head;
        model.matrix("token_embd", &[self.vocabulary, hidden]);
        model.vector("output_norm", &[hidden]);
        if !self.tied {
            model.matrix("output", &[self.vocabulary, hidden]);
        }
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            for norm in 0..self.norms {
                model.vector(&name(&format!("norm_{norm}")), &[hidden]);
            }
            if self.head_norms {
                model.vector(&name("attn_q_norm"), &[self.head]);
                model.vector(&name("attn_k_norm"), &[self.head]);
            }
            model.matrix(&name("attn_q"), &[queries, hidden]);
            model.matrix(&name("attn_k"), &[keys, hidden]);
            model.matrix(&name("attn_v"), &[keys, hidden]);
            model.matrix(&name("attn_output"), &[hidden, queries]);
            match self.experts {
                Some(experts) => model.experts(layer, hidden, experts),
                None => {
                    model.matrix(&name("ffn_gate"), &[wide, hidden]);
                    model.matrix(&name("ffn_up"), &[wide, hidden]);
                    model.matrix(&name("ffn_down"), &[hidden, wide]);
                }
            }
        }
        model.model
    }

    /// Returns the model with PyTorch names, and all tensors in one encoding.
    pub(crate) fn safetensors(&self, all: &str) -> Model {
        let mut model = self.gguf(all);
        for tensor in &mut model.tensors {
            tensor.encoding = encoding(all);
            tensor.bytes = Bytes(tensor.encoding.bytes(tensor.elements()).unwrap());
            let name = tensor.name.trim_end_matches(".weight");
            let name = match name.strip_prefix("blk.") {
                Some(rest) => {
                    let (layer, part) = rest.split_once('.').unwrap();
                    let part = match part {
                        "attn_q" => "self_attn.q_proj",
                        "attn_k" => "self_attn.k_proj",
                        "attn_v" => "self_attn.v_proj",
                        "attn_output" => "self_attn.o_proj",
                        "ffn_gate" => "mlp.gate_proj",
                        "ffn_up" => "mlp.up_proj",
                        "ffn_down" => "mlp.down_proj",
                        other => other,
                    };
                    format!("model.layers.{layer}.{part}.weight")
                }
                None if name == "token_embd" => "model.embed_tokens.weight".to_owned(),
                None if name == "output" => "lm_head.weight".to_owned(),
                None => "model.norm.weight".to_owned(),
            };
            tensor.name = name;
        }
        model
    }
}

/// Builds the list of tensors of a model.
pub(crate) struct Builder {
    pub(crate) model: Model,
    matrices: Encoding,
}

impl Builder {
    pub(crate) fn new(architecture: &str, shape: Architecture, matrices: &str) -> Builder {
        let model = Model {
            name: "synthetic".to_owned(),
            architecture: architecture.to_owned(),
            tensors: Vec::new(),
            shape: Some(shape),
            method: None,
            doubts: Vec::new(),
        };
        Builder { model, matrices: encoding(matrices) }
    }

    pub(crate) fn matrix(&mut self, name: &str, shape: &[u64]) {
        self.add(format!("{name}.weight"), shape, self.matrices);
    }

    pub(crate) fn vector(&mut self, name: &str, shape: &[u64]) {
        self.add(format!("{name}.weight"), shape, encoding("F32"));
    }

    pub(crate) fn add(&mut self, name: String, shape: &[u64], encoding: Encoding) {
        let elements = shape.iter().product();
        let bytes = Bytes(encoding.bytes(elements).unwrap());
        self.model.tensors.push(Tensor { name, encoding, shape: shape.to_vec(), bytes });
    }

    pub(crate) fn experts(&mut self, layer: usize, hidden: u64, experts: Experts) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (count, wide) = (experts.count, experts.feed_forward);
        self.vector(&name("ffn_gate_inp"), &[count, hidden]);
        self.matrix(&name("ffn_gate_exps"), &[count, wide, hidden]);
        self.matrix(&name("ffn_up_exps"), &[count, wide, hidden]);
        self.matrix(&name("ffn_down_exps"), &[count, hidden, wide]);
        if experts.shared > 0 {
            let wide = wide * experts.shared;
            self.matrix(&name("ffn_gate_shexp"), &[wide, hidden]);
            self.matrix(&name("ffn_up_shexp"), &[wide, hidden]);
            self.matrix(&name("ffn_down_shexp"), &[hidden, wide]);
        }
    }
}

/// A model with latent attention, and with experts in all layers except the first: 16 billion
/// parameters.
pub(crate) fn deepseek_16b(matrices: &str) -> Model {
    let (layers, hidden, heads, wide) = (27, 2048, 16, 10944);
    let (rank, rope, nope, value) = (512, 64, 128, 128);
    let experts = Experts { count: 64, used: 6, feed_forward: 1408, shared: 2, dense_layers: 1 };
    let shape = Architecture {
        hidden,
        feed_forward: wide,
        heads,
        vocabulary: 102_400,
        context: Some(163_840),
        experts: Some(experts),
        layers: vec![Mixer::Latent { rank, rope }; layers],
        ..Architecture::default()
    };
    let mut model = Builder::new("deepseek2", shape, matrices);
    model.matrix("token_embd", &[102_400, hidden]);
    model.vector("output_norm", &[hidden]);
    model.matrix("output", &[102_400, hidden]);
    for layer in 0..layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        model.vector(&name("attn_norm"), &[hidden]);
        model.vector(&name("ffn_norm"), &[hidden]);
        model.vector(&name("attn_kv_a_norm"), &[rank]);
        model.matrix(&name("attn_q"), &[(nope + rope) * heads, hidden]);
        model.matrix(&name("attn_kv_a_mqa"), &[rank + rope, hidden]);
        model.matrix(&name("attn_k_b"), &[heads, rank, nope]);
        model.matrix(&name("attn_v_b"), &[heads, value, rank]);
        model.matrix(&name("attn_output"), &[hidden, value * heads]);
        if layer == 0 {
            model.matrix(&name("ffn_gate"), &[wide, hidden]);
            model.matrix(&name("ffn_up"), &[wide, hidden]);
            model.matrix(&name("ffn_down"), &[hidden, wide]);
        } else {
            model.experts(layer, hidden, experts);
        }
    }
    model.model
}

/// BERT with the names of transformers, without a head.
pub(crate) fn bert_base_cased() -> Model {
    let mut model = Builder::new("bert", Architecture::default(), "F32");
    let mut linear = |name: &str, out: u64, into: u64| {
        model.matrix(name, &[out, into]);
        model.add(format!("{name}.bias"), &[out], encoding("F32"));
    };
    for layer in 0..12 {
        let name = |part: &str| format!("bert.encoder.layer.{layer}.{part}");
        for part in ["query", "key", "value"] {
            linear(&name(&format!("attention.self.{part}")), 768, 768);
        }
        linear(&name("attention.output.dense"), 768, 768);
        linear(&name("attention.output.LayerNorm"), 768, 1);
        linear(&name("intermediate.dense"), 3072, 768);
        linear(&name("output.dense"), 768, 3072);
        linear(&name("output.LayerNorm"), 768, 1);
    }
    linear("bert.pooler.dense", 768, 768);
    linear("bert.embeddings.LayerNorm", 768, 1);
    for (part, rows) in [("word", 28_996), ("position", 512), ("token_type", 2)] {
        model.matrix(&format!("bert.embeddings.{part}_embeddings"), &[rows, 768]);
    }
    model.model.shape = Some(Architecture {
        hidden: 768,
        feed_forward: 3072,
        heads: 12,
        vocabulary: 28_996,
        context: Some(512),
        tied: false,
        experts: None,
        encoding: None,
        layers: vec![Mixer::Nothing; 12],
    });
    model.model
}

/// Returns a hybrid: attention in every fourth layer, and a gated delta net in the others.
pub(crate) fn hybrid(layers: usize, kv_heads: u64, values: u64) -> Vec<Mixer> {
    let attention = Mixer::Attention { kv_heads, key: 256, value: 256, window: None };
    let (keys, head) = (16, 128);
    let net = Mixer::Recurrent {
        convolution: 3 * (values * head + 2 * keys * head),
        state: values * head * head,
    };
    (0..layers).map(|i| if (i + 1) % 4 == 0 { attention } else { net }).collect()
}
