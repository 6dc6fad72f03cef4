//! Taking devices of a machine of four, with fake locks and a fake clock.

mod conflict;
mod fake;
mod nested;
mod pace;
mod queue;

use fake::{MACHINE, Made, ask, choose, devices, entry, id, names, take_now, take_while};
use gpu_claim::*;
use gpu_core::*;
use std::ops::ControlFlow;
use std::time::Duration;

#[test]
fn free_devices_are_held_until_drop() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 1, &["a"]));
    let taken = take_now(&made, &ask(2, Wait::No)).ok().unwrap();
    assert_eq!(taken.entry.devices, devices(&["b", "c"]));
    assert_eq!(taken.others, [entry("x", 1, 1, &["a"])]);
    assert!(taken.held_back.is_none());
    assert_eq!(made.entries(EntryKind::Lease).unwrap().len(), 2);
    assert_eq!(made.waiters(), 0);
    drop(taken);
    assert_eq!(made.entries(EntryKind::Lease).unwrap().len(), 1);
}

#[test]
fn refused_claim_without_wait_leaves_no_entry() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 2, &["a", "b"]));
    made.add(EntryKind::Waiter, entry("w", 2, 1, &[]));
    let Err(TakeError::NotNow(standing)) = take_now(&made, &ask(3, Wait::No)) else {
        panic!("two are free")
    };
    assert_eq!((standing.ahead.count, standing.leases.len()), (1, 1));
    assert_eq!(standing.wait_reason, None);
    assert!(matches!(take_now(&made, &ask(5, Wait::Forever)), Err(TakeError::Never)));
    assert_eq!((made.waiters(), made.with(|world| world.entries.len())), (1, 2));
}

#[test]
fn wait_ends_on_timeout_or_stop_without_leftovers() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let five = Wait::For(Duration::from_secs(5));
    let result = take_while(&made, &ask(1, five), |waiting| {
        assert_eq!(made.waiters(), 1);
        assert_eq!(waiting.leases.len(), 1);
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(TakeError::TimedOut(_))));
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(5) && now < Duration::from_secs(6), "{now:?}");
    let result = take_while(&made, &ask(1, Wait::Forever), |_| ControlFlow::Break(()));
    assert!(matches!(result, Err(TakeError::Stopped)));
    assert_eq!(made.waiters(), 0);
}

