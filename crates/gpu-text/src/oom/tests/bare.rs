//! Errors without figures, and prose that is none.

use super::*;

#[test]
fn one_error_is_told_once_and_a_line_of_a_program_is_none() {
    for log in [
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
        "failed to load: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "CudaAPIError: [CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
        "CUDARuntimeError: cudaErrorMemoryAllocation:\nout of memory",
        "    raise RuntimeError(\"CUDA error: out of memory\")\nRuntimeError: CUDA error: out of memory",
        "  if \"CUDA out of memory\" in str(error):\n  raise Error(\"cuda: out of memory\")\nRuntimeError: \
         CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.example",
    ] {
        assert_eq!(one(log).times, 1, "{log}");
    }
    let twice =
        one("RuntimeError: CUDA error: out of memory\nRuntimeError: CUDA error: out of memory\n");
    assert_eq!(twice.times, 2);
    let context = one(
        "InternalError: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out \
         of memory; total memory reported: 11721506817",
    );
    assert_eq!((context.framework, context.times), (Framework::TensorFlow, 1));
    assert_eq!(count(&context.total), Some(11_721_506_817));
}

#[test]
fn bare_errors_are_events_and_prose_is_not() {
    for (log, framework) in [
        ("RuntimeError: CUDA error: out of memory", Framework::PyTorch),
        ("THCudaCheck FAIL: cuda runtime error (2) : out of memory at x.cu:58", Framework::Cuda),
        ("GPUassert: out of memory kernel.cu 12", Framework::Cuda),
        ("pycuda._driver.MemoryError: cuMemAlloc failed: out of memory", Framework::Cuda),
        ("box:1:9 [0] NCCL WARN Cuda failure 'out of memory'", Framework::Cuda),
        (
            "CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
            Framework::Cuda,
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            Framework::PyTorch,
        ),
        ("could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED", Framework::Cuda),
        ("InternalError: Dst tensor is not initialized.", Framework::TensorFlow),
    ] {
        let event = one(log);
        assert_eq!((event.framework, event.tried), (framework, None), "{log}");
    }
    for prose in [
        "",
        "I keep running out of memory on this GPU.",
        "# CUDA out of memory, and what to do",
        "kernel: Out of memory: Killed process 4711 (python) total-vm:1kB",
        "She tried to allocate more time. Free at last of size. Bin (old)",
        "Tried to allocate everything",
        "Limit: 7",
        "failed to allocate 7 bytes",
    ] {
        assert_eq!(all(prose), [], "{prose}");
    }
}

#[test]
fn an_error_beside_a_message_with_figures_is_part_of_it() {
    let log = format!("{TORCH_2}\nRuntimeError: CUDA error: out of memory\n");
    assert_eq!(all(&log).len(), 1);
    let apart = format!(
        "{TORCH_2}\n{}\nRuntimeError: CUDA error: out of memory\n",
        "epoch 7\n".repeat(200)
    );
    assert_eq!(all(&apart).len(), 2);
}
