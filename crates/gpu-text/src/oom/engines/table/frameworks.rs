//! Frameworks and runtimes: XLA, PyTorch on Metal, ONNX Runtime, TensorRT, PaddlePaddle, Habana.

use super::super::super::event::Framework::{
    Ascend, Cuda, Jax, OnnxRuntime, Paddle, PyTorch, Rmm, TensorRt, Xla,
};
use super::super::Shape;
use super::{after, before, fails, figures, goes_on};
use crate::oom::short::Short;

pub(super) const ROWS: &[Shape] = &[
    after(Jax, Some(Short::Program), "parameter allocation: {arguments}").more(&[
        "constant allocation: {constants}",
        "maybe_live_out allocation: {results}",
        "preallocated temp allocation: {temporary}",
        "total allocation: {needed}",
    ]),
    before(
        Xla,
        "The byte size of input/output arguments ({arguments}) exceeds the base limit ({limit})",
    ),
    fails(Jax, Short::Program, "CompileTimeHbmOom…Used {needed} of {total} hbm").on("tpu"),
    figures(Jax, "Failed to allocate {asked} for new constant"),
    fails(PyTorch, Short::OneBuffer, "Invalid buffer size: {asked}").on("mps"),
    fails(Rmm, Short::Pool, "Exceeded memory limit (failed to allocate {asked})").on("cuda"),
    fails(Rmm, Short::OneBuffer, "Maximum allocation size exceeded (failed to allocate {asked})")
        .on("cuda"),
    figures(OnnxRuntime, "Failed to allocate memory for requested buffer of size {asked}")
        .on("cuda"),
    figures(OnnxRuntime, "Available memory of {left} is smaller than requested bytes of {asked}")
        .on("cuda"),
    figures(TensorRt, "Requested amount of GPU memory ({asked}) could not be allocated").on("cuda"),
    figures(TensorRt, "OutOfMemory (Requested size was {asked}").on("cuda"),
    goes_on(TensorRt, Short::Compute, "Tactic Device request: {asked} Available: {free}")
        .on("cuda"),
    goes_on(
        TensorRt,
        Short::Compute,
        "due to insufficient memory on requested size of {_} detected for tactic",
    )
    .on("cuda"),
    figures(Cuda, "alloc fail type {_} dev {gpu} space {_} size {asked}").on("cuda"),
    figures(Cuda, "Failed to allocate {asked} on device 'cuda:{gpu}").on("cuda"),
    fails(Cuda, Short::Compute, "CUDA allocation failed").on("cuda"),
    // FlashInfer has a workspace of its own inside an engine.
    fails(
        Cuda,
        Short::Pool,
        "Failed to allocate memory for {part} with size {asked} and alignment",
    )
    .on("cuda"),
    fails(
        Cuda,
        Short::OneBuffer,
        "Attempting to allocate {asked} which is greater than the maximum allowed buffer size of \
         {limit}",
    )
    .on("mps"),
    figures(
        Paddle,
        "Cannot allocate {asked} memory on GPU {gpu}, {used} memory has been allocated and \
         available memory is only {free}",
    )
    .on("cuda"),
    figures(PyTorch, "Allocation failed for size::{asked}").on("hpu"),
    figures(Cuda, "Free memory: {free} - Requested memory: {asked}").on("cuda"),
    fails(
        Ascend,
        Short::Compute,
        "Device:{gpu}, RankID:{_}) ERR…EL0004: …Failed to allocate memory",
    )
    .on("npu"),
    fails(Ascend, Short::Compute, "EL0004: …Failed to allocate memory").on("npu"),
];
