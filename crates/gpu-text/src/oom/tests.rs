//! Made messages in every wording.

use super::*;
use proptest::prelude::*;

fn all(text: &str) -> Vec<Event> {
    read(text.as_bytes()).events
}

fn one(text: &str) -> Event {
    let mut events = all(text);
    assert_eq!(events.len(), 1, "{text}\n{events:#?}");
    events.remove(0)
}

fn text(figure: &Option<Figure>) -> &str {
    figure.as_ref().map_or("", |figure| figure.text.as_str())
}

fn count(figure: &Option<Figure>) -> Option<u64> {
    figure.as_ref()?.bytes.map(|bytes| bytes.0)
}

const TORCH_2: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB. GPU 2 \
    has a total capacity of 40.00 GiB of which 1.50 GiB is free. Process 4711 has 12.00 GiB memory \
    in use. Process 4712 has 500.00 MiB memory in use. Including non-PyTorch memory, this process \
    has 26.00 GiB memory in use. Of the allocated memory 24.00 GiB is allocated by PyTorch, with \
    1.25 GiB allocated in private pools (e.g., CUDA Graphs), and 1.50 GiB is reserved by PyTorch \
    but unallocated. If reserved but unallocated memory is large try setting \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

#[test]
fn the_message_of_pytorch_2_in_full() {
    let event = one(TORCH_2);
    assert_eq!((event.framework, event.wording), (Framework::PyTorch, Some(Wording::Torch22)));
    assert_eq!((event.backend.as_deref(), event.gpu), (Some("cuda"), Some(2)));
    assert_eq!(text(&event.tried), "3.25 GiB");
    assert_eq!((text(&event.total), text(&event.free)), ("40.00 GiB", "1.50 GiB"));
    assert_eq!(text(&event.this_process), "26.00 GiB");
    assert_eq!((text(&event.allocated), text(&event.private_pools)), ("24.00 GiB", "1.25 GiB"));
    assert_eq!(text(&event.reserved_unallocated), "1.50 GiB");
    let processes: Vec<_> = event.processes.iter().map(|(p, f)| (*p, f.text.as_str())).collect();
    assert_eq!(processes, [(4711, "12.00 GiB"), (4712, "500.00 MiB")]);
    assert_eq!(count(&event.tried), Some(3_489_660_928));
}

#[test]
fn the_message_is_the_same_however_a_log_mangles_it() {
    let want = Event { line: 0, ..one(TORCH_2) };
    let words: Vec<&str> = TORCH_2.split(' ').collect();
    let wrapped = |before: &str, width: usize| {
        words.chunks(width).map(|line| format!("{before}{}\n", line.join(" "))).collect::<String>()
    };
    for (how, log) in [
        ("a word a line", wrapped("", 1)),
        ("wrapped and indented", wrapped("        ", 7)),
        ("commented out", wrapped("    # ", 9)),
        ("quoted", wrapped("> ", 5)),
        ("quoted twice", wrapped("> > ", 5)),
        ("by rank", wrapped("[rank3]: ", 11)),
        ("behind a progress bar", format!("  3%|#  | 1/9 [00:01<?]\r 9%|## | 2/9\r{TORCH_2}\n")),
        ("coloured", format!("\x1b[31m{}\x1b[0m", TORCH_2.replace("free", "\x1b[1mfree\x1b[0m"))),
        ("as JSON", format!("{{\"error\":\"{}\"}}", wrapped("", 8).replace('\n', "\\n"))),
        (
            "with emphasis",
            TORCH_2.replace("3.25 GiB", "**3.25 GiB**").replace("40.00 GiB", "<u>40.00 GiB</u>"),
        ),
        ("with Windows line ends", wrapped("", 6).replace('\n', "\r\n")),
    ] {
        assert_eq!(Event { line: 0, ..one(&log) }, want, "{how}:\n{log}");
    }
}

