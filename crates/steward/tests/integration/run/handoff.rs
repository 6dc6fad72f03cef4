//! The release of safe-gpu's locks: no leased device may look unused to others.

use super::*;

/// An outsider that uses safe-gpu, and one within the job.
pub(super) const OUTSIDE: u32 = 100;
pub(super) const INSIDE: u32 = 61;

pub(super) fn with_placeholder(count: u32) -> RunOrder {
    let placeholder = Some(Launch { program: "placeholder".into(), ..Launch::default() });
    RunOrder { placeholder, ..order(Claim::whole(count)) }
}

/// Makes these processes wait for one of safe-gpu's locks after this time.
pub(super) fn wait_after(world: &World, time: Duration, pids: &'static [u32]) {
    world.after(time, move |state| {
        for pid in pids {
            let parent = if *pid == INSIDE { JOB } else { 2 };
            state.add(process(*pid, parent, "safe-gpu"));
        }
        state.waits_for_safe_gpu = pids.to_vec();
    });
}

/// Runs the program, and returns the events of the locks.
pub(super) fn reported(world: &World, order: &RunOrder) -> Vec<String> {
    let (report, events) = outcome(world, order);
    let report = report.unwrap();
    assert!(report.left_behind.is_empty() && report.still_there.is_empty(), "{report:?}");
    let state = world.state();
    assert_eq!((state.companions(), state.holds_back), (vec![], false), "nothing is kept");
    let about = ["HandedOff", "NotCovered", "Contended"];
    events.into_iter().filter(|e| about.iter().any(|begin| e.starts_with(begin))).collect()
}

#[test]
fn safe_gpu_is_held_back_until_job_is_visible_on_all_devices() {
    let world = World::new(2);
    world.after(2 * SECOND, |state| state.uses(JOB, 0, 100));
    world.after(4 * SECOND, |state| {
        assert!(state.holds_back, "one device does not show it yet");
        state.uses(JOB, 1, 100);
    });
    world.after(6 * SECOND, |state| assert!(!state.holds_back));
    ends_after(&world, 10 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(2)), ["HandedOff(Seen)"]);
    assert!(world.state().accompanied.is_empty(), "nobody waited");
}

#[test]
fn safe_gpu_is_held_back_while_job_only_draws() {
    let world = World::new(1);
    world.after(2 * SECOND, |state| {
        state.devices[0].drawing = vec![JOB];
        state.uses(JOB, 0, 100);
    });
    world.after(6 * SECOND, |state| {
        assert!(state.holds_back, "safe-gpu does not see a process that only draws");
        state.devices[0].drawing.clear();
    });
    world.after(8 * SECOND, |state| assert!(!state.holds_back));
    ends_after(&world, 10 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(1)), ["HandedOff(Seen)"]);
}

#[test]
fn inseparable_locks_are_released_together_after_timeout() {
    let world = World::new(1);
    world.state().accompany_fault = Some(ErrorKind::Io);
    world.state().keeps_locks = true;
    wait_after(&world, 5 * SECOND, &[INSIDE]);
    world.after(34 * SECOND, |state| assert!(state.holds_back));
    world.after(37 * SECOND, |state| {
        assert!(!state.holds_back);
        state.ends(INSIDE, JobExit::Code(0));
    });
    ends_after(&world, 50 * SECOND, 0);
    let reported = reported(&world, &with_placeholder(1));
    assert_eq!(reported[1..], ["Contended([])", "HandedOff(TimedOut)"], "{reported:?}");
}