#[test]
fn waiting_claim_gets_released_devices() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let taken = take_while(&made, &ask(4, Wait::Forever), |waiting| {
        if waiting.waited > Duration::from_secs(3) {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), MACHINE);
    // Even at the last moment.
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let five = Wait::For(Duration::from_secs(5));
    let taken = take_while(&made, &ask(4, five), |waiting| {
        if waiting.waited >= Duration::from_secs(5) {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), MACHINE);
}

#[test]
fn attempt_withdraws_on_conflict_with_earlier_attempt_or_lease() {
    for kind in [EntryKind::Attempt, EntryKind::Lease] {
        let made = Made::default();
        made.with(|world| {
            world.met = vec![(kind, entry("y", 1, 1, &["b"])), (kind, entry("x", 1, 1, &["a"]))];
        });
        let mut watched = 0;
        let taken = take_while(&made, &ask(1, Wait::Forever), |_| {
            let own =
                [EntryKind::Attempt, EntryKind::Lease].map(|kind| made.entries(kind).unwrap());
            let own = own.iter().flatten().filter(|lease| lease.command == "own").count();
            assert_eq!(own, 0, "it is withdrawn before anything else");
            watched += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(names(taken), ["c"], "{kind:?}");
        assert_eq!(watched, 2);
    }
}

#[test]
fn earliest_attempt_waits_for_later_attempts_to_withdraw() {
    let made = Made::default();
    made.with(|world| {
        world.met = vec![(EntryKind::Attempt, entry("x", 1000, 1, &["a"]))];
        world.met_withdraw_after = Some(8);
    });
    let taken = take_now(&made, &ask(1, Wait::No));
    assert_eq!(names(taken), ["a"]);
    assert!(made.with(|world| world.readings) > 8);

    // An attempt that does not withdraw, because its program is stopped, has the device.
    let made = Made::default();
    made.with(|world| world.met = vec![(EntryKind::Attempt, entry("x", 1000, 1, &["a"]))]);
    let taken = take_now(&made, &ask(1, Wait::No));
    assert_eq!(names(taken), ["b"]);
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_millis(100) && now < Duration::from_secs(1), "{now:?}");
}

#[test]
fn attempt_is_confirmed_by_second_uncontested_read() {
    let made = Made::default();
    let readings = std::cell::Cell::new(0);
    let mut observe = || {
        readings.set(made.with(|world| world.readings));
        Ok(())
    };
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let taken = take(&made, &made, &ask(1, Wait::No), &mut observe, &choose, &mut watch);
    assert_eq!(names(taken), ["a"]);
    // One to decide, and two after the attempt was published.
    assert_eq!(made.with(|world| world.readings) - readings.get(), 3);
}

#[test]
fn conflict_on_other_device_causes_no_withdrawal() {
    let made = Made::default();
    made.with(|world| world.met = vec![(EntryKind::Lease, entry("x", 1, 1, &["d"]))]);
    assert_eq!(names(take_now(&made, &ask(1, Wait::No))), ["a"]);
}

#[test]
fn idle_servable_claim_is_skipped_after_30_seconds() {
    let made = Made::default();
    made.add(EntryKind::Waiter, entry("idle", 1, 4, &[]));
    let taken = take_now(&made, &ask(1, Wait::For(Duration::from_secs(60))));
    assert_eq!(names(taken), ["a"]);
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(30) && now < Duration::from_secs(45), "{now:?}");
}

/// IDs are public: a stranger's idle claim with a copied ID does not make the original idle.
#[test]
fn copied_id_does_not_remove_original_from_queue() {
    let made = Made::default();
    made.with(|world| world.tickets = 61_000_000_000);
    made.add(EntryKind::Lease, entry("x", 1, 1, &["a"]));
    made.add(EntryKind::Waiter, entry("wide", 2, 4, &[]));
    made.add(EntryKind::Waiter, LeaseEntry { owner: 7, ..entry("wide", 0, 1, &[]) });
    let result = take_now(&made, &ask(1, Wait::For(Duration::from_secs(120))));
    assert!(matches!(result, Err(TakeError::TimedOut(_))), "it is not passed: {:?}", result.err());
}

/// The claim before it may see other devices, in another container.
#[test]
fn sleeping_claim_checks_devices_after_timeout() {
    let made = Made::default();
    made.add(EntryKind::Waiter, entry("first", 2, 1, &[]));
    let taken = take_now(&made, &ask(1, Wait::For(Duration::from_secs(600))));
    assert_eq!(names(taken), ["b"], "the first device is left to the one before it");
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(120) && now < Duration::from_secs(130), "{now:?}");

    // If the claim before it leaves no devices, it is found to be idle.
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 3, &["b", "c", "d"]));
    made.add(EntryKind::Waiter, entry("first", 2, 1, &[]));
    let taken = take_now(&made, &ask(1, Wait::For(Duration::from_secs(600))));
    assert_eq!(names(taken), ["a"]);
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(150) && now < Duration::from_secs(165), "{now:?}");
}

/// Otherwise a single reload of the driver would end every claim of a queue.
#[test]
fn transient_driver_failure_does_not_end_waiting_claim() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let fails = std::cell::Cell::new(false);
    let mut observe = || match fails.get() {
        true => Err(Error::new(MachineFault::NoLibrary, "load the driver's library")),
        false => Ok(()),
    };
    let mut reported = false;
    let mut watch = |waiting: &Waiting<'_>| {
        let waited = waiting.waited.as_secs();
        fails.set((5..60).contains(&waited));
        reported |= matches!(waiting.wait_reason, Some(WaitReason::Driver(_)));
        if waited > 70 {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    };
    let taken = take(&made, &made, &ask(1, Wait::Forever), &mut observe, &choose, &mut watch);
    assert_eq!(names(taken), ["a"]);
    assert!(reported);

    // Not forever.
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let mut watch = |waiting: &Waiting<'_>| {
        fails.set(waiting.waited > Duration::from_secs(5));
        ControlFlow::Continue(())
    };
    let before = made.with(|world| world.now);
    let result = take(&made, &made, &ask(1, Wait::Forever), &mut observe, &choose, &mut watch);
    assert!(matches!(result, Err(TakeError::Failed(_))));
    let waited = made.with(|world| world.now) - before;
    assert!(waited > Duration::from_secs(600) && waited < Duration::from_secs(620), "{waited:?}");
}