#[test]
fn the_message_is_the_same_in_panels_behind_labels_and_broken_at_the_edge() {
    let want = Event { line: 0, ..one(TORCH_2) };
    let words: Vec<&str> = TORCH_2.split(' ').collect();
    let each = |before: &str, after: &str| {
        let line = |words: &[&str]| format!("{before}{:<90}{after}\n", words.join(" "));
        words.chunks(8).map(line).collect::<String>()
    };
    let panel = each("\u{2502} ", " \u{2502}");
    let task = each("3: ", "");
    let container = each("2024-02-03T04:05:06.000000007Z stderr F ", "");
    for log in [panel, task, container] {
        assert_eq!(Event { line: 0, ..one(&log) }, want, "{log}");
    }
    for width in 60..140 {
        let letters: Vec<char> = TORCH_2.chars().collect();
        let lines = letters.chunks(width).map(|line| line.iter().collect::<String>());
        let log = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(Event { line: 0, ..one(&log) }, want, "{width}:\n{log}");
    }
}

#[test]
fn what_several_processes_write_at_once_is_told_apart_by_their_labels() {
    let other = TORCH_2.replace("GPU 2", "GPU 5").replace("3.25 GiB", "3.50 GiB");
    let rows = |text: &str| {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        words.chunks(9).map(|row| row.join(" ")).collect::<Vec<_>>()
    };
    for (first, second) in [("0: ", "1: "), ("[rank0]: ", "[rank1]: ")] {
        let pairs = rows(TORCH_2).into_iter().zip(rows(&other));
        let log: String = pairs.map(|(a, b)| format!("{first}{a}\n{second}{b}\n")).collect();
        let mut found = all(&log);
        found.iter_mut().for_each(|event| event.line = 0);
        let want = [one(TORCH_2), one(&other)].map(|event| Event { line: 0, ..event });
        assert_eq!(found, want, "{log}");
    }
}

#[test]
fn a_dump_is_the_same_wrapped_at_the_edge() {
    let want = Event { line: 0, ..one(DUMP) };
    let wrapped = |line: &str| {
        let mut rows = vec![String::new()];
        for word in line.split(' ') {
            let row = rows.last_mut().unwrap();
            if row.len() + word.len() >= 80 {
                rows.push(word.to_owned());
            } else {
                row.push_str(if row.is_empty() { "" } else { " " });
                row.push_str(word);
            }
        }
        rows.join("\n")
    };
    let log: Vec<String> = DUMP.lines().map(wrapped).collect();
    assert_eq!(Event { line: 0, ..one(&log.join("\n")) }, want);
}

#[test]
fn pytorch_on_the_pool_of_the_driver() {
    let message = "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of \
        memory)\nCurrently allocated     : 5.25 GiB\nRequested               : 12.50 MiB\nDevice \
        limit            : 12.00 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by \
        user-supplied memory fraction)\n                        : 17179869184.00 GiB";
    for log in [message.to_owned(), message.replace('\n', " "), message.replace('\n', "\\n")] {
        let event = one(&log);
        assert_eq!((event.framework, event.gpu), (Framework::PyTorch, Some(1)), "{log}");
        assert_eq!((text(&event.tried), text(&event.total)), ("12.50 MiB", "12.00 GiB"));
        assert_eq!((text(&event.allocated), text(&event.free)), ("5.25 GiB", "0 bytes"));
        assert_eq!(event.limit, None);
    }
    let limited = message.replace("17179869184.00 GiB", "6.00 GiB");
    assert_eq!(text(&one(&limited).limit), "6.00 GiB");
    let brief =
        "torch.OutOfMemoryError: Allocation on device \nGot an OOM, unloading all loaded models.";
    assert_eq!((one(brief).framework, one(brief).tried), (Framework::PyTorch, None));
    assert_eq!(one("torch.OutOfMemoryError: Allocation on device").framework, Framework::PyTorch);
    assert_eq!(all(&format!("{message}\n{brief}")).len(), 1);
    assert_eq!(all("Allocation on device 3 went well"), []);
}

#[test]
fn the_newest_pytorch_names_its_variable() {
    let newest = one(&TORCH_2.replace("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"));
    assert_eq!(newest.wording, Some(Wording::Torch29));
}

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
fn of_a_long_log_the_end_is_read() {
    let log = format!("{}CUDA out of memory. Tried to allocate 2.00 GiB.\n", "step\n".repeat(1000));
    let report = read_within(log.as_bytes(), 200);
    assert!(report.is_cut);
    let places: Vec<usize> = report.events.iter().map(|event| event.line).collect();
    assert_eq!(places, [1001]);
    assert!(!read_within(log.as_bytes(), log.len()).is_cut);
    assert_eq!(read_within("x".repeat(300).as_bytes(), 200).events, []);
}

