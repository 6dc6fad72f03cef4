//! How vLLM fills its devices: weights, activations, and context in the rest.
//!
//! A tensor-parallel group divides every layer over its ranks, so the questions are which degrees
//! are possible and how much context is left, instead of where layers go.

use super::{Room, RoomKind, Rooms};
use crate::model::{Architecture, Mixer, Model};
use crate::need::{Chain, Engine, Run, Unknown, chain, context};
use gpu_core::Bytes;

/// The memory of a vLLM rank, and the resulting context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vllm {
    /// The number of tensor-parallel ranks.
    pub ranks: u64,
    /// The weights of a rank.
    pub weights: Bytes,
    /// The activations of the largest batch, as vLLM measures them with a dummy run.
    pub activations: Bytes,
    /// The context of the requested sequences.
    pub context: Bytes,
    /// The memory left for context.
    pub cache: Bytes,
    /// The number of context tokens that fit, over all sequences; `None` if tokens take no memory.
    pub tokens: Option<u64>,
    /// Whether the requested sequences fit.
    pub fits: bool,
}

/// Returns the degrees of tensor parallelism that vLLM accepts, up to a number of devices: those
/// that divide the attention heads (`ModelConfig.verify_with_parallel_config`). Key-value heads are
/// replicated if there are fewer of them than ranks; if they do not divide evenly, vLLM refuses as
/// well.
pub fn degrees(shape: &Architecture, devices: u64) -> Vec<u64> {
    let mut parts = shape.layers.iter().flat_map(|mixer| mixer.parts());
    let kv_heads = parts.find_map(|mixer| match mixer {
        Mixer::Attention { kv_heads, .. } => Some(kv_heads),
        _ => None,
    });
    let divides = |ranks: &u64| {
        let kv = kv_heads
            .is_none_or(|kv| kv > 0 && (kv.is_multiple_of(*ranks) || ranks.is_multiple_of(kv)));
        shape.heads.is_multiple_of(*ranks) && kv
    };
    (1..=devices.min(shape.heads)).filter(divides).collect()
}

/// Returns the number of layers in each pipeline rank: equal parts, with the remainder going to the
/// ranks before the last, from back to front (`distributed/utils.py`).
pub fn pipeline(layers: usize, ranks: usize) -> Vec<usize> {
    let ranks = ranks.max(1);
    let mut parts = vec![layers / ranks; ranks];
    let remainder = layers % ranks;
    for part in parts.iter_mut().rev().skip(1).take(remainder) {
        *part += 1;
    }
    parts
}

/// Returns the bytes of a token's context on a rank, excluding layers with a window that limits
/// them.
pub fn token_bytes(shape: &Architecture, run: &Run, ranks: u64) -> Bytes {
    const TOKENS: u64 = 16;
    let page = Run { context: TOKENS, sequences: 1, ..run.clone() };
    let grows = |mixer: &Mixer| match mixer {
        Mixer::Attention { window, .. } => window.is_none(),
        Mixer::Latent { .. } => true,
        Mixer::Recurrent { .. } | Mixer::Parallel { .. } | Mixer::Nothing => false,
    };
    let parts = shape.layers.iter().flat_map(|mixer| mixer.parts());
    let page: Bytes = parts.filter(grows).map(|mixer| context(mixer, &page, ranks)).sum();
    Bytes(page.0 / TOKENS)
}

/// Returns what fits on devices of this capacity, for a degree of tensor parallelism and the
/// fraction of the device that vLLM may use (`--gpu-memory-utilization`). Computed as in
/// `worker/utils.py`: that fraction, minus the weights, the peak of a dummy run, and memory
/// allocated outside PyTorch.
///
/// # Errors
/// [`Unknown`] if the files lack the dimensions of the architecture.
pub fn size(
    model: &Model,
    run: &Run,
    capacity: Bytes,
    ranks: u64,
    utilisation: f64,
) -> Result<Vllm, Unknown> {
    let shape = model.shape.as_ref().ok_or_else(|| Unknown::Shape(model.name.clone()))?;
    Ok(of_chain(&chain(model, run)?, shape, run, capacity, ranks, utilisation))
}

/// Does the same for the layers of a model.
fn of_chain(
    chain: &Chain,
    shape: &Architecture,
    run: &Run,
    capacity: Bytes,
    ranks: u64,
    utilisation: f64,
) -> Vllm {
    let ranks = ranks.max(1);
    let all: Bytes = chain.layers.iter().map(|layer| layer.weights).sum();
    let weights = Bytes(all.saturating_sub(chain.tied).0 / ranks);
    // Logits are gathered on every rank; the rest of a layer is divided, except for its input.
    let activations = chain.layers.iter().map(|layer| layer.buffer);
    let activations: Bytes = {
        let last = chain.layers.last().map_or(Bytes(0), |layer| layer.buffer);
        let block = activations.rev().skip(1).max().unwrap_or_default();
        Bytes(block.0 / ranks) + last
    };
    let requested = Bytes((capacity.0 as f64 * utilisation.clamp(0.0, 1.0)).ceil() as u64);
    let cache = requested
        .saturating_sub(weights)
        .saturating_sub(activations)
        .saturating_sub(chain.overhead);
    let context: Bytes = shape.layers.iter().map(|mixer| context(*mixer, run, ranks)).sum();
    let token = token_bytes(shape, run, ranks);
    // Layers with a window or state take a constant amount per sequence.
    let all = run.context.saturating_mul(run.sequences.max(1));
    let constant = context.saturating_sub(Bytes(token.0.saturating_mul(all)));
    let tokens = cache.saturating_sub(constant).0.checked_div(token.0);
    Vllm { ranks, weights, activations, context, cache, tokens, fits: context <= cache }
}

