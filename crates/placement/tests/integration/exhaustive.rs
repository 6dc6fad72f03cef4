//! Compares the choice with an independent search that tries all divisions.

use crate::fixture::{GIB, offers, uuid};
use gpu_core::{Bytes, Celsius, Claim, Link, Timestamp, Topology};
use gpu_placement::{Offer, choose};
use proptest::prelude::*;

/// Puts each device into every group in turn, and calls `all` with each division: groups of `size`,
/// and one of the rest.
fn divide(
    device: usize,
    count: usize,
    size: usize,
    groups: &mut Vec<Vec<usize>>,
    all: &mut dyn FnMut(&[Vec<usize>]),
) {
    if device == count {
        let full = groups.iter().filter(|group| group.len() == size).count();
        if full == count / size {
            all(groups);
        }
        return;
    }
    for group in 0..groups.len() {
        if groups[group].len() < size {
            groups[group].push(device);
            divide(device + 1, count, size, groups, all);
            groups[group].pop();
        }
    }
    if groups.len() < count.div_ceil(size) {
        groups.push(vec![device]);
        divide(device + 1, count, size, groups, all);
        groups.pop();
    }
}

fn points(link: Link) -> u32 {
    match link {
        Link::Itself | Link::Unknown => 0,
        Link::Sys => 10,
        Link::Node => 20,
        Link::Phb => 30,
        Link::Pxb => 40,
        Link::Pix => 50,
        Link::NvLink(lanes) => 100 * u32::from(lanes),
        Link::Xgmi => 100,
    }
}

/// The value of a set on a machine.
struct Judge<'a> {
    topology: &'a Topology,
    offers: &'a [Offer],
}

impl Judge<'_> {
    fn pair(&self, from: usize, to: usize) -> u32 {
        let link = self.topology.links[from][to];
        let path = self.topology.paths[from][to];
        points(link) + if path == link { 0 } else { points(path) }
    }

    fn sum(&self, group: &[usize]) -> u32 {
        let pairs = group.iter().flat_map(|from| group.iter().map(move |to| (*from, *to)));
        pairs.filter(|(from, to)| from < to).map(|(from, to)| self.pair(from, to)).sum()
    }

    /// The criteria after the links; lower is better.
    fn burden(&self, set: &[usize]) -> (u64, i64, usize, i32, u64, Vec<usize>) {
        let count = self.offers.len();
        let rest: Vec<usize> = (0..count).filter(|device| !set.contains(device)).collect();
        let broken = [2, 4, 8].into_iter().flat_map(|size| {
            (0..count / size)
                .map(move |block| (block * size..(block + 1) * size).collect::<Vec<_>>())
        });
        let broken = broken.filter(|block| {
            let taken = block.iter().filter(|device| set.contains(device)).count();
            taken != 0 && taken != block.len()
        });
        let of = |device: &usize| &self.offers[*device];
        let large = |device: &usize| of(device).capacity.unwrap().0 / (256 << 20);
        let hot = |device: &usize| of(device).temperature.unwrap().0.div_euclid(5);
        let recent = |device: &usize| of(device).last_leased.map_or(0, |at| at.0);
        (
            set.iter().map(large).sum(),
            -i64::from(self.sum(&rest)),
            broken.count(),
            set.iter().map(hot).max().unwrap(),
            set.iter().map(recent).max().unwrap(),
            set.to_vec(),
        )
    }
}

fn link() -> impl Strategy<Value = Link> {
    prop_oneof![
        Just(Link::Sys),
        Just(Link::Node),
        Just(Link::Phb),
        Just(Link::Pxb),
        Just(Link::Pix),
        Just(Link::Unknown),
        (1_u8..=4).prop_map(Link::NvLink),
        Just(Link::NvLink(2)),
    ]
}

prop_compose! {
    fn machine()(count in 1_usize..=10)(
        links in proptest::collection::vec(link(), count * count),
        paths in proptest::collection::vec(link(), count * count),
        kinds in 1_usize..=8,
        large in proptest::collection::vec(1_u64..=2, count),
        hot in proptest::collection::vec(28_i32..=36, count),
        recent in proptest::collection::vec(proptest::option::of(1_u64..=3), count),
        count in Just(count),
    ) -> (Topology, Vec<Offer>) {
        // With few kinds of links, many sets are equal.
        let cell = |cells: &[Link], from: usize, to: usize| cells[(from * count + to) % (kinds * count).min(cells.len())];
        let path = |from: usize, to: usize| cell(&paths, from, to);
        let topology = crate::fixture::topology(count, |from, to| cell(&links, from, to), Some(&path));
        let mut offers = offers(0..count);
        for (index, offer) in offers.iter_mut().enumerate() {
            offer.capacity = Ok(Bytes(large[index] * 40 * GIB));
            offer.temperature = Ok(Celsius(hot[index]));
            offer.last_leased = recent[index].map(Timestamp);
        }
        (topology, offers)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn choice_is_optimal_by_exhaustive_search(
        (topology, offers) in machine(),
        size in 0_usize..10,
        required in proptest::collection::vec(0_usize..10, 0..3),
    ) {
        let count = offers.len();
        let mut required: Vec<usize> = required.into_iter().map(|device| device % count).collect();
        required.sort_unstable();
        required.dedup();
        let size = 1 + size % count;
        required.truncate(size);
        let judge = Judge { topology: &topology, offers: &offers };
        let mut best = (0, 0, 0);
        let mut sets: Vec<Vec<usize>> = Vec::new();
        divide(0, count, size, &mut Vec::new(), &mut |groups| {
            let total: u32 = groups.iter().map(|group| judge.sum(group)).sum();
            let full = || groups.iter().filter(|group| group.len() == size);
            let worst = full().map(|group| judge.sum(group)).min().expect("one is full");
            for group in full() {
                if !required.iter().all(|device| group.contains(device)) {
                    continue;
                }
                let found = (total, worst, judge.sum(group));
                if found > best {
                    best = found;
                    sets.clear();
                }
                if found == best {
                    sets.push(group.clone());
                }
            }
        });
        let expected = sets.iter().min_by_key(|set| judge.burden(set)).expect("there is a division");
        let mut claim = Claim::whole(size as u32);
        claim.required = required.into_iter().map(uuid).collect();
        let choice = choose(&claim, &offers, Some(&topology)).expect("there are enough");
        prop_assert!(choice.exact);
        prop_assert_eq!((choice.total, choice.score), (best.0, best.2));
        prop_assert_eq!(&choice.devices, expected);
    }
}
