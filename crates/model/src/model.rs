//! A model as the headers of its files describe it.

use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;

/// A model: its tensors, and the numbers that decide what it takes when it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// A name, from the file or its path.
    pub name: String,
    /// The architecture, such as `llama` or `deepseek2`.
    pub architecture: String,
    /// The tensors, in the order of the files; empty if only the configuration is known.
    pub tensors: Vec<Tensor>,
    /// The numbers of the architecture, if the files have them.
    pub shape: Option<Architecture>,
    /// The method by which a checkpoint of PyTorch is quantized, such as `awq`; `None` if it is not.
    pub method: Option<String>,
    /// What is not understood of the model. Any doubt makes the verdict an estimate.
    pub doubts: Vec<Doubt>,
}

/// A property of a model that is not understood and may change what the model takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The figure that may be wrong.
    pub about: Figure,
    /// What is not understood: a lowercase fragment that names the key or the type.
    pub text: String,
}

/// A figure that a doubt makes an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Figure {
    /// The bytes of the weights. The tensors of weight files remove such a doubt.
    Weights,
    /// The bits of an element of the weights. A choice of weights removes such a doubt, too.
    Element,
    /// What the layers keep of a sequence. Weight files do not remove such a doubt.
    Context,
}

impl Doubt {
    /// Returns a doubt about the bits of an element of the weights.
    pub fn of_element(text: impl Into<String>) -> Doubt {
        Doubt { about: Figure::Element, text: text.into() }
    }

    /// Returns a doubt about the bytes of the weights.
    pub fn of_weights(text: impl Into<String>) -> Doubt {
        Doubt { about: Figure::Weights, text: text.into() }
    }

    /// Returns a doubt about what the layers keep of a sequence.
    pub fn of_context(text: impl Into<String>) -> Doubt {
        Doubt { about: Figure::Context, text: text.into() }
    }
}

impl Model {
    /// Returns the bytes of all tensors.
    pub fn bytes(&self) -> Bytes {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }
}

/// The numbers of a transformer, a recurrent model, or a hybrid of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Architecture {
    /// The width of the residual stream.
    pub hidden: u64,
    /// The width of the feed-forward layers.
    pub feed_forward: u64,
    /// Attention heads of a layer.
    pub heads: u64,
    /// Entries of the vocabulary.
    pub vocabulary: u64,
    /// The longest context that the model was trained for, in tokens.
    pub context: Option<u64>,
    /// Whether the output uses the matrix of the input embedding.
    pub tied: bool,
    /// The experts of a layer, and how many of them a token uses.
    pub experts: Option<Experts>,
    /// The element type of the weights, where there are no tensors that tell.
    pub encoding: Option<Encoding>,
    /// The layers, from the first to the last.
    pub layers: Vec<Mixer>,
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many a layer has.
    pub count: u64,
    /// How many a token uses.
    pub used: u64,
    /// The width of one.
    pub feed_forward: u64,
    /// The experts that every token uses.
    pub shared: u64,
    /// How many of the first layers have none.
    pub dense_layers: u64,
}

/// What mixes the tokens of a layer, and so what it keeps of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixer {
    /// Attention with keys and values of every token (MHA, GQA, MQA).
    Attention {
        /// Heads of keys and values.
        kv_heads: u64,
        /// Elements of a key.
        key: u64,
        /// Elements of a value.
        value: u64,
        /// The tokens that a token sees, if not all.
        window: Option<u64>,
    },
    /// Multi-head latent attention: one compressed vector for all heads.
    Latent {
        /// Elements of the compressed vector (`kv_lora_rank`).
        rank: u64,
        /// Elements of the part with positions (`qk_rope_head_dim`).
        rope: u64,
    },
    /// A state of constant size, whatever the number of tokens (Mamba, delta nets, LFM2).
    Recurrent {
        /// Elements of the convolution's state of a sequence.
        convolution: u64,
        /// Elements of the state of a sequence.
        state: u64,
    },
    /// Attention and a state side by side in one layer (Falcon-H1).
    Parallel {
        /// Heads of keys and values.
        kv_heads: u64,
        /// Elements of a key.
        key: u64,
        /// Elements of a value.
        value: u64,
        /// Elements of the convolution's state of a sequence.
        convolution: u64,
        /// Elements of the state of a sequence.
        state: u64,
    },
    /// Nothing is kept: the layer has no mixer, or uses what another layer keeps.
    Nothing,
}

impl Mixer {
    /// Returns the mixers that work side by side in the layer, none of them [`Mixer::Parallel`].
    pub fn parts(self) -> [Mixer; 2] {
        match self {
            Mixer::Parallel { kv_heads, key, value, convolution, state } => [
                Mixer::Attention { kv_heads, key, value, window: None },
                Mixer::Recurrent { convolution, state },
            ],
            single => [single, Mixer::Nothing],
        }
    }
}
