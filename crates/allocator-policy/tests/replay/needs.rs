//! What jobs need, against brute force.

use crate::recorder::Recorder;
use gpu_allocator_policy::caching::Settings;
use gpu_allocator_policy::trace::Stacks;
use gpu_allocator_policy::{Choice, ModelMemory, Need, Replay, Workload, need, together};
use gpu_core::Bytes;
use proptest::prelude::*;
use std::sync::Arc;

fn survives(workload: &Workload, choice: &Choice, total: u64) -> bool {
    let memory = Arc::new(ModelMemory::new(Bytes(total)));
    let mut policy = choice.build(memory).expect("the device answers");
    let outcome = Replay::new(workload).run(policy.as_mut(), &mut ()).expect("no faults");
    outcome.survived()
}

/// Returns the job that asks for memory (a positive number of 64 KiB) or frees what it has.
fn job(steps: &[i32]) -> Workload {
    let mut recorder = Recorder::new(&Settings::default(), Bytes(1 << 40));
    for &step in steps {
        match u64::try_from(step) {
            Ok(size) => recorder.allocate((size << 16) + 1, 0),
            Err(_) => recorder.free(step.unsigned_abs() as usize, true),
        }
    }
    Workload::of(&recorder.snapshot(false), &Stacks::default()).expect("it is consistent")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_smaller_device_does(steps in proptest::collection::vec(-40i32..200, 1..40)) {
        let workload = job(&steps);
        for name in ["caching", "expandable"] {
            let choice = Choice::named(name).expect("there is one");
            let Need { least, exact, .. } = need(&workload, &choice).expect("memory is endless");
            prop_assert!(exact);
            prop_assert!(survives(&workload, &choice, least.0), "{name}: {least:?}");
            // Regions are of whole pages of 2 MiB, so that no size between two of them matters.
            for total in (0..least.0).step_by(2 << 20) {
                prop_assert!(!survives(&workload, &choice, total), "{name}: {total} of {least:?}");
            }
        }
    }

    #[test]
    fn what_is_bisected_suffices(steps in proptest::collection::vec(-40i32..200, 1..40)) {
        let workload = job(&steps);
        for name in ["bfc", "bfc-all-at-once"] {
            let choice = Choice::named(name).expect("there is one");
            let found = need(&workload, &choice).expect("memory is endless");
            prop_assert!(survives(&workload, &choice.limited(found.least), found.least.0));
            prop_assert!(found.least.0 >= workload.peak_requested());
            prop_assert!(found.tight.peak.reserved <= found.least);
        }
    }

    #[test]
    fn jobs_that_fit_together_fit_and_no_other_can_be_added(
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
        // No set is missing: each of those that could be is looked at.
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
fn a_job_of_one_piece_needs_its_segment() {
    let workload = job(&[48]);
    let caching = Choice::named("caching").expect("there is one");
    let found = need(&workload, &caching).expect("memory is endless");
    assert_eq!((found.least, found.replays), (Bytes::from_mib(20), 3));
    let expandable = Choice::named("expandable").expect("there is one");
    assert_eq!(need(&workload, &expandable).map(|need| need.least).ok(), Some(Bytes::from_mib(20)));
}

#[test]
fn many_jobs_that_all_fit_are_one_set_at_once() {
    let needs = vec![Bytes(1); 60];
    assert_eq!(together(&needs, Bytes(60)), [(0..60).collect::<Vec<_>>()]);
    assert_eq!(together(&needs, Bytes(59)).len(), 60);
    assert_eq!(together(&needs, Bytes(30)).len(), 64);
    assert_eq!(together(&[Bytes(0), Bytes(5)], Bytes(3)), [[0]]);
}
