//! List scheduling: items in descending order of rank, each where it ends first.

use super::cluster::Cluster;
use super::dag::Dag;
use super::improve::improved;
use super::partial::Partial;
use super::placer::{Placer, Selection};
use super::problem::Problem;
use super::rank::{Rank, Work, tails, upward};
use super::schedule::{Choice, Schedule, ScheduleError};
use std::collections::BinaryHeap;

/// The rank functions, in the order in which they are tried.
const RANKS: [Rank; 5] = [
    Rank { work: Work::Mean, transfer_percent: 100 },
    Rank { work: Work::Mean, transfer_percent: 50 },
    Rank { work: Work::Least, transfer_percent: 0 },
    Rank { work: Work::Most, transfer_percent: 100 },
    Rank { work: Work::Mean, transfer_percent: 200 },
];

/// The total number of items that all passes may schedule, if there is more than one pass.
const PASSES_BUDGET: usize = 400_000;

/// Chooses a processor and a time for each item, so that the last one ends early.
///
/// Items are taken by upward rank and put where they end first, including transfers and using gaps
/// (HEFT: Topcuoglu, Hariri and Wu, 2002). A processor whose memory would be exceeded at any time
/// is not chosen; an item waits for memory where that helps. Several rank functions are tried, with
/// and without the lookahead of PEFT (Arabnejad and Barbosa, 2014), and all items on one processor.
/// The schedule that ends first is taken. Up to 40,000 items there are ten passes besides those on
/// one processor; above, fewer, at least one. Schedules of up to 600 items are then improved by
/// local search. The result depends only on the arguments.
///
/// # Errors
/// If the graph is malformed or has a cycle, if no processor can run an item or all items of a
/// group, or if no pass found memory for all items. Such a search does not prove that there is no
/// schedule.
pub fn list_schedule(dag: &Dag, cluster: &Cluster) -> Result<Schedule, ScheduleError> {
    let problem = Problem::new(dag, cluster)?;
    scheduled(&problem)
}

