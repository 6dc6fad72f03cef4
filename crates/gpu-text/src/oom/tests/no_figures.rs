//! Errors without figures, and prose without an error.

use super::*;

#[test]
fn repeated_error_is_one_event_and_source_lines_are_ignored() {
    for log in [
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
        "failed to load: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "CudaAPIError: [CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
        "CUDARuntimeError: cudaErrorMemoryAllocation:\nout of memory",
        "CUDA runtime api error cudaErrorMemoryAllocation (2):\nout of memory",
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
fn bare_errors_are_events_but_prose_is_not() {
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
        "She tried to allocate more time. Free at last of size. Bin (old)",
        "Tried to allocate everything",
        "Limit: 7",
        "failed to allocate 7 bytes",
    ] {
        assert_eq!(all(prose), [], "{prose}");
    }
}

#[test]
fn graphics_and_encoder_errors_are_recognised() {
    for (log, backend) in [
        ("clEnqueueNDRangeKernel(0): CL_MEM_OBJECT_ALLOCATION_FAILURE", Some("opencl")),
        (
            "pyopencl._cl.MemoryError: clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE",
            Some("opencl"),
        ),
        ("vkAllocateMemory returned VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)", Some("vulkan")),
        ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", Some("vulkan")),
        ("an `Err` value: OomError(OutOfDeviceMemory)", Some("vulkan")),
        (
            "wgpu error: Validation Error\n\nCaused by:\n  In Device::create_buffer\n    Not enough \
             memory left.\n",
            Some("wgpu"),
        ),
        ("Out of memory in CUDA queue enqueue (integrator_shade_surface)", Some("cuda")),
        ("Out of memory in cuMemAlloc_v2(&pointer, size) (device_impl.cpp:700)", Some("cuda")),
        ("Out of memory in HIP queue enqueue (integrator_shade_volume)", Some("hip")),
        ("System is out of GPU and shared host memory", None),
        ("* Device #1: Not enough allocatable device memory for this attack.", None),
        ("cuMemAlloc(): out of memory", Some("cuda")),
        ("[LightGBM] [Fatal] [CUDA] out of memory cuda_utils.cpp 32", Some("cuda")),
        (
            "[h264_nvenc @ 0x5] OpenEncodeSessionEx failed: out of memory (10): (no details)",
            Some("nvenc"),
        ),
        ("Error on nvEncOpenEncodeSessionEx: 10 (NVENC indicates that …", Some("nvenc")),
        ("failed -> NV_ENC_ERR_OUT_OF_MEMORY", Some("nvenc")),
    ] {
        let event = one(log);
        let said = (event.framework, event.backend.as_deref(), event.tried, event.times);
        assert_eq!(said, (Framework::Cuda, backend, None, 1), "{log}");
    }
    for prose in [
        "There is not enough memory left on the disk.",
        "It ran out of memory in custom code.",
        "the System is out of tape",
        "OpenEncodeSessionEx failed: invalid version (15)",
    ] {
        assert_eq!(all(prose), [], "{prose}");
    }
}

#[test]
fn error_next_to_detailed_message_is_merged() {
    let log = format!("{TORCH_2}\nRuntimeError: CUDA error: out of memory\n");
    assert_eq!(all(&log).len(), 1);
    let apart = format!(
        "{TORCH_2}\n{}\nRuntimeError: CUDA error: out of memory\n",
        "epoch 7\n".repeat(200)
    );
    assert_eq!(all(&apart).len(), 2);
}

#[test]
fn every_error_code_has_its_backend() {
    for (code, backend) in [
        ("cudaErrorMemoryAllocation", "cuda"),
        ("CUDA_ERROR_OUT_OF_MEMORY", "cuda"),
        ("CUBLAS_STATUS_ALLOC_FAILED", "cuda"),
        ("CUDNN_STATUS_ALLOC_FAILED", "cuda"),
        ("CUSOLVER_STATUS_ALLOC_FAILED", "cuda"),
        ("CUSPARSE_STATUS_ALLOC_FAILED", "cuda"),
        ("CUFFT_ALLOC_FAILED", "cuda"),
        ("hipErrorOutOfMemory", "hip"),
        ("HIPBLAS_STATUS_ALLOC_FAILED", "hip"),
        ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "xpu"),
        ("ERROR_OUT_OF_DEVICE_MEMORY", "vulkan"),
        ("InitializeEncoder failed: out of memory (10)", "nvenc"),
    ] {
        let event = one(&format!("it failed: {code}"));
        assert_eq!((event.backend.as_deref(), event.framework), (Some(backend), Framework::Cuda));
    }
}

#[test]
fn preceding_words_name_program_and_backend() {
    for (log, framework, backend) in [
        ("torch.AcceleratorError: CUDA error: out of memory", Framework::PyTorch, "cuda"),
        ("RuntimeError: HIP error: out of memory", Framework::PyTorch, "hip"),
        ("cupy error, cuda: out of memory", Framework::CuPy, "cuda"),
        ("tensorflow/core: CUDA error: out of memory", Framework::TensorFlow, "cuda"),
        ("rmm error, CUDA: out of memory", Framework::Rmm, "cuda"),
        ("ggml_cuda_host_malloc: failed: out of memory", Framework::LlamaCpp, "cuda"),
        ("hipMalloc failed: out of memory", Framework::Cuda, "hip"),
        ("XPU fails: out of memory", Framework::Cuda, "xpu"),
        ("MPS error: out of memory", Framework::Cuda, "mps"),
        ("GPUassert: out of memory", Framework::Cuda, "cuda"),
        ("cublas exception: out of memory", Framework::Cuda, "cuda"),
        ("Exception in cudnn: out of memory", Framework::Cuda, "cuda"),
        ("nccl FATAL: out of memory", Framework::Cuda, "cuda"),
        ("NCCL ERROR: out of memory", Framework::Cuda, "cuda"),
        ("cuMemAlloc(): out of memory", Framework::Cuda, "cuda"),
        ("x (error code out of memory)", Framework::Cuda, "cuda"),
        ("out of memory in hipMalloc(x)", Framework::Cuda, "hip"),
    ] {
        let event = one(log);
        assert_eq!(
            (event.framework, event.backend.as_deref()),
            (framework, Some(backend)),
            "{log}"
        );
    }
    for prose in [
        "CUDA is out of memory",
        "an error: out of memory",
        "out of memory in custom code",
        "out of memory in hipster code",
        "raise CudaError: out of memory",
        "elif CUDA error: out of memory",
        "assert CUDA error, out of memory",
        "return CUDA error, out of memory",
        "throw CUDA error, out of memory",
        "x CUDA error 'out of memory' in y",
        "not enough memory left",
    ] {
        assert_eq!(all(prose), [], "{prose}");
    }
}

#[test]
fn context_of_error_is_bounded() {
    let spaced = |length: usize| format!("CUDA error {}: out of memory", "1 ".repeat(length / 2));
    assert_eq!(all(&spaced(120)).len(), 1);
    assert_eq!(all(&spaced(200)), []);
    let log = |between: &str| {
        one(&format!("CUDA_ERROR_OUT_OF_MEMORY{between}; total memory reported: 7000")).total
    };
    assert_eq!(count(&log(&format!(" {}", "x".repeat(35)))), Some(7000));
    assert_eq!(log(&format!(" {}", "x".repeat(36))), None);
}

#[test]
fn bare_error_near_message_with_figures_is_part_of_it() {
    let near = |length: usize| {
        let log = format!(
            "CUDA out of memory. Tried to allocate 1.00 GiB.{}CUDA error: out of memory\n",
            "\nab ".repeat(length / 4)
        );
        all(&log).len()
    };
    assert_eq!((near(400), near(800)), (1, 2));
    let before = |length: usize| {
        let log = format!(
            "CUDA error: out of memory{}\nCUDA out of memory. Tried to allocate 1.00 GiB.",
            "\nab ".repeat(length / 4)
        );
        all(&log).len()
    };
    assert_eq!((before(400), before(800)), (1, 2));
}
