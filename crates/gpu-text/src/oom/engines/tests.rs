//! The table itself, and the data from its rows and from the text around a message.

use super::super::{Event, Framework, Wording, read};
use super::*;
use gpu_core::Bytes;

fn one(text: &str) -> Event {
    let mut events = read(text.as_bytes()).events;
    assert_eq!(events.len(), 1, "{text}\n{events:#?}");
    events.remove(0)
}

fn bytes(figure: &Option<super::super::Figure>) -> Option<u64> {
    figure.as_ref()?.bytes.map(|bytes| bytes.0)
}

#[test]
fn every_pattern_can_match() {
    const NAMES: [&str; 10] =
        ["asked", "free", "total", "limit", "used", "needed", "left", "gpu", "part", "_"];
    for shape in table::all() {
        let first = shape.text.chars().next();
        assert!(first.is_some_and(|c| c.is_ascii_alphanumeric()), "{}", shape.text);
        for pattern in [&[shape.text], shape.more].concat() {
            assert!(!pattern.contains(['`', '*', '\n']) && !pattern.contains("  "), "{pattern}");
            assert!(!pattern.starts_with(['{', '…']), "{pattern}");
            for hole in pattern.split('{').skip(1) {
                let (hole, _) = hole.split_once('}').expect("a hole ends");
                let (name, form) = hole.split_once(':').unwrap_or((hole, ""));
                let is_fact = Fact::ALL.iter().any(|fact| fact.name() == name);
                assert!(is_fact || NAMES.contains(&name), "{pattern}");
                assert!(["", "ten", "GiB"].contains(&form), "{pattern}");
            }
            for gap in pattern.split('…').skip(1) {
                assert!(!gap.is_empty() && !gap.starts_with('{'), "{pattern}");
            }
        }
    }
}

#[test]
fn no_row_is_hidden_by_an_earlier_one() {
    // A row that is a prefix of a later one would always match first.
    let rows: Vec<&Shape> = table::all().collect();
    for (index, later) in rows.iter().enumerate() {
        for earlier in &rows[..index] {
            assert!(
                !later.text.starts_with(earlier.text),
                "'{}' hides '{}'",
                earlier.text,
                later.text
            );
        }
    }
}

#[test]
fn names_of_facts_differ() {
    let names: std::collections::BTreeSet<&str> =
        Fact::ALL.iter().map(|fact| fact.name()).collect();
    assert_eq!(names.len(), Fact::ALL.len());
}

#[test]
fn figures_have_the_units_of_their_program() {
    let metal = one("ggml_metal_init: recommendedMaxWorkingSetSize = 20000.00 MB\n\
         ggml_metal_buffer: error: failed to allocate buffer, size = 512.00 MiB");
    assert_eq!((bytes(&metal.limit), bytes(&metal.tried)), (Some(20_000_000_000), Some(512 << 20)));
    let vllm =
        one("Free memory on device cuda:2 (10.5/32.0 GiB) on startup is less than desired GPU \
         memory utilization (0.9, 28.8 GiB).");
    assert_eq!((bytes(&vllm.free), bytes(&vllm.total)), (Some(21 << 29), Some(32 << 30)));
    assert_eq!((vllm.gpu, vllm.facts[&Fact::Utilization]), (Some(2), 900_000));
    // PyTorch prints cuda on AMD too.
    assert_eq!(vllm.backend, None);
    let negative =
        one("Available KV cache memory: -0.50 GiB\nValueError: No available memory for \
         the cache blocks.");
    assert_eq!(negative.facts[&Fact::CacheBytes], -(1 << 29));
}

