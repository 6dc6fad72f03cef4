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
    // A dump without its start is still an event.
    let tail = &DUMP[DUMP.find("Bin (268435456)").unwrap()..];
    assert_eq!(one(tail).dump.bins.len(), 1);
    // TensorFlow's own errors identify TensorFlow, wherever its allocator was built.
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
    // A larger size starts the next event: another device, or another attempt.
    assert_eq!(all(&format!("{ladder}{}", rung("11.00G", 11_811_160_064))).len(), 2);
    let xla = one(
        "E external/xla/xla/stream_executor/cuda/cuda_driver.cc:1] failed to allocate 2.00GiB \
        (2147483648 bytes) from device: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    );
    assert_eq!(xla.framework, Framework::Xla);
}
