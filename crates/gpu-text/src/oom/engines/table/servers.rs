//! Servers of language models: vLLM, SGLang, TensorRT-LLM, Triton, TGI, LMDeploy.

use super::super::super::event::Framework::{LmDeploy, SgLang, TensorRtLlm, Tgi, Triton, Vllm};
use super::super::Shape;
use super::{before, fails, goes_on};
use crate::oom::short::Short;

const LENGTH: &[&str] = &["the estimated maximum model length is {fitting_length}"];

/// The size of an SGLang batch and the free tokens; versions up to 2024 print no figures.
const TOKENS: &[&str] = &[
    "Try to allocate {prefill_tokens} tokens",
    "Available tokens: {free_tokens}",
    "Available full tokens: {free_tokens}",
];

pub(super) const ROWS: &[Shape] = &[
    // vLLM and aphrodite. PyTorch prints cuda:N on AMD too, so the message does not show the
    // backend.
    fails(
        Vllm,
        Short::Startup,
        "Free memory on device cuda:{gpu} ({free:GiB}/{total}) on startup is less than desired GPU \
         memory utilization ({memory_fraction}, {asked})",
    ),
    fails(
        Vllm,
        Short::Startup,
        "Free memory on device ({free:GiB}/{total}) on startup is less than desired GPU memory \
         utilization ({memory_fraction}, {asked})",
    ),
    fails(
        Vllm,
        Short::Startup,
        "Free memory on device {_} ({free:GiB}/{total}) on startup is less than desired GPU memory \
         utilization ({memory_fraction}, {asked})",
    ),
    before(
        Vllm,
        "Free memory on device…({free_before:GiB}/{total}) on startup. Desired GPU memory \
         utilization is ({memory_fraction}, ",
    ),
    before(Vllm, "gpu_memory_utilization={memory_fraction}"),
    before(Vllm, "gpu_memory_utilization': {memory_fraction}"),
    before(Vllm, "gpu_memory_utilization\": {memory_fraction}"),
    before(Vllm, "gpu-memory-utilization {memory_fraction}"),
    before(Vllm, "gpu-memory-utilization={memory_fraction}"),
    before(Vllm, "total_gpu_memory ({total}) x gpu_memory_utilization ({memory_fraction})"),
    before(Vllm, "model weights take {weights}"),
    before(Vllm, "memory reserved for KV Cache is {cache_memory}"),
    before(Vllm, "Available KV cache memory: {cache_memory}"),
    before(Vllm, "Model loading took {weights}"),
    before(Vllm, "GPU blocks: {blocks}, # CPU blocks"),
    fails(Vllm, Short::NoCache, "No available memory for the cache blocks"),
    fails(
        Vllm,
        Short::Cache,
        "To serve at least one request with the model…max seq len ({context_length}), ({asked} KV \
         cache is needed, which is larger than the available KV cache memory ({left})",
    )
    .more(LENGTH),
    fails(
        Vllm,
        Short::Cache,
        "To serve at least one request with the model…max seq len ({context_length}), {asked} KV \
         cache is needed, which is larger than the available KV cache memory ({left})",
    )
    .more(LENGTH),
    // The end of a message that lost its start.
    fails(
        Vllm,
        Short::Cache,
        "KV cache is needed, which is larger than the available KV cache memory ({left})",
    )
    .more(LENGTH),
    fails(
        Vllm,
        Short::Cache,
        "The model's max seq len ({context_length}) is larger than the maximum number of tokens \
         that can be stored in KV cache ({fitting_length})",
    ),
    fails(Vllm, Short::Cache, "Cannot auto-fit max_model_len: not enough GPU memory"),
    goes_on(
        Vllm,
        Short::Cache,
        "Auto-fit max_model_len: reduced from {context_length} to {fitting_length}",
    ),
    fails(
        Vllm,
        Short::Sequences,
        "max_num_seqs ({sequences}) exceeds available Mamba cache blocks ({fitting_sequences})",
    ),
    fails(
        Vllm,
        Short::Weights,
        "Failed to load model - not enough GPU memory…Tried to allocate {asked}. GPU {gpu} has a \
         total capacity of {total} of which {free} is free",
    ),
    fails(Vllm, Short::Weights, "Failed to load model - not enough GPU memory."),
    fails(
        Vllm,
        Short::Compute,
        "CUDA out of memory occurred when warming up {_} with {sequences} dummy requests",
    ),
    fails(
        Vllm,
        Short::Disturbed,
        "Error in memory profiling. Initial free memory {free_before}, current free memory \
         {free_later}",
    ),
    fails(Vllm, Short::WakeUp, "CUDA Error: out of memory at {_}cumem_allocator"),
    goes_on(Vllm, Short::Crowded, "is preempted by PreemptionMode.{_} mode because there is not"),
    fails(Vllm, Short::Pinned, "Aborted due to the lack of CPU swap space"),
    // SGLang, which prints GiB as GB.
    fails(
        SgLang,
        Short::NoCache,
        "Not enough memory. Please try to increase --mem-fraction-static",
    )
    .more(&["mem_fraction_static={memory_fraction}"]),
    before(SgLang, "Load weight end.…avail mem={free_after_weights}, mem usage={weights}"),
    before(SgLang, "mem_fraction_static={memory_fraction}"),
    before(SgLang, "mem-fraction-static {memory_fraction}"),
    goes_on(SgLang, Short::Crowded, "KV cache pool is full. Retract requests."),
    fails(SgLang, Short::Batch, "Prefill out of memory.").more(TOKENS),
    fails(SgLang, Short::Batch, "Decode out of memory.").more(TOKENS),
    fails(SgLang, Short::Batch, "alloc_req_slots runs out of memory").more(TOKENS),
    fails(
        SgLang,
        Short::Unbalanced,
        "The memory capacity is unbalanced. Some GPUs may be occupied by other processes",
    )
    .more(&["pre_model_load_memory={free:GiB}", "local_gpu_memory={free_on_other_devices:GiB}"]),
    // TensorRT-LLM.
    fails(
        TensorRtLlm,
        Short::Component,
        "Executor creation failed due to insufficient GPU memory",
    )
    .more(&[
        "The following component could not be created: {part} Total GPU memory (GiB): {total:GiB}",
        "Free GPU memory before component creation attempt (GiB): {free:GiB}",
        "Model: {free_before:GiB} / {free_after_weights:GiB}",
    ]),
    fails(TensorRtLlm, Short::Unclear, "Executor creation failed with NCCL error"),
    fails(TensorRtLlm, Short::Compute, "CUDA runtime error in {_}: out of memory ("),
    before(
        TensorRtLlm,
        "Memory usage when calculating max tokens in paged…total: {total}, available: {free_later}",
    ),
    before(
        TensorRtLlm,
        "Allocated {cache_memory} for max tokens in paged KV cache ({fitting_length})",
    ),
    fails(
        TensorRtLlm,
        Short::Cache,
        "maxTokensInPagedKvCache ({fitting_length}) must be large enough to process at least 1 \
         sequence",
    ),
    fails(
        TensorRtLlm,
        Short::Cache,
        "maxTokensInPagedKvCache…must be large enough to process at least 1 sequence",
    ),
    fails(TensorRtLlm, Short::Cache, "Impossible to fit in any sequence in kvCache"),
    fails(TensorRtLlm, Short::Batch, "Can't allocate new blocks…No free blocks left"),
    fails(TensorRtLlm, Short::Batch, "No free block found"),
    fails(TensorRtLlm, Short::Batch, "mFreePrimaryBlocks list has no GPU blocks"),
    // Triton.
    goes_on(
        Triton,
        Short::Pool,
        "Failed to allocate CUDA memory with byte size {asked} on GPU {gpu}: {_}, falling back to",
    ),
    fails(
        Triton,
        Short::Pool,
        "Failed to allocate CUDA memory with byte size {asked} on GPU {gpu}: ",
    ),
    goes_on(
        Triton,
        Short::Pinned,
        "failed to allocate pinned system memory{_}falling back to non-pinned",
    ),
    fails(Triton, Short::Pinned, "failed to allocate pinned system memory"),
    // Text Generation Inference.
    fails(Tgi, Short::Compute, "Not enough memory to handle {prefill_tokens} prefill tokens"),
    fails(Tgi, Short::Cache, "Not enough memory to handle max_total_tokens={context_length}"),
    before(Tgi, "KV-cache blocks: {blocks}, size: {block_length}"),
    goes_on(Tgi, Short::Graphs, "Decode cuda graph warmup failed"),
    fails(Tgi, Short::Killed, "Shard process was signaled to shutdown with signal 9"),
    // LMDeploy.
    fails(LmDeploy, Short::NoCache, "No enough gpu memory for kv cache"),
    fails(LmDeploy, Short::Compute, "No enough gpu memory for runtime"),
    fails(LmDeploy, Short::Sequences, "No enough gpu memory for state cache"),
    goes_on(
        LmDeploy,
        Short::Compute,
        "No enough memory. Update max_prefill_token_num={prefill_tokens}",
    ),
    before(LmDeploy, "Object cache budget: {cache_memory} from free {free_after_weights}"),
    goes_on(LmDeploy, Short::Crowded, "cache out of memory, no request can be admitted"),
    fails(LmDeploy, Short::Compute, "CUDA runtime error: out of memory {_}lmdeploy"),
];
