//! The work that fragmented jobs cause: accesses to blocks per request.

use crate::blocks::ACCESSES;
use crate::policy::{Allocation, Retired, Stream};
use crate::{Failure, PolicyConfig};
use gpu_core::Bytes;
use std::collections::VecDeque;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// When a job's freed memory is available again.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    AtOnce,
    /// After this many further requests.
    Later(usize),
}

/// Runs a job of `count` requests with `live` live allocations, any of which may end, and returns
/// the number of block accesses per request. Requests may fail.
fn effort(
    choice: &PolicyConfig,
    total: Bytes,
    (count, live): (u64, usize),
    ends: Ends,
    request: impl Fn(u64) -> (u64, u64),
) -> u64 {
    let (_, mut policy) = choice.model(total).expect("the settings are valid");
    let mut held: Vec<Allocation> = Vec::new();
    let mut retired: VecDeque<Retired> = VecDeque::new();
    let before = ACCESSES.get();
    for number in 0..count {
        let (size, stream) = request(number);
        match policy.allocate(Bytes(size), Stream(stream)) {
            Ok(allocation) => held.push(allocation),
            Err(Failure::OutOfMemory(_)) => {}
            Err(failure) => panic!("{failure}"),
        }
        if held.len() > live {
            let allocation = held.swap_remove((number * 7919) as usize % held.len());
            match ends {
                Ends::AtOnce => policy.free(allocation).expect("it belongs to this policy"),
                Ends::Later(_) => {
                    retired.push_back(policy.retire(allocation).expect("it belongs to this policy"))
                }
            }
        }
        if let Ends::Later(after) = ends
            && retired.len() > after
            && let Some(ended) = retired.pop_front()
        {
            policy.complete(ended).expect("it belongs to this policy");
        }
    }
    (ACCESSES.get() - before) / count
}

/// Every allocator, and settings with a search of their own.
fn policies() -> Vec<PolicyConfig> {
    let mut all: Vec<_> = PolicyConfig::names()
        .map(|name| PolicyConfig::named(name).expect("there is one"))
        .collect();
    for (name, settings) in [
        ("caching", &[("max_split_size_mb", "25")][..]),
        (
            "caching",
            &[("garbage_collection_threshold", "0.3"), ("per_process_memory_fraction", "0.9")],
        ),
    ] {
        let mut choice = PolicyConfig::named(name).expect("there is one");
        settings.iter().for_each(|(key, value)| choice.set(key, value).expect("it has it"));
        all.push(choice);
    }
    all
}

/// A job: its name, the memory of its device, how many allocations are live, how they end, and its
/// requests.
type Job = (&'static str, u64, usize, Ends, fn(u64) -> (u64, u64));

/// Jobs on a device that is full after about a tenth of the requests.
fn jobs(count: u64) -> [Job; 6] {
    let live = count as usize / 4;
    [
        // Free blocks of one size class that are slightly too small.
        ("near fit", count * 30 * KIB, live, Ends::AtOnce, |number| {
            (100 * KIB + number % 97 * 40 + number / 8 * 2, 0)
        }),
        ("large", count * 8 * MIB, live, Ends::AtOnce, |number| {
            ((1 + number * 7919 % 61) * MIB, 0)
        }),
        ("mixed", count * MIB, live, Ends::AtOnce, |number| {
            let is_large = number % 10 == 0;
            (if is_large { number * 104_729 % (60 * MIB) } else { 512 + number * 7919 % 90_000 }, 0)
        }),
        ("streams", count * 60 * KIB, live, Ends::AtOnce, |number| {
            (512 + number * 7919 % MIB, number * 31 % 40)
        }),
        ("retired", count * 200 * KIB, live, Ends::Later(50), |number| {
            (512 + number * 7919 % (3 * MIB), number % 2)
        }),
        // Every request is refused.
        ("refused", MIB * count / 8, live, Ends::AtOnce, |number| {
            (if number % 2 == 0 { 512 + number % 300 * KIB } else { 1 << 50 }, 0)
        }),
    ]
}

#[test]
fn effort_per_request_does_not_grow_with_the_job() {
    for choice in policies() {
        for index in 0..jobs(0).len() {
            let of = |count: u64| {
                let (name, total, live, ends, request) = jobs(count)[index];
                (name, effort(&choice, Bytes(total), (count, live), ends, request))
            };
            let ((name, short), (_, long)) = (of(1000), of(6000));
            // A job six times as long; logarithms may grow.
            assert!(long <= 2 * short.max(40), "{choice:?}, {name}: {short} and {long} accesses");
        }
    }
}
