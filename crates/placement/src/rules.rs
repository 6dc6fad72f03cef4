//! Ranks sets that are connected equally well.

use crate::offer::Offer;
use crate::scores::{Scores, Set, first, positions};
use gpu_core::{Bytes, Claim, Reading, Share};

/// Amounts of memory that differ by less than this count as equal.
const FIT_STEP: u64 = 256 * Bytes::MIB;

/// Temperatures within one step count as equal: an idle chip fluctuates by some degrees.
const HEAT_STEP: i32 = 5;

/// A rule that prefers some sets to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Leave large devices, or contiguous memory, to others.
    Fits,
    /// Take the set with the weakest connections to the remaining free devices.
    LeavesLinked,
    /// Keep aligned blocks of 2, 4 or 8 devices whole.
    KeepsBlocks,
    /// Take the set whose hottest device is coolest; a device without a reading counts as hot.
    Coolest,
    /// Take the least recently leased set.
    LeastRecent,
    /// Take the lowest numbers.
    First,
}

impl Rule {
    /// All rules, in order of precedence.
    pub(crate) const ALL: [Rule; 6] = [
        Rule::Fits,
        Rule::LeavesLinked,
        Rule::KeepsBlocks,
        Rule::Coolest,
        Rule::LeastRecent,
        Rule::First,
    ];
}

/// The input of the rules: a cost for each device, by its position in the pool.
pub(crate) struct Costs {
    fit: Vec<u64>,
    links: Vec<u64>,
    blocks: Vec<Set>,
    heat: Vec<u64>,
    recent: Vec<u64>,
}

impl Costs {
    /// Takes the devices of a pool, with their scores.
    pub(crate) fn of(claim: &Claim, pool: &[&Offer], scores: &Scores) -> Self {
        let all = first(pool.len());
        let fit = |offer: &&Offer| match claim.share {
            Share::Whole => steps(offer.capacity),
            Share::Memory(_) => steps(offer.room),
        };
        let heat = |offer: &&Offer| match offer.temperature {
            // Start below all readings, so that no step is negative.
            Ok(celsius) => u64::try_from(celsius.0.saturating_add(300) / HEAT_STEP).unwrap_or(0),
            Err(_) => u64::from(u32::MAX),
        };
        let recent = |offer: &&Offer| offer.last_leased.map_or(0, |at| at.0);
        Costs {
            fit: pool.iter().map(fit).collect(),
            links: (0..pool.len()).map(|device| scores.between(device, all).into()).collect(),
            blocks: blocks(pool),
            heat: pool.iter().map(heat).collect(),
            recent: pool.iter().map(recent).collect(),
        }
    }

    /// Returns the cost of a set by a rule; the lowest wins. Only sets of the same size and
    /// connection can be compared.
    pub(crate) fn of_set(&self, rule: Rule, set: Set) -> u64 {
        let sum = |costs: &[u64]| positions(set).map(|position| costs[position]).sum();
        let highest =
            |costs: &[u64]| positions(set).map(|position| costs[position]).max().unwrap_or(0);
        match rule {
            Rule::Fits => sum(&self.fit),
            // The remaining free devices keep all scores except those of the set's devices. This
            // subtracts scores within the set twice, but they are the same in every other set.
            Rule::LeavesLinked => sum(&self.links),
            Rule::KeepsBlocks => {
                let broken = |block: &&Set| **block & set != 0 && **block & !set != 0;
                self.blocks.iter().filter(broken).count() as u64
            }
            Rule::Coolest => highest(&self.heat),
            Rule::LeastRecent => highest(&self.recent),
            Rule::First => !set.reverse_bits(),
        }
    }

    /// Returns the cost of a set by each rule.
    pub(crate) fn all(&self, set: Set) -> [u64; Rule::ALL.len()] {
        Rule::ALL.map(|rule| self.of_set(rule, set))
    }
}

fn steps(memory: Reading<Bytes>) -> u64 {
    memory.map_or(u64::from(u32::MAX), |bytes| bytes.0 / FIT_STEP)
}

/// Returns the aligned blocks of 2, 4 and 8 devices, by number, that are entirely in the pool.
fn blocks(pool: &[&Offer]) -> Vec<Set> {
    let mut blocks = Vec::new();
    for size in [2, 4, 8] {
        for position in 0..pool.len() {
            let begin = pool[position].id.index;
            if !begin.is_multiple_of(size) || pool[position].is_partition() {
                continue;
            }
            let is_in = |offer: &&Offer| {
                !offer.is_partition()
                    && (begin..begin.saturating_add(size)).contains(&offer.id.index)
            };
            let members: Vec<usize> =
                (0..pool.len()).filter(|other| is_in(&pool[*other])).collect();
            if members.len() == size as usize {
                blocks.push(members.iter().fold(0, |block, member| block | 1 << member));
            }
        }
    }
    blocks
}