#[test]
fn earlier_figures_apply_to_same_program_and_device() {
    let log = "using device CUDA0 (NVIDIA A) - 9000 MiB free\nusing device CUDA1 (NVIDIA A) - 7000 \
        MiB free\n[2025-01-02 03:04:05 TP0] Load weight end. type=M, avail mem=6.00 GB, mem \
        usage=34.00 GB.\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 8000.00 MiB on \
        device 1: cudaMalloc failed: out of memory\n";
    let event = one(log);
    assert_eq!(event.facts[&Fact::FreeBefore], 7000 << 20);
    assert!(!event.facts.contains_key(&Fact::Weights), "{event:?}");
}

#[test]
fn retry_applies_only_to_last_failure() {
    let failure = |size: u64| {
        format!(
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {size}.00 MiB on device 0: \
             cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA0 \
             buffer of size {}\n",
            size << 20
        )
    };
    let retry = "compute buffer allocation failed, retrying without pipeline parallelism\n";
    let log = format!("{}{retry}{}", failure(900), failure(500));
    let wordings: Vec<_> = read(log.as_bytes()).events.iter().map(|event| event.wording).collect();
    assert_eq!(wordings, [Some(Wording::NoFailure), None]);
    // A repetition of the message is still one event.
    let twice = format!("{}{retry}{}{retry}", failure(900), failure(900));
    let event = one(&twice);
    assert_eq!((event.times, event.wording), (2, Some(Wording::NoFailure)));
}

#[test]
fn parts_of_one_failure_are_one_message() {
    let nccl = one("[0] NCCL WARN Failed to CUDA calloc 6291456 bytes\nncclUnhandledCudaError: \
         unhandled cuda error (run with NCCL_DEBUG=INFO for details)");
    assert_eq!((nccl.short, bytes(&nccl.tried)), (Some(Short::Compute), Some(6 << 20)));
    let vulkan = one("ggml_vulkan: Device memory allocation of size 4294967296 failed.\n\
         ggml_vulkan: Requested buffer size exceeds device buffer size limit: \
         ErrorOutOfDeviceMemory");
    assert_eq!((vulkan.short, bytes(&vulkan.tried)), (Some(Short::OneBuffer), Some(4 << 30)));
    let kernel = read(
        b"Memory cgroup out of memory: Killed process 7 (a) total-vm:9kB, anon-rss:1024kB, \
          shmem-rss:0kB\nMemory cgroup out of memory: Killed process 8 (a) total-vm:9kB, \
          anon-rss:1024kB, shmem-rss:0kB\n",
    );
    assert_eq!(kernel.events.len(), 2, "two processes: {kernel:?}");
}

#[test]
fn nearby_paths_and_prefixes_identify_engine() {
    let torch = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    for (before, engine) in [
        ("File \"/x/vllm/worker.py\", line 7\n", Some(Framework::Vllm)),
        ("(EngineCore pid=7) started\n", Some(Framework::Vllm)),
        ("[2025-01-02 03:04:05 TP0] Init\n", Some(Framework::SgLang)),
        ("[TensorRT-LLM][ERROR] x\n", Some(Framework::TensorRtLlm)),
        ("File \"/x/ComfyUI/nodes.py\", line 7\n", Some(Framework::ComfyUi)),
        ("ollama started\n", None),
        ("step 7\n", None),
    ] {
        assert_eq!(one(&format!("{before}{torch}")).engine, engine, "{before}");
    }
    let distant = format!("import vllm\n{}{torch}", "a step of training\n".repeat(1000));
    assert_eq!(one(&distant).engine, None);
}

#[test]
fn quoted_source_is_not_a_message() {
    let log = "    raise ValueError(\"No available memory for the cache blocks. \"\n";
    assert_eq!(read(log.as_bytes()).events, []);
}

#[test]
fn size_left_for_a_request_is_kept() {
    let event =
        one("[E:onnxruntime:, bfc_arena.cc:368] Available memory of 2048576 is smaller than \
         requested bytes of 234217728");
    assert_eq!(event.dump.pool.and_then(|pool| pool.available), Some(Bytes(2_048_576)));
    assert_eq!((event.framework, event.short), (Framework::OnnxRuntime, None));
}
