//! Synthetic messages in every wording, by source.

mod any_text;
mod library;
mod log;
mod no_figures;
mod tensorflow;
mod torch;
mod xla;

use super::*;

const TORCH_2: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB. GPU 2 \
    has a total capacity of 40.00 GiB of which 1.50 GiB is free. Process 4711 has 12.00 GiB memory \
    in use. Process 4712 has 500.00 MiB memory in use. Including non-PyTorch memory, this process \
    has 26.00 GiB memory in use. Of the allocated memory 24.00 GiB is allocated by PyTorch, with \
    1.25 GiB allocated in private pools (e.g., CUDA Graphs), and 1.50 GiB is reserved by PyTorch \
    but unallocated. If reserved but unallocated memory is large try setting \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

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
