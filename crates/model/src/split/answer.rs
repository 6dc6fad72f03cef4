//! Determines which encodings fit on given rooms, how, and with how much context.

use super::vllm::{self, Served};
use super::{Objective, Room, RoomKind, Rooms, Split, balanced, first_fit, llama, optimal};
use crate::model::Model;
use crate::need::{Chain, Engine, Estimate, Run, Unknown, chain, estimate};
use crate::quantize::{Scheme, kernels};
use crate::tensor::Encoding;

/// The step between contexts to try, in tokens; llama.cpp's cache is allocated in these steps.
const STEP: u64 = 256;
/// The maximum number of layers for which each context is searched for the best placement. Longer
/// models are placed in the order of the rooms.
const SEARCHED: usize = 512;
/// The longest context to try if the model does not state one.
const MAX_CONTEXT: u64 = 1 << 20;

/// The schemes to try for llama.cpp, from wide to narrow.
const GGML: [&str; 10] =
    ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K", "IQ2_XXS"];
/// The schemes to try for vLLM, starting with those that do not need another checkpoint.
const VLLM: [&str; 4] = ["F16", "FP8", "NF4", "AWQ"];
/// The schemes to try for transformers.
const TRANSFORMERS: [&str; 4] = ["F16", "FP8", "NF4", "AWQ"];

/// The result for a weight scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The scheme of the weights; `None` means as stored.
    pub scheme: Option<Scheme>,
    /// The memory that a single device would need.
    pub estimate: Estimate,
    /// The layers.
    pub chain: Chain,
    /// The best placement; if no placement fits, one that shows what is lacking.
    pub split: Split,
    /// How vLLM serves the model with each layer divided over GPUs, which is better than placing
    /// whole layers; `None` if no degree fits, or for other engines.
    pub served: Option<Served>,
    /// The longest context that fits on the GPUs, or in host memory if the placement needs it, up
    /// to the model's own limit; `None` if even the shortest does not fit.
    pub largest_context: Option<u64>,
}

impl Answer {
    /// Returns whether the model fits, with layers whole or divided over GPUs.
    pub fn fits(&self) -> bool {
        self.served.is_some() || self.split.fits()
    }

    /// Returns how each layer is divided over several GPUs, if it is.
    pub fn divided(&self) -> Option<&Served> {
        self.served.as_ref().filter(|served| served.size.ranks > 1)
    }
}

/// Returns the schemes that make a model smaller than stored and that the GPUs can run, as far as
/// is known, from wide to narrow.
pub fn candidates(model: &Model, engine: Engine, rooms: &Rooms) -> Vec<Scheme> {
    // A quantized checkpoint is not quantized again.
    if model.method.is_some() {
        return Vec::new();
    }
    let elements: u64 = model.tensors.iter().fold(0, |sum, t| sum.saturating_add(t.elements()));
    let stored = match elements {
        0 => {
            let named = model.shape.as_ref().and_then(|shape| shape.encoding);
            named.unwrap_or(Encoding::F16).bits_per_element()
        }
        _ => model.bytes().0 as f64 * 8.0 / elements as f64,
    };
    let names: &[&str] = match engine {
        Engine::LlamaCpp => &GGML,
        Engine::Vllm => &VLLM,
        Engine::Transformers => &TRANSFORMERS,
    };
    let known = names.iter().filter_map(|name| Scheme::named(name));
    let capability = rooms.compute_capability();
    let is_run = |scheme: &Scheme| {
        let run = Run { weights: Some(*scheme), ..Run::new(engine, 1) };
        capability.is_none_or(|capability| kernels(model, &run, capability).is_none())
    };
    known.filter(|scheme| scheme.bits_per_weight() < stored * 0.99).filter(is_run).collect()
}

/// Returns whether the model fits, how, and with how much context, for the stored weights and for
/// each candidate scheme.
///
/// # Errors
/// [`Unknown`] if the files lack the dimensions of the architecture.
pub fn answer(
    model: &Model,
    run: &Run,
    rooms: &Rooms,
    candidates: &[Scheme],
    objective: Objective,
) -> Result<Vec<Answer>, Unknown> {
    let schemes = std::iter::once(None).chain(candidates.iter().copied().map(Some));
    let each = schemes.map(|scheme| {
        let run = Run { weights: scheme, ..run.clone() };
        let chain = chain(model, &run)?;
        let split = match run.engine {
            Engine::Vllm => best(&chain, run.engine, &vllm::usable(rooms), objective),
            _ => best(&chain, run.engine, rooms, objective),
        };
        let served = vllm::served(model, &run, rooms)?;
        let worst = if split.fits() { split.last_resort } else { RoomKind::Gpu };
        let largest_context = largest_context(model, &run, rooms, worst)?;
        let estimate = estimate(&chain);
        Ok(Answer { scheme, estimate, chain, split, served, largest_context })
    });
    each.collect()
}

/// Returns the best placement of whole layers, or a better one with experts on the CPU.
fn best(chain: &Chain, engine: Engine, rooms: &Rooms, objective: Objective) -> Split {
    let whole = optimal(chain, rooms, objective);
    if engine != Engine::LlamaCpp || whole.fits() && whole.last_resort == RoomKind::Gpu {
        return whole;
    }
    let is_better = |divided: &Split| {
        divided.fits() && (!whole.fits() || divided.cost(objective) < whole.cost(objective))
    };
    llama::with_experts_on_cpu(chain, rooms).filter(is_better).unwrap_or(whole)
}

/// Returns the longest context per sequence, in steps of 256 tokens and up to the model's limit,
/// with which the model fits without using a worse room than `last_resort`; `None` if even 256
/// tokens do not fit.
///
/// # Errors
/// [`Unknown`] if the files lack the dimensions of the architecture.
pub fn largest_context(
    model: &Model,
    run: &Run,
    rooms: &Rooms,
    last_resort: RoomKind,
) -> Result<Option<u64>, Unknown> {
    // llama.cpp divides its context among the sequences.
    let share = if run.engine == Engine::LlamaCpp { run.sequences.max(1) } else { 1 };
    let is_usable = |room: &&Room| room.kind <= last_resort || room.kind == RoomKind::Cpu;
    let mut usable = Rooms::new(rooms.rooms.iter().filter(is_usable).cloned().collect());
    if run.engine == Engine::Vllm {
        usable = vllm::usable(&usable);
    }
    let fits = |context: u64| {
        let run = Run { context: context.saturating_mul(share), ..run.clone() };
        if vllm::served(model, &run, rooms)?.is_some() {
            return Ok(true);
        }
        let chain = chain(model, &run)?;
        let is_enough = |split: &Split| split.fits() && split.last_resort <= last_resort;
        if is_enough(&first_fit(&chain, &usable)) || is_enough(&balanced(&chain, &usable)) {
            return Ok(true);
        }
        // No real model has a chain this long, and searching for each length would take too long.
        if chain.layers.len() > SEARCHED {
            return Ok(false);
        }
        // The fewest rooms may not be the fastest, but any objective finds whether the layers fit.
        Ok::<bool, Unknown>(is_enough(&optimal(&chain, &usable, Objective::Latency)))
    };
    let trained = model.shape.as_ref().and_then(|shape| shape.context);
    let longest = trained.unwrap_or(MAX_CONTEXT).min(1 << 40);
    if fits(longest)? {
        return Ok(Some(longest));
    }
    let (mut low, mut high) = (0, longest.div_ceil(STEP));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle * STEP)? { low = middle } else { high = middle }
    }
    Ok((low > 0).then_some(low * STEP))
}
