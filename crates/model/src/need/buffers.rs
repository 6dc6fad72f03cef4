//! The compute buffers of an engine.
//!
//! llama.cpp's graph allocator reuses memory as soon as a tensor is consumed, so a buffer is as
//! large as the peak: the logits of a batch on the output device, or the widest point of a block on
//! others. The formulas follow the graph of a block (`llama-graph.cpp`). They match llama.cpp's
//! reservation to the MiB for llama, qwen3moe and gemma3, and are up to 13 % lower where the
//! allocator fragments (deepseek2).

use super::context::stream_cells;
use super::{Engine, Run, product};
use crate::model::{Architecture, Mixer};
use gpu_core::Bytes;

/// The number of copies of the inputs that llama.cpp keeps when layers on several devices form a
/// pipeline (`GGML_SCHED_MAX_COPIES`).
const COPIES: u64 = 4;

/// The buffers of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buffers {
    /// While the layer computes outside a pipeline.
    pub(super) alone: Bytes,
    /// While the layer computes as part of a pipeline.
    pub(super) pipelined: Bytes,
    /// The incoming data that a device holds if it starts with this layer.
    pub(super) entry: Bytes,
}

/// The sizes of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    shape: &'a Architecture,
    run: &'a Run,
    /// The bytes of the attention masks.
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

    /// Returns the bytes of an activation element.
    fn width(&self) -> u64 {
        if self.run.engine == Engine::LlamaCpp { 4 } else { 2 }
    }

    /// Returns the bytes of a batch with this many elements per token.
    fn rows(&self, elements: u64) -> Bytes {
        Bytes(product(&[elements, self.tokens(), self.width()]))
    }

    fn hidden(&self, times: u64) -> Bytes {
        self.rows(product(&[self.shape.hidden, times]))
    }

    /// Returns the bytes of the attention masks, which llama.cpp passes as inputs: 16 bits per pair
    /// of token and cell, or 32 bits without flash attention.
    fn masks(&self) -> Bytes {
        if self.run.engine != Engine::LlamaCpp {
            return Bytes(0);
        }
        let width = if self.run.flash_attention { 2 } else { 4 };
        // One mask for all layers with a window and one for all layers without, regardless of
        // window size.
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
                // The sum and its norm cross devices: the norm has no weight that would bind it to
                // one.
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

    /// Returns the buffers of the output: for llama.cpp, the logits of a batch; for vLLM, those of
    /// each sequence's last token, in 32 bits and with two copies for sampling; for transformers, those
    /// of each sequence's last token, in 32 bits.
    pub(super) fn output(&self) -> Buffers {
        let vocabulary = self.shape.vocabulary;
        let logits = match self.run.engine {
            Engine::LlamaCpp => self.rows(vocabulary),
            Engine::Vllm => Bytes(product(&[vocabulary, SAMPLED, 4, 3])),
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

    /// Returns the compute buffer of a CPU that holds only the input embedding.
    pub(super) fn input(&self) -> Bytes {
        self.masks + self.hidden(2)
    }

    /// Returns the bytes per token that pass from layer to layer.
    pub(super) fn crossing(&self) -> Bytes {
        Bytes(product(&[self.shape.hidden, self.width()]))
    }
}

/// The number of sequences for which vLLM reserves logits when it measures itself (`max_num_seqs`).
const SAMPLED: u64 = 256;
