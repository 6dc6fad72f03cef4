//! Messages of libraries and about host memory: what failed, and what helps.

use crate::engines::{check, row};
use gpu_memory_advice::explain::Cause;

#[test]
fn distinguishes_host_memory_from_gpu_memory() {
    check(&[
        row(
            "slurmstepd: error: Detected 2 oom_kill events in StepId=4711.batch. Some of the step \
             tasks have been OOM Killed.\nsrun: error: n1: task 0: Out Of Memory\n",
            &[Cause::HostMemory],
            &["StepId=4711.batch", "--mem higher", "GPU memory is not involved"],
        ),
        row(
            "memory: usage 16777216kB, limit 16777216kB, failcnt 99\nMemory cgroup out of memory: \
             Killed process 1234 (python3) total-vm:99999999kB, anon-rss:16000000kB, \
             file-rss:1000kB, shmem-rss:500000kB, UID:1000\n",
            &[Cause::HostMemory],
            &["Process 1234 (python3)", "15.74 GiB of host memory", "limit of 16 GiB"],
        )
        .without(&["95.37"]),
        row(
            "Out of memory: Killed process 77 (trainer) total-vm:1kB, anon-rss:2097152kB, \
             file-rss:0kB, shmem-rss:0kB",
            &[Cause::HostMemory],
            &["2 GiB of host memory"],
        ),
        row(
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. \
             Container train was using 30Gi, request is 8Gi, has larger consumption of memory.",
            &[Cause::HostMemory],
            &["train was killed", "resources.requests.memory higher"],
        ),
        row(
            "    Reason:       OOMKilled\n    Exit Code:    137",
            &[Cause::HostMemory],
            &["limits"],
        ),
        row("\"OOMKilled\": false, \"ExitCode\": 1", &[], &[]),
        row("OOMKilled: false", &[], &[]),
        // Docker is not Kubernetes.
        row(
            "\"Status\": \"exited\", \"OOMKilled\": true, \"ExitCode\": 137",
            &[Cause::HostMemory],
            &["docker run --memory"],
        )
        .without(&["resources.limits"]),
        row("serve-1: State.OOMKilled=true", &[Cause::HostMemory], &["docker run --memory"])
            .without(&["resources.limits"]),
        row("serve-1 exited with code 137 (OOMKilled)", &[Cause::HostMemory], &["docker run"])
            .without(&["resources.limits"]),
        row(
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on \
             memory.\nMemory on the node (IP: 192.0.2.1, ID: ab) where the task (task ID: cd, \
             name=f, pid=7, memory used=3.10GB) was running was 59.50GB / 61.00GB (0.975), which \
             exceeds the memory usage threshold of 0.95.",
            &[Cause::HostMemory],
            &["59.5 GiB of 61 GiB"],
        ),
        row(
            "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] \
             (0x00000051) returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359",
            &[Cause::HostMemory],
            &["it does not kill processes"],
        ),
    ]);
}