/// Schedules a problem as [`list_schedule`] does.
pub(super) fn scheduled(problem: &Problem<'_>) -> Result<Schedule, ScheduleError> {
    let tails = tails(problem);
    let mut left = (PASSES_BUDGET / problem.len().max(1)).max(1);
    let mut found: Vec<Schedule> = Vec::new();
    let mut failure = None;
    'passes: for rank in RANKS {
        let ranks = upward(problem, rank);
        for selection in [Selection::EarliestEnd, Selection::WithTail(&tails)] {
            if left == 0 {
                break 'passes;
            }
            left -= 1;
            match pass(problem, &ranks, selection) {
                Ok(schedule) => found.push(schedule),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    if found.is_empty() {
        let ranks = upward(problem, RANKS[0]);
        found.extend(pass(problem, &ranks, Selection::MostMemory));
    } else if left > 0 {
        // Where transfers cost more than they gain, one processor alone is best.
        let ranks = upward(problem, RANKS[2]);
        for processor in 0..problem.processors() as u32 {
            let alone = vec![processor; problem.len()];
            found.extend(pass(problem, &ranks, Selection::Assigned(&alone)));
        }
    }
    found.sort_by_key(|schedule| schedule.makespan_nanos);
    if found.is_empty() {
        return match failure {
            Some(error) => Err(error),
            None => Ok(Schedule::default()),
        };
    }
    found.dedup_by(|a, b| a.slots == b.slots);
    Ok(improved(problem, found))
}

/// Schedules all items by descending rank.
pub(super) fn pass(
    problem: &Problem<'_>,
    ranks: &[u64],
    selection: Selection<'_>,
) -> Result<Schedule, ScheduleError> {
    let mut waits: Vec<usize> = problem.dag.items.iter().map(|item| item.inputs.len()).collect();
    // Of equal ranks, the item that comes first in the graph.
    let entry = |item: u32| (ranks[item as usize], std::cmp::Reverse(item));
    let ready = (0_u32..).zip(&waits).filter(|(_, waits)| **waits == 0);
    let mut ready: BinaryHeap<_> = ready.map(|(item, _)| entry(item)).collect();
    let mut partial = Partial::new(problem, false);
    let mut reasons = vec![Choice::Only; problem.len()];
    let mut placer = Placer::default();
    while let Some((_, std::cmp::Reverse(item))) = ready.pop() {
        reasons[item as usize] = placer.place(problem, &mut partial, item, selection)?;
        for (next, _) in &problem.successors[item as usize] {
            let waits = &mut waits[*next as usize];
            *waits -= 1;
            if *waits == 0 {
                ready.push(entry(*next));
            }
        }
    }
    Ok(partial.finish(reasons).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::random::{Shape, cluster, dag};
    use super::super::{Input, Item, Violation, verify};
    use super::*;
    use gpu_core::Bytes;
    use proptest::prelude::*;

    fn item(name: &str, nanos: &[u64], inputs: &[Input], output: u64) -> Item {
        Item {
            name: name.into(),
            inputs: inputs.to_vec(),
            outputs: vec![Bytes(output)],
            nanos: nanos.iter().map(|nanos| Some(*nanos)).collect(),
            ..Item::default()
        }
    }

    #[test]
    fn value_is_copied_once_for_all_its_users_on_a_processor() {
        let mut cluster = cluster(2, 1);
        cluster.routes = vec![vec![gpu_core::Route::default(); 2]; 2];
        let mut items = vec![item("a", &[10, 10], &[], 8)];
        items[0].fixed = Some(0);
        for name in ["b", "c"] {
            items.push(item(name, &[10, 10], &[Input::value(0, 0)], 8));
        }
        items[1].fixed = Some(1);
        items[2].fixed = Some(1);
        let schedule = list_schedule(&Dag { items }, &cluster).unwrap();
        assert_eq!((schedule.transfers.len(), schedule.makespan_nanos), (1, 30));
        assert_eq!(schedule.reasons, vec![Choice::Fixed; 3]);
    }

    #[test]
    fn fixed_items_are_called_so_after_a_search() {
        let mut searched = 0;
        for seed in 0..20 {
            let cluster = cluster(3, seed);
            let mut dag = dag(40, 3, seed, Shape { groups: false });
            for item in dag.items.iter_mut().step_by(4) {
                item.fixed = (0..3).find(|processor| item.nanos[*processor as usize].is_some());
            }
            let schedule = list_schedule(&dag, &cluster).unwrap();
            for (item, reason) in dag.items.iter().zip(&schedule.reasons) {
                assert_eq!(*reason == Choice::Fixed, item.fixed.is_some(), "{seed}: {reason:?}");
                let is_only = item.fixed.is_none() && item.nanos.iter().flatten().count() == 1;
                assert_eq!(*reason == Choice::Only, is_only, "{seed}: {reason:?}");
            }
            searched += usize::from(schedule.reasons.contains(&Choice::Searched));
        }
        assert!(searched > 0, "a search has found none of the schedules");
    }

    #[test]
    fn insufficient_memory_error_names_the_lack() {
        let mut cluster = cluster(2, 1);
        cluster.processors[0].memory = Some(Bytes::from_mib(1));
        cluster.processors[1].memory = Some(Bytes::from_mib(2));
        let items = vec![item("big", &[1, 1], &[], 5 << 20)];
        let error = list_schedule(&Dag { items }, &cluster).unwrap_err();
        let expected = "no memory for 'big': /device:GPU:0 lacks 4 MiB, /device:GPU:1 lacks 3 MiB";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn group_goes_where_its_persistent_memory_fits() {
        let mut cluster = cluster(2, 1);
        cluster.processors[0].memory = Some(Bytes::from_mib(1));
        cluster.processors[1].memory = Some(Bytes::from_mib(2));
        // Each item alone would be faster on processor 0.
        let mut items = vec![item("u", &[1, 90], &[], 0), item("v", &[1, 90], &[], 0)];
        for item in &mut items {
            item.group = Some(7);
            item.persistent = Bytes::from_mib(1);
        }
        let schedule = list_schedule(&Dag { items }, &cluster).unwrap();
        assert!(schedule.slots.iter().all(|slot| slot.processor == 1));
        assert_eq!(schedule.peaks, [Bytes(0), Bytes::from_mib(2)]);
    }

    #[test]
    fn item_waits_for_memory_released_by_others() {
        let mut cluster = cluster(1, 1);
        cluster.processors[0].memory = Some(Bytes(100));
        let mut items =
            vec![item("a", &[10], &[], 60), item("b", &[10], &[Input::value(0, 0)], 40)];
        items.push(item("c", &[10], &[], 60));
        let dag = Dag { items };
        let schedule = list_schedule(&dag, &cluster).unwrap();
        verify(&dag, &cluster, &schedule).unwrap();
        assert_eq!((schedule.makespan_nanos, &schedule.peaks[..]), (30, &[Bytes(100)][..]));
    }

    #[test]
    fn cycle_is_an_error_naming_its_items() {
        let mut items = vec![item("a", &[1], &[Input::order(2)], 0)];
        items.push(item("b", &[1], &[Input::value(0, 0)], 0));
        items.push(item("c", &[1], &[Input::value(1, 0)], 0));
        items.push(item("d", &[1], &[Input::value(2, 0)], 0));
        let error = list_schedule(&Dag { items }, &cluster(1, 1)).unwrap_err();
        assert_eq!(error.to_string(), "items in a cycle: b, c, a");
    }

    #[test]
    fn inputs_and_processors_must_exist() {
        let cluster = cluster(1, 1);
        for wrong in [
            item("x", &[1], &[Input::value(9, 0)], 0),
            item("x", &[1, 1], &[], 0),
            Item { fixed: Some(1), ..item("x", &[1], &[], 0) },
        ] {
            let error = list_schedule(&Dag { items: vec![wrong] }, &cluster).unwrap_err();
            assert_eq!(error, ScheduleError::Malformed { item: "x".into() });
        }
        let nowhere = Item { nanos: vec![None], ..item("x", &[], &[], 0) };
        let error = list_schedule(&Dag { items: vec![nowhere] }, &cluster).unwrap_err();
        assert_eq!(error.to_string(), "no device can run 'x' as it requests");
        assert_eq!(list_schedule(&Dag::default(), &cluster).unwrap().makespan_nanos, 0);
    }

    #[test]
    fn hundred_thousand_items_are_scheduled_on_eight_processors() {
        let cluster = cluster(8, 5);
        let dag = dag(100_000, 8, 5, Shape { groups: false });
        let schedule = list_schedule(&dag, &cluster).unwrap();
        verify(&dag, &cluster, &schedule).unwrap();
        // At most three times the work divided by the processors.
        let least = |item: &Item| item.nanos.iter().flatten().min().copied().unwrap_or(0);
        let work: u64 = dag.items.iter().map(least).sum();
        assert!(schedule.makespan_nanos < 3 * work / 8, "{}", schedule.makespan_nanos);
    }

    #[test]
    fn spoilt_schedules_are_noticed() {
        let cluster = cluster(2, 3);
        let dag = dag(30, 2, 3, Shape { groups: false });
        let good = list_schedule(&dag, &cluster).unwrap();
        verify(&dag, &cluster, &good).unwrap();
        let first = (0..30).find(|at| !dag.items[*at].inputs.is_empty()).unwrap();
        let mut early = good.clone();
        let length = early.slots[first].end_nanos - early.slots[first].start_nanos;
        early.slots[first].start_nanos = 0;
        early.slots[first].end_nanos = length;
        assert!(matches!(verify(&dag, &cluster, &early), Err(Violation::Input { .. })));
        let mut short = good.clone();
        short.slots[first].end_nanos -= 1;
        assert!(matches!(verify(&dag, &cluster, &short), Err(Violation::Time { .. })));
        let mut lighter = good.clone();
        lighter.peaks[0] = Bytes(0);
        assert_eq!(verify(&dag, &cluster, &lighter), Err(Violation::Totals));
        let mut untransferred = good.clone();
        assert!(untransferred.transfers.pop().is_some());
        assert!(matches!(verify(&dag, &cluster, &untransferred), Err(Violation::Input { .. })));
        let mut small = cluster.clone();
        small.processors[0].memory = Some(Bytes(good.peaks[0].0 - 1));
        assert!(matches!(verify(&dag, &small, &good), Err(Violation::Memory { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn schedules_keep_to_the_model(
            count in 0_usize..160,
            processors in 1_usize..5,
            seed: u64,
            groups: bool,
            one_port: bool,
            limit in proptest::option::of(600_000_u64..20_000_000),
        ) {
            let mut cluster = cluster(processors, seed);
            cluster.one_port = one_port;
            for processor in &mut cluster.processors {
                processor.memory = limit.map(Bytes);
            }
            let dag = dag(count, processors, seed, Shape { groups });
            match list_schedule(&dag, &cluster) {
                Ok(schedule) => {
                    prop_assert_eq!(verify(&dag, &cluster, &schedule), Ok(()));
                    prop_assert_eq!(list_schedule(&dag, &cluster), Ok(schedule));
                }
                Err(ScheduleError::Memory { lacks, .. }) => {
                    prop_assert!(limit.is_some() && !lacks.is_empty());
                }
                Err(ScheduleError::Infeasible { .. }) => prop_assert_eq!(processors, 1),
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }

    #[test]
    fn search_ends_as_early_as_it_did() {
        let ends = |processors: usize, count: usize, one_port: bool| -> u64 {
            let end = |seed| {
                let mut cluster = cluster(processors, seed);
                cluster.one_port = one_port;
                let dag = dag(count, processors, seed, Shape { groups: seed % 2 == 0 });
                list_schedule(&dag, &cluster).unwrap().makespan_nanos
            };
            (0..8).map(end).sum()
        };
        // Whoever changes the search updates these sums; lower ones are better.
        assert_eq!(
            [ends(2, 12, true), ends(2, 40, false), ends(3, 12, false), ends(3, 40, true)],
            [23_104_264, 68_175_231, 18_384_234, 58_437_230]
        );
    }
}