#[test]
fn older_wordings_of_pytorch() {
    let cached =
        one("RuntimeError: CUDA out of memory. Tried to allocate 20.50 MiB (GPU 1; 11.00 GiB \
        total capacity; 9.75 GiB already allocated; 10.25 MiB free; 512.00 KiB cached)");
    assert_eq!((cached.wording, cached.gpu), (Some(Wording::Torch13), Some(1)));
    assert_eq!((text(&cached.cached), text(&cached.allocated)), ("512.00 KiB", "9.75 GiB"));
    assert_eq!((text(&cached.total), text(&cached.free)), ("11.00 GiB", "10.25 MiB"));
    let reserved = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; \
        6.00 GiB already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)";
    assert_eq!(one(reserved).wording, Some(Wording::Torch14));
    assert_eq!(text(&one(reserved).reserved_total), "6.50 GiB");
    let hinted = format!(
        "{reserved} If reserved memory is >> allocated memory try setting max_split_size_mb"
    );
    assert_eq!(one(&hinted).wording, Some(Wording::Torch110));
    let misspelt = "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 64.00 \
        GiB of which 1.00 GiB is free.";
    assert_eq!(
        (one(misspelt).wording, one(misspelt).backend.as_deref()),
        (Some(Wording::Torch21), Some("hip"))
    );
    assert_eq!(text(&one(misspelt).total), "64.00 GiB");
}

#[test]
fn a_limit_of_the_process_is_told() {
    let old = one(
        "CUDA out of memory. Tried to allocate 5.50 GiB (GPU 0; 11.00 GiB total capacity; 0 \
        bytes already allocated; 10.75 GiB free; 5.50 GiB allowed; 0 bytes reserved in total by PyTorch)",
    );
    assert_eq!((text(&old.limit), text(&old.allocated)), ("5.50 GiB", "0 bytes"));
    let new = one(
        "CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total capacity of 8.00 \
        GiB of which 4.00 GiB is free. This process has 3.50 GiB memory in use. 3.00 GiB allowed; Of \
        the allocated memory 2.75 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but \
        unallocated.",
    );
    assert_eq!((text(&new.limit), text(&new.this_process)), ("3.00 GiB", "3.50 GiB"));
}

#[test]
fn other_backends_of_pytorch() {
    let xpu = one(
        "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.00 \
        GiB. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 1.00 MiB is reserved by \
        PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.",
    );
    assert_eq!((xpu.backend.as_deref(), text(&xpu.total)), (Some("xpu"), "15.00 GiB"));
    assert_eq!((xpu.cached, xpu.free), (None, None));
    let npu =
        one("RuntimeError: NPU out of memory. Tried to allocate 8.00 GiB (NPU 3; 60.00 GiB total \
        capacity; 50.00 GiB already allocated; 50.00 GiB current active; 2.00 GiB free; 54.00 GiB \
        reserved in total by PyTorch)");
    assert_eq!((npu.backend.as_deref(), npu.gpu), (Some("npu"), Some(3)));
    let metal = one("RuntimeError: MPS backend out of memory (MPS allocated: 9.50 GiB, other \
        allocations: 16.25 GiB, max allowed: 27.00 GiB). Tried to allocate 1.50 GiB on private pool. \
        Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may \
        cause system failure).");
    assert_eq!(metal.backend.as_deref(), Some("mps"));
    assert_eq!((text(&metal.allocated), text(&metal.other)), ("9.50 GiB", "16.25 GiB"));
    assert_eq!((text(&metal.limit), text(&metal.tried)), ("27.00 GiB", "1.50 GiB"));
    let host = one(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't \
        allocate memory: you tried to allocate 4000000000 bytes. Error code 12",
    );
    assert_eq!((host.backend.as_deref(), count(&host.tried)), (Some("cpu"), Some(4_000_000_000)));
    let absurd = one("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.");
    assert_eq!((text(&absurd.tried), count(&absurd.tried)), ("more than 1EB", Some(1 << 60)));
}