#[test]
fn reads_sizes_and_outcomes_of_library_messages() {
    check(&[
        row(
            "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory \
             (Requested size was 6442450944 bytes.)",
            &[Cause::NotTold],
            &["requested 6 GiB"],
        ),
        row(
            "[W] [TRT] Tactic Device request: 9000MB Available: 8000MB. Device memory is \
             insufficient to use tactic.\n[W] [TRT] Skipping tactic 3 due to insufficient memory \
             on requested size of 9000 detected for tactic 0x0000000000000003.",
            &[Cause::NoFailure],
            &["8.79 GiB"],
        )
        .without(&["KiB"]),
        row(
            "Error in allocMemory: alloc fail type FlatData dev 2 space Device stream 0x7 size \
             6442450944 bytes (cudaMalloc error out of memory [2])",
            &[Cause::NotTold],
            &["requested 6 GiB"],
        ),
        row(
            "Warp CUDA error 2: out of memory (in function wp_alloc, /x/warp.cu:7)\nRuntimeError: \
             Failed to allocate 6442450944 bytes on device 'cuda:1'",
            &[Cause::NotTold],
            &["requested 6 GiB"],
        ),
        row(
            "cv2.error: OpenCV(4.8.0) gpu_mat.cu:7: error: (-217:Gpu API call) out of memory in \
             function 'allocate'",
            &[Cause::NotTold],
            &["gpuws doctor"],
        ),
        row(
            "[metal::malloc] Attempting to allocate 8589934592 bytes which is greater than the \
             maximum allowed buffer size of 4294967296 bytes.",
            &[Cause::BufferLimit],
            &["One buffer may have 4 GiB", "smaller tensors"],
        ),
        row(
            "common_fit_params: failed to fit params to free device memory: n_gpu_layers already \
             set by user to 77, abort",
            &[Cause::NoFailure],
            &["reports that it continued"],
        )
        .without(&["was tried"]),
        // Trainers that continue.
        row(
            "| WARNING | OOM: Ran out of memory with exception: CUDA out of memory. Tried to \
             allocate 1.50 GiB (GPU 0; 15.78 GiB total capacity; 11.00 GiB already allocated; \
             800.00 MiB free; 13.00 GiB reserved in total by PyTorch)\n| WARNING | attempting to \
             recover from OOM in forward/backward pass",
            &[Cause::NoFailure],
            &["No failure"],
        ),
        row(
            "WARNING CUDA out of memory with batch=48. Reducing to batch=24 and retrying (1/3).",
            &[Cause::NoFailure],
            &["No failure"],
        ),
        // Figures without free memory that exceed the device.
        row(
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 6.00 GiB. GPU 0 has a \
             total capacity of 16.00 GiB. Of the allocated memory 11.00 GiB is allocated by \
             PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.",
            &[Cause::TooBig],
            &["11 GiB in use plus 6 GiB requested is 17 GiB; the device has 16 GiB"],
        ),
        row(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 17179869184.00 GiB. GPU \
             0 has a total capacity of 24.00 GiB of which 20.00 GiB is free. Including non-PyTorch \
             memory, this process has 3.00 GiB memory in use. Of the allocated memory 2.00 GiB is \
             allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.",
            &[Cause::ImpossibleFigure],
            &["requested size is impossible", "17179869184.00 GiB is impossible"],
        )
        .without(&["no limit", "gpuws doctor"]),
        row(
            "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out \
             of memory)\nCurrently allocated     : 20.00 GiB\nRequested               : 3.00 GiB\n\
             Device limit            : 24.00 GiB\nFree (according to CUDA): 1.00 GiB\nPyTorch \
             limit (set by user-supplied memory fraction)\n                        : \
             17179869184.00 GiB",
            &[Cause::Unnamed],
            &["2 GiB"],
        )
        .without(&["is impossible"]),
        row(
            "node:7:9 [0] x.cc:7 NCCL WARN Cuda failure 2 'out of memory'\nDistBackendError: NCCL \
             error in: y.cpp:7, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL \
             version 2.20.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast \
             error:\nCuda failure 2 'out of memory'",
            &[Cause::NotTold],
            &["buffers of a computation"],
        ),
        row(
            "ggml_vulkan: Device memory allocation of size 5368709120 failed.\nggml_vulkan: \
             Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory",
            &[Cause::BufferLimit],
            &["GGML_VK_FORCE_MAX_BUFFER_SIZE"],
        ),
        row(
            "Error: 500 Internal Server Error: llama runner process has terminated: error loading \
             model: unable to allocate CUDA0 buffer",
            &[Cause::NotTold],
            &["The weights did not fit", "num_gpu"],
        ),
    ]);
}

#[test]
fn distinguishes_host_memory_errors_from_kills() {
    check(&[
        row(
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array \
             with shape (1000000, 1000) and data type float64",
            &[Cause::HostMemory],
            &["requested 7.45 GiB", "less host memory"],
        )
        .without(&["gpuws doctor"]),
        row("OSError: [Errno 12] Cannot allocate memory", &[Cause::HostMemory], &[]),
        row("x: Cannot allocate memory (os error 12)", &[Cause::HostMemory], &[]),
        row("memory allocation of 8589934592 bytes failed", &[Cause::HostMemory], &["8 GiB"]),
        row(
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  \
             std::bad_alloc",
            &[Cause::HostMemory],
            &[],
        ),
        row(
            "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size \
             8589934592\nllama_model_load: error loading model: unable to allocate CPU buffer",
            &[Cause::HostMemory],
            &["8 GiB"],
        ),
        row(
            "ERROR: Unexpected bus error encountered in worker. This might be caused by \
             insufficient shared memory (shm).",
            &[Cause::HostMemory],
            &["/dev/shm", "--shm-size larger"],
        ),
        // SIGKILL alone is no evidence.
        row(
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ",
            &[Cause::NotTold],
            &["Process 77", "does not say why", "sudo dmesg"],
        )
        .without(&["gpuws doctor"]),
        row(
            "  traceback : Signal 9 (SIGKILL) received by PID 78",
            &[Cause::NotTold],
            &["Process 78", "most often by the kernel"],
        ),
        row("serve-1 exited with code 137", &[Cause::NotTold], &["Exit code 137"]),
    ]);
}
