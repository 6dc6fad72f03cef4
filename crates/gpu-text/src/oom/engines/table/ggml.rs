//! llama.cpp, ollama and other programs on ggml.

use super::super::super::event::Framework::{Cuda, LlamaCpp, Ollama};
use super::super::Shape;
use super::{after, before, fails, goes_on, retry};
use crate::oom::short::Short;

pub(super) const ROWS: &[Shape] = &[
    before(LlamaCpp, "using device CUDA{gpu} {_} - {free_before} free").on("cuda"),
    before(LlamaCpp, "using device ROCm{gpu} {_} - {free_before} free").on("hip"),
    before(LlamaCpp, "using device Vulkan{gpu} {_} - {free_before} free").on("vulkan"),
    before(LlamaCpp, "using device SYCL{gpu} {_} - {free_before} free").on("xpu"),
    before(LlamaCpp, "offloading {layers_on_devices} repeating layers to GPU"),
    before(LlamaCpp, "projected to use {needed} of device memory vs. {free_before}"),
    before(LlamaCpp, "recommendedMaxWorkingSetSize = {limit:ten}"),
    after(LlamaCpp, Some(Short::Compute), "failed to allocate compute"),
    after(LlamaCpp, Some(Short::Cache), "failed to allocate buffer for kv cache"),
    after(LlamaCpp, Some(Short::Weights), "error loading model"),
    retry(
        LlamaCpp,
        Short::Compute,
        "compute buffer allocation failed, retrying without pipeline parallelism",
    ),
    fails(LlamaCpp, Short::Compute, "CUDA error: out of memory…current device: {gpu}, in function")
        .on("cuda"),
    fails(LlamaCpp, Short::Compute, "ROCm error: out of memory…current device: {gpu}, in function")
        .on("hip"),
    fails(LlamaCpp, Short::Compute, "MUSA error: out of memory…current device: {gpu}, in function")
        .on("musa"),
    fails(LlamaCpp, Short::OneBuffer, "Requested buffer size exceeds device buffer size limit")
        .on("vulkan"),
    fails(
        LlamaCpp,
        Short::OneBuffer,
        "Requested buffer size exceeds device memory allocation limit",
    )
    .on("vulkan"),
    fails(LlamaCpp, Short::Compute, "Device memory allocation of size {asked} failed").on("vulkan"),
    fails(LlamaCpp, Short::Compute, "failed to allocate buffer, size = {asked}").on("mps"),
    fails(Cuda, Short::Compute, "kIOGPUCommandBufferCallbackErrorOutOfMemory").on("mps"),
    fails(LlamaCpp, Short::Compute, "can't allocate {asked} of memory on device").on("xpu"),
    goes_on(LlamaCpp, Short::Pinned, "failed to allocate {asked} of pinned memory"),
    fails(LlamaCpp, Short::Host, "failed to allocate CUDA_Host buffer of size {asked}"),
    fails(LlamaCpp, Short::Host, "failed to allocate ROCm_Host buffer of size {asked}"),
    fails(LlamaCpp, Short::Host, "failed to allocate Vulkan_Host buffer of size {asked}"),
    fails(LlamaCpp, Short::Host, "failed to allocate SYCL_Host buffer of size {asked}"),
    fails(LlamaCpp, Short::Host, "failed to allocate CPU buffer of size {asked}"),
    fails(
        LlamaCpp,
        Short::Host,
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size {asked}",
    ),
    fails(LlamaCpp, Short::Host, "unable to allocate CPU buffer"),
    goes_on(LlamaCpp, Short::Program, "failed to fit params to free device memory"),
    goes_on(
        LlamaCpp,
        Short::Context,
        "failed to find free space in the KV cache, retrying with smaller",
    ),
    fails(
        LlamaCpp,
        Short::Context,
        "failed to find a memory slot for batch of size {prefill_tokens}",
    ),
    fails(
        Ollama,
        Short::Host,
        "model requires more system memory ({asked}) than is available ({free})",
    ),
    fails(Ollama, Short::Weights, "memory layout cannot be allocated")
        .more(&["num_gpu = {layers_on_devices}"]),
    fails(Ollama, Short::NotReturned, "gpu VRAM usage didn't recover within timeout"),
    retry(Ollama, Short::Cache, "reducing automatic context and retrying once"),
    retry(Ollama, Short::Program, "evicting all other models and retrying once"),
    retry(Ollama, Short::Program, "retrying with projector CPU offload"),
    before(Ollama, "gpu memory\"…available=\"{free_before}\""),
];
