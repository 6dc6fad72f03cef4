//! The allocator compared with a model that searches lists.

use crate::caching::device::{MIB, out_of_memory};
use crate::caching::invariants::check;
use gpu_allocator_policy::caching::{Caching, Settings};
use gpu_allocator_policy::{Allocation, BlockState, ModelMemory, Policy, Stream};
use gpu_core::{Bytes, DeviceMemory, Region};
use proptest::prelude::*;

const TOTAL: u64 = 256 * MIB;
const MAX_SPLIT: u64 = 40 * MIB;

/// A block of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    address: u64,
    size: u64,
    taken: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    stream: u64,
    small: bool,
    size: u64,
    pieces: Vec<Piece>,
}

/// The rules without any optimisation, on its own device that returns the same addresses.
struct Naive {
    device: ModelMemory,
    max_split: u64,
    limit: u64,
    segments: Vec<Segment>,
}

impl Naive {
    fn reserved(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    fn search(&mut self, stream: u64, size: u64) -> Option<u64> {
        let small = size <= MIB;
        let free =
            self.segments.iter_mut().filter(|its| (its.stream, its.small) == (stream, small));
        let free = free.flat_map(|segment| {
            (0..segment.pieces.len())
                .map(|index| (segment.pieces[index].clone(), index))
                .collect::<Vec<_>>()
        });
        let (best, _) = free
            .filter(|(piece, _)| !piece.taken && piece.size >= size)
            .min_by_key(|(piece, _)| (piece.size, piece.address))?;
        if size < self.max_split && best.size >= self.max_split {
            return None;
        }
        if size >= self.max_split && best.size >= size + 20 * MIB {
            return None;
        }
        Some(best.address)
    }

    fn take(&mut self, address: u64, size: u64) {
        let small = size <= MIB;
        for segment in &mut self.segments {
            let Some(index) = segment.pieces.iter().position(|piece| piece.address == address)
            else {
                continue;
            };
            let rest = segment.pieces[index].size - size;
            let split = if small { rest >= 512 } else { size < self.max_split && rest > MIB };
            segment.pieces[index].taken = true;
            if split {
                segment.pieces[index].size = size;
                let upper = Piece { address: address + size, size: rest, taken: false };
                segment.pieces.insert(index + 1, upper);
            }
        }
    }

    fn grow(&mut self, stream: u64, size: u64) -> Option<u64> {
        let segment = match size {
            0..=1_048_576 => 2 * MIB,
            1_048_577..10_485_760 => 20 * MIB,
            _ => size.next_multiple_of(2 * MIB),
        };
        if self.reserved() + segment > self.limit {
            return None;
        }
        let region = self.device.reserve(Bytes(segment)).ok()?;
        let pieces = vec![Piece { address: region.address, size: segment, taken: false }];
        self.segments.push(Segment { stream, small: size <= MIB, size: segment, pieces });
        Some(region.address)
    }

    fn release(&mut self, which: impl Fn(&Segment) -> bool) -> u64 {
        let mut released = 0;
        self.segments.retain(|segment| {
            let free = segment.pieces.len() == 1 && !segment.pieces[0].taken && which(segment);
            if free {
                let region =
                    Region { address: segment.pieces[0].address, size: Bytes(segment.size) };
                self.device.release(region).expect("it was reserved");
                released += segment.size;
            }
            !free
        });
        released
    }

    fn release_oversize(&mut self, stream: u64, size: u64) -> bool {
        let target = size.max(self.max_split);
        let mut oversize: Vec<_> = self
            .segments
            .iter()
            .filter(|its| its.stream == stream && its.small == (size <= MIB))
            .filter(|its| its.pieces.len() == 1 && !its.pieces[0].taken)
            .filter(|its| its.size >= self.max_split)
            .map(|its| (its.size, its.pieces[0].address))
            .collect();
        oversize.sort_unstable();
        if let Some(&(_, address)) = oversize.iter().find(|(size, _)| *size >= target) {
            self.release(|segment| segment.pieces[0].address == address);
            return true;
        }
        let mut released = 0;
        while let Some((_, address)) = oversize.pop().filter(|_| released < target) {
            released += self.release(|segment| segment.pieces[0].address == address);
        }
        released >= target
    }

    fn allocate(&mut self, stream: u64, asked: u64) -> Option<u64> {
        let size = asked.max(1).next_multiple_of(512);
        let mut found = self.search(stream, size).or_else(|| self.grow(stream, size));
        if found.is_none() && self.max_split < u64::MAX && self.release_oversize(stream, size) {
            found = self.grow(stream, size);
        }
        if found.is_none() {
            self.release(|_| true);
            found = self.grow(stream, size);
        }
        let address = found?;
        self.take(address, size);
        Some(address)
    }

    fn free(&mut self, address: u64) {
        for segment in &mut self.segments {
            for piece in &mut segment.pieces {
                piece.taken &= piece.address != address;
            }
            segment.pieces.dedup_by(|upper, lower| {
                let joins = !upper.taken && !lower.taken;
                lower.size += if joins { upper.size } else { 0 };
                joins
            });
        }
    }

    /// Returns the segments by address.
    fn map(&self) -> Vec<(u64, Vec<Piece>)> {
        let mut map: Vec<_> =
            self.segments.iter().map(|its| (its.stream, its.pieces.clone())).collect();
        map.sort_by_key(|(_, pieces)| pieces[0].address);
        map
    }
}

fn map(caching: &Caching<ModelMemory>) -> Vec<(u64, Vec<Piece>)> {
    let segments = caching.segments().into_iter();
    let piece = |block: gpu_allocator_policy::BlockMap| Piece {
        address: block.address,
        size: block.size.0,
        taken: block.state != BlockState::Free,
    };
    segments
        .map(|its| (its.stream.map_or(0, |its| its.0), its.blocks.into_iter().map(piece).collect()))
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64, u64),
    Free(usize),
    EmptyCache,
}

fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        4 => 0u64..5000,
        3 => 0u64..=2 * MIB,
        3 => (0u64..24).prop_map(|mib| mib * MIB / 2),
        2 => (0u64..70).prop_map(|mib| mib * MIB),
    ];
    let step = prop_oneof![
        6 => (0u64..3, size).prop_map(|(stream, size)| Step::Allocate(stream, size)),
        5 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::EmptyCache),
    ];
    proptest::collection::vec(step, 1..longest)
}

fn settings(text: &str, limit: Option<u64>) -> Settings {
    let mut settings: Settings = text.parse().expect("the settings are valid");
    settings.set_limit(limit.map(Bytes));
    settings
}

fn agrees(steps: Vec<Step>, oversize: bool, limit: Option<u64>) -> Result<(), TestCaseError> {
    let text = if oversize { "max_split_size_mb:40" } else { "" };
    let mut caching = Caching::new(ModelMemory::new(Bytes(TOTAL)), settings(text, limit))
        .expect("no share is limited");
    let mut naive = Naive {
        device: ModelMemory::new(Bytes(TOTAL)),
        max_split: if oversize { MAX_SPLIT } else { u64::MAX },
        limit: limit.unwrap_or(u64::MAX),
        segments: Vec::new(),
    };
    let mut held: Vec<Allocation> = Vec::new();
    for step in steps {
        match step {
            Step::Allocate(stream, size) => {
                let expected = naive.allocate(stream, size);
                let got = caching.allocate(Bytes(size), Stream(stream));
                prop_assert_eq!(got.as_ref().ok().map(Allocation::address), expected);
                match got {
                    Ok(allocation) => held.push(allocation),
                    failed => prop_assert!(out_of_memory(failed)),
                }
            }
            Step::Free(index) if !held.is_empty() => {
                let allocation = held.swap_remove(index % held.len());
                naive.free(allocation.address());
                caching.free(allocation).expect("it belongs to this policy");
            }
            Step::Free(_) => {}
            Step::EmptyCache => {
                let released = naive.release(|_| true);
                prop_assert_eq!(caching.empty_cache().ok(), Some(Bytes(released)));
            }
        }
        check(&caching, true);
        prop_assert_eq!(map(&caching), naive.map());
        prop_assert_eq!(caching.reserved().0, naive.reserved());
    }
    Ok(())
}

