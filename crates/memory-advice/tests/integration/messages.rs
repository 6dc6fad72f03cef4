//! From the text of a message to its figures.

use gpu_core::{Bytes, Pid};
use gpu_memory_advice::explain::{MessageSource, OomFigures, Other};
use gpu_memory_advice::text::shown;

fn read(text: &str) -> OomFigures {
    let report = gpu_text::oom::read(text.as_bytes());
    let [event] = &report.events[..] else { panic!("{report:?}") };
    shown(event)
}

fn mib(figure: Option<Bytes>) -> Option<u64> {
    figure.map(Bytes::mib)
}

#[test]
fn reads_all_figures_of_pytorch_message() {
    let figures = read(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
         total capacity of 24.00 GiB of which 1.50 GiB is free. Process 77 has 3.00 GiB memory in \
         use. Including non-PyTorch memory, this process has 19.50 GiB memory in use. Of the \
         allocated memory 17.00 GiB is allocated by PyTorch, with 5.00 GiB allocated in private \
         pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated. If \
         reserved but unallocated memory is large try setting \
         PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    );
    assert_eq!(figures.speaker, MessageSource::TorchExpandable);
    assert_eq!(figures.backend.as_deref(), Some("cuda"));
    assert_eq!((mib(figures.asked), mib(figures.total)), (Some(2048), Some(24 * 1024)));
    assert_eq!((mib(figures.free), mib(figures.in_use)), (Some(1536), Some(17 * 1024)));
    assert_eq!((mib(figures.unused), mib(figures.private_pools)), (Some(1024), Some(5 * 1024)));
    assert_eq!(mib(figures.process), Some(19 * 1024 + 512));
    let other = Other { pid: Pid(77), memory: Some(Bytes::from_mib(3072)) };
    assert_eq!(figures.others, [other]);
    assert_eq!(figures.variable, Some("PYTORCH_ALLOC_CONF"));
    // Each figure is printed to 0.01 GiB, so it is off by half of that.
    let half = (1 << 30) / 200;
    assert!(figures.slack.0.abs_diff(half) <= 1, "{:?}", figures.slack);
    assert!(figures.room_slack.0.abs_diff(3 * half) <= 3, "{:?}", figures.room_slack);
    assert!(!figures.went_on);
}

#[test]
fn earlier_pytorch_message_gives_reserved_minus_allocated() {
    let figures = read(
        "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.00 GiB total \
         capacity; 10.00 GiB already allocated; 100.00 MiB free; 13.00 GiB reserved in total by \
         PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to \
         avoid fragmentation.",
    );
    assert_eq!(figures.speaker, MessageSource::TorchWithSplit);
    assert_eq!((mib(figures.in_use), mib(figures.unused)), (Some(10 * 1024), Some(3 * 1024)));
    assert_eq!(figures.variable, None);
}

#[test]
fn speaker_follows_from_wording() {
    for (text, speaker) in [
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,000 bytes (allocated \
             so far: 5,000 bytes, limit set to: 5,500 bytes).",
            MessageSource::CuPy,
        ),
        (
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /x/rmm/x.hpp:70: \
             cudaErrorMemoryAllocation out of memory",
            MessageSource::Rmm,
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 590.07 MiB on device 0: \
             cudaMalloc failed: out of memory",
            MessageSource::LlamaCpp,
        ),
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 5.00 GB, other allocations: \
             1.00 GB, max allowed: 6.80 GB). Tried to allocate 1.00 GB on private pool.",
            MessageSource::TorchMetal,
        ),
    ] {
        assert_eq!(read(text).speaker, speaker, "{text}");
    }
}

#[test]
fn limits_are_read_as_limits() {
    let cupy = read(
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,000 bytes (allocated so \
         far: 5,000 bytes, limit set to: 5,500 bytes).",
    );
    assert_eq!((cupy.asked, cupy.limit), (Some(Bytes(1000)), Some(Bytes(5500))));
    let metal = read(
        "RuntimeError: MPS backend out of memory (MPS allocated: 5.00 GB, other allocations: 1.00 \
         GB, max allowed: 6.80 GB). Tried to allocate 1.00 GB on private pool.",
    );
    assert_eq!((mib(metal.outside), mib(metal.limit)), (Some(1024), Some(6963)));
    assert_eq!(mib(metal.in_use), Some(5 * 1024));
}
