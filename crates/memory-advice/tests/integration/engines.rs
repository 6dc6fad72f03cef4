//! From the text of an engine's message to the cause, the figures and the options.

use gpu_memory_advice::explain::{Cause, Diagnosis, explain};
use gpu_memory_advice::text::shown;

/// A text, the causes of its messages, text that the explanation or remedies must contain, and text
/// that they must not contain.
pub(crate) struct Row {
    text: &'static str,
    causes: &'static [Cause],
    words: &'static [&'static str],
    absent: &'static [&'static str],
}

pub(crate) const fn row(
    text: &'static str,
    causes: &'static [Cause],
    words: &'static [&'static str],
) -> Row {
    Row { text, causes, words, absent: &[] }
}

impl Row {
    pub(crate) const fn without(self, absent: &'static [&'static str]) -> Self {
        Row { absent, ..self }
    }
}

fn diagnoses(text: &str) -> Vec<Diagnosis> {
    let report = gpu_text::oom::read(text.as_bytes());
    report.events.iter().map(|event| explain(&shown(event), None)).collect()
}

/// Returns the entire output for a message.
fn output(diagnosis: &Diagnosis) -> String {
    let mut output = vec![diagnosis.verdict.clone()];
    output.extend(diagnosis.reasons.iter().cloned());
    output.extend(diagnosis.contradictions.iter().cloned());
    for remedy in &diagnosis.remedies {
        output.push(format!("{} {}", remedy.set.as_deref().unwrap_or_default(), remedy.why));
    }
    output.join("\n")
}

pub(crate) fn check(rows: &[Row]) {
    for Row { text, causes, words, absent } in rows {
        let all = diagnoses(text);
        let found: Vec<Cause> = all.iter().map(|diagnosis| diagnosis.cause).collect();
        let output: Vec<String> = all.iter().map(output).collect();
        let output = output.join("\n\n");
        assert_eq!(found, *causes, "{text}\n{output}");
        for word in *words {
            assert!(output.contains(word), "no '{word}':\n{text}\n{output}");
        }
        for word in *absent {
            assert!(!output.contains(word), "'{word}':\n{text}\n{output}");
        }
    }
}

