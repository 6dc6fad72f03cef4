//! Libraries and programs whose messages have one or two lines.

use super::*;

#[test]
fn cupy_messages_are_parsed() {
    let cupy = one(
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 25,600,000 bytes (allocated so \
        far: 3,600,000,000 bytes, limit set to: 4,000,000,000 bytes).",
    );
    assert_eq!((cupy.framework, count(&cupy.tried)), (Framework::CuPy, Some(25_600_000)));
    assert_eq!(
        (count(&cupy.allocated), count(&cupy.limit)),
        (Some(3_600_000_000), Some(4_000_000_000))
    );
    let old = one(
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1000 bytes (total 5000 bytes)",
    );
    assert_eq!((count(&old.tried), count(&old.allocated)), (Some(1000), Some(4000)));
}

#[test]
fn rmm_messages_are_parsed() {
    let rmm = one(
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 576000000 bytes) at: \
        /x/rmm/mr/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory",
    );
    assert_eq!((rmm.framework, count(&rmm.tried)), (Framework::Rmm, Some(576_000_000)));
    let bare = one(
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /x/rmm/x.hpp:70: cudaErrorMemoryAllocation out of memory",
    );
    assert_eq!((bare.framework, bare.tried), (Framework::Rmm, None));
    let pool = one(
        "std::bad_alloc: out_of_memory: RMM failure at:/x/rmm/pool_memory_resource.hpp:276: Maximum pool size exceeded",
    );
    assert_eq!((pool.framework, pool.allocator.as_deref()), (Framework::Rmm, Some("pool")));
}

#[test]
fn llama_cpp_message_is_parsed() {
    let llama = one(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 590.50 MiB on device 1: cudaMalloc failed: \
        out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 619184128\n",
    );
    assert_eq!((llama.framework, llama.gpu), (Framework::LlamaCpp, Some(1)));
    assert_eq!((text(&llama.tried), count(&llama.tried)), ("590.50 MiB", Some(619_184_128)));
}

#[test]
fn vllm_message_is_parsed() {
    let vllm = one(
        "ValueError: Free memory on device cuda:1 (12.25/24.00 GiB) on startup is less than desired GPU \
        memory utilization (0.92, 22.08 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    );
    assert_eq!((vllm.framework, vllm.gpu), (Framework::Vllm, Some(1)));
    assert_eq!(
        (text(&vllm.free), text(&vllm.total), text(&vllm.tried)),
        ("12.25 GiB", "24.00 GiB", "22.08 GiB")
    );
}

#[test]
fn paddle_message_is_parsed() {
    let paddle = one(
        "Out of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 7.000000GB memory has \
        been allocated and available memory is only 716.750000MB.",
    );
    assert_eq!((paddle.framework, text(&paddle.allocated)), (Framework::Paddle, "7.000000GB"));
    assert_eq!(text(&paddle.free), "716.750000MB");
}

#[test]
fn xgboost_message_is_parsed() {
    let boost = one("xgboost.core.XGBoostError: Memory allocation error on worker 0: bad_alloc: \
        cudaErrorMemoryAllocation: out of memory\n- Free memory: 2.50GB\n- Requested memory: 3.25GB\n");
    assert_eq!((text(&boost.free), text(&boost.tried)), ("2.50GB", "3.25GB"));
}

#[test]
fn cupy_total_includes_the_request() {
    let old =
        one("cupy: out of memory to allocate 1000 bytes (total 400 bytes, limit set to 9 bytes)");
    assert_eq!((count(&old.allocated), count(&old.limit)), (Some(0), Some(9)));
    let absurd = one("cupy: out of memory to allocate 1000 bytes (total 17179869184.00 GiB)");
    assert_eq!(text(&absurd.allocated), "17179869184.00 GiB");
    for log in ["out of memory to allocate 1000 bytes", "out of memory to allocate 7 bytes (all)"] {
        assert_eq!(all(log), [], "{log}");
    }
}

#[test]
fn rmm_pool_message_needs_its_program() {
    let phrase = "Maximum pool size exceeded (failed to allocate 1.5 GiB)";
    let alone = one(&format!("RMM failure at:/x/pool.hpp:276: {phrase}"));
    assert_eq!((alone.framework, text(&alone.tried)), (Framework::Rmm, "1.5 GiB"));
    assert_eq!(alone.allocator.as_deref(), Some("pool"));
    assert_eq!(one(&format!("rmm: {phrase}")).framework, Framework::Rmm);
    let both =
        one(&format!("std::bad_alloc: out_of_memory: RMM failure at:/x/pool.hpp:276: {phrase}"));
    assert_eq!((both.allocator.as_deref(), text(&both.tried)), (Some("pool"), "1.5 GiB"));
    assert_eq!(all(phrase), []);
}

#[test]
fn similar_words_are_not_library_messages() {
    for prose in [
        "allocating 590.50 MiB on device 1: done",
        "allocating 590.50 MiB for device 1: cudaMalloc failed",
        "Free memory on device cuda:0 is low",
        "Free memory on device cuda:0 (much/more)",
        "Cannot allocate 1GB memory on CPU 0",
        "Cannot allocate it",
        "Free memory: 7GB",
        "bad_alloc: something",
        "failed to allocate CUDA0 buffer",
        "failed to allocate CUDA buffer of size 7",
        "failed to allocate Other0 buffer of size 7",
        "unable to allocate CUDA0 memory",
        "3.5 GiB KV cache, larger than the available KV cache memory (1 GiB)",
    ] {
        assert_eq!(all(prose), [], "{prose}");
    }
    let cache = one("No available memory for the cache blocks. Try increasing it");
    assert_eq!((cache.framework, cache.tried), (Framework::Vllm, None));
    let rocm = one("allocating 590.50 MiB on device 1: ROCm cudaMalloc failed: out of memory");
    assert_eq!((rocm.backend.as_deref(), rocm.gpu), (Some("hip"), Some(1)));
}

#[test]
fn exact_size_of_llama_cpp_belongs_to_same_device_and_size() {
    let log = |gpu: u32, size: u64| {
        all(&format!(
            "ggml: allocating 590.50 MiB on device 1: cudaMalloc failed: out of memory\n\
             ggml: failed to allocate CUDA{gpu} buffer of size {size}\n"
        ))
    };
    let size = 619_184_128;
    for (gpu, size, events) in
        [(1, size, 1), (1, size + 5243, 1), (1, size + 5245, 2), (1, size - 5245, 2), (0, size, 2)]
    {
        assert_eq!(log(gpu, size).len(), events, "{gpu} {size}");
    }
    for (name, backend) in
        [("CUDA", "cuda"), ("ROCm", "hip"), ("SYCL", "xpu"), ("Vulkan", "vulkan")]
    {
        let event = one(&format!("failed to allocate {name}3 buffer of size 7000000"));
        assert_eq!((event.backend.as_deref(), event.gpu), (Some(backend), Some(3)));
    }
}