#[test]
fn absurd_figures_are_kept_as_printed() {
    let event =
        one("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of \
        24.00 GiB of which 7.00 GiB is free. Process 9132 has 17179869184.00 GiB memory in use. \
        Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use.");
    assert_eq!(
        (text(&event.this_process), count(&event.this_process)),
        ("17179869184.00 GiB", None)
    );
    assert_eq!(event.processes[0].1.text, "17179869184.00 GiB");
}

#[test]
fn several_messages_are_several_events_and_a_repeated_one_is_not() {
    let other = TORCH_2.replace("GPU 2 has", "GPU 3 has");
    let events = all(&format!("{TORCH_2}\n{other}\nDuring handling of the above\n{TORCH_2}\n"));
    let seen: Vec<_> = events.iter().map(|event| (event.gpu, event.times, event.line)).collect();
    assert_eq!(seen, [(Some(2), 2, 1), (Some(3), 1, 2)]);
}

#[test]
fn a_cut_message_gives_what_is_left() {
    let cut =
        one("Tried to allocate 2.00 GiB (GPU 0; 4.00 GiB total capacity; 3.00 GiB already alloc");
    assert_eq!((text(&cut.tried), text(&cut.total), cut.allocated), ("2.00 GiB", "4.00 GiB", None));
    for length in 0..TORCH_2.len() {
        let Some(part) = TORCH_2.get(..length) else { continue };
        assert!(all(part).len() <= 1, "{part}");
    }
}

const DUMP: &str = "\
2024-01-01 10:00:00.000001: W tensorflow/tsl/framework/bfc_allocator.cc:497] Allocator (GPU_1_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)requested by op model/Add
If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation.
2024-01-01 10:00:00.000002: I tensorflow/tsl/framework/bfc_allocator.cc:1058] BFCAllocator dump for GPU_1_bfc
2024-01-01 10:00:00.000003: I tensorflow/tsl/framework/bfc_allocator.cc:1065] Bin (256): \tTotal Chunks: 3, Chunks in use: 2. 768B allocated for chunks. 512B in use in bin. 12B client-requested in use in bin.
2024-01-01 10:00:00.000004: I tensorflow/tsl/framework/bfc_allocator.cc:1065] Bin (268435456): \tTotal Chunks: 2, Chunks in use: 1. 1.75GiB allocated for chunks. 1.00GiB in use in bin. 1.00GiB client-requested in use in bin.
2024-01-01 10:00:00.000005: I tensorflow/tsl/framework/bfc_allocator.cc:1081] Bin for 1.00GiB was 256.00MiB, Chunk State: 
2024-01-01 10:00:00.000006: I tensorflow/tsl/framework/bfc_allocator.cc:1094] Next region of size 1879048960
2024-01-01 10:00:00.000007: I tensorflow/tsl/framework/bfc_allocator.cc:1114] InUse at 7f0000000000 of size 1073741824 next 1
2024-01-01 10:00:00.000008: I tensorflow/tsl/framework/bfc_allocator.cc:1114] Free  at 7f0040000000 of size 805306368 next 2
2024-01-01 10:00:00.000009: I tensorflow/tsl/framework/bfc_allocator.cc:1114] InUse at 7f0070000000 of size 256 by op Const action_count 7 step 0 next 3
2024-01-01 10:00:00.000010: I tensorflow/tsl/framework/bfc_allocator.cc:1119]      Summary of in-use Chunks by size: 
2024-01-01 10:00:00.000011: I tensorflow/tsl/framework/bfc_allocator.cc:1122] 2 Chunks of size 256 totalling 512B
2024-01-01 10:00:00.000012: I tensorflow/tsl/framework/bfc_allocator.cc:1122] 1 Chunks of size 1073741824 totalling 1.00GiB
2024-01-01 10:00:00.000013: I tensorflow/tsl/framework/bfc_allocator.cc:1126] Sum Total of in-use chunks: 1.00GiB
2024-01-01 10:00:00.000014: I tensorflow/tsl/framework/bfc_allocator.cc:1128] Total bytes in pool: 1879048960 memory_limit_: 2000000000 available bytes: 120951040 curr_region_allocation_bytes_: 4000000000
2024-01-01 10:00:00.000015: I tensorflow/tsl/framework/bfc_allocator.cc:1133] Stats: 
Limit:                      2000000000
InUse:                      1073742336
MaxInUse:                   1500000000
NumAllocs:                         455
MaxAllocSize:               1073741824
Reserved:                            0
PeakReserved:                        0
LargestFreeBlock:                    0

