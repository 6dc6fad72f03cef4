//! The memory that jobs need, compared with brute force.

use crate::replay::recorder::Recorder;
use gpu_allocator_policy::PolicyConfig;
use gpu_allocator_policy::caching::Settings;
use gpu_core::Bytes;
use gpu_memory_trace::trace::Stacks;
use gpu_memory_trace::{Need, Workload, need, together, trial};
use proptest::prelude::*;

fn survives(workload: &Workload, choice: &PolicyConfig, total: u64) -> bool {
    let trial = trial(workload, choice, Some(Bytes(total)), &mut ()).expect("no faults");
    trial.outcome.survived()
}

/// Returns a job that allocates memory (a positive multiple of 64 KiB) or frees it, at once or in
/// two steps.
fn job(steps: &[(i32, u8)]) -> Workload {
    let mut recorder = Recorder::new(&Settings::default(), Bytes(1 << 40));
    for &(step, kind) in steps {
        let index = step.unsigned_abs() as usize;
        match (u64::try_from(step), kind) {
            (Ok(size), stream) => recorder.allocate((size << 16) + 1, u64::from(stream)),
            (Err(_), 0) => recorder.free(index, true),
            (Err(_), 1) => recorder.free(index, false),
            (Err(_), _) => recorder.complete(index),
        }
    }
    Workload::of(&recorder.snapshot(false), &Stacks::default()).expect("it is consistent")
}

fn steps() -> impl Strategy<Value = Vec<(i32, u8)>> {
    proptest::collection::vec((-80i32..200, 0u8..3), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_smaller_device_suffices(steps in steps()) {
        let workload = job(&steps);
        for name in ["caching", "expandable", "stream-ordered", "direct"] {
            let choice = PolicyConfig::named(name).expect("there is one");
            let Need { least, exact, .. } = need(&workload, &choice).expect("memory is unlimited");
            prop_assert!(exact);
            prop_assert!(survives(&workload, &choice, least.0), "{name}: {least:?}");
            // Nearly all regions are multiples of 2 MiB.
            for total in (0..least.0).step_by(2 << 20).chain(least.0.checked_sub(512)) {
                prop_assert!(!survives(&workload, &choice, total), "{name}: {total} of {least:?}");
            }
        }
    }

    #[test]
    fn bisected_size_suffices(steps in steps()) {
        let workload = job(&steps);
        for name in ["bfc", "bfc-all-at-once"] {
            let choice = PolicyConfig::named(name).expect("there is one");
            let found = need(&workload, &choice).expect("memory is unlimited");
            prop_assert!(survives(&workload, &choice.limited(found.least), found.least.0));
            prop_assert!(found.least.0 >= workload.peak_requested());
            prop_assert!(found.tight.peak.reserved <= found.least);
        }
    }

    #[test]
    fn fitting_sets_are_valid_and_maximal(
        needs in proptest::collection::vec(1u64..50, 0..8),
        total in 1u64..120,
    ) {
        let needs: Vec<_> = needs.into_iter().map(Bytes).collect();
        let sets = together(&needs, Bytes(total));
        let sum = |set: &[usize]| set.iter().map(|job| needs[*job].0).sum::<u64>();
        for set in &sets {
            prop_assert!(sum(set) <= total);
            for job in (0..needs.len()).filter(|job| !set.contains(job)) {
                prop_assert!(sum(set) + needs[job].0 > total);
            }
        }
        // No set is missing: check every possible one.
        for wanted in 1u32..1 << needs.len() {
            let set: Vec<_> = (0..needs.len()).filter(|job| wanted >> job & 1 == 1).collect();
            let is_full = sum(&set) <= total
                && (0..needs.len()).all(|job| {
                    set.contains(&job) || sum(&set) + needs[job].0 > total
                });
            prop_assert_eq!(sets.contains(&set), is_full, "{:?}", set);
        }
        let fits = needs.iter().any(|need| need.0 <= total);
        prop_assert_eq!(sets.is_empty(), !fits);
    }
}

#[test]
fn single_allocation_needs_one_segment() {
    let workload = job(&[(48, 0)]);
    let caching = PolicyConfig::named("caching").expect("there is one");
    let found = need(&workload, &caching).expect("memory is unlimited");
    assert_eq!((found.least, found.replays), (Bytes::from_mib(20), 3));
    let expandable = PolicyConfig::named("expandable").expect("there is one");
    assert_eq!(need(&workload, &expandable).map(|need| need.least).ok(), Some(Bytes::from_mib(20)));
}

#[test]
fn fitting_sets_of_many_jobs_are_bounded() {
    let needs = vec![Bytes(1); 60];
    assert_eq!(together(&needs, Bytes(60)), [(0..60).collect::<Vec<_>>()]);
    assert_eq!(together(&needs, Bytes(59)).len(), 60);
    assert_eq!(together(&needs, Bytes(30)).len(), 64);
    assert_eq!(together(&[Bytes(0), Bytes(5)], Bytes(3)), [[0]]);
}

#[test]
fn need_may_assume_waiting_for_pending_work() {
    // 20 MiB are freed while work still uses them, then 20 MiB are requested again.
    let mut recorder = Recorder::new(&Settings::default(), Bytes(1 << 40));
    recorder.allocate(20 << 20, 0);
    recorder.free(0, false);
    recorder.allocate(20 << 20, 0);
    recorder.complete(0);
    let trace = recorder.snapshot(false);
    let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
    let least = |name| need(&workload, &PolicyConfig::named(name).expect("there is one"));
    for (name, mib) in [("caching", 20), ("expandable", 20), ("direct", 40)] {
        let found = least(name).expect("memory is unlimited");
        assert_eq!((found.least, found.exact), (Bytes::from_mib(mib), true), "{name}");
    }
}

#[test]
fn computes_need_under_each_allocator() {
    let workload = job(&[(100, 0), (0, 0), (60, 0), (30, 1), (-1, 0), (90, 0)]);
    for (name, mib, exact, replays) in [
        ("caching", 42, true, 3),
        ("expandable", 42, true, 3),
        ("stream-ordered", 32, true, 3),
        ("direct", 20, true, 3),
        ("bfc", 22, false, 15),
        ("bfc-all-at-once", 18, false, 39),
    ] {
        let choice = PolicyConfig::named(name).expect("there is one");
        let found = need(&workload, &choice).expect("memory is unlimited");
        let known = (Bytes::from_mib(mib), exact, replays);
        assert_eq!((found.least, found.exact, found.replays), known, "{name}");
    }
}
