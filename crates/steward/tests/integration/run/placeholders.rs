//! How long placeholders stay, and which memory is attributed to them.

use super::handoff::*;
use super::*;

/// Runs a job on one device that waits for safe-gpu one second after its start, and uses the device
/// this long after its placeholder appeared, with this much memory.
fn used_after(world: &World, time: Duration, mib: u64) {
    world.after(RELEASED + time, move |state| {
        state.waits_for_safe_gpu.clear();
        state.uses(INSIDE, 0, mib);
    });
}

/// When a placeholder that is needed from the first second on has appeared.
const RELEASED: Duration = Duration::from_secs(3);

fn waiting_job(end: Duration) -> World {
    let world = World::new(1);
    wait_after(&world, SECOND, &[INSIDE]);
    world.after(end - SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
    ends_after(&world, end, 0);
    world
}

/// Whether a placeholder is gone 300 ms after the job appears on its device.
fn is_dismissed_quickly(after: Duration) -> bool {
    let world = waiting_job(200 * SECOND);
    world.after(RELEASED + SECOND, |state| assert!(!state.holds_back));
    used_after(&world, after, 100);
    let gone = std::sync::Arc::new(std::sync::Mutex::new(None));
    let seen = gone.clone();
    world.after(RELEASED + after + 300 * MILLISECOND, move |state| {
        *seen.lock().unwrap() = Some(state.companions().is_empty());
    });
    assert_eq!(reported(&world, &with_placeholder(1)), ["HandedOff(Wanted)"]);
    gone.lock().unwrap().unwrap()
}

#[test]
fn devices_are_watched_closely_for_a_minute_after_release() {
    for (milliseconds, quickly) in
        [(2_100, true), (20_100, true), (40_350, true), (59_900, true), (60_100, false)]
    {
        let after = milliseconds * MILLISECOND;
        assert_eq!(is_dismissed_quickly(after), quickly, "{milliseconds} ms");
    }
}

#[test]
fn waiting_job_gets_lock_soon_after_outsider_leaves() {
    let world = World::new(1);
    world.state().accompany_fault = Some(ErrorKind::Io);
    wait_after(&world, 10 * SECOND, &[OUTSIDE, INSIDE]);
    world.after(20_100 * MILLISECOND, |state| {
        assert!(state.released.is_empty());
        state.waits_for_safe_gpu.retain(|pid| *pid != OUTSIDE);
    });
    world.after(20_400 * MILLISECOND, |state| {
        assert_eq!(state.released, [0]);
        state.ends(INSIDE, JobExit::Code(0));
    });
    ends_after(&world, 30 * SECOND, 0);
    reported(&world, &with_placeholder(1));
}

/// The peak of a job that uses 50 MiB, if `mib` more are unlisted at this time.
fn peak(unlisted: Option<(Duration, u64)>) -> Reading<Bytes> {
    let world = waiting_job(100 * SECOND);
    world.state().lag = 3 * SECOND;
    used_after(&world, 2 * SECOND, 50);
    if let Some((time, mib)) = unlisted {
        world.after(RELEASED + time, move |state| state.devices[0].unlisted = 10 + mib);
        world.after(RELEASED + time + SECOND, |state| state.devices[0].unlisted = 10);
    }
    let (report, _) = outcome(&world, &with_placeholder(1));
    report.unwrap().devices[0].peak
}

#[test]
fn unlisted_memory_counts_only_after_placeholder_settles() {
    assert_eq!(peak(None), Ok(Bytes::from_mib(50)));
    assert_eq!(peak(Some((5 * SECOND, 3_000))), Ok(Bytes::from_mib(50)));
    assert_eq!(peak(Some((30 * SECOND, 3_000))), Ok(Bytes::from_mib(3_000)));
}

/// The peak of a job that uses 50 MiB while 3,000 MiB more are unlisted for 200 ms from this time
/// on. Its placeholder is seen to have ended after 3.25 s.
fn peak_with_flash(time: Duration) -> Reading<Bytes> {
    let world = waiting_job(100 * SECOND);
    world.state().companions_linger = SECOND;
    used_after(&world, 2 * SECOND, 50);
    world.after(RELEASED + time, |state| state.devices[0].unlisted = 3_010);
    world.after(RELEASED + time + 200 * MILLISECOND, |state| state.devices[0].unlisted = 10);
    let (report, _) = outcome(&world, &with_placeholder(1));
    report.unwrap().devices[0].peak
}

#[test]
fn ended_placeholder_settles_for_ten_seconds() {
    for (seconds, mib) in [(11, 50), (12, 50), (13, 3_000)] {
        let time = Duration::from_secs(seconds) + 150 * MILLISECOND;
        assert_eq!(peak_with_flash(time), Ok(Bytes::from_mib(mib)), "{time:?}");
    }
}

#[test]
fn run_waits_for_end_of_placeholders_but_not_forever() {
    for (linger, waited) in [(0, 0), (2, 2), (1000, 5)] {
        let world = waiting_job(20 * SECOND);
        world.state().companions_linger = linger * SECOND;
        let token = ActToken::user_confirmed();
        let order = with_placeholder(1);
        let mut cleaned = None;
        let report = run(&order, &world.ports(), &world, &token, &mut |event| {
            if let Event::WaitingForMemory(_) = event {
                let state = world.state();
                cleaned.get_or_insert((state.companions().is_empty(), state.now));
            }
            ControlFlow::Continue(())
        });
        assert_eq!(report.unwrap().ending, JobExit::Code(0));
        let Some((are_gone, at)) = cleaned else { panic!("{linger}: no wait for memory") };
        assert_eq!(are_gone, linger < 1000, "{linger} s");
        let expected = Duration::from_secs(1020 + waited);
        assert!(at >= expected && at < expected + 4 * SECOND, "{linger} s: {at:?}");
    }
}