#[test]
fn safe_gpu_lock_is_awaited_for_one_minute() {
    let made = Made::default();
    made.with(|world| world.safe_gpu = Some(ErrorKind::TimedOut));
    let ask = ClaimRequest { holds_back_safe_gpu: true, ..ask(1, Wait::Forever) };
    let taken = take_now(&made, &ask).ok().unwrap();
    assert_eq!(taken.held_back.unwrap().err().unwrap().kind(), ErrorKind::TimedOut);
    assert_eq!(made.with(|world| world.now), Duration::from_secs(60));
}

#[test]
fn sleeping_claims_share_the_minute_of_one_safe_gpu() {
    for (changes, patience) in [(false, 0), (true, 60)] {
        let made = Made::default();
        made.add(EntryKind::Waiter, entry("first", 2, 1, &[]));
        made.with(|world| world.safe_gpu = Some(ErrorKind::TimedOut));
        let ask = ClaimRequest { holds_back_safe_gpu: true, ..ask(1, Wait::Forever) };
        let taken = take_while(&made, &ask, |waiting| {
            let seconds = u32::try_from(waiting.waited.as_secs()).unwrap();
            made.with(|world| world.holder = Some(Pid(if changes { seconds } else { 7 })));
            if seconds >= 90 {
                made.end(&id("first"));
            }
            ControlFlow::Continue(())
        });
        assert_eq!(
            taken.ok().unwrap().held_back.unwrap().err().unwrap().kind(),
            ErrorKind::TimedOut
        );
        let now = made.with(|world| world.now.as_secs());
        assert!((90 + patience..=96 + patience).contains(&now), "{changes}: {now}");
    }
}

#[test]
fn stalled_claim_is_skipped_immediately_and_reported() {
    let made = Made::default();
    made.add(EntryKind::Waiter, entry("stopped", 1, 4, &[]));
    made.add(EntryKind::Lease, entry("x", 1, 3, &["b", "c", "d"]));
    made.with(|world| world.stalled = vec![id("stopped")]);
    let taken = take_now(&made, &ask(1, Wait::No));
    assert_eq!(names(taken), ["a"]);
    assert_eq!(made.with(|world| world.now), Duration::ZERO);
    made.add(EntryKind::Lease, entry("y", 1, 1, &["a"]));
    let mut named = Vec::new();
    let result = take_while(&made, &ask(1, Wait::Forever), |waiting| {
        named.clone_from(&waiting.ahead.stalled);
        if waiting.waited > Duration::from_secs(3) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(TakeError::Stopped)));
    // A claim that lacks devices does not need to read the queue.
    assert!(named.is_empty() || named == [entry("stopped", 1, 4, &[])], "{named:?}");
}

/// In containers with different devices, neither claim can take what the other needs.
#[test]
fn claim_seeing_other_devices_is_not_waited_for() {
    for (own, other, passes) in [
        (&[0, 1][..], &[2, 3][..], true),
        (&[0, 1], &[1, 2], false),
        (&[], &[2, 3], false),
        (&[0, 1], &[], false),
    ] {
        let made = Made::default();
        let mut waits = entry("waits", 1, 1, &[]);
        waits.claim.visible_minors = other.to_vec();
        made.add(EntryKind::Waiter, waits.clone());
        let mut request = ask(4, Wait::No);
        request.claim.visible_minors = own.to_vec();
        let taken = take_now(&made, &request);
        assert_eq!(taken.is_ok(), passes, "{own:?} {other:?}");
        let mut later = entry("later", 2, 1, &[]);
        later.claim.visible_minors = own.to_vec();
        let ledger = Ledger::read(&made).unwrap();
        assert_eq!(ledger.ahead_of(&later).count(), usize::from(!passes), "{own:?} {other:?}");
    }
}

#[test]
fn stalled_claim_is_not_counted_as_ahead() {
    let made = Made::default();
    let (stopped, waits) = (entry("stopped", 1, 4, &[]), entry("waits", 2, 1, &[]));
    made.add(EntryKind::Waiter, stopped.clone());
    made.add(EntryKind::Waiter, waits.clone());
    made.with(|world| world.stalled = vec![id("stopped")]);
    let ledger = Ledger::read(&made).unwrap();
    assert_eq!((&ledger.waiters[..], &ledger.stalled[..]), (&[waits.clone()][..], &[stopped][..]));
    assert_eq!(ledger.ahead_of(&waits).count(), 0);
}