#[test]
fn vllm_start_failure_suggests_option_with_value() {
    check(&[
        row(
            "ValueError: The model's max seq len (40960) is larger than the maximum number of \
             tokens that can be stored in KV cache (17328). Try increasing \
             `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
            &[Cause::Limit],
            &["--max-model-len 17328", "40960 tokens"],
        ),
        row(
            "(EngineCore_DP0 pid=77) ValueError: To serve at least one request with the models's \
             max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the \
             available KV cache memory (5.5 GiB). Based on the available memory, the estimated \
             maximum model length is 45056. Try increasing `gpu_memory_utilization`.",
            &[Cause::Limit],
            &["--max-model-len 45056", "needs 16 GiB and has 5.5 GiB"],
        )
        .without(&["--max-model-len N"]),
        // Without the length in the text: in proportion.
        row(
            "ERROR 01-02 03:04:05 [core.py:390] ValueError: To serve at least one request with the \
             models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than \
             the available KV cache memory (4.00 GiB). Try increasing `gpu_memory_utilization`.",
            &[Cause::Limit],
            &["--max-model-len 32768", "full attention"],
        ),
        // The fraction comes from an earlier line, as this much was free at startup.
        row(
            "INFO 01-02 03:04:05 [gpu_worker.py:9] Free memory on device (78.5/80.0 GiB) on \
             startup. Desired GPU memory utilization is (0.8, 64.0 GiB). Actual usage is 1 GiB.\n\
             ValueError: To serve at least one request with the model's max seq len (65536), \
             8.0 GiB KV cache is needed, which is larger than the available KV cache memory (4.0 \
             GiB). Based on the available memory, the estimated maximum model length is 32768.",
            &[Cause::Limit],
            &["--max-model-len 32768", "--gpu-memory-utilization 0.85"],
        ),
        // Before 2025, in proportion: 10,240 more tokens need 1 GiB more of 40.
        row(
            "INFO the current vLLM instance can use total_gpu_memory (40.00GiB) x \
             gpu_memory_utilization (0.80) = 32.00GiB model weights take 20.00GiB; \
             non_torch_memory takes 0.10GiB; PyTorch activation peak memory takes 1.00GiB; the \
             rest of the memory reserved for KV Cache is 3.00GiB.\nValueError: The model's max seq \
             len (40960) is larger than the maximum number of tokens that can be stored in KV \
             cache (30720).",
            &[Cause::Limit],
            &["--max-model-len 30720", "--gpu-memory-utilization 0.83"],
        ),
        // The message after each successful start is not a failure.
        row(
            "INFO 01-02 03:04:05 [gpu_worker.py:9] Free memory on device (78.5/80.0 GiB) on \
             startup. Desired GPU memory utilization is (0.8, 64.0 GiB). Actual usage is 1 GiB.",
            &[],
            &[],
        ),
        row(
            "(EngineCore pid=7) INFO 01-02 03:04:05 [worker.py:1] Available KV cache memory: -1.5 \
             GiB\n(EngineCore pid=7) ERROR 01-02 03:04:05 [core.py:7]     raise ValueError(\"No \
             available memory for the cache blocks. \"\n(EngineCore pid=7) ERROR 01-02 03:04:05 \
             [core.py:7] ValueError: No available memory for the cache blocks. Try increasing \
             `gpu_memory_utilization` when initializing the engine.",
            &[Cause::Limit],
            &["short by 1.5 GiB", "--gpu-memory-utilization"],
        )
        .without(&["gpuws doctor"]),
        row(
            "ValueError: Free memory on device cuda:1 (30.2/79.2 GiB) on startup is less than \
             desired GPU memory utilization (0.9, 71.3 GiB). Decrease GPU memory utilization.",
            &[Cause::Unnamed],
            &["62 % of this GPU", "--gpu-memory-utilization 0.37", "gpuws doctor"],
        ),
        row(
            "AssertionError: Error in memory profiling. Initial free memory 30.25 GiB, current \
             free memory 41.50 GiB. This happens when other processes sharing the same container \
             release GPU memory while vLLM is profiling during initialization.",
            &[Cause::Disturbed],
            &["30.25 GiB were free at first and 41.5 GiB", "gpuws run"],
        ),
        row(
            "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (96).",
            &[Cause::Limit],
            &["--max-num-seqs 96"],
        ),
        row(
            "WARNING Sequence group 12 is preempted by PreemptionMode.RECOMPUTE mode because there \
             is not enough KV cache space.",
            &[Cause::NoFailure],
            &["--gpu-memory-utilization"],
        ),
        row(
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 512 dummy \
             requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization`.",
            &[Cause::TooBig],
            &["512 requests", "--max-num-seqs 256"],
        ),
        // One failure, with PyTorch's figures.
        row(
            "RuntimeError: Failed to load model - not enough GPU memory. Try lowering \
             --gpu-memory-utilization, increasing --tensor-parallel-size, or using --quantization. \
             (original error: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total \
             capacity of 31.50 GiB of which 100.00 MiB is free. Including non-PyTorch memory, this \
             process has 31.30 GiB memory in use.)",
            &[Cause::TooBig],
            &["896 MiB; 100 MiB were free", "--tensor-parallel-size higher"],
        ),
        row(
            "RuntimeError: CUDA Error: out of memory at /x/csrc/cumem_allocator.cpp:77",
            &[Cause::Unnamed],
            &["gpuws doctor", "slept"],
        ),
    ]);
}

#[test]
fn torch_inside_engine_gets_options_of_engine() {
    check(&[
        row(
            "  File \"/x/vllm/v1/worker/gpu_model_runner.py\", line 7, in capture_model\n\
             RuntimeError: CUDA error: out of memory\n",
            &[Cause::NotTold],
            &["--enforce-eager", "--gpu-memory-utilization lower"],
        ),
        row(
            "sglang-1  |   File \"/x/sglang/srt/mem_cache/memory_pool.py\", line 6, in \
             _create_buffers\nsglang-1  | torch.OutOfMemoryError: CUDA out of memory. Tried to \
             allocate 48.00 MiB. GPU 0 has a total capacity of 47.50 GiB of which 21.00 MiB is \
             free. Including non-PyTorch memory, this process has 47.47 GiB memory in use. Of the \
             allocated memory 46.50 GiB is allocated by PyTorch, and 512.00 MiB is reserved by \
             PyTorch but unallocated.",
            &[Cause::Full],
            &["100 % of it", "--mem-fraction-static lower"],
        )
        .without(&["expandable_segments", "Fragmented", "gradient"]),
        // The process's own PID outside the container does not name another process.
        row(
            "[2025-01-02 03:04:05 TP0] Exception: Capture CUDA graph failed: CUDA out of memory. \
             Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 31.50 GiB of which 200.00 \
             MiB is free. Process 99 has 31.25 GiB memory in use. Of the allocated memory 30.40 GiB \
             is allocated by PyTorch, and 80.00 MiB is reserved by PyTorch but unallocated.",
            &[Cause::TooBig],
            &["--cuda-graph-max-bs lower", "Process 99 is this process"],
        )
        .without(&["Other processes hold"]),
        // With the fraction and the total, the advice has a number.
        row(
            "INFO non-default args: {'model': 'm', 'gpu_memory_utilization': 0.95}\n  File \
             \"/x/vllm/worker.py\", line 7, in execute_model\ntorch.OutOfMemoryError: CUDA out of \
             memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of 50.00 GiB of which \
             300.00 MiB is free. Including non-PyTorch memory, this process has 49.70 GiB memory \
             in use. Of the allocated memory 49.00 GiB is allocated by PyTorch, and 100.00 MiB is \
             reserved by PyTorch but unallocated.",
            &[Cause::TooBig],
            &["--gpu-memory-utilization 0.92"],
        ),
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 3 has a \
             total capacity of 31.50 GiB of which 640.00 KiB is free. Process 4242 has 31.49 GiB \
             memory in use. Of the allocated memory 30.90 GiB is allocated by PyTorch, with 40.00 \
             MiB allocated in private pools (e.g., CUDA Graphs), and 60.00 MiB is reserved by \
             PyTorch but unallocated.",
            &[Cause::Full],
            &["--enforce-eager", "Process 4242 is this process"],
        )
        .without(&["Fragmented", "expandable"]),
    ]);
}

#[test]
fn memory_outside_pytorch_is_not_another_tenant() {
    check(&[
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 MiB. GPU 0 has a \
             total capacity of 44.39 GiB of which 2.75 MiB is free. Process 31337 has 44.38 GiB \
             memory in use. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes \
             is reserved by PyTorch but unallocated.",
            &[Cause::Full],
            &["44.38 GiB of this process outside its allocator", "free_gpu_memory_fraction"],
        )
        .without(&["gpuws status", "their owners", "ghost", "44.38 GiB context"]),
        // It is another process that holds the memory if there is room for this one as well.
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a \
             total capacity of 44.39 GiB of which 2.75 GiB is free. Process 31337 has 40.00 GiB \
             memory in use. Process 5 has 1.00 GiB memory in use. Of the allocated memory 0.50 \
             GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
            &[Cause::OtherProcesses],
            &["PID 31337 40 GiB", "gpuws status"],
        ),
        // With both there is no room for 6.2 GiB; only the second matches the size of this process.
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 768.00 MiB. GPU 1 has a \
             total capacity of 31.73 GiB of which 240.00 MiB is free. Process 901 has 24.60 GiB \
             memory in use. Process 902 has 6.80 GiB memory in use. Of the allocated memory 6.10 \
             GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
            &[Cause::OtherProcesses],
            &[
                "Process 901 holds 78 % of this GPU",
                "PID 901 24.6 GiB",
                "Process 902 is most likely this process",
            ],
        )
        .without(&["2 other", "PID 902"]),
        // Both match the size of this process.
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a \
             total capacity of 39.39 GiB of which 90.00 MiB is free. Process 41 has 20.20 GiB \
             memory in use. Process 42 has 19.00 GiB memory in use. Of the allocated memory 18.40 \
             GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.",
            &[Cause::OtherProcesses],
            &[
                "One of the processes 41, 42 is this process",
                "lists PID 41 20.2 GiB, PID 42 19 GiB",
                "wait for the others",
            ],
        )
        .without(&["other processes hold", "ask their owners", "99 %", "100 %"]),
        // Three processes are listed; the smallest cannot be this one.
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a \
             total capacity of 79.15 GiB of which 500.00 MiB is free. Process 11 has 60.00 GiB \
             memory in use. Process 12 has 17.50 GiB memory in use. Process 13 has 1.00 GiB memory \
             in use. Of the allocated memory 16.50 GiB is allocated by PyTorch, and 200.00 MiB is \
             reserved by PyTorch but unallocated.",
            &[Cause::OtherProcesses],
            &["2 other processes hold 77 % of this GPU", "Process 12 is most likely this process"],
        ),
        // No listed process is this one, and there is no room for it: no assignment is consistent.
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a \
             total capacity of 23.65 GiB of which 100.00 MiB is free. Process 8 has 9.00 GiB \
             memory in use. Process 9 has 8.00 GiB memory in use. Of the allocated memory 12.00 \
             GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
            &[Cause::OtherProcesses],
            &["read at different times"],
        ),
        // AMD's message never names processes, and a context accounts for this remainder.
        row(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 300.00 MiB. GPU 0 has a \
             total capacity of 24.00 GiB of which 100.00 MiB is free. Of the allocated memory \
             23.20 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but \
             unallocated.",
            &[Cause::Full],
            &["Not an NVIDIA device"],
        )
        .without(&["Others", "hold the missing"]),
    ]);
}

#[test]
fn reports_impossible_figures_without_using_them() {
    check(&[
        row(
            "[HAMI-core ERROR (pid:7 thread=1 allocator.c:53)]: Device 1 OOM 18446744073705454321 / \
             8589934592",
            &[Cause::ImpossibleFigure],
            &["below zero", "3.91 MiB", "8 GiB", "update HAMi"],
        )
        .without(&["17179869184", "MEMORY_LIMIT"]),
        row(
            "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of \
             memory)\nCurrently allocated     : 9.50 GiB\nRequested               : 3.25 GiB\n\
             Device limit            : 11.75 GiB\nFree (according to CUDA): 62.50 MiB\nPyTorch \
             limit (set by user-supplied memory fraction)\n                        : \
             17179869184.00 GiB",
            &[Cause::TooBig],
            &["9.5 GiB in use"],
        ),
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
             total capacity of 24.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, \
             this process has 17179869184.00 GiB memory in use. Of the allocated memory 20.00 GiB \
             is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
            &[Cause::Unnamed],
            &["the memory of this process of 17179869184.00 GiB is impossible"],
        ),
        row(
            "W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out \
             of memory trying to allocate 2.50TiB (rounded to 2748779069440)requested by op",
            &[Cause::LargerThanDevice],
            &["more than any GPU has"],
        )
        .without(&["gpuws doctor"]),
    ]);
}

#[test]
fn sglang_and_others_state_the_shortage() {
    check(&[
        row(
            "[2025-01-02 03:04:05 TP1] Load weight end. type=M, dtype=torch.bfloat16, avail \
             mem=6.00 GB, mem usage=34.00 GB.\n[2025-01-02 03:04:06 TP1] RuntimeError: Not enough \
             memory. Please try to increase --mem-fraction-static.",
            &[Cause::Limit],
            &["--mem-fraction-static 0.92", "34 GiB, 85 %"],
        ),
        row(
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current \
             value: mem_fraction_static=0.85",
            &[Cause::Limit],
            &["--mem-fraction-static higher"],
        ),
        row(
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other \
             processes. pre_model_load_memory=21.5, local_gpu_memory=93.0, local_gpu_memory * \
             0.9=83.7",
            &[Cause::Unnamed],
            &["21.5 GiB free on one GPU and 93 GiB", "gpuws doctor"],
        ),
        row(
            "[2025-01-02 03:04:05] KV cache pool is full. Retract requests. #retracted_reqs: 3",
            &[Cause::NoFailure],
            &["--schedule-conservativeness 1.3"],
        ),
        row(
            "[01/02/2025-03:04:05] [TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: \
             Executor creation failed due to insufficient GPU memory.\n\nThe following component \
             could not be created: KV cache\nTotal GPU memory (GiB): 79.10\nFree GPU memory before \
             component creation attempt (GiB): 31.50\n\nPreviously created components and free GPU \
             memory before/after creation (GiB):\nModel: 78.60 / 33.10\nSampler: 33.10 / 33.10\n",
            &[Cause::TooBig],
            &["KV cache", "31.5 GiB of 79.1 GiB", "free_gpu_memory_fraction", "45.5 GiB"],
        ),
        // The weights fill the GPU, so a smaller cache does not help.
        row(
            "[01/02/2025-03:04:05] [TRT-LLM] [E] Failed to initialize executor on rank 0: Executor \
             creation failed due to insufficient GPU memory.\n\nThe following component could not \
             be created: Initial KV cache (temporary for KV cache size estimation)\nTotal GPU \
             memory (GiB): 44.40\nFree GPU memory before component creation attempt (GiB): 1.30\n\n\
             Previously created components and free GPU memory before/after creation (GiB):\nModel: \
             43.90 / 1.30\n",
            &[Cause::TooBig],
            &["tensor_parallel_size higher", "pipeline_parallel_size higher", "fewer bits"],
        )
        .without(&["free_gpu_memory_fraction"]),
        row(
            "[TRT-LLM] [E] Failed to initialize executor on rank 1: Executor creation failed due \
             to insufficient GPU memory.\n\nThe following component could not be created: Initial \
             KV cache (temporary for KV cache size estimation)\nTotal GPU memory (GiB): \
             44.40\nFree GPU memory before component creation attempt (GiB): 20.30\n\nPreviously \
             created components and free GPU memory before/after creation (GiB):\nModel: 43.90 / \
             20.30\n",
            &[Cause::TooBig],
            &["free_gpu_memory_fraction lower", "max_gpu_total_bytes"],
        )
        .without(&["tensor_parallel_size"]),
        row(
            "[TRT-LLM] [E] Failed to initialize executor on rank 0: Executor creation failed due \
             to insufficient GPU memory.\n\nThe following component could not be created: \
             Model\nTotal GPU memory (GiB): 44.40\nFree GPU memory before component creation \
             attempt (GiB): 43.80\n",
            &[Cause::TooBig],
            &["tensor_parallel_size higher", "fewer bits"],
        ),
        row(
            "RuntimeError: Not enough memory to handle 6000 prefill tokens. You need to decrease \
             `--max-batch-prefill-tokens`\nError: Warmup(Generation(\"Not enough memory to handle \
             6000 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\"))",
            &[Cause::TooBig],
            &["--max-batch-prefill-tokens 3000"],
        ),
        row(
            "W 1 memory.cc:135] Failed to allocate CUDA memory with byte size 52428800 on GPU 2: \
             CNMEM_STATUS_OUT_OF_MEMORY, falling back to pinned system memory",
            &[Cause::NoFailure],
            &["--cuda-memory-pool-byte-size=2:119537664"],
        ),
        row(
            "RuntimeError: No enough gpu memory for kv cache.",
            &[Cause::Limit],
            &["--cache-max-entry-count higher"],
        ),
        row(
            "[ERROR] 2025-01-02-03:04:05 (PID:7, Device:5, RankID:5) ERR00100 PTA call acl api \
             failed\nEL0004: 2025-01-02-03:04:05.000.000 Failed to allocate memory.",
            &[Cause::NotTold],
            &["Not an NVIDIA device"],
        ),
        row(
            "[4pdvGPU ERROR (pid:9 thread=1 multiprocess_memory_limit.c:277)]: device OOM \
             encountered: usage=7516192768 limit=6442450944",
            &[Cause::Limit],
            &["hold 7 GiB, above its limit of 6 GiB", "CUDA_DEVICE_MEMORY_LIMIT=7168m"],
        ),
        row(
            "RuntimeError: NCCL error in: x.cpp:7, unhandled cuda error (run with NCCL_DEBUG=INFO \
             for details), NCCL version 2.21.5",
            &[Cause::NotTold],
            &["NCCL_DEBUG=WARN"],
        ),
        row(
            "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have \
             enough GPU RAM to fit the quantized model.",
            &[Cause::NotTold],
            &["llm_int8_enable_fp32_cpu_offload=True"],
        ),
        row(
            "Ran out of memory when regular VAE decoding, retrying with tiled VAE decoding.",
            &[Cause::NoFailure],
            &["retried"],
        )
        .without(&["--lowvram"]),
        row("OOM: Insufficient VRAM for model and cache", &[Cause::TooBig], &["--gpu_split"]),
        row(
            "Memory: Insufficient memory to allocate KV-caches. Required: 4194304, Available: \
             1048576",
            &[Cause::Limit],
            &["1 MiB were free"],
        ),
    ]);
}

#[test]
fn explains_llama_cpp_failure_with_remedy() {
    check(&[
        row(
            "0.05.111.222 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on \
             device 1: cudaMalloc failed: out of memory\n0.05.111.223 E \
             ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 9437184000\n\
             0.05.111.224 E graph_reserve: failed to allocate compute buffers\n0.05.111.225 W \
             sched_reserve: compute buffer allocation failed, retrying without pipeline \
             parallelism\n0.06.000.000 I main: server is listening\n",
            &[Cause::NoFailure],
            &["retried"],
        )
        .without(&["lower:", "-ngl", "--fit-target"]),
        row(
            "time=2025-03-04T05:06:07.000Z level=WARN source=x.go:1 msg=\"reducing automatic context \
             and retrying once\"",
            &[Cause::NoFailure],
            &["shortened its context"],
        )
        .without(&["num_ctx", "OLLAMA_"]),
        row(
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7000.00 MiB on device 0: \
             cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate ROCm0 \
             buffer of size 7340032000\ngraph_reserve: failed to allocate compute buffers\n",
            &[Cause::NotTold],
            &["-ub lower", "-c lower", "Not an NVIDIA device"],
        )
        .without(&["gpuws doctor"]),
        row(
            "using device CUDA0 (NVIDIA X) - 12000 MiB free\nload_tensors: offloading 40 repeating \
             layers to GPU\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 16000.00 MiB on \
             device 0: cudaMalloc failed: out of memory\nalloc_tensor_range: failed to allocate \
             CUDA0 buffer of size 16777216000\nllama_model_load: error loading model: unable to \
             allocate CUDA0 buffer\n",
            &[Cause::TooBig],
            &["short by 3.91 GiB", "-ngl 30"],
        ),
        row(
            "ggml_vulkan: Requested buffer size exceeds device buffer size limit: \
             ErrorOutOfDeviceMemory\nggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer \
             of size 5368709120\ngraph_reserve: failed to allocate compute buffers\n",
            &[Cause::BufferLimit],
            &["-ub lower", "GGML_VK_FORCE_MAX_BUFFER_SIZE=5368709120"],
        )
        .without(&["gpuws doctor"]),
        row(
            "ggml_cuda_host_malloc: failed to allocate 9000.00 MiB of pinned memory: out of memory",
            &[Cause::NoFailure],
            &["pinned host memory"],
        ),
        row(
            "Error: model requires more system memory (21.5 GiB) than is available (11.0 GiB)",
            &[Cause::HostMemory],
            &["21.5 GiB; 11 GiB were free", "num_ctx lower"],
        ),
        row(
            "level=WARN source=sched.go:7 msg=\"gpu VRAM usage didn't recover within timeout\"",
            &[Cause::TakenBefore],
            &["gpuws doctor", "not released its GPU memory"],
        ),
        row(
            "llama_params_fit: failed to fit params to free device memory: n_gpu_layers already \
             set by user to 99, abort",
            &[Cause::NoFailure],
            &["without -ngl"],
        ),
    ]);
}

#[test]
fn compiled_program_states_its_need() {
    check(&[row(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to \
         allocate 7516192768 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n  \
         parameter allocation:    2.50GiB\n  constant allocation:    10.0KiB\n  maybe_live_out \
         allocation:    1.00GiB\n  preallocated temp allocation:    7.00GiB\n  total allocation:   \
         10.50GiB\n  total fragmentation:  100.00MiB (1.0%)\n",
        &[Cause::TooBig],
        &["needs 10.5 GiB, 7 GiB of it temporary", "jax.checkpoint"],
    )
    .without(&["donate_argnums", "no further figures"])]);
}

#[test]
fn ranks_and_echoes_count_once() {
    let of_rank = |rank: u32, left: &str| {
        format!(
            "(Worker_TP{rank} pid=7{rank}) ERROR 01-02 03:04:05 [x.py:1] ValueError: To serve at \
             least one request with the model's max seq len (65536), (8.0 GiB KV cache is needed, \
             which is larger than the available KV cache memory ({left} GiB). Based on the \
             available memory, the estimated maximum model length is 32768.\n"
        )
    };
    let log = of_rank(0, "4.01") + &of_rank(1, "3.98") + &of_rank(1, "3.98");
    let report = gpu_text::oom::read(log.as_bytes());
    let [event] = &report.events[..] else { panic!("{report:?}") };
    assert_eq!(event.times, 3);
    let left = event.dump.pool.and_then(|pool| pool.available).map(|bytes| bytes.mib());
    assert_eq!(left, Some(4075), "that of the rank with least");
}

#[test]
fn wrapped_and_prefixed_message_is_read() {
    let words = "ValueError: To serve at least one request with the model's max seq len (65536), \
                 (8.0 GiB KV cache is needed, which is larger than the available KV cache memory \
                 (4.0 GiB). Based on the available memory, the estimated maximum model length is \
                 32768. Try increasing";
    let letters: Vec<char> = words.chars().collect();
    for width in 60..120 {
        for prefix in ["", "(EngineCore pid=7) ERROR 01-02 03:04:05 [core.py:7] "] {
            let line = |line: &[char]| format!("{prefix}{}\n", line.iter().collect::<String>());
            // Loggers do not break words, so only terminal output is cut at arbitrary positions.
            let log: String = match prefix {
                "" => letters.chunks(width).map(line).collect(),
                _ => words.split_inclusive(". ").map(|part| format!("{prefix}{part}\n")).collect(),
            };
            let all = diagnoses(&log);
            assert_eq!(all.len(), 1, "{log}");
            assert!(
                output(&all[0]).contains("--max-model-len 32768"),
                "{log}\n{}",
                output(&all[0])
            );
        }
    }
}

#[test]
fn full_engine_cache_is_not_a_full_gpu() {
    check(&[
        row(
            "[2025-05-01 02:03:04 TP1] RuntimeError: Prefill out of memory. Try to lower your \
             batch size.\nTry to allocate 6144 tokens.\nAvailable tokens: 5120\n\
             self.token_to_kv_pool_allocator.available_size()=5000",
            &[Cause::Limit],
            &["room for 6144 tokens; there was room for 5120", "--max-running-requests lower"],
        )
        .without(&["gpuws doctor", "schedule-conservativeness"]),
        row(
            "Decode out of memory. Try to lower your batch size.\nTry to allocate 9 tokens.\n\
             Available full tokens: 3 (full_available_size=3 + full_evictable_size=0)",
            &[Cause::Limit],
            &["room for 9 tokens; there was room for 3", "--mem-fraction-static higher"],
        ),
        row("Prefill out of memory. This should never happen.", &[Cause::Limit], &["lower"]),
        row(
            "[2025-05-01 02:03:04 TP1]   File \"/x/sglang/srt/y.py\", line 7\nRuntimeError: Failed \
             to allocate memory for batch_prefill_tmp_v with size 402653184 and alignment 16 in \
             AlignedAllocator",
            &[Cause::Limit],
            &["own pool is full", "384 MiB", "SGLANG_FLASHINFER_WORKSPACE_SIZE larger"],
        )
        .without(&["gpuws doctor"]),
        // A failure of TensorRT-LLM, unlike requests that only wait.
        row(
            "[TensorRT-LLM][ERROR] Assertion failed: Can't allocate new blocks for window size \
             4096. No free blocks left. (/x/kvCacheManager.cpp:7)",
            &[Cause::Limit],
            &["too little room for the next batch", "free_gpu_memory_fraction higher"],
        )
        .without(&["not lost"]),
        row(
            "[TensorRT-LLM][ERROR] Assertion failed: maxTokensInPagedKvCache (2048) must be large \
             enough to process at least 1 sequence to completion",
            &[Cause::Limit],
            &["The cache holds 2048 tokens"],
        ),
        row(
            "RMM failure at:/x/pool_memory_resource.hpp:7: Maximum pool size exceeded (failed to \
             allocate 3.0 GiB): std::bad_alloc",
            &[Cause::Limit],
            &["own pool is full", "requested 3 GiB"],
        ),
    ]);
}