/// The fraction of a device that vLLM uses by default (`--gpu-memory-utilization`, vLLM 0.32).
pub const SHARE: f64 = 0.92;

/// The largest fraction of a device that a plan uses. With a larger fraction, vLLM fails to start
/// because of memory held by the driver and other processes.
pub const LARGEST_SHARE: f64 = 0.98;

/// Returns rooms with the memory that vLLM may use on each GPU: [`LARGEST_SHARE`].
pub fn usable(rooms: &Rooms) -> Rooms {
    let mut usable = rooms.clone();
    for room in usable.rooms.iter_mut().filter(|room| room.kind == RoomKind::Gpu) {
        room.capacity = Bytes((room.capacity.0 as f64 * LARGEST_SHARE) as u64);
    }
    usable
}

/// How vLLM serves a model with each layer divided over GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// The memory of a rank.
    pub size: Vllm,
    /// The rooms of the ranks, by index in the list of rooms.
    pub rooms: Vec<usize>,
    /// The fraction of a device that it needs (`--gpu-memory-utilization`).
    pub share: f64,
}

/// Returns how vLLM serves a model with each degree of tensor parallelism that the GPUs of these
/// rooms allow. The ranks go to the GPUs with the most memory, and each counts as if it had only as
/// much as the smallest of them. The fraction is the default if that suffices, or else
/// [`LARGEST_SHARE`]. The list is empty for a run of another engine.
///
/// # Errors
/// [`Unknown`] if the files lack the dimensions of the architecture.
pub fn sizes(model: &Model, run: &Run, rooms: &Rooms) -> Result<Vec<Served>, Unknown> {
    if run.engine != Engine::Vllm {
        return Ok(Vec::new());
    }
    let each = rooms.rooms.iter().enumerate();
    let mut gpus: Vec<(usize, &Room)> =
        each.filter(|(_, room)| room.kind == RoomKind::Gpu).collect();
    gpus.sort_by_key(|(_, room)| std::cmp::Reverse(room.capacity));
    let shape = model.shape.as_ref().ok_or_else(|| Unknown::Shape(model.name.clone()))?;
    let chain = chain(model, run)?;
    let served = degrees(shape, gpus.len() as u64).into_iter().filter_map(|ranks| {
        let chosen = gpus.get(..ranks as usize)?;
        let (_, smallest) = chosen.last()?;
        let with = |share| of_chain(&chain, shape, run, smallest.capacity, ranks, share);
        let usual = with(SHARE);
        let (size, share) =
            if usual.fits { (usual, SHARE) } else { (with(LARGEST_SHARE), LARGEST_SHARE) };
        let mut rooms: Vec<usize> = chosen.iter().map(|(at, _)| *at).collect();
        rooms.sort_unstable();
        Some(Served { size, rooms, share })
    });
    Ok(served.collect())
}

/// Returns how vLLM serves a model on the fewest GPUs, with each layer divided over them; `None` if
/// no degree of tensor parallelism fits.
///
/// # Errors
/// [`Unknown`] if the files lack the dimensions of the architecture.
pub fn served(model: &Model, run: &Run, rooms: &Rooms) -> Result<Option<Served>, Unknown> {
    Ok(sizes(model, run, rooms)?.into_iter().find(|served| served.size.fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(heads: u64, kv_heads: u64) -> Architecture {
        let mixer = Mixer::Attention { kv_heads, key: 128, value: 128, window: None };
        Architecture { heads, layers: vec![mixer; 4], ..Architecture::default() }
    }

    #[test]
    fn degrees_divide_heads() {
        assert_eq!(degrees(&shape(32, 8), 8), [1, 2, 4, 8]);
        assert_eq!(degrees(&shape(40, 8), 8), [1, 2, 4, 8]);
        assert_eq!(degrees(&shape(28, 4), 8), [1, 2, 4]);
        assert!(degrees(&shape(0, 4), 8).is_empty());
    }

    #[test]
    fn remainder_goes_before_the_last_rank() {
        assert_eq!(pipeline(32, 4), [8, 8, 8, 8]);
        assert_eq!(pipeline(30, 4), [7, 8, 8, 7]);
        assert_eq!(pipeline(3, 0), [3]);
    }

    #[test]
    fn only_a_share_of_each_gpu_is_usable() {
        let room = |name: &str, bytes| crate::split::Room::gpu(name, Bytes(bytes));
        let cpu = crate::split::Room::cpu(Bytes(1000));
        let rooms = Rooms::new(vec![room("a", 1000), room("b", 50), cpu]);
        let capacities: Vec<u64> =
            usable(&rooms).rooms.iter().map(|room| room.capacity.0).collect();
        assert_eq!(capacities, [980, 49, 1000]);
    }
}