/// Any later claim that fits may pass one that cannot be served, within a minute.
#[test]
fn claim_may_overtake_blocked_claim_within_one_minute() {
    const MINUTE: u64 = 60_000_000_000;
    for (age, passes) in [(0, true), (MINUTE, true), (MINUTE + 1, false)] {
        let made = Made::default();
        made.with(|world| world.tickets = 2 * MINUTE);
        let ticket = 100 + 2 * MINUTE + 1 - age;
        made.add(EntryKind::Waiter, entry("wide", ticket, 4, &[]));
        made.add(EntryKind::Lease, entry("x", 1, 1, &["a"]));
        let result = take_now(&made, &ask(1, Wait::No));
        assert_eq!(result.is_ok(), passes, "{age}");
    }
}

#[test]
fn equal_claims_of_one_user_sleep_until_predecessor_leaves() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    for name in ["first", "second"] {
        made.add(EntryKind::Waiter, entry(name, 2, 1, &[]));
    }
    let mut snapshots = 0;
    let mut observe = || {
        snapshots += 1;
        Ok(())
    };
    let mut watch = |waiting: &Waiting<'_>| {
        if waiting.waited > Duration::from_secs(100) {
            // The others leave the queue; devices became free long ago.
            made.end(&id("first"));
            made.end(&id("second"));
        } else if waiting.waited > Duration::from_secs(50) {
            made.end(&id("x"));
        } else if waiting.waited > Duration::from_secs(1) {
            assert_eq!(waiting.ahead.count, 2);
            assert_eq!(waiting.ahead.nearest.as_ref().map(|entry| &entry.id), Some(&id("second")));
        }
        ControlFlow::Continue(())
    };
    let taken = take(&made, &made, &ask(1, Wait::Forever), &mut observe, &choose, &mut watch);
    assert_eq!(names(taken), ["a"]);
    assert_eq!(snapshots, 1, "whoever sleeps asks no driver");
    let (beats, sleeps) = made.with(|world| (world.beats, world.sleeps));
    assert!((15..=25).contains(&beats), "every five seconds: {beats}");
    assert!(sleeps > 100);
}

