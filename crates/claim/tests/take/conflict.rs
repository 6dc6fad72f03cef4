//! Conflicts between attempts, and the contents of a confirmed lease.

use crate::fake::{MACHINE, Made, ask, choose, devices, entry, id, names, take_now, take_while};
use gpu_claim::*;
use gpu_core::*;
use std::ops::ControlFlow;
use std::time::Duration;

#[test]
fn lease_begins_at_grant() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let taken = take_while(&made, &ask(1, Wait::Forever), |waiting| {
        if waiting.waited >= Duration::from_secs(3) {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    });
    let entry = taken.ok().unwrap().entry;
    assert_eq!(entry.since, made.wall());
    assert!(entry.since >= Timestamp(3000), "{:?}", entry.since);
}

/// They may be slow to withdraw because the machine is busy.
#[test]
fn time_for_others_to_withdraw_doubles_after_each_conflict() {
    let made = Made::default();
    let stopped = |name, device| (EntryKind::Attempt, entry(name, 1000, 1, &[device]));
    made.with(|world| world.met = vec![stopped("z", "c"), stopped("y", "b"), stopped("x", "a")]);
    assert_eq!(names(take_now(&made, &ask(1, Wait::No))), ["d"]);
    let conflicts = 100 + 200 + 400;
    let pauses = 3 * 20;
    let now = made.with(|world| world.now.as_millis());
    assert!((conflicts..=conflicts + pauses).contains(&now), "{now}");
}

#[test]
fn attempt_invisible_to_others_is_not_confirmed() {
    let made = Made::default();
    let copy = LeaseEntry { owner: 7, ..entry("own-1", 1, 1, &["d"]) };
    made.with(|world| world.met = vec![(EntryKind::Attempt, copy)]);
    let Err(TakeError::Failed(error)) = take_now(&made, &ask(1, Wait::Forever)) else {
        panic!("nobody would respect it")
    };
    assert!(error.to_string().ends_with("publish lease own-1: it is not visible"), "{error}");
}

#[test]
fn refused_attempt_is_repeated() {
    for wait in [Wait::No, Wait::Forever] {
        let made = Made::default();
        made.with(|world| world.refusals = 3);
        assert_eq!(names(take_now(&made, &ask(1, wait))), ["a"]);
        assert_eq!(made.with(|world| world.refusals), 0);
    }
}

/// The chooser must not answer with others, which are not published.
#[test]
fn chosen_devices_are_required_in_conflict_check() {
    let made = Made::default();
    let checks = std::cell::Cell::new(0);
    let choose = |context: &(), claim: &Claim, others: &[LeaseEntry]| {
        if !claim.among.is_empty() {
            assert_eq!((&claim.among, &claim.required), (&devices(&["a", "b"]), &claim.among));
            checks.set(checks.get() + 1);
        }
        choose(context, claim, others)
    };
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let taken = take(&made, &made, &ask(2, Wait::No), &mut || Ok(()), &choose, &mut watch);
    assert_eq!(names(taken), ["a", "b"]);
    assert!(checks.get() > 0);
}