2024-01-01 10:00:00.000016: W tensorflow/tsl/framework/bfc_allocator.cc:512] ***********_____
2024-01-01 10:00:00.000017: W tensorflow/core/framework/op_kernel.cc:1828] OP_REQUIRES failed at transpose_op.cc:198 : RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[64,2048,2048] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc
";

#[test]
fn a_full_dump_of_tensorflow() {
    let event = one(DUMP);
    assert_eq!((event.framework, event.gpu), (Framework::TensorFlow, Some(1)));
    assert_eq!(event.allocator.as_deref(), Some("GPU_1_bfc"));
    assert_eq!((text(&event.tried), count(&event.tried)), ("1.00GiB", Some(1 << 30)));
    let bins: Vec<_> = event.dump.bins.iter().map(|b| (b.size.0, b.blocks, b.in_use)).collect();
    assert_eq!(bins, [(256, 3, 2), (268_435_456, 2, 1)]);
    let sums: Vec<_> =
        event.dump.sums.iter().map(|s| (s.count, s.size.0, s.total.text.as_str())).collect();
    assert_eq!(sums, [(2, 256, "512B"), (1, 1 << 30, "1.00GiB")]);
    assert_eq!(text(&event.dump.sum_in_use), "1.00GiB");
    assert_eq!(event.dump.stats.len(), 8);
    assert_eq!(event.dump.stat("MaxInUse"), Some(gpu_core::Bytes(1_500_000_000)));
    let pool = event.dump.pool.unwrap();
    assert_eq!(pool.held.map(|held| held.0), Some(1_879_048_960));
    assert_eq!(pool.available.map(|available| available.0), Some(120_951_040));
    let blocks: Vec<_> =
        event.dump.blocks.iter().map(|b| (b.address, b.size.0, b.in_use)).collect();
    assert_eq!(
        blocks,
        [
            (0x7f00_0000_0000, 1 << 30, true),
            (0x7f00_4000_0000, 805_306_368, false),
            (0x7f00_7000_0000, 256, true)
        ]
    );
    assert_eq!(
        event.dump.regions,
        [Region { size: gpu_core::Bytes(1_879_048_960), first_block: 0 }]
    );
    let tensor = event.tensor.unwrap();
    assert_eq!(
        (tensor.shape.as_slice(), tensor.bytes().map(|b| b.0)),
        (&[64, 2048, 2048][..], Some(1 << 30))
    );
}

#[test]
fn dumps_after_each_other_are_events_and_the_exception_is_of_the_first() {
    let second = DUMP
        .replace("1.00GiB (rounded to 1073741824)", "2.00GiB (rounded to 2147483648)")
        .replace("shape[64,2048,2048]", "shape[128,2048,2048]");
    let log = format!(
        "{DUMP}{second}Traceback\nResourceExhaustedError: OOM when allocating tensor with \
        shape[64,2048,2048] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc\n"
    );
    let shapes: Vec<u64> =
        all(&log).iter().map(|event| event.tensor.as_ref().unwrap().shape[0]).collect();
    assert_eq!(shapes, [64, 128]);
    // A dump whose beginning is cut off is an event all the same.
    let tail = &DUMP[DUMP.find("Bin (268435456)").unwrap()..];
    assert_eq!(one(tail).dump.bins.len(), 1);
    // TensorFlow's own errors tell that it is TensorFlow, wherever its allocator was built.
    let of_xla = DUMP.replace("tensorflow/tsl", "external/xla/xla/tsl");
    assert_eq!(one(&of_xla).framework, Framework::TensorFlow);
    let end = of_xla.find("OP_REQUIRES").unwrap();
    assert_eq!(one(&of_xla[..end]).framework, Framework::Xla);
}

