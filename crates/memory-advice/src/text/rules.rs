//! The rules: which options help which program with which shortage.
//!
//! Sources of the options: the documentation and source of the engines in 2025 and 2026.

use super::message::{Message, mib};
use gpu_text::oom::{Fact, Framework, Short};

/// Computes the value of an option.
pub(super) type Value = fn(Message<'_>) -> Option<String>;

/// An option of an engine.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// The option up to its value, with the separator `=` if the value follows that.
    pub(super) set: &'static str,
    pub(super) value: Value,
    /// The direction of the change, used without a value.
    pub(super) direction: &'static str,
    pub(super) why: &'static str,
}

/// A rule: what helps a program with these shortages.
pub(super) struct Rule(
    pub(super) &'static [Framework],
    pub(super) &'static [Short],
    pub(super) &'static [Choice],
);

const fn choice(
    set: &'static str,
    value: Value,
    direction: &'static str,
    why: &'static str,
) -> Choice {
    Choice { set, value, direction, why }
}

/// An option without a value, because the figures do not give one.
const fn turn(set: &'static str, direction: &'static str, why: &'static str) -> Choice {
    choice(set, |_| None, direction, why)
}

/// An option to set without a value.
const fn just(set: &'static str, why: &'static str) -> Choice {
    choice(set, |_| Some(String::new()), "", why)
}

/// A change of the workload.
const fn work(why: &'static str) -> Choice {
    choice("", |_| None, "", why)
}

use Framework::{
    Accelerate, Ascend, BitsAndBytes, ComfyUi, Cuda, DeepSpeed, ExLlama, Hami, Host, Jax, Kernel,
    Kubelet, LlamaCpp, LmDeploy, Nccl, NvidiaDriver, Ollama, PyTorch, Ray, Rmm, SgLang, Slurm,
    SystemdOomd, TensorRtLlm, Tgi, Triton, Unsloth, Vllm,
};

const LOWER_VLLM: Choice = choice(
    "--gpu-memory-utilization",
    |message| message.lower_fraction(),
    "lower",
    "leaves room in addition to weights and KV cache",
);
const FEWER_SEQUENCES: Choice =
    turn("--max-num-seqs", "lower", "fewer requests at once need smaller buffers");
const MORE_DEVICES: Choice =
    turn("--tensor-parallel-size", "higher", "spreads the weights over more GPUs");
const QUANTIZED: Choice = work("a checkpoint with fewer bits per weight, or a smaller model");
const LOWER_SGLANG: Choice = choice(
    "--mem-fraction-static",
    |message| message.lowered_static_fraction(),
    "lower",
    "the static part, weights and KV cache, leaves more for everything else",
);
const LOWER_TRT: Choice = turn(
    "free_gpu_memory_fraction",
    "lower",
    "in KvCacheConfig (default 0.9): the KV cache takes less of the memory left by the weights",
);
const ALONE: Choice = just("gpuws run -- COMMAND", "runs on a GPU without other processes");