#[test]
fn job_waiting_for_safe_gpu_gets_lock_after_placeholders_appear() {
    for waiting in [&[OUTSIDE, INSIDE][..], &[INSIDE, OUTSIDE], &[INSIDE]] {
        let world = World::new(2);
        wait_after(&world, SECOND, waiting);
        world.after(5 * SECOND / 2, |state| {
            assert_eq!((state.companions(), state.holds_back), (vec![1000, 1001], true));
            assert!(state.devices.iter().all(|device| device.listed.is_empty()));
        });
        world.after(4 * SECOND, |state| {
            assert!(!state.holds_back && state.released.is_empty());
            state.waits_for_safe_gpu.clear();
            state.uses(INSIDE, 1, 3_000);
        });
        world.after(9 * SECOND / 2, |state| {
            assert_eq!(state.companions(), [1000], "the program uses the other device by now");
            state.uses(INSIDE, 0, 2_000);
        });
        world.after(5 * SECOND, |state| assert!(state.companions().is_empty()));
        world.after(19 * SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
        ends_after(&world, 20 * SECOND, 0);
        assert_eq!(reported(&world, &with_placeholder(2)), ["HandedOff(Wanted)"], "{waiting:?}");
        let launched = world.state().accompanied[1].1.clone();
        assert!(launched.set.contains(&("CUDA_VISIBLE_DEVICES".into(), "GPU-1".into())));
    }
}

#[test]
fn peak_memory_excludes_placeholders() {
    let world = World::new(2);
    world.state().lag = 3 * SECOND;
    wait_after(&world, SECOND, &[INSIDE]);
    world.after(6 * SECOND, |state| {
        state.waits_for_safe_gpu.clear();
        state.uses(INSIDE, 0, 50);
    });
    world.after(19 * SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
    ends_after(&world, 20 * SECOND, 0);
    let (report, _) = outcome(&world, &with_placeholder(2));
    let peaks: Vec<_> = report.unwrap().devices.iter().map(|used| used.peak).collect();
    assert_eq!(peaks, [Ok(Bytes::from_mib(50)), Ok(Bytes(0))]);
}

#[test]
fn outsider_proceeds_after_timeout_behind_placeholders() {
    let world = World::new(1);
    wait_after(&world, 5 * SECOND, &[OUTSIDE]);
    world.after(29 * SECOND, |state| {
        assert!(state.holds_back && state.accompanied.is_empty());
    });
    world.after(34 * SECOND, |state| {
        assert_eq!((state.companions(), state.holds_back), (vec![1000], false));
    });
    world.after(100 * SECOND, |state| state.uses(JOB, 0, 3_000));
    world.after(102 * SECOND, |state| assert!(state.companions().is_empty()));
    ends_after(&world, 110 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(1)), ["HandedOff(Covered)"]);
}

#[test]
fn timeout_has_no_effect_without_waiters() {
    let world = World::new(1);
    world.after(3_000 * SECOND, |state| {
        assert!(state.holds_back && state.accompanied.is_empty());
    });
    wait_after(&world, 3_000 * SECOND, &[OUTSIDE]);
    world.after(3_005 * SECOND, |state| assert!(!state.holds_back));
    ends_after(&world, 3_010 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(1)), ["HandedOff(Covered)"]);
}