#[test]
fn the_oldest_dumps() {
    let event = one(
        "W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_0_bfc) ran out of \
        memory trying to allocate 96.00MiB.  Current allocation summary follows.\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:643] Bin (256): \tTotal Chunks: 1, Chunks in use: 0 0B \
        allocated for chunks. 4B client-requested for chunks. 0B in use in bin. 0B client-requested in use in bin.\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:678] Chunk at 0x10208200000 of size 1280\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:687] Free at 0x10208300000 of size 512\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:1004] total_region_allocated_bytes_: 7 memory_limit_: 9 \
        available bytes: 2 curr_region_allocation_bytes_: 8\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:698] Stats: \nLimit:   1792\nInUse:   1280\nMaxInUse: 1280\n\
        NumAllocs:   3\nMaxAllocSize:   1280\n\n\
        W tensorflow/core/common_runtime/bfc_allocator.cc:274] ****____\n\
        W tensorflow/core/common_runtime/bfc_allocator.cc:275] Ran out of memory trying to allocate 96.00MiB.  See \
        logs for memory state.\n\
        W tensorflow/core/framework/op_kernel.cc:993] Resource exhausted: OOM when allocating tensor with shape[24,1024,1024]\n",
    );
    assert_eq!(event.dump.bins, [Bin { size: gpu_core::Bytes(256), blocks: 1, in_use: 0 }]);
    assert_eq!(event.dump.blocks.len(), 2);
    assert_eq!(event.dump.stats.len(), 5);
    assert_eq!(event.dump.pool.unwrap().held.map(|held| held.0), Some(7));
    assert_eq!(event.tensor.unwrap().kind, None);
}

#[test]
fn what_tensorflow_calls_no_failure_is_marked() {
    let log = "W tensorflow/core/common_runtime/bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of memory \
        trying to allocate 1.25GiB with freed_by_count=0. The caller indicates that this is not a failure, \
        but may mean that there could be performance gains if more memory were available.\n";
    assert_eq!(one(&format!("{log}{log}")).wording, Some(Wording::NoFailure));
    assert_eq!(one(&format!("{log}{log}")).times, 2);
}

