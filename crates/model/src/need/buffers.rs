//! The buffers in which an engine computes.
//!
//! llama.cpp's allocator of graphs reuses memory as soon as a tensor is consumed, so a buffer is as
//! large as the largest moment: the logits of a batch on the device of the output, or the widest
//! point of a block elsewhere. The formulas follow the graph of a block (`llama-graph.cpp`); they
//! agree with what llama.cpp reserves to the MiB for llama, qwen3moe and gemma3, and are up to 13 %
//! lower where the allocator fragments (deepseek2).

use super::context::stream_cells;
use super::{Engine, Run, product};
use crate::model::{Architecture, Mixer};
use gpu_core::Bytes;

/// Copies of the inputs that llama.cpp keeps when layers on several devices work as a pipeline
/// (`GGML_SCHED_MAX_COPIES`).
const COPIES: u64 = 4;

/// The buffers of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buffers {
    /// While the layer computes, without a pipeline.
    pub(super) alone: Bytes,
    /// While it computes as part of a pipeline.
    pub(super) pipelined: Bytes,
    /// What a device holds of the data that comes in, if it begins with this layer.
    pub(super) entry: Bytes,
}

/// The sizes of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    shape: &'a Architecture,
    run: &'a Run,
    /// The bytes of the masks of attention.
    masks: Bytes,
}

impl<'a> Batch<'a> {
    pub(super) fn new(shape: &'a Architecture, run: &'a Run) -> Self {
        let batch = Batch { shape, run, masks: Bytes(0) };
        Batch { masks: batch.masks(), ..batch }
    }

    fn tokens(&self) -> u64 {
        match self.run.engine {
            Engine::LlamaCpp => self.run.batch().min(self.run.context).max(1),
            Engine::Vllm => self.run.batch().max(1),
            Engine::Transformers => product(&[self.run.batch().max(1), self.run.sequences.max(1)]),
        }
    }

    /// Returns the bytes of an element of an activation.
    fn width(&self) -> u64 {
        if self.run.engine == Engine::LlamaCpp { 4 } else { 2 }
    }

    /// Returns the bytes of a batch with this many elements for each token.
    fn rows(&self, elements: u64) -> Bytes {
        Bytes(product(&[elements, self.tokens(), self.width()]))
    }

    fn hidden(&self, times: u64) -> Bytes {
        self.rows(product(&[self.shape.hidden, times]))
    }

    /// Returns the bytes of the masks of attention, which llama.cpp passes in as inputs: 16 bits for
    /// each pair of token and cell, 32 without flash attention.
    fn masks(&self) -> Bytes {
        if self.run.engine != Engine::LlamaCpp {
            return Bytes(0);
        }
        let width = if self.run.flash_attention { 2 } else { 4 };
        // One for all layers with a window and one for those without, whatever their sizes.
        let mut seen = Vec::new();
        for mixer in self.shape.layers.iter().flat_map(|mixer| mixer.parts()) {
            let cells = match mixer {
                Mixer::Attention { window, .. } => {
                    (window.is_some(), stream_cells(self.run, window))
                }
                Mixer::Latent { .. } => (false, stream_cells(self.run, None)),
                Mixer::Recurrent { .. } | Mixer::Parallel { .. } | Mixer::Nothing => continue,
            };
            if !seen.contains(&cells) {
                seen.push(cells);
            }
        }
        seen.iter().map(|(_, cells)| Bytes(product(&[*cells, self.tokens(), width]))).sum()
    }

    /// Returns the buffers of a block.
    pub(super) fn block(&self, layer: usize, with_experts: bool) -> Buffers {
        let feed_forward = self.feed_forward(layer, with_experts);
        let mixer = self.shape.layers.get(layer).copied().unwrap_or(Mixer::Nothing);
        let mixers = mixer.parts().into_iter().filter(|part| *part != Mixer::Nothing);
        let widest = mixers.map(|part| self.mixer(part)).fold(feed_forward, Bytes::max);
        let masks = self.masks;
        let crossings = if layer == 0 { 1 } else { 2 };
        Buffers {
            alone: masks + widest,
            pipelined: Bytes(product(&[masks.0, COPIES])) + widest,
            entry: match self.run.engine {
                // The sum and its norm cross: the norm has no weight that would bind it.
                Engine::LlamaCpp => self.hidden(COPIES * crossings),
                Engine::Vllm | Engine::Transformers => Bytes(0),
            },
        }
    }

