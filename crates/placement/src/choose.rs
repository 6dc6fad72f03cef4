//! Chooses the best connected set, and among equals the one that the rules prefer.

use crate::filter::Pool;
use crate::offer::{Choice, Offer, Passed, Refusal, Why};
use crate::partition::{Divisions, MAX_EXACT, Rating};
use crate::rules::{Costs, Rule};
use crate::scores::{Scores, Set, first, positions, sets};
use crate::search::{self, reachable, search};
use gpu_core::{Claim, Link, Topology};

/// At most this many sets are compared one by one.
const MAX_COMPARED: u64 = 20_000;

/// Chooses devices for a claim from those on offer.
///
/// Of all divisions of the free devices into sets of the requested size (and one smaller set of the
/// rest), the best has the highest total, which is the sum of the scores of all pairs in one set
/// ([`Topology::score`]). Among equal totals it is the division with the best worst set. The choice
/// is the best connected set of that division. Among equals it is the one that leaves large
/// devices, well connected devices and whole aligned blocks to others, then the coolest, the least
/// recently leased, the lowest numbers. If the claim requires certain devices, only sets with all
/// of them count. Without a topology, all pairs are alike.
///
/// # Errors
/// When there are not enough eligible devices.
pub fn choose(
    claim: &Claim,
    offers: &[Offer],
    topology: Option<&Topology>,
) -> Result<Choice, Refusal> {
    let pool = Pool::of(claim, offers)?;
    let members: Vec<&Offer> = pool.positions.iter().map(|position| &offers[*position]).collect();
    let number = |position: usize| members[position].id.index as usize;
    let scores = Scores::of(members.len(), |from, to| match topology {
        Some(topology) if !members[from].is_partition() && !members[to].is_partition() => {
            topology.score(number(from), number(to))
        }
        _ => 0,
    });
    let best = Best::of(&scores, &pool);
    let costs = Costs::of(claim, &members, &scores);
    let (set, rule) = prefer(&best, &costs, &pool);
    let why = if pool.positions.len() == pool.size || pool.required == set {
        Why::OnlyOne
    } else if best.worst.is_some() || rule == Some(Rule::LeavesLinked) {
        let worst = best.worst.unwrap_or_else(|| most_linked(&scores, &pool));
        let weakest = |set| topology.and_then(|t| weakest(t, &scores, set, number));
        Why::Linked {
            weakest: weakest(set),
            instead: positions(worst).map(|position| pool.positions[position]).collect(),
            instead_weakest: weakest(worst),
        }
    } else {
        match rule {
            Some(Rule::Fits) => Why::Fits,
            Some(Rule::KeepsBlocks) => Why::KeepsBlocks,
            Some(Rule::Coolest) => Why::Coolest,
            Some(Rule::LeastRecent) => Why::LeastRecent,
            _ => Why::First,
        }
    };
    let mut passed = pool.passed;
    let others = positions(first(members.len()) & !set);
    passed.extend(others.map(|position| (pool.positions[position], Passed::OtherSetBetter)));
    passed.sort_by_key(|(position, _)| *position);
    Ok(Choice {
        devices: positions(set).map(|position| pool.positions[position]).collect(),
        score: scores.within(set),
        total: best.total,
        exact: best.exact,
        why,
        passed,
    })
}

/// The best connected sets of a pool.
struct Best {
    total: u32,
    exact: bool,
    /// Sets that are connected equally well; any set if there are none.
    sets: Vec<Set>,
    /// A set that is connected worse; `None` if there is none.
    worst: Option<Set>,
}

impl Best {
    fn of(scores: &Scores, pool: &Pool) -> Self {
        let (count, size) = (scores.count(), pool.size);
        let is_allowed = |set: &Set| set & pool.required == pool.required;
        if size == 1 || size == count || scores.are_alike() {
            let sets = match number_of_sets(count, size) {
                ..=MAX_COMPARED => sets(count, size).filter(is_allowed).collect(),
                _ => Vec::new(),
            };
            return Best { total: total_of_alike(scores, size), exact: true, sets, worst: None };
        }
        if count > MAX_EXACT {
            return Best::searched(scores, pool);
        }
        let sets: Vec<Set> = sets(count, size).filter(is_allowed).collect();
        Best::exact(scores, size, sets)
    }

    /// Compares all allowed sets.
    fn exact(scores: &Scores, size: usize, allowed: Vec<Set>) -> Self {
        let all = first(scores.count()) as u32;
        let mut divisions = Divisions::new(scores, size);
        let sum = |divisions: &Divisions, set: &Set| divisions.sum(*set as u32);
        let with = |divisions: &mut Divisions, set: &Set, least: u32| {
            divisions.rating_with(*set as u32, all & !(*set as u32), least)
        };
        let worst = allowed.iter().copied().min_by_key(|set| sum(&divisions, set));
        let count = allowed.len();
        let mut sets = allowed;
        let mut best = None;
        let is_any = count as u64 == number_of_sets(scores.count(), size);
        if is_any {
            // This finds a best division directly, and rules out every set worse than that
            // division's best set.
            best = divisions.rating(all, reachable(scores, size));
            let full = divisions.division(all).into_iter();
            let full = full.filter(|set| set.count_ones() as usize == size);
            let least = full.map(|set| divisions.sum(set)).max().unwrap_or(0);
            sets.retain(|set| sum(&divisions, set) >= least);
        }
        sets.sort_by_key(|set| std::cmp::Reverse(sum(&divisions, set)));
        if !is_any {
            for set in &sets {
                best = best.max(with(&mut divisions, set, best.map_or(0, Rating::total)));
            }
        }
        let total = best.map_or(0, Rating::total);
        let mut found = None;
        sets.retain(|set| {
            let sum = sum(&divisions, set);
            let fits =
                found.is_none_or(|found| sum == found) && with(&mut divisions, set, total) == best;
            if fits {
                found = Some(sum);
            }
            fits
        });
        let is_distinct = sets.len() < count;
        Best { total, exact: true, sets, worst: worst.filter(|_| is_distinct) }
    }

