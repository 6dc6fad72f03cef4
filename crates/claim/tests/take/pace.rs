//! How often a claim takes a snapshot, makes an attempt, and renews its place.

use crate::fake::{MACHINE, Made, ask, choose, entry, id, names, take_now, take_while};
use gpu_claim::*;
use gpu_core::*;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

fn continue_until(end: Duration, waiting: &Waiting<'_>) -> ControlFlow<()> {
    if waiting.waited >= end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Returns when a claim that waits in vain takes a snapshot, in milliseconds.
fn snapshot_times(made: &Made, ask: &ClaimRequest, end: Duration) -> Vec<u128> {
    let mut times = Vec::new();
    let mut observe = || {
        times.push(made.with(|world| world.now.as_millis()));
        Ok(())
    };
    let mut watch = |waiting: &Waiting<'_>| continue_until(end, waiting);
    let result = take(made, made, ask, &mut observe, &choose, &mut watch);
    assert!(matches!(result, Err(TakeError::Stopped)));
    times
}

#[test]
fn claim_snapshots_get_rarer_with_more_claims_ahead() {
    for (ahead, interval) in [(0, 2000), (4, 3000), (31, 9750), (33, 10_000), (100, 10_000)] {
        let made = Made::default();
        made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
        for number in 0..ahead {
            let waiter = LeaseEntry { owner: 7, ..entry(&format!("w-{number}"), 2, 1, &[]) };
            made.add(EntryKind::Waiter, waiter);
        }
        let times = snapshot_times(&made, &ask(1, Wait::Forever), Duration::from_secs(25));
        assert_eq!(times[..3], [0, interval, 2 * interval], "{ahead} claims are ahead");
    }
}

/// It polls safe-gpu's lock more often, and the driver may be slow.
#[test]
fn claim_behind_safe_gpu_keeps_its_snapshot_interval() {
    let made = Made::default();
    made.with(|world| world.safe_gpu = Some(ErrorKind::TimedOut));
    let ask = ClaimRequest { holds_back_safe_gpu: true, ..ask(1, Wait::Forever) };
    assert_eq!(snapshot_times(&made, &ask, Duration::from_secs(7)), [0, 2000, 4000, 6000]);
}

#[test]
fn claim_without_wait_does_not_wait_for_safe_gpu() {
    for (wait, patience) in [(Wait::No, 0), (Wait::Forever, 250)] {
        let made = Made::default();
        let taken = take_now(&made, &ClaimRequest { holds_back_safe_gpu: true, ..ask(1, wait) });
        assert_eq!(names(taken), ["a"]);
        assert_eq!(made.with(|world| world.patience), Some(Duration::from_millis(patience)));
    }
}

#[test]
fn queue_place_is_renewed_every_5_s_while_devices_are_busy() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let end = Duration::from_secs(100);
    let result = take_while(&made, &ask(1, Wait::Forever), |waiting| continue_until(end, waiting));
    assert!(matches!(result, Err(TakeError::Stopped)));
    let beats = made.with(|world| world.beats);
    assert!((15..=20).contains(&beats), "{beats}");
}

/// Devices may be back after a driver was reloaded.
#[test]
fn waiting_claim_tolerates_vanished_devices_for_ten_minutes() {
    let made = Made::default();
    let are_there = Cell::new(true);
    let mut observe = || Ok(are_there.get());
    let choose = |are_there: &bool, claim: &Claim, others: &[LeaseEntry]| match are_there {
        true => choose(&(), claim, others),
        false => Chosen::Never,
    };
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let mut watch = |waiting: &Waiting<'_>| {
        // Two outages, which together take more than ten minutes.
        let waited = waiting.waited.as_secs();
        are_there.set(!(10..=400).contains(&waited) && !(500..=900).contains(&waited));
        if waited > 950 {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    };
    let taken = take(&made, &made, &ask(1, Wait::Forever), &mut observe, &choose, &mut watch);
    assert!(taken.is_ok(), "{:?}", taken.err());

    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let start = made.with(|world| world.now);
    let mut watch = |waiting: &Waiting<'_>| {
        are_there.set(waiting.waited < Duration::from_secs(10));
        continue_until(Duration::from_secs(2000), waiting)
    };
    let result = take(&made, &made, &ask(1, Wait::Forever), &mut observe, &choose, &mut watch);
    assert!(matches!(result, Err(TakeError::Never)), "{:?}", result.err());
    assert_eq!(made.with(|world| world.now) - start, Duration::from_secs(610));
}

