//! The memory that a layer keeps for the tokens it has seen.

use super::{Engine, Run, padded, product};
use crate::model::Mixer;
use crate::tensor::Encoding;
use gpu_core::Bytes;

/// llama.cpp pads the number of cache cells to a multiple of this (`llama-context.cpp`).
const CELLS: u64 = 256;
/// The number of tokens in a vLLM page.
const PAGE: u64 = 16;

/// Returns the number of tokens for which a layer has room, over all sequences, with or without a
/// window.
///
/// Unless sequences are unified, llama.cpp gives each its own stream. A layer with a window keeps
/// the window plus the batch being computed (`llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp`). vLLM
/// allocates pages of 16 tokens (`kv_cache_interface.py`). transformers keeps at most the window.
pub fn cells(run: &Run, window: Option<u64>) -> u64 {
    let sequences = run.sequences.max(1);
    match run.engine {
        Engine::LlamaCpp => {
            let streams = if run.unified { 1 } else { sequences };
            product(&[stream_cells(run, window), streams])
        }
        Engine::Vllm => {
            let in_flight = |window: u64| window.saturating_sub(1).saturating_add(run.batch());
            let kept = window.map_or(run.context, |window| run.context.min(in_flight(window)));
            product(&[padded(kept, PAGE), sequences])
        }
        Engine::Transformers => {
            product(&[window.map_or(run.context, |window| run.context.min(window)), sequences])
        }
    }
}

/// Returns the number of cells in a llama.cpp stream.
pub(super) fn stream_cells(run: &Run, window: Option<u64>) -> u64 {
    let sequences = run.sequences.max(1);
    let all = padded(run.context, CELLS);
    let stream = if run.unified { all } else { padded(all / sequences, CELLS) };
    match window.filter(|_| !run.full_windows) {
        Some(window) => {
            let windows = product(&[window, if run.unified { sequences } else { 1 }]);
            padded(stream.min(windows.saturating_add(run.batch())), CELLS)
        }
        None => stream,
    }
}

/// Returns the bytes of a layer's context, or of one rank's part if heads are divided over ranks.
///
/// Keys and values take `(key + value) × heads` elements per token. Multi-head latent attention
/// caches one vector of `rank + rope` elements for all heads, which every rank needs in full. State
/// of constant size is kept per sequence, by llama.cpp in 32 bits; other engines keep the
/// convolution in 16 bits.
pub fn context(mixer: Mixer, run: &Run, ranks: u64) -> Bytes {
    match mixer {
        Mixer::Attention { kv_heads, key, value, window } => {
            let heads = kv_heads.div_ceil(ranks.max(1));
            let row = row(run.keys, product(&[heads, key]))
                .saturating_add(row(run.values, product(&[heads, value])));
            Bytes(product(&[row, cells(run, window)]))
        }
        Mixer::Latent { rank, rope } => {
            let row = row(run.keys, rank.saturating_add(rope));
            Bytes(product(&[row, cells(run, None)]))
        }
        Mixer::Recurrent { convolution, state } => {
            let width = if run.engine == Engine::LlamaCpp { 4 } else { 2 };
            let bytes = product(&[convolution, width]).saturating_add(product(&[state, 4]));
            Bytes(product(&[bytes, run.sequences.max(1)]) / ranks.max(1))
        }
        Mixer::Parallel { .. } => {
            mixer.parts().into_iter().map(|part| context(part, run, ranks)).sum()
        }
        Mixer::Nothing => Bytes(0),
    }
}

/// Returns the bytes of a cache row.
fn row(encoding: Encoding, elements: u64) -> u64 {
    let blocks = padded(elements, encoding.block());
    encoding.bytes(blocks).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(context: u64) -> Run {
        Run::new(Engine::LlamaCpp, context)
    }

    const MIB: u64 = 1 << 20;
    const LLAMA: Mixer = Mixer::Attention { kv_heads: 8, key: 128, value: 128, window: None };

    #[test]
    fn keys_and_values_follow_heads_width_and_encoding() {
        assert_eq!(context(LLAMA, &run(32768), 1), Bytes(128 * MIB));
        assert_eq!(context(LLAMA, &run(32768), 2), Bytes(64 * MIB));
        let q8 = Encoding::named("Q8_0").unwrap();
        let quantised = Run { keys: q8, values: q8, ..run(32768) };
        assert_eq!(context(LLAMA, &quantised, 1), Bytes(68 * MIB));
    }

    #[test]
    fn llama_sequences_share_context() {
        let four = Run { sequences: 4, ..run(32768) };
        assert_eq!(context(LLAMA, &four, 1), Bytes(128 * MIB));
        let four = Run { sequences: 4, ..Run::new(Engine::Vllm, 32768) };
        assert_eq!(context(LLAMA, &four, 1), Bytes(512 * MIB));
    }

    #[test]
    fn window_bounds_cells() {
        assert_eq!(cells(&run(4000), None), 4096);
        assert_eq!(cells(&run(32768), Some(1024)), 1536);
        assert_eq!(cells(&Run { full_windows: true, ..run(32768) }, Some(1024)), 32768);
        assert_eq!(cells(&Run { sequences: 2, unified: true, ..run(32768) }, Some(1024)), 2560);
        assert_eq!(cells(&Run { sequences: 2, ..run(32768) }, Some(1024)), 3072);
        assert_eq!(cells(&Run::new(Engine::Transformers, 32768), Some(1024)), 1024);
        assert_eq!(cells(&Run::new(Engine::Vllm, 32768), Some(1024)), 9216);
    }

    #[test]
    fn latent_attention_caches_one_vector() {
        let mixer = Mixer::Latent { rank: 512, rope: 64 };
        assert_eq!(context(mixer, &run(16384), 1).0 * 61, 1098 * MIB);
        assert_eq!(context(mixer, &run(16384), 8), context(mixer, &run(16384), 1));
    }

    #[test]
    fn state_does_not_grow_with_context() {
        let mixer = Mixer::Recurrent { convolution: 24_576, state: 524_288 };
        assert_eq!(context(mixer, &run(1 << 20), 1), Bytes(98_304 + 2 * MIB));
        assert_eq!(context(mixer, &Run { sequences: 4, ..run(64) }, 1).0, 4 * (98_304 + 2 * MIB));
        assert_eq!(context(mixer, &run(64), 2).0, (98_304 + 2 * MIB) / 2, "ranks divide it");
    }

    #[test]
    fn parallel_layer_keeps_attention_and_state() {
        let (convolution, state) = (24_576, 524_288);
        let both = Mixer::Parallel { kv_heads: 8, key: 128, value: 128, convolution, state };
        let recurrent = Mixer::Recurrent { convolution, state };
        let sum = context(LLAMA, &run(4096), 1) + context(recurrent, &run(4096), 1);
        assert_eq!(context(both, &run(4096), 1), sum);
    }

    #[test]
    fn absurd_numbers_saturate() {
        let most = u64::MAX;
        let mixer = Mixer::Attention { kv_heads: most, key: most, value: 3, window: Some(most) };
        let run = Run { sequences: most, ubatch: Some(most), ..run(most) };
        assert_eq!(context(mixer, &run, 1), Bytes(most));
    }
}
