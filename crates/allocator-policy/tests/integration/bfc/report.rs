//! The memory report.

use gpu_allocator_policy::bfc::Settings;
use gpu_allocator_policy::{Bfc, ModelMemory, Policy, Stream};
use gpu_core::Bytes;

/// From a log of XLA: four chunks of 4 GB in a pool of 18.99, and a request for a fifth.
#[test]
fn report_matches_real_xla_log() {
    let limit = Bytes(18_995_773_440);
    let settings = Settings { limit: Some(limit), ..Settings::default() };
    let mut bfc = Bfc::new(ModelMemory::endless(), settings).expect("a limit is set");
    let four: Vec<_> = (0..4)
        .map(|_| bfc.allocate(Bytes(4_000_000_000), Stream(0)))
        .collect::<Result<_, _>>()
        .expect("they fit");
    assert!(bfc.allocate(Bytes(4_000_000_000), Stream(0)).is_err());
    let report = bfc.report(Some(Bytes(4_000_000_000)));
    let last = "Bin (268435456): \tTotal Chunks: 5, Chunks in use: 4. 17.69GiB allocated for chunks. \
                14.90GiB in use in bin. 14.90GiB client-requested in use in bin.";
    let free = "  Size: 2.79GiB | Requested Size: 0B | in_use: 0 | bin_num: 20, prev:   Size: 3.72GiB \
                | Requested Size: 3.72GiB | in_use: 1 | bin_num: -1";
    let base = four[0].address();
    let chunk = |nth: u64, next: u64| {
        format!("InUse at {:x} of size 4000000000 next {next}", base + nth * 4_000_000_000)
    };
    let tail = format!(
        "Free  at {:x} of size 2995773440 next 18446744073709551615",
        base + 16_000_000_000
    );
    for line in [
        "BFCAllocator dump for GPU_0_bfc",
        last,
        "Bin for 3.72GiB was 256.00MiB, Chunk State: ",
        free,
        "Next region of size 18995773440",
        &chunk(0, 1),
        &chunk(1, 2),
        &chunk(2, 3),
        &chunk(3, 4),
        &tail,
        "     Summary of in-use Chunks by size: ",
        "4 Chunks of size 4000000000 totalling 14.90GiB",
        "Sum Total of in-use chunks: 14.90GiB",
        "Total bytes in pool: 18995773440 memory_limit_: 18995773440 available bytes: 0 \
         curr_region_allocation_bytes_: 37991546880",
        "Limit:                     18995773440",
        "InUse:                     16000000000",
        "MaxInUse:                  16000000000",
        "NumAllocs:                           4",
        "MaxAllocSize:               4000000000",
        "Reserved:                            0",
        "PeakReserved:                        0",
        "LargestFreeBlock:           2995773440",
        &format!("{}{}", "*".repeat(85), "_".repeat(15)),
    ] {
        assert!(report.lines().any(|own| own == line), "{line}\n{report}");
    }
    assert_eq!(report.lines().filter(|line| line.starts_with("Bin (")).count(), 21);
}

#[test]
fn report_draws_allocation_overhead() {
    let settings = Settings { limit: Some(Bytes(100 * 256)), ..Settings::default() };
    let mut bfc = Bfc::new(ModelMemory::endless(), settings).expect("a limit is set");
    assert_eq!(bfc.summary().lines().last(), Some("<allocator contains no memory>"));
    let _all = bfc.allocate(Bytes(60 * 256), Stream(0));
    let map = format!("{}{}", "*".repeat(60), "x".repeat(40));
    assert_eq!(bfc.summary().lines().last(), Some(map.as_str()));
}
