//! A model as described by the headers of its files.

use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;

/// A model: its tensors, and the numbers that determine how much memory it needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// A name, from the file or its path.
    pub name: String,
    /// The architecture, such as `llama` or `deepseek2`.
    pub architecture: String,
    /// The tensors, in the order of the files; empty if only the configuration is known.
    pub tensors: Vec<Tensor>,
    /// The dimensions of the architecture, if the files have them.
    pub shape: Option<Architecture>,
    /// The quantization method of a PyTorch checkpoint, such as `awq`; `None` if it is not
    /// quantized.
    pub method: Option<String>,
    /// Properties of the model that are not understood. Any doubt makes the verdict an estimate.
    pub doubts: Vec<Doubt>,
}

/// A property of a model that is not understood and may change how much memory it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The figure that may be wrong.
    pub about: Figure,
    /// The property that is not understood: a lowercase fragment that names the key or type.
    pub text: String,
}

/// A figure that a doubt turns into an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Figure {
    /// The bytes of the weights. If weight files exist, their tensors remove this doubt.
    Weights,
    /// The bits per element of the weights. Choosing a scheme for the weights removes this doubt
    /// too.
    Element,
    /// The memory that layers keep for a sequence. Weight files do not remove this doubt.
    Context,
}

impl Doubt {
    /// Returns a doubt about the bits per element of the weights.
    pub fn of_element(text: impl Into<String>) -> Doubt {
        Doubt { about: Figure::Element, text: text.into() }
    }

    /// Returns a doubt about the bytes of the weights.
    pub fn of_weights(text: impl Into<String>) -> Doubt {
        Doubt { about: Figure::Weights, text: text.into() }
    }

    /// Returns a doubt about the memory that layers keep for a sequence.
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

/// The dimensions of a transformer, a recurrent model, or a hybrid of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Architecture {
    /// The width of the residual stream.
    pub hidden: u64,
    /// The width of the feed-forward layers.
    pub feed_forward: u64,
    /// The number of attention heads of a layer.
    pub heads: u64,
    /// The number of entries in the vocabulary.
    pub vocabulary: u64,
    /// The maximum context that the model was trained for, in tokens.
    pub context: Option<u64>,
    /// Whether the output uses the input embedding matrix.
    pub tied: bool,
    /// The experts of a layer, and how many of them each token uses.
    pub experts: Option<Experts>,
    /// The element type of the weights, if there are no tensors to determine it.
    pub encoding: Option<Encoding>,
    /// The layers, from first to last.
    pub layers: Vec<Mixer>,
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// The number of experts in a layer.
    pub count: u64,
    /// The number of experts that a token uses.
    pub used: u64,
    /// The width of an expert.
    pub feed_forward: u64,
    /// The experts that every token uses.
    pub shared: u64,
    /// The number of layers at the start without experts.
    pub dense_layers: u64,
}

/// How a layer mixes tokens, which determines the memory that it keeps for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixer {
    /// Attention with keys and values of every token (MHA, GQA, MQA).
    Attention {
        /// The number of heads for keys and values.
        kv_heads: u64,
        /// The number of elements of a key.
        key: u64,
        /// The number of elements of a value.
        value: u64,
        /// The number of tokens that a token can attend to, if limited.
        window: Option<u64>,
    },
    /// Multi-head latent attention: one compressed vector for all heads.
    Latent {
        /// The number of elements of the compressed vector (`kv_lora_rank`).
        rank: u64,
        /// The number of elements of the positional part (`qk_rope_head_dim`).
        rope: u64,
    },
    /// A state of constant size, independent of the number of tokens (Mamba, delta nets, LFM2).
    Recurrent {
        /// The elements of the convolution state per sequence.
        convolution: u64,
        /// The elements of the state per sequence.
        state: u64,
    },
    /// Attention and a state in parallel in one layer (Falcon-H1).
    Parallel {
        /// The number of heads for keys and values.
        kv_heads: u64,
        /// The number of elements of a key.
        key: u64,
        /// The number of elements of a value.
        value: u64,
        /// The elements of the convolution state per sequence.
        convolution: u64,
        /// The elements of the state per sequence.
        state: u64,
    },
    /// No state: the layer has no mixer, or uses the keys and values of another layer.
    Nothing,
}

impl Mixer {
    /// Returns the mixers that work in parallel in the layer, none of them [`Mixer::Parallel`].
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