    /// Returns the best sets of a good division.
    fn searched(scores: &Scores, pool: &Pool) -> Self {
        let division = search(scores, pool.size, pool.required, search::STEPS);
        let full = division.sets.iter().filter(|set| set.count_ones() as usize == pool.size);
        let sets: Vec<Set> = match pool.required {
            0 => full.copied().collect(),
            _ => vec![division.sets[0]],
        };
        let best = sets.iter().map(|set| scores.within(*set)).max();
        let is_best = |set: &Set| Some(scores.within(*set)) == best;
        Best {
            total: division.total,
            exact: division.exact,
            sets: sets.into_iter().filter(is_best).collect(),
            worst: Some(badly_connected(scores, pool)),
        }
    }
}

/// Returns the total of any division if all pairs are alike, or into single devices.
fn total_of_alike(scores: &Scores, size: usize) -> u32 {
    let full = scores.within(first(size)) * (scores.count() / size) as u32;
    full + scores.within(first(scores.count() % size))
}

fn number_of_sets(count: usize, size: usize) -> u64 {
    let up = (1..=size.min(count - size)).map(|step| step as u64);
    up.fold(1, |sets: u64, step| {
        let next = sets.saturating_mul((count as u64 + 1).saturating_sub(step));
        if next == u64::MAX { next } else { next / step }
    })
}

/// Builds a set from the required devices, or the worst connected pair, by adding the device with
/// the lowest score.
fn badly_connected(scores: &Scores, pool: &Pool) -> Set {
    let pairs = sets(scores.count(), 2).min_by_key(|pair| scores.within(*pair));
    let mut set = if pool.required == 0 { pairs.unwrap_or(1) } else { pool.required };
    while (set.count_ones() as usize) < pool.size {
        let others = positions(first(scores.count()) & !set);
        let Some(worst) = others.min_by_key(|position| scores.between(*position, set)) else {
            break;
        };
        set |= 1 << worst;
    }
    set
}

/// Returns the single device with the best connections to the others, or a set of that size.
fn most_linked(scores: &Scores, pool: &Pool) -> Set {
    let all = first(scores.count());
    let mut others: Vec<usize> = positions(all & !pool.required).collect();
    others.sort_by_key(|position| std::cmp::Reverse(scores.between(*position, all)));
    let wanted = pool.size - pool.required.count_ones() as usize;
    others.into_iter().take(wanted).fold(pool.required, |set, position| set | 1 << position)
}

/// Returns the set that the rules prefer, and the first rule by which another set is worse.
fn prefer(best: &Best, costs: &Costs, pool: &Pool) -> (Set, Option<Rule>) {
    if best.sets.is_empty() {
        return improve(costs, pool);
    }
    let mut left = best.sets.clone();
    let mut reported = None;
    for rule in Rule::ALL {
        let before = left.len();
        let cost: Vec<u64> = left.iter().map(|set| costs.of_set(rule, *set)).collect();
        let lowest = cost.iter().min().copied();
        let mut cost = cost.into_iter();
        left.retain(|_| cost.next() == lowest);
        if left.len() < before {
            reported.get_or_insert(rule);
        }
    }
    (left[0], reported)
}

/// Starts with the best run of numbers and exchanges single devices while the rules prefer that. No
/// single exchange improves the result.
fn improve(costs: &Costs, pool: &Pool) -> (Set, Option<Rule>) {
    let all = first(pool.positions.len());
    let wanted = pool.size - pool.required.count_ones() as usize;
    let others: Vec<usize> = positions(all & !pool.required).collect();
    let with = |set: Set, position: &usize| set | 1 << position;
    let runs = others.windows(wanted.max(1)).map(|run| run.iter().fold(pool.required, with));
    let mut set = runs.min_by_key(|run| costs.all(*run)).unwrap_or(pool.required);
    loop {
        let now = costs.all(set);
        let neighbours = || {
            positions(set & !pool.required).flat_map(move |out| {
                positions(all & !set).map(move |into| set & !(1 << out) | 1 << into)
            })
        };
        let best = neighbours().min_by_key(|set| costs.all(*set));
        match best.filter(|best| costs.all(*best) < now) {
            Some(better) => set = better,
            None => {
                let is_reported = |(rule, cost): &(Rule, u64)| {
                    neighbours().any(|other| costs.of_set(*rule, other) > *cost)
                };
                let reported = Rule::ALL.into_iter().zip(now).find(is_reported);
                return (set, reported.map(|(rule, _)| rule));
            }
        }
    }
}

/// Returns the weakest link in a set; `None` for a single device.
fn weakest(
    topology: &Topology,
    scores: &Scores,
    set: Set,
    number: impl Fn(usize) -> usize,
) -> Option<Link> {
    let pairs = positions(set).flat_map(|from| positions(set).map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| from < to);
    let (from, to) = pairs.min_by_key(|(from, to)| scores.pair(*from, *to))?;
    let row = topology.links.get(number(from))?;
    row.get(number(to)).copied()
}
