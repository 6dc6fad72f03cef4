//! Libraries, and layers that limit device memory.

use super::super::super::event::Framework::{Cuda, Hami, Nccl};
use super::super::Shape;
use super::fails;
use crate::oom::short::Short;

pub(super) const ROWS: &[Shape] = &[
    fails(Hami, Short::Quota, "Device {gpu} OOM {needed} / {limit}").on("cuda"),
    fails(Hami, Short::Quota, "device OOM encountered: usage={needed} limit={limit}").on("cuda"),
    fails(Hami, Short::Unclear, "cuMemoryAllocate failed res=2").on("cuda"),
    fails(Nccl, Short::Compute, "Failed to CUDA malloc {asked}").on("cuda"),
    fails(Nccl, Short::Compute, "Failed to CUDA calloc {asked}").on("cuda"),
    fails(Nccl, Short::Compute, "unhandled cuda error…Last error: Cuda failure{_}'out of memory'")
        .on("cuda"),
    fails(Nccl, Short::Unclear, "unhandled cuda error").on("cuda"),
    fails(Cuda, Short::Unclear, "CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate")
        .on("cuda"),
    fails(Cuda, Short::Unclear, "UR_RESULT_ERROR_OUT_OF_RESOURCES").on("xpu"),
    fails(Cuda, Short::Unclear, "HSA_STATUS_ERROR_OUT_OF_RESOURCES").on("hip"),
];