/// An obstacle to placeholders, the message about it, and how many were started.
type Obstacle = (fn(&mut State), &'static str, usize);

fn obstacles() -> [Obstacle; 4] {
    [
        (|state| state.accompany_fault = Some(ErrorKind::Io), "start 'placeholder'", 0),
        (|state| state.compute_mode = ComputeMode::ExclusiveProcess, "compute mode", 0),
        (|state| state.sees_host_pids = false, "another PID namespace", 0),
        (|state| state.shows_after = None, "the driver does not list it", 1),
    ]
}

#[test]
fn lock_goes_only_to_job_without_placeholders() {
    for (obstacle, why, started) in obstacles() {
        let world = World::new(1);
        obstacle(&mut world.state());
        wait_after(&world, SECOND, &[OUTSIDE, INSIDE]);
        world.after(40 * SECOND, |state| {
            assert!(state.holds_back && state.released.is_empty());
            state.waits_for_safe_gpu.retain(|pid| *pid != OUTSIDE);
        });
        world.after(42 * SECOND, |state| {
            assert_eq!((&state.released[..], state.holds_back), (&[0][..], true));
            state.ends(INSIDE, JobExit::Code(0));
        });
        ends_after(&world, 50 * SECOND, 0);
        let limited = RunOrder { handoff: 60 * SECOND, ..with_placeholder(1) };
        let reported = reported(&world, &limited);
        assert!(reported[0].starts_with("NotCovered") && reported[0].contains(why), "{reported:?}");
        assert_eq!(reported[1..], ["Contended([Pid(100)])"], "{why}");
        assert_eq!(world.state().accompanied.len(), started, "{why}");
    }
}

#[test]
fn outsider_at_lock_of_other_version_does_not_block() {
    let world = World::new(1);
    world.state().accompany_fault = Some(ErrorKind::Io);
    wait_after(&world, SECOND, &[OUTSIDE]);
    world.after(SECOND, |state| {
        state.add(process(INSIDE, JOB, "safe-gpu"));
        state.waits_for_other_safe_gpu = vec![INSIDE];
    });
    world.after(3 * SECOND, |state| {
        assert_eq!((&state.released[..], state.holds_back), (&[1][..], true));
        state.uses(JOB, 0, 100);
    });
    world.after(4 * SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
    ends_after(&world, 10 * SECOND, 0);
    let reported = reported(&world, &with_placeholder(1));
    assert_eq!(reported[1..], ["HandedOff(Seen)"], "{reported:?}");
}

#[test]
fn timeout_ends_endless_wait_without_placeholders() {
    for waiting in [&[OUTSIDE, INSIDE][..], &[OUTSIDE]] {
        let world = World::new(1);
        world.state().accompany_fault = Some(ErrorKind::Io);
        wait_after(&world, SECOND, waiting);
        world.after(29 * SECOND, |state| assert!(state.holds_back));
        world.after(33 * SECOND, |state| {
            assert!(!state.holds_back);
            state.ends(INSIDE, JobExit::Code(0));
        });
        ends_after(&world, 50 * SECOND, 0);
        let reported = reported(&world, &with_placeholder(1));
        assert_eq!(reported.last().unwrap(), "HandedOff(TimedOut)", "{reported:?}");
        assert_eq!(reported.len(), 1 + waiting.len(), "{reported:?}");
    }
}

#[test]
fn failed_placeholders_are_reported() {
    let world = World::new(1);
    wait_after(&world, SECOND, &[OUTSIDE, INSIDE]);
    world.after(2 * SECOND, |state| state.ends(1000, JobExit::Code(125)));
    world.after(3 * SECOND, |state| state.waits_for_safe_gpu = vec![INSIDE]);
    world.after(5 * SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
    ends_after(&world, 10 * SECOND, 0);
    let lines = reported(&world, &with_placeholder(1));
    assert!(lines[0].starts_with("NotCovered") && lines[0].contains("CUDA error 2"), "{lines:?}");
    assert_eq!(world.state().released, [0]);

    let world = World::new(1);
    wait_after(&world, SECOND, &[INSIDE]);
    world.after(6 * SECOND, |state| state.ends(1000, JobExit::Signal(9)));
    world.after(8 * SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
    ends_after(&world, 10 * SECOND, 0);
    let lines = reported(&world, &with_placeholder(1));
    assert_eq!(lines[0], "HandedOff(Wanted)");
    assert!(lines[1].starts_with("NotCovered"), "{lines:?}");
}

#[test]
fn placeholders_end_when_job_stops_waiting() {
    let world = World::new(2);
    world.state().shows_after = Some(4 * SECOND);
    wait_after(&world, SECOND, &[INSIDE]);
    world.after(3 * SECOND, |state| {
        assert_eq!(state.companions(), [1000, 1001]);
        state.waits_for_safe_gpu.clear();
    });
    world.after(5 * SECOND, |state| {
        assert_eq!((state.companions(), state.holds_back), (vec![], true), "nobody needs them");
    });
    world.after(19 * SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
    ends_after(&world, 20 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(2)), [""; 0]);
}

#[test]
fn placeholder_timeout_restarts_when_job_waits_again() {
    let world = World::new(1);
    let again = |state: &mut State| state.waits_for_safe_gpu = vec![INSIDE];
    world.state().shows_after = Some(4 * SECOND);
    wait_after(&world, SECOND, &[INSIDE]);
    world.after(3 * SECOND, |state| state.waits_for_safe_gpu.clear());
    world.after(100 * SECOND, again);
    world.after(110 * SECOND, |state| {
        assert_eq!((state.companions(), state.holds_back), (vec![1001], false));
        state.ends(INSIDE, JobExit::Code(0));
    });
    ends_after(&world, 120 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(1)), ["HandedOff(Wanted)"]);
}

#[test]
fn placeholder_timeout_restarts_when_device_is_unused_again() {
    let world = World::new(2);
    world.state().shows_after = Some(20 * SECOND);
    world.after(SECOND, |state| state.uses(JOB, 0, 100));
    wait_after(&world, 2 * SECOND, &[INSIDE]);
    world.after(15 * SECOND, |state| {
        assert_eq!(state.companions(), [1000]);
        state.devices[0].listed.clear();
    });
    // The second one, started later, has not appeared 30 seconds after the first was started.
    world.after(50 * SECOND, |state| {
        assert_eq!((state.companions(), state.holds_back), (vec![1000, 1001], false));
        state.ends(INSIDE, JobExit::Code(0));
    });
    ends_after(&world, 60 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(2)), ["HandedOff(Wanted)"]);
}

#[test]
fn time_limit_ends_run_with_hanging_placeholder() {
    let world = World::new(1);
    world.state().shows_after = None;
    wait_after(&world, SECOND, &[INSIDE]);
    world.after(7 * SECOND, |state| state.ends(INSIDE, JobExit::Code(0)));
    let limited = RunOrder { time_limit: Some(5 * SECOND), ..with_placeholder(1) };
    let (report, _) = outcome(&world, &limited);
    let report = report.unwrap();
    assert!(report.limit_hit && world.state().companions().is_empty());
}

#[test]
fn locks_are_taken_again_between_two_programs_of_job() {
    let world = World::new(1);
    world.after(2 * SECOND, |state| state.uses(JOB, 0, 100));
    world.after(10 * SECOND, |state| {
        assert!(!state.holds_back);
        state.devices[0].listed.clear();
    });
    wait_after(&world, 12 * SECOND, &[OUTSIDE]);
    world.after(14 * SECOND, |state| assert!(state.holds_back, "the device looks unused"));
    // The outsider is served, and the next program comes, without the device looking unused.
    world.after(50 * SECOND, |state| {
        assert_eq!((state.companions(), state.holds_back), (vec![1000], false));
        state.waits_for_safe_gpu.clear();
        state.uses(JOB, 0, 100);
    });
    world.after(60 * SECOND, |state| {
        assert_eq!((state.companions(), state.holds_back), (vec![], false));
        state.devices[0].listed.clear();
    });
    wait_after(&world, 62 * SECOND, &[INSIDE]);
    world.after(70 * SECOND, |state| {
        assert_eq!((state.companions(), state.holds_back), (vec![1001], false));
        state.ends(INSIDE, JobExit::Code(0));
    });
    ends_after(&world, 80 * SECOND, 0);
    let expected = ["Seen", "Covered", "Wanted"].map(|why| format!("HandedOff({why})"));
    assert_eq!(reported(&world, &with_placeholder(1)), expected);
}

#[test]
fn locks_are_not_taken_again_before_job_appears() {
    let world = World::new(1);
    world.state().accompany_fault = Some(ErrorKind::Io);
    wait_after(&world, SECOND, &[OUTSIDE]);
    world.after(100 * SECOND, |state| {
        assert!(!state.holds_back, "each outsider would wait for the timeout");
        state.waits_for_safe_gpu.clear();
        state.uses(JOB, 0, 100);
    });
    world.after(110 * SECOND, |state| {
        assert!(!state.holds_back);
        state.devices[0].listed.clear();
    });
    world.after(112 * SECOND, |state| assert!(state.holds_back));
    ends_after(&world, 120 * SECOND, 0);
    let reported = reported(&world, &with_placeholder(1));
    assert_eq!(reported[1..], ["HandedOff(TimedOut)"], "{reported:?}");
}

#[test]
fn faster_safe_gpu_is_not_disturbed() {
    let world = World::new(1);
    world.after(2 * SECOND, |state| state.uses(JOB, 0, 100));
    world.after(10 * SECOND, |state| {
        state.devices[0].listed.clear();
        state.is_safe_gpu_at_work = true;
    });
    world.after(12 * SECOND, |state| {
        assert!(!state.holds_back);
        state.is_safe_gpu_at_work = false;
    });
    world.after(13 * SECOND, |state| assert!(state.holds_back));
    ends_after(&world, 20 * SECOND, 0);
    assert_eq!(reported(&world, &with_placeholder(1)), ["HandedOff(Seen)"]);
}
