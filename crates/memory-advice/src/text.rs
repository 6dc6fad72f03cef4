//! Converts the figures of a message that [`gpu_text`] parsed for [`explain`](crate::explain).

use crate::explain::{MessageSource, OomFigures, Other};
use gpu_core::{Bytes, Pid};
use gpu_text::oom::{Dump, Event, Figure, Framework, Wording};

/// Returns the figures of an event.
pub fn shown(event: &Event) -> OomFigures {
    let bytes = |figure: &Option<Figure>| figure.as_ref().and_then(|figure| figure.bytes);
    let dump = &event.dump;
    let asked = bytes(&event.tried).or_else(|| event.tensor.as_ref()?.bytes());
    let in_use = bytes(&event.allocated).or_else(|| dump.stat("InUse"));
    let reserved = bytes(&event.reserved_total);
    let unused = bytes(&event.reserved_unallocated)
        .or_else(|| Some(reserved?.saturating_sub(in_use?)))
        .or_else(|| bytes(&event.cached))
        .or_else(|| Some(dump.pool?.held?.saturating_sub(in_use?)));
    let mut rungs = event.ladder.iter().filter_map(|rung| rung.bytes);
    let others = event.processes.iter();
    OomFigures {
        backend: event.backend.clone(),
        asked,
        total: bytes(&event.total),
        free: bytes(&event.free),
        in_use,
        unused,
        private_pools: bytes(&event.private_pools),
        process: bytes(&event.this_process),
        outside: bytes(&event.other),
        others: others
            .map(|(pid, memory)| Other { pid: Pid(*pid), memory: memory.bytes })
            .collect(),
        limit: bytes(&event.limit)
            .or_else(|| dump.stat("Limit"))
            .or_else(|| dump.pool.and_then(|pool| pool.limit)),
        largest_free: largest_free(dump),
        ladder: rungs
            .next()
            .map(|first| (first, rungs.next_back().unwrap_or(first), event.ladder.len())),
        needs_at_least: event
            .rematerialization
            .as_ref()
            .and_then(|complaint| complaint.reduced.as_ref()?.bytes),
        needs: bytes(&event.needed),
        left: dump.pool.filter(|pool| pool.held.is_none()).and_then(|pool| pool.available),
        variable: (event.wording == Some(Wording::Torch29)).then_some("PYTORCH_ALLOC_CONF"),
        room_slack: room_slack(event),
        lacking_slack: [&event.tried, &event.free].into_iter().flatten().map(|f| f.slack).sum(),
        went_on: event.wording == Some(Wording::NoFailure),
        slack: slack(event),
        ..OomFigures::by(speaker(event))
    }
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
        (Framework::LlamaCpp, ..) => MessageSource::LlamaCpp,
        (Framework::Vllm, ..) => MessageSource::Vllm,
        (
            Framework::Paddle
            | Framework::OnnxRuntime
            | Framework::TensorRt
            | Framework::CudaJl
            | Framework::Cuda,
            ..,
        ) => MessageSource::Other,
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

/// Returns the total rounding error of the requested, the free and the cached memory.
fn room_slack(event: &Event) -> Bytes {
    let unused = match (&event.reserved_unallocated, &event.reserved_total) {
        (None, Some(_)) => [&event.reserved_total, &event.allocated],
        (None, None) => [&event.cached, &None],
        (unused, _) => [unused, &None],
    };
    let figures = [&event.tried, &event.free].into_iter().chain(unused);
    figures.flatten().map(|figure| figure.slack).sum()
}