    fn feed_forward(&self, layer: usize, with_experts: bool) -> Bytes {
        let routed = self.shape.experts.filter(|experts| layer as u64 >= experts.dense_layers);
        let inner = match routed {
            Some(experts) if with_experts => {
                let each = product(&[experts.feed_forward, 3]).saturating_add(self.shape.hidden);
                let used = match self.run.engine {
                    Engine::LlamaCpp => experts.used,
                    Engine::Vllm | Engine::Transformers => experts.used.saturating_add(1),
                };
                product(&[used, each])
            }
            Some(_) => 0,
            None => product(&[self.shape.feed_forward, 3]),
        };
        self.rows(inner) + self.hidden(3)
    }

    fn mixer(&self, mixer: Mixer) -> Bytes {
        let heads = self.shape.heads;
        let (queries, cached) = match mixer {
            Mixer::Attention { kv_heads, key, value, .. } => {
                (product(&[heads, key]), product(&[kv_heads, key.saturating_add(value)]))
            }
            Mixer::Latent { rank, rope } => {
                let wide = rank.saturating_add(rope);
                (product(&[heads, wide]), wide)
            }
            Mixer::Recurrent { .. } | Mixer::Parallel { .. } | Mixer::Nothing => {
                (self.shape.hidden, 0)
            }
        };
        let states = self.hidden(2) + self.rows(product(&[queries, 2])) + self.rows(cached);
        let window = match mixer {
            Mixer::Attention { window, .. } => window,
            Mixer::Latent { .. } => None,
            Mixer::Recurrent { .. } | Mixer::Parallel { .. } | Mixer::Nothing => return states,
        };
        if self.run.flash_attention {
            return states;
        }
        let seen = match self.run.engine {
            Engine::LlamaCpp => stream_cells(self.run, window),
            Engine::Vllm | Engine::Transformers => self.run.context,
        };
        states + self.rows(product(&[seen, heads]))
    }

    /// Returns the buffers of the output: the logits of a batch for llama.cpp; of each sequence's
    /// last token, in 32 bits and with two copies for sampling, for vLLM; of all tokens, once more in
    /// 32 bits, for transformers in training.
    pub(super) fn output(&self) -> Buffers {
        let vocabulary = self.shape.vocabulary;
        let logits = match self.run.engine {
            Engine::LlamaCpp => self.rows(vocabulary),
            Engine::Vllm => Bytes(product(&[vocabulary, SAMPLED, 4, 3])),
            Engine::Transformers if self.run.training.is_some() => self.rows(vocabulary),
            Engine::Transformers => Bytes(product(&[vocabulary, self.run.sequences.max(1), 4])),
        };
        let alone = logits + self.hidden(1);
        let masks = Bytes(product(&[self.masks.0, COPIES]));
        let entry = match self.run.engine {
            Engine::LlamaCpp => self.hidden(COPIES * 2),
            Engine::Vllm | Engine::Transformers => Bytes(0),
        };
        Buffers { alone, pipelined: alone + masks, entry }
    }

    /// Returns what the CPU computes in if it holds nothing but the input embedding.
    pub(super) fn input(&self) -> Bytes {
        self.masks + self.hidden(2)
    }

    /// Returns the bytes of a token that pass from layer to layer.
    pub(super) fn crossing(&self) -> Bytes {
        Bytes(product(&[self.shape.hidden, self.width()]))
    }
}

/// Sequences whose logits vLLM reserves when it measures itself (`max_num_seqs`).
const SAMPLED: u64 = 256;