/// The rules; the first that matches applies.
pub(super) const RULES: &[Rule] = &[
    // vLLM.
    Rule(
        &[Vllm],
        &[Short::NoCache],
        &[
            choice(
                "--gpu-memory-utilization",
                |message| message.fraction_for_cache(),
                "higher",
                "the engine may use more of the GPU; the KV cache is in addition to the weights",
            ),
            turn(
                "--max-num-batched-tokens",
                "lower",
                "a smaller peak leaves more for the KV cache",
            ),
            MORE_DEVICES,
            QUANTIZED,
        ],
    ),
    Rule(
        &[Vllm],
        &[Short::Cache],
        &[
            choice(
                "--max-model-len",
                |message| message.fitting_length().map(|tokens| tokens.to_string()),
                "lower",
                "the length that fits in the KV cache",
            ),
            choice(
                "--gpu-memory-utilization",
                |message| message.fraction_for_cache(),
                "higher",
                "a larger memory fraction leaves more for the KV cache",
            ),
            just("--kv-cache-dtype fp8", "half the KV cache, on GPUs and models that support it"),
        ],
    ),
    Rule(
        &[Vllm],
        &[Short::Sequences],
        &[choice(
            "--max-num-seqs",
            |message| message.fact(Fact::FittingSequences).map(|count| count.to_string()),
            "lower",
            "the number that fits in the state blocks",
        )],
    ),
    Rule(&[Vllm], &[Short::Weights], &[MORE_DEVICES, QUANTIZED]),
    Rule(
        &[Vllm],
        &[Short::Graphs],
        &[LOWER_VLLM, FEWER_SEQUENCES, just("--enforce-eager", "captures no CUDA graphs; slower")],
    ),
    Rule(
        &[Vllm],
        &[Short::Compute],
        &[
            choice(
                "--max-num-seqs",
                |message| message.fact(Fact::Sequences).map(|count| (count / 2).max(1).to_string()),
                "lower",
                "fewer requests at once need smaller buffers",
            ),
            LOWER_VLLM,
            turn("--max-num-batched-tokens", "lower", "a smaller forward pass"),
        ],
    ),
    Rule(
        &[Vllm],
        &[Short::Crowded],
        &[turn("--gpu-memory-utilization", "higher", "a larger KV cache"), MORE_DEVICES],
    ),
    Rule(&[Vllm], &[Short::Pinned], &[turn("--swap-space", "higher", "more host memory, in GiB")]),
    Rule(
        &[Vllm],
        &[Short::WakeUp],
        &[
            just("gpuws doctor", "shows which processes took the memory while the engine slept"),
            LOWER_VLLM,
        ],
    ),
    Rule(&[Vllm], &[Short::Disturbed], &[work("start it again"), ALONE]),
    // SGLang.
    Rule(
        &[SgLang],
        &[Short::NoCache],
        &[
            choice(
                "--mem-fraction-static",
                |message| message.raised_static_fraction(),
                "higher",
                "the fraction is for weights and KV cache, but the weights used it up",
            ),
            turn("--tp", "higher", "spreads the weights over more GPUs"),
            QUANTIZED,
        ],
    ),
    Rule(
        &[SgLang],
        &[Short::Graphs],
        &[
            LOWER_SGLANG,
            turn("--cuda-graph-max-bs", "lower", "captures graphs of smaller batches only"),
        ],
    ),
    Rule(
        &[SgLang],
        &[Short::Cache, Short::Compute, Short::Weights],
        &[
            LOWER_SGLANG,
            turn("--chunked-prefill-size", "lower", "smaller prefills"),
            turn("--max-running-requests", "lower", "fewer requests at once"),
        ],
    ),
    Rule(
        &[SgLang],
        &[Short::Batch],
        &[
            turn("--max-running-requests", "lower", "fewer requests share the KV cache"),
            turn("--mem-fraction-static", "higher", "a larger KV cache"),
            turn("--chunked-prefill-size", "lower", "a prefill needs less at once"),
        ],
    ),
    Rule(
        &[SgLang],
        &[Short::Pool],
        &[turn("SGLANG_FLASHINFER_WORKSPACE_SIZE", "larger", "bytes of FlashInfer's workspace")],
    ),
    Rule(
        &[Vllm],
        &[Short::Pool],
        &[turn(
            "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE",
            "larger",
            "bytes of FlashInfer's workspace",
        )],
    ),
    Rule(
        &[SgLang],
        &[Short::Crowded],
        &[just("--schedule-conservativeness 1.3", "if it happens often; it costs only speed")],
    ),
    // TensorRT-LLM and Triton.
    Rule(
        &[TensorRtLlm],
        &[Short::Cache, Short::Batch],
        &[
            turn("free_gpu_memory_fraction", "higher", "in KvCacheConfig: a larger KV cache"),
            turn("max_seq_len", "lower", "shorter sequences need fewer blocks"),
        ],
    ),
    Rule(
        &[TensorRtLlm],
        &[Short::Compute, Short::Graphs, Short::Program],
        &[LOWER_TRT, turn("max_num_tokens", "lower", "smaller activations")],
    ),
    Rule(&[TensorRtLlm], &[Short::Weights], SMALLER_WEIGHTS),
    Rule(
        &[Triton],
        &[Short::Pool],
        &[choice(
            "--cuda-memory-pool-byte-size=",
            |message| {
                // The default pool of 64 MiB plus this request.
                let all = message.asked()?.checked_add(64 << 20)?;
                Some(format!("{}:{all}", message.0.gpu?))
            },
            "larger",
            "Triton's own pool on this GPU is too small",
        )],
    ),
    Rule(
        &[Triton],
        &[Short::Pinned],
        &[turn("--pinned-memory-pool-byte-size", "larger", "Triton's pool of host memory")],
    ),
    // Text Generation Inference.
    Rule(
        &[Tgi],
        &[Short::Compute, Short::Weights],
        &[
            choice(
                "--max-batch-prefill-tokens",
                |message| {
                    message.fact(Fact::PrefillTokens).map(|tokens| (tokens / 2).max(1).to_string())
                },
                "lower",
                "half of the number that did not fit: smaller prefills",
            ),
            turn("--cuda-memory-fraction", "lower", "if it fails while it serves"),
        ],
    ),
    Rule(
        &[Tgi],
        &[Short::Cache],
        &[choice(
            "--max-total-tokens",
            |message| {
                let length = message.fact(Fact::BlockLength).unwrap_or(1);
                Some(message.fact(Fact::Blocks)?.checked_mul(length)?.to_string())
            },
            "lower",
            "the number of tokens per request that fit in the KV cache",
        )],
    ),
    Rule(&[Tgi], &[Short::Graphs], &[turn("--cuda-graphs", "0", "captures no CUDA graphs")]),
    // LMDeploy.
    Rule(
        &[LmDeploy],
        &[Short::NoCache, Short::Crowded],
        &[turn(
            "--cache-max-entry-count",
            "higher",
            "the KV cache's share of the memory left by the weights (default 0.8)",
        )],
    ),
    Rule(
        &[LmDeploy],
        &[Short::Compute, Short::Cache, Short::Weights],
        &[
            turn("--cache-max-entry-count", "lower", "leaves more memory outside the KV cache"),
            turn("--max-prefill-token-num", "lower", "smaller prefills"),
        ],
    ),
    Rule(&[LmDeploy], &[Short::Sequences], &[turn("--max-batch-size", "lower", "less state")]),
    // Trainers and others.
    Rule(
        &[ExLlama],
        &[Short::Program],
        &[
            work("a smaller cache, or one of fewer bits"),
            turn("--gpu_split", "larger", "more of each GPU: all of those listed were tried"),
        ],
    ),
    Rule(&[DeepSpeed], &[Short::Cache], &[work("fewer blocks of KV cache, or more GPUs")]),
    Rule(&[DeepSpeed], &[Short::Compute], &[work("a smaller batch or shorter sequences")]),
    Rule(
        &[Accelerate],
        &[Short::Compute],
        &[work("a smaller model or shorter sequences: even a batch of one did not fit")],
    ),
    Rule(
        &[Accelerate],
        &[Short::Weights],
        &[
            work("a larger GPU, or a larger max_memory: quantized weights must fit on GPUs"),
            just(
                "llm_int8_enable_fp32_cpu_offload=True",
                "keeps the other layers on the CPU in 32 bits",
            ),
        ],
    ),
    Rule(&[BitsAndBytes], &[Short::Compute], &[work("a smaller batch or model")]),
    Rule(
        &[Unsloth],
        &[Short::Weights],
        &[work("load_in_4bit=True, a smaller max_seq_length, or a larger GPU")],
    ),
    Rule(
        &[ComfyUi],
        &[Short::Compute, Short::Weights, Short::Graphs, Short::Cache],
        &[
            just("--lowvram", "keeps parts of the model in host memory"),
            work("a lower resolution, fewer images at once, or the tiled VAE"),
        ],
    ),
    // llama.cpp and ollama.
    Rule(
        &[LlamaCpp],
        &[Short::Weights],
        &[
            choice(
                "-ngl",
                |message| message.layers(),
                "lower",
                "fewer layers on the GPU; KV cache and compute buffers need room too",
            ),
            turn("--n-cpu-moe", "higher", "the experts of more layers stay on the CPU"),
            turn("-ts", "another split", "if another GPU has room"),
        ],
    ),
    Rule(
        &[LlamaCpp],
        &[Short::Cache],
        &[
            turn("-c", "lower", "the KV cache is proportional to the context"),
            just("--cache-type-k q8_0 --cache-type-v q8_0", "about half of the KV cache"),
            turn("-np", "lower", "fewer slots"),
        ],
    ),
    Rule(
        &[LlamaCpp],
        &[Short::Compute],
        &[
            turn("-ub", "lower", "compute buffers grow with the physical batch (default 512)"),
            turn("-c", "lower", "a shorter context needs smaller buffers"),
            turn("-ngl", "lower", "fewer layers on the GPU"),
            turn("--fit-target", "higher", "a larger margin in MiB, if it failed while it ran"),
        ],
    ),
    Rule(
        &[LlamaCpp],
        &[Short::OneBuffer],
        &[
            turn("-ub", "lower", "a smaller compute buffer"),
            choice(
                "GGML_VK_FORCE_MAX_BUFFER_SIZE=",
                |message| message.asked().map(|bytes| bytes.to_string()),
                "larger",
                "overrides the device's limit, with GGML_VK_FORCE_MAX_ALLOCATION_SIZE for one \
                 allocation; the driver may still refuse",
            ),
        ],
    ),
    Rule(&[LlamaCpp], &[Short::Context], &[turn("-c", "higher", "or fewer slots with -np")]),
    Rule(
        &[LlamaCpp],
        &[Short::Program],
        &[work("without -ngl and -ts, llama.cpp chooses what fits")],
    ),
    Rule(&[LlamaCpp], &[Short::Host], &[work("a smaller model, or more free host memory")]),
    Rule(
        &[Ollama],
        &[Short::Compute, Short::Cache, Short::OneBuffer],
        &[
            turn("num_ctx", "lower", "a shorter context needs a smaller KV cache and buffers"),
            just("OLLAMA_KV_CACHE_TYPE=q8_0", "about half of the KV cache, with flash attention"),
            just("OLLAMA_NUM_PARALLEL=1", "one request at a time"),
            choice(
                "OLLAMA_GPU_OVERHEAD=",
                |message| {
                    Some(message.asked()?.checked_sub(message.fact(Fact::FreeBefore)?)?.to_string())
                },
                "larger",
                "bytes of each GPU that ollama leaves free",
            ),
        ],
    ),
    Rule(
        &[Ollama],
        &[Short::Weights],
        &[turn("num_gpu", "removed", "then ollama chooses how many layers fit")],
    ),
    Rule(
        &[Ollama],
        &[Short::Host],
        &[
            turn("num_ctx", "lower", "or a smaller model"),
            work("more host memory or swap, or a higher memory limit of the container"),
        ],
    ),
    // XLA.
    Rule(
        &[Jax],
        &[Short::Program],
        &[
            choice(
                "jax.checkpoint",
                |message| is_largest(message, Fact::Temporary),
                "",
                "temporary memory is the largest part: recompute instead of keeping, or a smaller \
                 batch",
            ),
            choice(
                "donate_argnums",
                |message| is_largest(message, Fact::Results),
                "",
                "results are the largest part: let them reuse the memory of the arguments",
            ),
            choice(
                "jax.sharding",
                |message| is_largest(message, Fact::Arguments),
                "",
                "arguments are the largest part: spread them over more devices",
            ),
        ],
    ),
    // Libraries and limits.
    Rule(
        &[Hami],
        &[Short::Quota],
        &[choice(
            "CUDA_DEVICE_MEMORY_LIMIT=",
            |message| {
                message.needed().filter(|bytes| *bytes < 1 << 62).map(|it| format!("{}m", mib(it)))
            },
            "higher",
            "HAMi's limit for this container; Kubernetes sets it from nvidia.com/gpumem, in MiB",
        )],
    ),
    Rule(
        &[Nccl],
        &[Short::Compute],
        &[work(
            "more free memory outside the framework's pool: a lower fraction for it, or a smaller \
             batch",
        )],
    ),
    Rule(
        &[Nccl],
        &[Short::Unclear],
        &[just("NCCL_DEBUG=WARN", "shows whether memory or something else failed")],
    ),
    Rule(
        &[TensorRtLlm],
        &[Short::Unclear],
        &[just("NCCL_DEBUG=WARN", "shows whether memory or something else failed")],
    ),
    Rule(&[Rmm], &[Short::Pool], &[work("a higher limit of the pool, or smaller pieces of data")]),
    Rule(
        &[Rmm, PyTorch, Cuda],
        &[Short::OneBuffer],
        &[work("smaller tensors: the maximum size of one buffer cannot be changed")],
    ),
    Rule(&[Ascend, Cuda], &[Short::Compute], &[work("a smaller batch or model")]),
    Rule(&[Cuda], &[Short::Pool], &[work("a larger workspace of the library, or a smaller batch")]),
    // Hosts.
    Rule(
        &[Kernel, Kubelet, PyTorch, Tgi, Vllm, SgLang, TensorRtLlm, LmDeploy, DeepSpeed, ComfyUi],
        &[Short::Killed],
        &[
            just(
                "sudo dmesg | grep -i -e oom -e 'killed process'",
                "shows whether the kernel killed it because host memory ran out",
            ),
            work("less host memory: fewer data loader workers, or a higher memory limit"),
        ],
    ),
    Rule(
        &[PyTorch, Vllm, SgLang],
        &[Short::HostLimit],
        &[
            turn("--shm-size", "larger", "docker run's limit on /dev/shm, 64 MiB by default"),
            work("fewer data loader workers"),
        ],
    ),
    Rule(
        &[Slurm],
        &[Short::HostLimit],
        &[turn("--mem", "higher", "the job's limit on host memory, or fewer workers")],
    ),
    Rule(
        &[Kubelet],
        &[Short::HostLimit],
        &[turn("resources.limits.memory", "higher", "the container's limit on host memory")],
    ),
    Rule(
        &[Kubelet],
        &[Short::Host],
        &[turn("resources.requests.memory", "higher", "then it runs on a node with that much")],
    ),
    Rule(
        &[Ray],
        &[Short::Host],
        &[
            turn("num_cpus", "higher per task", "fewer tasks on one node at once"),
            work("larger nodes, or less data in each task"),
        ],
    ),
    Rule(
        &[Kernel, SystemdOomd],
        &[Short::HostLimit],
        &[
            turn(
                "memory limit",
                "higher",
                "the control group's limit: docker run --memory, MemoryMax, or the scheduler's \
                 option",
            ),
            work("fewer data loader workers, or less data in memory"),
        ],
    ),
    Rule(
        &[Host, Kernel, SystemdOomd],
        &[Short::Host],
        &[work("less host memory: fewer data loader workers, less data in memory, or more swap")],
    ),
    Rule(
        &[NvidiaDriver],
        &[Short::Host],
        &[work(
            "more free host memory: on GPUs that share it, drop the page cache \
             (/proc/sys/vm/drop_caches)",
        )],
    ),
];