/// Lets another program take the chosen device at the same moment, this many times.
fn collide(made: &Made, times: usize) {
    let device = |number: usize| if number.is_multiple_of(2) { "a" } else { "b" };
    let rival = |number| (EntryKind::Lease, entry("x", 1, 1, &[device(number)]));
    made.with(|world| world.met = (0..times).rev().map(rival).collect());
}

#[test]
fn claim_without_wait_gives_up_at_tenth_conflict() {
    let made = Made::default();
    collide(&made, 9);
    assert_eq!(names(take_now(&made, &ask(1, Wait::No))), ["b"]);

    let made = Made::default();
    collide(&made, 20);
    assert!(matches!(take_now(&made, &ask(1, Wait::No)), Err(TakeError::NotNow(_))));
    assert_eq!(made.with(|world| world.met.len()), 10);

    // A claim that waits continues.
    let made = Made::default();
    collide(&made, 20);
    assert_eq!(names(take_now(&made, &ask(1, Wait::Forever))), ["a"]);
}

/// The same claims would collide again if they paused equally long.
#[test]
fn pause_after_conflict_is_1_to_20_ms_and_differs_by_claim() {
    let made = Made::default();
    let mut pauses = Vec::new();
    for _ in 0..20 {
        collide(&made, 8);
        let mut times = Vec::new();
        let mut observe = || {
            times.push(made.with(|world| world.now.as_millis()));
            Ok(())
        };
        let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
        assert!(take(&made, &made, &ask(1, Wait::No), &mut observe, &choose, &mut watch).is_ok());
        pauses.push(times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>());
        made.end(&id("x"));
    }
    let all = || pauses.iter().flatten();
    assert_eq!(all().count(), 20 * 8);
    assert!(all().all(|pause| (1..=20).contains(pause)), "{pauses:?}");
    assert!(all().any(|pause| *pause == 20) && all().any(|pause| *pause == 1), "{pauses:?}");
    assert_ne!(pauses[0], pauses[1]);
}

/// Any process can cause changes.
#[test]
fn attempts_get_rarer_after_futile_changes_without_snapshot() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    made.with(|world| world.signals = [Duration::ZERO; 8].into());
    let (mut attempts, mut snapshots) = (Vec::new(), 0);
    let mut observe = || {
        snapshots += 1;
        Ok(())
    };
    let mut watch = |waiting: &Waiting<'_>| {
        attempts.push(waiting.waited.as_millis());
        continue_until(Duration::from_millis(1200), waiting)
    };
    let result = take(&made, &made, &ask(1, Wait::Forever), &mut observe, &choose, &mut watch);
    assert!(matches!(result, Err(TakeError::Stopped)));
    assert_eq!(attempts, [0, 20, 60, 140, 300, 620, 940, 1260]);
    assert_eq!(snapshots, 1);
}

/// A change may be signalled just before it is visible.
#[test]
fn claim_tries_again_100_ms_after_signalled_change() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let signal = Duration::from_millis(550);
    made.with(|world| world.signals = [signal].into());
    let taken = take_while(&made, &ask(1, Wait::Forever), |waiting| {
        if waiting.waited > signal {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), ["a"]);
    assert_eq!(made.with(|world| world.now), signal + Duration::from_millis(100));
}
