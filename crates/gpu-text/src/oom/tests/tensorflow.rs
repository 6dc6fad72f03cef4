//! The dumps and errors of TensorFlow.

use super::*;

#[test]
fn full_tensorflow_dump_is_parsed() {
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
fn consecutive_dumps_are_events_and_exception_belongs_to_first() {
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
    // A dump that lost its start is still an event.
    let tail = &DUMP[DUMP.find("Bin (268435456)").unwrap()..];
    assert_eq!(one(tail).dump.bins.len(), 1);
    // TensorFlow's own errors identify TensorFlow, whichever project built its allocator.
    let of_xla = DUMP.replace("tensorflow/tsl", "external/xla/xla/tsl");
    assert_eq!(one(&of_xla).framework, Framework::TensorFlow);
    let end = of_xla.find("OP_REQUIRES").unwrap();
    assert_eq!(one(&of_xla[..end]).framework, Framework::Xla);
}

#[test]
fn oldest_dumps_are_parsed() {
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
fn tensorflow_non_failure_is_marked() {
    let log = "W tensorflow/core/common_runtime/bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of memory \
        trying to allocate 1.25GiB with freed_by_count=0. The caller indicates that this is not a failure, \
        but may mean that there could be performance gains if more memory were available.\n";
    assert_eq!(one(&format!("{log}{log}")).wording, Some(Wording::NoFailure));
    assert_eq!(one(&format!("{log}{log}")).times, 2);
}

#[test]
fn decreasing_retries_are_one_event() {
    let retry = |text: &str, bytes: u64| {
        format!(
            "2019-01-01 E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to allocate {text} \
            ({bytes} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
        )
    };
    let ladder = [
        retry("10.00G", 10_737_418_240),
        retry("9.00G", 9_663_676_416),
        retry("8.10G", 8_697_308_928),
    ]
    .concat();
    let event = one(&ladder);
    assert_eq!((event.ladder.len(), count(&event.tried)), (3, Some(10_737_418_240)));
    assert_eq!(event.framework, Framework::TensorFlow);
    // A larger size starts the next event: another device, or another attempt.
    assert_eq!(all(&format!("{ladder}{}", retry("11.00G", 11_811_160_064))).len(), 2);
    let xla = one(
        "E external/xla/xla/stream_executor/cuda/cuda_driver.cc:1] failed to allocate 2.00GiB \
        (2147483648 bytes) from device: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    );
    assert_eq!(xla.framework, Framework::Xla);
    // Reports often quote the sizes without the bytes.
    let short = ["15.10G", "2.04G", "185.18M"]
        .map(|size| format!("failed to allocate {size} from device: CUDA_ERROR_OUT_OF_MEMORY\n"));
    let event = one(&short.concat());
    assert_eq!((event.ladder.len(), count(&event.tried)), (3, Some(16_213_501_542)));
}

#[test]
fn source_path_identifies_framework() {
    for (path, framework) in [
        ("external/xla/x.cc", Framework::Xla),
        ("external/tsl/x.cc", Framework::Xla),
        ("external/org_tensorflow/tensorflow/x.cc", Framework::Xla),
        ("external/local_xla/x.cc", Framework::TensorFlow),
        ("external/local_tsl/x.cc", Framework::TensorFlow),
        ("tensorflow/x.cc", Framework::TensorFlow),
        ("x.cc", Framework::TensorFlow),
        ("tensorflow/x.cc external/xla/x.cc", Framework::Xla),
        ("external/xla/x.cc tensorflow/x.cc", Framework::TensorFlow),
    ] {
        let log =
            format!("W {path}:1] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1GiB");
        assert_eq!(one(&log).framework, framework, "{path}");
    }
}

#[test]
fn tensor_size_depends_on_element_type() {
    for (kind, bytes) in [
        ("bool", Some(6)),
        ("int8", Some(6)),
        ("half", Some(12)),
        ("bfloat16", Some(12)),
        ("float", Some(24)),
        ("int32", Some(24)),
        ("double", Some(48)),
        ("complex64", Some(48)),
        ("complex128", Some(96)),
        ("string", None),
    ] {
        let log = format!(
            "OOM when allocating tensor with shape[2,3] and type {kind} on /device:GPU:4 by allocator GPU_0_bfc"
        );
        let event = one(&log);
        let tensor = event.tensor.unwrap();
        assert_eq!(tensor.bytes().map(|bytes| bytes.0), bytes, "{kind}");
        assert_eq!((tensor.shape, event.gpu), (vec![2, 3], Some(4)));
        assert_eq!(event.allocator.as_deref(), Some("GPU_0_bfc"));
    }
    let huge = one("OOM when allocating tensor with shape[4294967296,4294967296] and type float");
    assert_eq!(huge.tensor.unwrap().bytes(), None);
    let untyped = one("OOM when allocating tensor with shape[7] on GPU by allocator GPU_2_bfc");
    assert_eq!((untyped.tensor.unwrap().kind, untyped.gpu), (None, Some(2)));
    assert_eq!(all("OOM when allocating tensor with shape[a]"), []);
}

#[test]
fn each_part_of_next_dump_starts_an_event() {
    let stats = "Limit: 10\nInUse: 5\n";
    for (part, again) in [
        ("Bin (256): Total Chunks: 1, Chunks in use: 1.", true),
        ("Bin (512): Total Chunks: 1, Chunks in use: 1.", false),
        ("Next region of size 4096", false),
        ("InUse at 7f00 of size 256 next 1", false),
        ("Free at 0x7f00 of size 256 next 1", false),
        ("2 Chunks of size 256 totalling 512B", false),
        ("Sum Total of in-use chunks: 1.00KiB", true),
        ("Total bytes in pool: 7 memory_limit_: 9 available bytes: 2", true),
        ("total_region_allocated_bytes_: 7 memory_limit_: 9", true),
    ] {
        let first = "Bin (256): Total Chunks: 1, Chunks in use: 1.\nSum Total of in-use chunks: 1.00KiB\n\
                     Total bytes in pool: 7 memory_limit_: 9 available bytes: 2\n";
        assert_eq!(all(&format!("{first}{part}\n")).len(), 1 + usize::from(again), "{part}");
        let ends = !part.starts_with("Sum") && !part.contains("memory_limit_");
        assert_eq!(
            all(&format!("Next region of size 7\n{stats}{part}\n")).len(),
            1 + usize::from(ends),
            "{part} after the statistics"
        );
    }
    let dump = "BFCAllocator dump for GPU_3_bfc\n";
    assert_eq!(one(&format!("{dump}{dump}Next region of size 7")).gpu, Some(3));
    assert_eq!(all(&format!("{dump}Next region of size 7\n{dump}{stats}")).len(), 2);
    assert_eq!(all(&format!("{stats}{stats}")).len(), 1, "the statistics are repeated");
}

#[test]
fn statistics_are_known_words_with_numbers() {
    let stats = |text: &str| {
        let event = all(text).into_iter().next()?;
        Some(event.dump.stats.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
    };
    assert_eq!(stats("Limit: 1 InUse: 2"), Some(vec!["Limit".into(), "InUse".into()]));
    assert_eq!(stats("Limit: 1 InUse: 2 InUse: 3").unwrap().len(), 2);
    assert_eq!(stats("Limit: 1 InUse: x MaxInUse: 3"), None);
    let between = |count: usize| stats(&format!("Limit: 1 {}InUse: 2", "x ".repeat(count)));
    assert!(between(12).is_some() && between(13).is_none());
    let twice = format!("Limit: 1 {0}InUse: 2 {0}MaxInUse: 3", "x ".repeat(12));
    assert_eq!(stats(&twice).unwrap().len(), 3);
}

#[test]
fn name_of_allocator_is_bounded() {
    let name = |length: usize| {
        let name = "a".repeat(length);
        one(&format!("Allocator ({name}) ran out of memory trying to allocate 1GiB")).allocator
    };
    assert_eq!(name(64).map(|name| name.len()), Some(64));
    assert_eq!((name(65), name(0)), (None, None));
    let log = "Allocator (GPU_host_bfc) ran out of memory trying to allocate 1GiB";
    assert_eq!(one(log).gpu, None);
}

#[test]
fn error_of_operation_belongs_to_event_with_request_or_dump() {
    let tensor = "OOM when allocating tensor with shape[2] and type float\n";
    for (before, events) in [
        ("Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB\n", 1),
        ("BFCAllocator dump for GPU_0_bfc\nNext region of size 7\n", 1),
        ("BFCAllocator dump for GPU_0_bfc\n", 2),
        ("OOM when allocating tensor with shape[3] and type float\n", 2),
        ("failed to allocate 1.00G (7 bytes) from device: x\n", 2),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7 bytes.\n", 2),
    ] {
        assert_eq!(all(&format!("{before}{tensor}")).len(), events, "{before}");
    }
}