/// Returns an empty value if this part of a compiled program is the largest.
fn is_largest(message: Message<'_>, fact: Fact) -> Option<String> {
    let own = message.fact(fact)?;
    let parts = [Fact::Arguments, Fact::Results, Fact::Temporary];
    let most = parts.into_iter().filter_map(|part| message.fact(part)).max()?;
    (own == most).then(String::new)
}

/// The options of TensorRT-LLM if its weights fill the GPU.
pub(super) const SMALLER_WEIGHTS: &[Choice] = &[
    turn("tensor_parallel_size", "higher", "spreads the weights over more GPUs"),
    turn("pipeline_parallel_size", "higher", "spreads the layers over more GPUs"),
    QUANTIZED,
    turn("max_num_tokens", "lower", "smaller activations, if only little is missing"),
];

/// The options for a component of TensorRT-LLM, by the end of its name in lower case.
pub(super) const COMPONENTS: &[(&str, &[Choice])] = &[
    (
        "kv cache",
        &[
            LOWER_TRT,
            turn("max_gpu_total_bytes", "lower", "in KvCacheConfig: a fixed size instead"),
        ],
    ),
    ("model", SMALLER_WEIGHTS),
    ("draft model for speculative decoding", SMALLER_WEIGHTS),
    ("sampler", &[turn("max_seq_len", "lower", "smaller buffers of the sampler")]),
    ("", &[turn("max_num_tokens", "lower", "smaller activations"), LOWER_TRT]),
];