proptest! {
    #[test]
    fn caching_matches_naive_model(steps in steps(120)) {
        agrees(steps, false, None)?;
    }

    #[test]
    fn caching_with_limits_matches_naive_model(steps in steps(120), limit in 20u64..256) {
        agrees(steps, true, Some(limit * MIB))?;
    }

    #[test]
    fn free_order_does_not_affect_free_blocks(
        sizes in proptest::collection::vec((0u64..3, 0u64..30 * MIB), 1..40),
        order in any::<u64>(),
        expandable in any::<bool>(),
    ) {
        let text = if expandable { "expandable_segments:True" } else { "" };
        let after = |order: u64| {
            let memory = ModelMemory::new(Bytes(4 << 30));
            let mut caching = Caching::new(memory, settings(text, None)).expect("no share is limited");
            let mut held: Vec<_> = sizes
                .iter()
                .map(|(stream, size)| caching.allocate(Bytes(*size), Stream(*stream)))
                .collect::<Result<_, _>>()
                .expect("4 GiB are enough");
            let mut random = order;
            while held.len() > sizes.len() / 3 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(order | 1);
                // The blocks that stay are the same in every order.
                let index = sizes.len() / 3 + (random >> 33) as usize % (held.len() - sizes.len() / 3);
                caching.free(held.remove(index)).expect("it belongs to this policy");
                check(&caching, !expandable);
            }
            map(&caching)
        };
        prop_assert_eq!(after(0), after(order));
    }

    #[test]
    fn expandable_segments_keep_invariants(
        steps in steps(150),
        toggles in proptest::collection::vec(any::<bool>(), 150),
    ) {
        let mut caching = Caching::new(ModelMemory::new(Bytes(TOTAL)), settings("", None))
            .expect("no share is limited");
        let mut held: Vec<Allocation> = Vec::new();
        for (step, toggle) in steps.into_iter().zip(toggles) {
            let text = if toggle { "expandable_segments:True" } else { "expandable_segments:False" };
            match step {
                Step::Allocate(stream, size) => {
                    caching.set_settings(settings(text, None)).expect("no share is limited");
                    match caching.allocate(Bytes(size), Stream(stream)) {
                        Ok(allocation) => {
                            prop_assert!(allocation.size().0 >= size);
                            held.push(allocation);
                        }
                        failed => prop_assert!(out_of_memory(failed)),
                    }
                }
                Step::Free(index) if !held.is_empty() => {
                    let allocation = held.swap_remove(index % held.len());
                    caching.free(allocation).expect("it belongs to this policy");
                }
                Step::Free(_) => {}
                Step::EmptyCache => drop(caching.empty_cache().expect("the device accepts it")),
            }
            check(&caching, false);
            let mut taken: Vec<_> = held.iter().map(|its| (its.address(), its.size())).collect();
            taken.sort_unstable();
            let blocks = caching.segments().into_iter().flat_map(|segment| segment.blocks);
            let blocks = blocks.filter(|block| block.state == BlockState::Active);
            prop_assert_eq!(blocks.map(|its| (its.address, its.size)).collect::<Vec<_>>(), taken);
            prop_assert_eq!(caching.memory().used(), caching.reserved());
        }
        for allocation in held {
            caching.free(allocation).expect("it belongs to this policy");
        }
        caching.empty_cache().expect("the device accepts it");
        prop_assert_eq!(caching.memory().used(), Bytes(0));
        prop_assert_eq!(caching.segments(), []);
    }
}
