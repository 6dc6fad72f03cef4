//! Programs that run or train models: ExLlama, DeepSpeed, Accelerate, bitsandbytes, Unsloth,
//! ComfyUI.

use super::super::super::event::Framework::{
    Accelerate, BitsAndBytes, ComfyUi, DeepSpeed, ExLlama, PyTorch, Unsloth,
};
use super::super::Shape;
use super::{fails, goes_on, retry};
use crate::oom::short::Short;

pub(super) const ROWS: &[Shape] = &[
    fails(ExLlama, Short::Program, "Insufficient VRAM for model and cache"),
    fails(ExLlama, Short::Program, "Insufficient VRAM in split for model and cache"),
    // The printed requirement applies to one block.
    fails(
        DeepSpeed,
        Short::Cache,
        "Insufficient memory to allocate KV-caches. Required: {block}, Available: {free}",
    ),
    fails(DeepSpeed, Short::Compute, "Workspace can't be allocated, no enough memory"),
    goes_on(DeepSpeed, Short::Compute, "pytorch allocator cache flushes since last step"),
    fails(Accelerate, Short::Compute, "No executable batch size found, reached zero"),
    fails(Accelerate, Short::Weights, "Some modules are dispatched on the CPU or the disk"),
    fails(BitsAndBytes, Short::Compute, "Error out of memory at line {_} in file "),
    fails(Unsloth, Short::Weights, "Cannot place the model and keep {_} free"),
    // fairseq and Ultralytics.
    retry(PyTorch, Short::Compute, "attempting to recover from OOM in "),
    retry(PyTorch, Short::Compute, "ran out of memory, retrying batch"),
    goes_on(PyTorch, Short::Compute, "CUDA out of memory with batch={_}. Reducing to batch"),
    goes_on(ComfyUi, Short::Compute, "Ran out of memory when regular VAE "),
    goes_on(ComfyUi, Short::Compute, "out of memory error, increasing steps and trying again"),
    fails(
        ComfyUi,
        Short::Compute,
        "Not enough memory, use lower resolution (max approx. {part}). Need: {asked} free, \
         Have:{free} free",
    ),
];
