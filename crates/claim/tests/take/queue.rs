//! The queue as a waiting claim sees it.

use crate::fake::{MACHINE, Made, ask, devices, entry, id, names, take_now, take_while};
use gpu_claim::*;
use gpu_core::*;
use std::ops::ControlFlow;
use std::time::Duration;

const MINUTE: u64 = 60_000_000_000;

#[test]
fn only_live_claims_count_as_ahead_and_stalled_ones_are_named() {
    let made = Made::default();
    made.with(|world| world.tickets = 2 * MINUTE);
    made.add(EntryKind::Lease, entry("x", 1, 1, &["b"]));
    for (name, count) in [("dead", 2), ("stopped", 3), ("wide", 4)] {
        made.add(EntryKind::Waiter, LeaseEntry { owner: 7, ..entry(name, 2, count, &[]) });
    }
    made.with(|world| world.dead = vec![id("dead")]);
    made.with(|world| world.stalled = vec![id("stopped")]);
    let mut last = Ahead::default();
    let result = take_while(&made, &ask(1, Wait::Forever), |waiting| {
        last.clone_from(waiting.ahead);
        if waiting.waited > Duration::from_secs(5) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(matches!(result, Err(TakeError::Stopped)));
    let ids = |entries: &[LeaseEntry]| entries.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    assert_eq!(last.count, 1);
    assert_eq!(ids(last.nearest.as_slice()), [id("wide")]);
    assert_eq!(ids(&last.stalled), [id("stopped")]);
}

#[test]
fn idle_time_starts_again_after_devices_were_busy() {
    let made = Made::default();
    made.with(|world| world.tickets = 2 * MINUTE);
    made.add(EntryKind::Waiter, entry("idle", 1, 4, &[]));
    let is_busy = std::cell::Cell::new(false);
    let taken = take_while(&made, &ask(1, Wait::Forever), |waiting| {
        let is_due = (20..40).contains(&waiting.waited.as_secs());
        match (is_busy.replace(is_due), is_due) {
            (false, true) => made.add(EntryKind::Lease, entry("x", 1, 1, &["d"])),
            (true, false) => made.end(&id("x")),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), ["a"]);
    let now = made.with(|world| world.now.as_secs());
    assert!((70..=75).contains(&now), "{now}");
}

#[test]
fn claim_waits_for_earlier_claim_within_same_lease() {
    let made = Made::default();
    made.with(|world| world.tickets = 2 * MINUTE);
    let outer = entry("outer", 1, 3, &["a", "b", "c"]);
    let other = entry("other", 1, 1, &["d"]);
    let used = LeaseEntry { within: outer.nested(), ..entry("used", 2, 1, &["a"]) };
    for lease in [&outer, &other, &used] {
        made.add(EntryKind::Lease, lease.clone());
    }
    let mut nested = ask(1, Wait::No);
    nested.claim.among = outer.devices.clone();
    nested.within = Some(outer.clone());
    let mut wide = LeaseEntry { within: outer.nested(), ..entry("wide", 3, 3, &[]) };
    wide.claim.among = outer.devices;

    // It is within another lease, so it competes for other devices.
    made.add(EntryKind::Waiter, LeaseEntry { within: other.nested(), ..wide.clone() });
    assert_eq!(names(take_now(&made, &nested)), ["b"]);
    made.end(&id("wide"));
    made.add(EntryKind::Waiter, wide);
    let result = take_now(&made, &nested);
    assert!(matches!(result, Err(TakeError::NotNow(_))), "the wide claim needs all three");
}

/// Each of them takes a snapshot at its own time.
#[test]
fn third_claim_of_class_checks_devices_after_twice_the_timeout() {
    let made = Made::default();
    for (name, count) in [("other", 2), ("first", 1), ("second", 1)] {
        made.add(EntryKind::Waiter, entry(name, 2, count, &[]));
    }
    let mut first_snapshot = None;
    let mut observe = || {
        first_snapshot.get_or_insert(made.with(|world| world.now));
        Ok(())
    };
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let wait = Wait::For(Duration::from_secs(600));
    let choose = crate::fake::choose;
    let taken = take(&made, &made, &ask(1, wait), &mut observe, &choose, &mut watch);
    assert!(taken.is_ok());
    assert_eq!(first_snapshot.map(|at| at.as_secs()), Some(240));
}

#[test]
fn sleeping_claim_reports_its_position_to_attentive_watcher() {
    for (pace, counts) in [(100, [2, 1]), (1000, [2, 2]), (2000, [2, 2])] {
        let made = Made::default();
        made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
        for (name, count) in [("other", 2), ("first", 1)] {
            made.add(EntryKind::Waiter, entry(name, 2, count, &[]));
        }
        let mut seen = Vec::new();
        let ask = ClaimRequest { pace: Duration::from_millis(pace), ..ask(1, Wait::Forever) };
        let result = take_while(&made, &ask, |waiting| {
            seen.push(waiting.ahead.count);
            made.end(&id("other"));
            if waiting.waited > Duration::from_secs(20) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(matches!(result, Err(TakeError::Stopped)));
        assert_eq!([seen[0], *seen.last().unwrap()], counts, "{pace} ms");
    }
}

#[test]
fn user_may_have_256_leases() {
    let made = Made::default();
    for number in 0..255 {
        made.add(EntryKind::Lease, entry(&format!("x-{number}"), number % 100, 1, &["d"]));
    }
    let taken = take_now(&made, &ask(1, Wait::No)).ok().unwrap();
    assert_eq!(taken.entry.devices, devices(&["a"]));
    let result = take_now(&made, &ask(1, Wait::No));
    assert!(matches!(result, Err(TakeError::Failed(_))), "that is one more");
}