#[test]
fn sleeping_claim_resumes_when_predecessor_stalls() {
    let made = Made::default();
    made.add(EntryKind::Waiter, entry("first", 2, 1, &[]));
    let taken = take_while(&made, &ask(1, Wait::Forever), |waiting| {
        if waiting.waited > Duration::from_secs(30) {
            made.with(|world| world.stalled = vec![id("first")]);
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), ["a"]);
    let now = made.with(|world| world.now);
    assert!(now > Duration::from_secs(30) && now < Duration::from_secs(37), "{now:?}");
}

#[test]
fn removed_queue_entry_is_republished() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let result = take_while(&made, &ask(1, Wait::Forever), |waiting| {
        if waiting.waited < Duration::from_secs(1) {
            let waiters = made.entries(EntryKind::Waiter).unwrap();
            waiters.iter().for_each(|waiter| made.end(&waiter.id));
        }
        if waiting.waited > Duration::from_secs(8) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(matches!(result, Err(TakeError::Stopped)));
    assert_eq!(made.waiters(), 0);
    assert!(made.with(|world| world.beats) >= 1);
}

#[test]
fn lease_can_be_nested_in_another() {
    let made = Made::default();
    let outer = entry("outer", 1, 3, &["a", "b", "c"]);
    made.add(EntryKind::Lease, outer.clone());
    made.add(EntryKind::Waiter, entry("w", 2, 4, &[]));
    // It came more than a minute ago.
    made.with(|world| world.tickets = 61_000_000_000);
    let mut inner = ask(1, Wait::No);
    inner.claim.among = outer.devices.clone();
    inner.within = Some(outer.clone());
    let first = take_now(&made, &inner).ok().unwrap();
    assert_eq!(first.entry.within, outer.nested());
    assert_eq!(first.others, [], "the outer one and those outside of it do not matter");
    let second = take_now(&made, &inner).ok().unwrap();
    assert_eq!([first.entry.devices, second.entry.devices].concat(), devices(&["a", "b"]));
    let outside = take_now(&made, &ask(1, Wait::No));
    assert!(matches!(outside, Err(TakeError::NotNow(_))));

    for (outer, why) in [
        (
            LeaseEntry { id: id("ended"), ..outer.clone() },
            "claim within lease ended, which has ended",
        ),
        (LeaseEntry { owner: 7, ..outer }, "which has ended"),
    ] {
        let Err(TakeError::Failed(error)) =
            take_now(&made, &ClaimRequest { within: Some(outer), ..inner.clone() })
        else {
            panic!("it is no lease of this user")
        };
        assert!(error.to_string().ends_with(why), "{error}");
    }
    let foreign = LeaseEntry { owner: 7, ..entry("foreign", 1, 1, &["d"]) };
    made.add(EntryKind::Lease, foreign.clone());
    let result = take_now(&made, &ClaimRequest { within: Some(foreign), ..inner });
    let Err(TakeError::Failed(error)) = result else { panic!("it is another user's") };
    assert!(error.to_string().ends_with("belongs to another user"), "{error}");
}

#[test]
fn busy_safe_gpu_is_awaited_and_unusable_lock_is_reported() {
    let made = Made::default();
    let asking = |wait| ClaimRequest { holds_back_safe_gpu: true, ..ask(1, wait) };
    made.with(|world| world.safe_gpu = Some(ErrorKind::TimedOut));
    let result = take_now(&made, &asking(Wait::No));
    let Err(TakeError::NotNow(standing)) = result else { panic!("safe-gpu is at work") };
    let Some(WaitReason::SafeGpu(fault)) = standing.wait_reason else {
        panic!("the wait is for safe-gpu")
    };
    assert_eq!(fault.text, "hold safe-gpu's locks");
    let result = take_now(&made, &asking(Wait::For(Duration::from_secs(3))));
    let Err(TakeError::TimedOut(standing)) = result else { panic!("safe-gpu is at work") };
    assert!(matches!(standing.wait_reason, Some(WaitReason::SafeGpu(_))));
    let taken = take_while(&made, &asking(Wait::Forever), |waiting| {
        assert!(matches!(waiting.wait_reason, Some(WaitReason::SafeGpu(_))));
        if waiting.waited > Duration::from_secs(1) {
            made.with(|world| world.safe_gpu = None);
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(taken.ok().unwrap().held_back, Some(Ok(_))));
    made.with(|world| world.safe_gpu = Some(ErrorKind::Io));
    let taken = take_now(&made, &asking(Wait::No)).ok().unwrap();
    assert_eq!(taken.held_back.unwrap().err().unwrap().kind(), ErrorKind::Io);
}

#[test]
fn endless_conflicts_end_at_timeout() {
    let made = Made::default();
    let meet = |made: &Made| {
        made.with(|world| world.met = vec![(EntryKind::Lease, entry("x", 1, 1, &["a"]))]);
    };
    meet(&made);
    let result = take_while(&made, &ask(1, Wait::For(Duration::from_secs(2))), |_| {
        made.end(&id("x"));
        meet(&made);
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(TakeError::TimedOut(standing)) if standing.wait_reason.is_none()));
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(2) && now < Duration::from_secs(3), "{now:?}");
}

#[test]
fn user_over_lease_limit_is_refused_while_others_are_served() {
    let made = Made::default();
    for number in 0..256 {
        made.add(EntryKind::Lease, entry(&format!("x-{number}"), number % 100, 1, &["d"]));
    }
    let Err(TakeError::Failed(error)) = take_now(&made, &ask(1, Wait::Forever)) else {
        panic!("one more would be indistinguishable")
    };
    assert!(error.to_string().ends_with("the user already has 256"), "{error}");
    assert_eq!(made.with(|world| world.entries.len()), 256);
    made.with(|world| world.entries.iter_mut().for_each(|(_, entry)| entry.owner = 7));
    made.add(EntryKind::Lease, LeaseEntry { owner: 7, ..entry("late", 300, 1, &["a"]) });
    assert_eq!(names(take_now(&made, &ask(1, Wait::Forever))), ["b"], "no lease is passed over");
}

#[test]
fn failed_device_query_leaves_no_entry() {
    let made = Made::default();
    let mut observe = || Err(Error::new(MachineFault::NoLibrary, "load the driver's library"));
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let result = take(&made, &made, &ask(1, Wait::Forever), &mut observe, &choose, &mut watch);
    assert!(matches!(result, Err(TakeError::Failed(_))));
    assert_eq!(made.with(|world| world.entries.len()), 0);
}
