//! Converts the figures of a message that [`gpu_text`] parsed for [`explain`](crate::explain).

mod message;
mod options;
mod rules;
mod stated;

use crate::explain::{MessageSource, OomFigures, Other};
use gpu_core::{Bytes, Pid, amount};
use gpu_text::oom::{Dump, Event, Figure, Framework, Wording};

/// Returns the figures of an event.
pub fn shown(event: &Event) -> OomFigures {
    let bytes = |figure: &Option<Figure>| figure.as_ref().and_then(possible);
    let total = bytes(&event.total);
    // A limit equal to the whole device is no limit.
    let limit = bytes(&event.limit).filter(|limit| total.is_none_or(|total| *limit < total));
    let dump = &event.dump;
    let asked = bytes(&event.tried).or_else(|| event.tensor.as_ref()?.bytes());
    let in_use = bytes(&event.allocated).or_else(|| dump.stat("InUse"));
    let reserved = bytes(&event.reserved_total);
    let unused = bytes(&event.reserved_unallocated)
        .or_else(|| Some(reserved?.saturating_sub(in_use?)))
        .or_else(|| bytes(&event.cached))
        .or_else(|| Some(dump.pool?.held?.saturating_sub(in_use?)));
    let mut sizes = event.ladder.iter().filter_map(|attempt| attempt.bytes);
    let others = event.processes.iter();
    OomFigures {
        backend: event.backend.clone(),
        asked,
        total,
        free: bytes(&event.free),
        in_use,
        unused,
        private_pools: bytes(&event.private_pools),
        process: bytes(&event.this_process),
        outside: bytes(&event.other),
        others: others
            .map(|(pid, memory)| Other { pid: Pid(*pid), memory: possible(memory) })
            .collect(),
        limit: limit
            .or_else(|| dump.stat("Limit"))
            .or_else(|| dump.pool.and_then(|pool| pool.limit)),
        largest_free: largest_free(dump),
        ladder: sizes
            .next()
            .map(|first| (first, sizes.next_back().unwrap_or(first), event.ladder.len())),
        needs_at_least: event
            .rematerialization
            .as_ref()
            .and_then(|complaint| complaint.reduced.as_ref()?.bytes),
        needs: bytes(&event.needed),
        left: dump.pool.filter(|pool| pool.held.is_none()).and_then(|pool| pool.available),
        variable: (event.wording == Some(Wording::Torch29)).then_some("PYTORCH_ALLOC_CONF"),
        room_slack: room_slack(event),
        lacking_slack: [&event.tried, &event.free].into_iter().flatten().map(|f| f.slack).sum(),
        stated: stated::of(event),
        own_remedies: options::remedies(event),
        impossible: impossible(event),
        went_on: event.wording == Some(Wording::NoFailure),
        slack: slack(event),
        ..OomFigures::by(speaker(event))
    }
}

/// The smallest number of bytes that is too large for an amount of memory.
const IMPOSSIBLE: u64 = 1 << 62;

/// A counter below zero prints as 2^64 minus at most this.
const WRAPPED: u64 = 1 << 50;

/// Returns an amount, unless it is too large for any memory.
fn possible(figure: &Figure) -> Option<Bytes> {
    figure.bytes.filter(|bytes| bytes.0 < IMPOSSIBLE)
}

/// Returns whether the message requests more memory than any device can have.
fn asks_impossible(event: &Event) -> bool {
    event.wording != Some(Wording::NoFailure)
        && event.tried.as_ref().is_some_and(|tried| possible(tried).is_none())
}

/// Describes the figures that cannot be amounts of memory.
fn impossible(event: &Event) -> Vec<String> {
    let figures = [
        ("request", &event.tried),
        ("total", &event.total),
        ("free memory", &event.free),
        ("allocated memory", &event.allocated),
        ("cached memory", &event.reserved_unallocated),
        ("memory of this process", &event.this_process),
        ("limit", &event.limit),
        ("memory with the request", &event.needed),
    ];
    let figures = figures.into_iter().filter_map(|(name, figure)| Some((name, figure.as_ref()?)));
    figures
        .filter(|(_, figure)| possible(figure).is_none())
        .map(|(name, figure)| match figure.bytes {
            Some(bytes) if bytes.0.wrapping_neg() <= WRAPPED => format!(
                "the {name} of {} is a counter that fell {} below zero; it is not used",
                figure.text,
                amount(Bytes(bytes.0.wrapping_neg()))
            ),
            _ if name == "limit" => format!(
                "the limit of {} is not an amount of memory; it means no limit",
                figure.text
            ),
            _ => format!(
                "the {name} of {} is impossible: an unknown value, or a number below zero \
                 without its sign; it is not used",
                figure.text
            ),
        })
        .collect()
}

fn speaker(event: &Event) -> MessageSource {
    match (event.framework, event.wording, event.backend.as_deref()) {
        (_, Some(Wording::XlaHost), _) | (Framework::PyTorch, _, Some("cpu")) => {
            MessageSource::Host
        }
        (Framework::PyTorch, _, Some("mps")) => MessageSource::TorchMetal,
        (Framework::PyTorch, Some(Wording::Torch13 | Wording::Torch14), _) => {
            MessageSource::TorchWithoutSettings
        }
        (Framework::PyTorch, Some(Wording::Torch110), _) => MessageSource::TorchWithSplit,
        (
            Framework::PyTorch,
            Some(Wording::Torch21 | Wording::Torch22 | Wording::Torch29),
            Some("cuda" | "hip"),
        ) => MessageSource::TorchExpandable,
        (Framework::PyTorch, ..) => MessageSource::Torch,
        (Framework::TensorFlow, ..) => MessageSource::TensorFlow,
        (Framework::Xla | Framework::Jax, ..) => MessageSource::Xla,
        (Framework::CuPy, ..) => MessageSource::CuPy,
        (Framework::Rmm, ..) => MessageSource::Rmm,
        (Framework::LlamaCpp | Framework::Ollama, ..) => MessageSource::LlamaCpp,
        (Framework::Vllm, ..) => MessageSource::Vllm,
        _ => MessageSource::Other,
    }
}

/// Returns the largest free block, if all blocks of the allocator are listed.
fn largest_free(dump: &Dump) -> Option<Bytes> {
    let listed: Bytes = dump.blocks.iter().map(|block| block.size).sum();
    let regions: Bytes = dump.regions.iter().map(|region| region.size).sum();
    if regions == Bytes(0) || listed != regions {
        return None;
    }
    let free = dump.blocks.iter().filter(|block| !block.in_use);
    Some(free.map(|block| block.size).max().unwrap_or_default())
}

/// Returns the largest rounding error of the figures that are added up.
fn slack(event: &Event) -> Bytes {
    let figures = [
        &event.tried,
        &event.total,
        &event.free,
        &event.allocated,
        &event.reserved_unallocated,
        &event.reserved_total,
        &event.cached,
        &event.this_process,
        &event.other,
        &event.limit,
    ];
    let of_processes = event.processes.iter().map(|(_, memory)| memory.slack);
    let all = figures.into_iter().flatten().map(|figure| figure.slack).chain(of_processes);
    all.max().unwrap_or_default()
}

/// Returns the total rounding error of the requested, free and cached memory.
fn room_slack(event: &Event) -> Bytes {
    let unused = match (&event.reserved_unallocated, &event.reserved_total) {
        (None, Some(_)) => [&event.reserved_total, &event.allocated],
        (None, None) => [&event.cached, &None],
        (unused, _) => [unused, &None],
    };
    let figures = [&event.tried, &event.free].into_iter().chain(unused);
    figures.flatten().map(|figure| figure.slack).sum()
}