#[test]
fn a_ladder_is_one_event() {
    let rung = |text: &str, bytes: u64| {
        format!(
            "2019-01-01 E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to allocate {text} \
            ({bytes} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
        )
    };
    let ladder = [
        rung("10.00G", 10_737_418_240),
        rung("9.00G", 9_663_676_416),
        rung("8.10G", 8_697_308_928),
    ]
    .concat();
    let event = one(&ladder);
    assert_eq!((event.ladder.len(), count(&event.tried)), (3, Some(10_737_418_240)));
    assert_eq!(event.framework, Framework::TensorFlow);
    // A larger one begins the next: another device, or another try.
    assert_eq!(all(&format!("{ladder}{}", rung("11.00G", 11_811_160_064))).len(), 2);
    let xla = one(
        "E external/xla/xla/stream_executor/cuda/cuda_driver.cc:1] failed to allocate 2.00GiB \
        (2147483648 bytes) from device: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    );
    assert_eq!(xla.framework, Framework::Xla);
}

#[test]
fn errors_of_xla() {
    let error = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate \
        6000000000 bytes.\n";
    let twice = one(&format!("{error}The above exception\n{error}"));
    assert_eq!(
        (twice.framework, twice.times, count(&twice.tried)),
        (Framework::Jax, 2, Some(6_000_000_000))
    );
    let newer = one(
        "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 19.50GiB. [executable_name='jit_f']",
    );
    assert_eq!(text(&newer.tried), "19.50GiB");
    let older = one(
        "RuntimeError: Resource exhausted: Out of memory while trying to allocate 12884901888 bytes.",
    );
    assert_eq!(count(&older.tried), Some(12_884_901_888));
    let request = one(
        "RESOURCE_EXHAUSTED: Failed to allocate request for 1.50GiB (1610612736B) on device ordinal 3",
    );
    assert_eq!((request.gpu, count(&request.tried)), (Some(3), Some(1_610_612_736)));
    let host =
        one("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 80000000000 bytes.");
    assert_eq!((host.framework, host.wording), (Framework::Jax, Some(Wording::XlaHost)));
}

#[test]
fn what_the_compiler_complained_of_goes_with_the_error() {
    let complaint = "W hlo_rematerialization.cc:2941] Can't reduce memory use below 22.25GiB (23890755584 bytes) by \
        rematerialization; only reduced to 37.00GiB (39728447488 bytes), down from 38.00GiB originally\n";
    let alone = one(complaint);
    assert_eq!(alone.wording, Some(Wording::NoFailure));
    let event = one(&format!(
        "{complaint}RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7000000000 bytes.\n"
    ));
    let said = event.rematerialization.unwrap();
    assert_eq!(said.limit.bytes.map(|bytes| bytes.0), Some(23_890_755_584));
    assert_eq!(count(&said.reduced), Some(39_728_447_488));
}

#[test]
fn libraries_and_programs_that_print_little() {
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
    let llama = one(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 590.50 MiB on device 1: cudaMalloc failed: \
        out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 619184128\n",
    );
    assert_eq!((llama.framework, llama.gpu), (Framework::LlamaCpp, Some(1)));
    assert_eq!((text(&llama.tried), count(&llama.tried)), ("590.50 MiB", Some(619_184_128)));
    let vllm = one(
        "ValueError: Free memory on device cuda:1 (12.25/24.00 GiB) on startup is less than desired GPU \
        memory utilization (0.92, 22.08 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    );
    assert_eq!((vllm.framework, vllm.gpu), (Framework::Vllm, Some(1)));
    assert_eq!(
        (text(&vllm.free), text(&vllm.total), text(&vllm.tried)),
        ("12.25 GiB", "24.00 GiB", "22.08 GiB")
    );
    let paddle = one(
        "Out of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 7.000000GB memory has \
        been allocated and available memory is only 716.750000MB.",
    );
    assert_eq!((paddle.framework, text(&paddle.allocated)), (Framework::Paddle, "7.000000GB"));
    assert_eq!(text(&paddle.free), "716.750000MB");
    let boost = one("xgboost.core.XGBoostError: Memory allocation error on worker 0: bad_alloc: \
        cudaErrorMemoryAllocation: out of memory\n- Free memory: 2.50GB\n- Requested memory: 3.25GB\n");
    assert_eq!((text(&boost.free), text(&boost.tried)), ("2.50GB", "3.25GB"));
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

#[test]
fn the_bounds_hold() {
    let many: String =
        (0..1500).map(|n| format!("CUDA out of memory. Tried to allocate {n}.00 MiB.\n")).collect();
    let report = read(many.as_bytes());
    assert_eq!((report.events.len(), report.is_cut), (MAX_EVENTS, true));
    let long = format!(
        "{}CUDA out of memory. Tried to allocate 2.00 GiB.{}",
        "x".repeat(1 << 20),
        " y".repeat(1 << 20)
    );
    assert_eq!(text(&one(&long).tried), "2.00 GiB");
    let digits = format!("Tried to allocate {} GiB", "9".repeat(1 << 20));
    assert_eq!(all(&digits), []);
    let again = TORCH_2.repeat(2_000);
    assert_eq!(one(&again).times, 2_000);
}

proptest! {
    #[test]
    fn any_bytes_give_the_same_bounded_report(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let report = read(&bytes);
        prop_assert!(report.events.len() <= bytes.len());
        prop_assert_eq!(read(&bytes), report);
    }

    #[test]
    fn pieces_of_messages_in_any_order_are_safe(
        pieces in prop::collection::vec((0usize..4, 0usize..3000, 0usize..400), 0..12),
    ) {
        let sources = [TORCH_2, DUMP, "RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes (total", "(\u{e9}\u{20ac} 9.9.9 GiB * \\n"];
        let log: String = pieces
            .iter()
            .filter_map(|(source, from, length)| {
                let source = sources[*source];
                let from = from % source.len();
                source.get(from..(from + length).min(source.len()))
            })
            .collect();
        let report = read(log.as_bytes());
        for event in &report.events {
            prop_assert!(event.times >= 1 && event.line >= 1);
        }
    }

    #[test]
    fn figures_of_pytorch_come_back_as_printed(asked in 1u64..1 << 20, free in 0u64..1 << 20, pid in any::<u32>()) {
        let log = format!("CUDA out of memory. Tried to allocate {asked}.25 MiB. GPU 0 has a total capacity of \
            80.00 GiB of which {free}.50 MiB is free. Process {pid} has 1.00 GiB memory in use.");
        let event = one(&log);
        prop_assert_eq!(text(&event.tried), format!("{asked}.25 MiB"));
        prop_assert_eq!(text(&event.free), format!("{free}.50 MiB"));
        prop_assert_eq!(event.processes[0].0, pid);
    }
}
