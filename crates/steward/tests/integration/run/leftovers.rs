//! Processes left behind that do not end, or hide.

use super::*;

/// Runs the program until the lease is no longer kept, which must not be before this time.
fn kept(world: &World, order: &RunOrder, until: Duration) -> (RunReport, Option<Duration>) {
    let start = world.state().now;
    let token = ActToken::user_confirmed();
    let mut since = None;
    let report = run(order, &world.ports(), world, &token, &mut |event| {
        if let Event::Keeping(Ok(report)) = event {
            assert!(report.lease_stays);
            since = Some(world.state().now);
        }
        ControlFlow::Continue(())
    });
    let time = world.state().now - start;
    assert!(time >= until, "the lease was kept for {time:?} only");
    (report.unwrap(), since)
}

/// Makes the program ignore all signals.
fn freeze(world: &World) {
    world.after(SECOND, |state| {
        state.deaf_to.insert(JOB, vec![15, 9]);
        let job = state.processes.get_mut(&JOB).unwrap();
        job.state = Ok(ProcessState::Uninterruptible);
    });
}

fn limited() -> RunOrder {
    RunOrder { time_limit: Some(60 * SECOND), ..order(Claim::whole(1)) }
}

pub(super) fn pids(processes: &[ProcessInfo]) -> Vec<u32> {
    processes.iter().map(|info| info.key.pid.0).collect()
}

#[test]
fn frozen_job_is_abandoned_at_limit_and_keeps_lease_until_gone() {
    let world = World::new(1);
    freeze(&world);
    world.after(5000 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1, "the lease is kept");
        state.ends(JOB, JobExit::Signal(9));
    });
    let (report, since) = kept(&world, &limited(), 5000 * SECOND);
    // Limit and grace, and some seconds in which SIGKILL could have ended it.
    assert!(report.elapsed <= 75 * SECOND, "{:?}", report.elapsed);
    assert!(since.unwrap() <= Duration::from_secs(1000 + 76));
    let why = report.stopped.as_ref().unwrap();
    assert_eq!(why.text, "end process 60 (train), which is frozen or in uninterruptible sleep");
    assert_eq!((pids(&report.still_there), pids(&report.remaining)), (vec![JOB], vec![JOB]));
    let state = world.state();
    assert!(state.now >= Duration::from_secs(6000) && state.leases.is_empty());
    assert!(!state.left_to_others && !state.holds_back);
}

#[test]
fn kept_lease_is_republished_if_its_file_is_removed() {
    let world = World::new(1);
    freeze(&world);
    world.after(100 * SECOND, |state| state.leases.clear());
    world.after(4000 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.ends(JOB, JobExit::Signal(9));
    });
    kept(&world, &limited(), 4000 * SECOND);
    assert!(world.state().leases.is_empty());
}

#[test]
fn sigterm_releases_kept_lease_but_sighup_does_not() {
    let world = World::new(1);
    freeze(&world);
    world.after(1000 * SECOND, |state| state.events.push(JobEvent::EndRequested(1)));
    world.after(2000 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.events.push(JobEvent::EndRequested(15));
    });
    kept(&world, &limited(), 2000 * SECOND);
    let state = world.state();
    assert!(state.left_to_others, "who inherited it may keep it");
    assert!(state.now < Duration::from_secs(1000 + 2010));
}

#[test]
fn sigterm_releases_kept_lease_even_if_job_is_not_watched() {
    let world = World::new(1);
    freeze(&world);
    world.after(10 * SECOND, |state| state.watch_fault = Some(ErrorKind::Io));
    world.after(2000 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.events.push(JobEvent::EndRequested(15));
    });
    let token = ActToken::user_confirmed();
    let mut watch = |_: Event<'_>| ControlFlow::Continue(());
    let lost = run(&limited(), &world.ports(), &world, &token, &mut watch).unwrap_err();
    assert!(matches!(lost, NotRun::Lost(..)));
    let state = world.state();
    assert!(state.left_to_others && state.now < Duration::from_secs(1000 + 2010));
}

#[test]
fn child_of_unkillable_process_keeps_lease() {
    let world = World::new(1);
    freeze(&world);
    world.after(1000 * SECOND, |state| {
        state.add(process(61, JOB, "child"));
        state.ends(JOB, JobExit::Signal(9));
    });
    world.after(2000 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.ends(61, JobExit::Code(0));
    });
    kept(&world, &limited(), 2000 * SECOND);
    assert!(world.state().leases.is_empty());
}

#[test]
fn frozen_leftover_holder_keeps_lease() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        let mut frozen = process(61, JOB, "frozen");
        frozen.state = Ok(ProcessState::Uninterruptible);
        state.add(frozen);
        state.add(process(62, JOB, "holder"));
        state.add(process(63, JOB, "innocent"));
        state.deaf_to.insert(61, vec![15, 9]);
        state.devices[0].open.extend([61, 62]);
    });
    ends_after(&world, 5 * SECOND, 3);
    world.after(500 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.ends(61, JobExit::Signal(9));
    });
    let (report, since) = kept(&world, &order(Claim::whole(1)), 500 * SECOND);
    assert_eq!(report.ending, JobExit::Code(3));
    let why = report.stopped.as_ref().unwrap();
    assert_eq!(why.text, "end process 61 (frozen), which is frozen or in uninterruptible sleep");
    assert_eq!(pids(&report.remaining), [61]);
    assert_eq!(pids(&report.still_there), [61, 63]);
    assert!(since.unwrap() < Duration::from_secs(1000 + 40), "{since:?}");
    let state = world.state();
    assert!(!state.processes.contains_key(&62) && state.processes.contains_key(&63));
    assert!(state.leases.is_empty());
}

#[test]
fn unkillable_holder_keeps_lease_until_gone() {
    for (fault, why) in [
        (None, "end process 61 (holder), which has not exited after SIGKILL"),
        (Some(ProcessFault::NotPermitted.into()), "send SIGTERM to process 61"),
    ] {
        let world = World::new(1);
        world.after(SECOND, move |state| {
            state.add(process(61, JOB, "holder"));
            state.add(process(62, JOB, "innocent"));
            state.deaf_to.insert(61, vec![15, 9]);
            state.devices[0].open.push(61);
            state.signal_fault = fault;
        });
        ends_after(&world, 5 * SECOND, 0);
        world.after(500 * SECOND, |state| {
            assert_eq!(state.leases.len(), 1);
            state.ends(61, JobExit::Signal(9));
        });
        let (report, since) = kept(&world, &order(Claim::whole(1)), 500 * SECOND);
        assert_eq!(report.stopped.as_ref().unwrap().text, why);
        assert_eq!(pids(&report.remaining), [61]);
        assert!(since.unwrap() < Duration::from_secs(1000 + 40), "{since:?}");
        assert!(world.state().leases.is_empty());
    }
}

#[test]
fn holder_hiding_from_clean_up_keeps_lease_until_gone() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "holder"));
        state.deaf_to.insert(61, vec![15, 9]);
        state.devices[0].open.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    // SIGKILL was sent after 15 s, and the last scans began one second later.
    world.after(17 * SECOND, |state| state.unseen.push(61));
    world.after(500 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.ends(61, JobExit::Signal(9));
    });
    let (report, since) = kept(&world, &order(Claim::whole(1)), 500 * SECOND);
    assert_eq!(report.stopped.as_ref().unwrap().text, "inspect process 61");
    assert_eq!((pids(&report.remaining), pids(&report.still_there)), (vec![61], vec![]));
    assert!(since.unwrap() < Duration::from_secs(1000 + 40), "{since:?}");
    assert!(world.state().leases.is_empty());
}

#[test]
fn frozen_holder_ending_during_clean_up_keeps_no_lease() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        let mut frozen = process(61, JOB, "frozen");
        frozen.state = Ok(ProcessState::Uninterruptible);
        state.add(frozen);
        state.add(process(62, JOB, "innocent"));
        state.deaf_to.insert(61, vec![15, 9]);
        state.devices[0].open.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    // SIGKILL was sent after 15 s, and the last scans began one second later.
    world.after(17 * SECOND, |state| state.ends(61, JobExit::Signal(9)));
    let report = ran(&world, &order(Claim::whole(1)));
    assert!(!report.lease_stays && report.stopped.is_none(), "{report:?}");
}

/// A process that hangs at its end shows no descriptors any more.
#[test]
fn frozen_holder_keeps_lease_without_visible_descriptors() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        let mut frozen = process(61, JOB, "frozen");
        frozen.state = Ok(ProcessState::Uninterruptible);
        state.add(frozen);
        state.deaf_to.insert(61, vec![15, 9]);
        state.devices[0].open.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    world.after(100 * SECOND, |state| state.devices[0].open.clear());
    world.after(500 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.ends(61, JobExit::Signal(9));
    });
    kept(&world, &order(Claim::whole(1)), 500 * SECOND);
    assert!(world.state().leases.is_empty());
}

/// The conditions under which the driver cannot report whether a hidden process uses the device.
fn silences() -> [fn(&mut State); 3] {
    [
        |state| state.sees_host_pids = false,
        |state| state.devices[0].fault = Some(ErrorKind::Io),
        |state| {
            state.add(process(90, 1, "nvidia-cuda-mps-server"));
            state.uses(90, 0, 30);
        },
    ]
}

#[test]
fn hidden_process_keeps_lease_if_driver_is_silent() {
    for silence in silences() {
        let world = World::new(1);
        world.after(SECOND, move |state| {
            state.add(process(61, JOB, "hidden"));
            state.add(process(62, JOB, "innocent"));
            state.hidden.push(61);
            silence(state);
        });
        ends_after(&world, 5 * SECOND, 0);
        world.after(100 * SECOND, |state| {
            assert_eq!(state.leases.len(), 1);
            state.ends(61, JobExit::Code(0));
        });
        let (report, _) = kept(&world, &order(Claim::whole(1)), 100 * SECOND);
        let why = report.stopped.as_ref().unwrap();
        assert_eq!(why.text, "check whether process 61 (hidden) has a device open");
        assert_eq!((pids(&report.remaining), pids(&report.unlisted)), (vec![61], vec![]));
        assert!(world.state().signals.is_empty() && world.state().leases.is_empty());
    }
}

#[test]
fn possible_holder_keeps_lease_if_device_file_is_unknown() {
    let world = World::new(1);
    world.state().hides_minors = true;
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "unlisted"));
        state.devices[0].open.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    world.after(100 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.ends(61, JobExit::Code(0));
    });
    let (report, _) = kept(&world, &order(Claim::whole(1)), 100 * SECOND);
    let why = report.stopped.as_ref().unwrap();
    assert_eq!(why.text, "check whether process 61 (unlisted) has a device open");
    assert_eq!(pids(&report.remaining), [61]);
    assert!(world.state().signals.is_empty() && world.state().leases.is_empty());
}

#[test]
fn unlisted_hidden_process_is_reported_and_keeps_no_lease() {
    let world = World::new(2);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "ssh-agent"));
        state.hidden.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(2)));
    assert!(!report.lease_stays && report.stopped.is_none(), "{report:?}");
    assert_eq!((pids(&report.unlisted), pids(&report.still_there)), (vec![61], vec![61]));
    assert!(world.state().signals.is_empty());
}

#[test]
fn listed_hidden_process_is_ended() {
    let world = World::new(2);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "hidden"));
        state.hidden.push(61);
        state.uses(61, 1, 500);
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(2)));
    assert!(!report.lease_stays && report.unlisted.is_empty(), "{report:?}");
    assert_eq!(world.state().signals, [(61, 15)]);
}

#[test]
fn hidden_process_releases_lease_when_driver_answers() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "ssh-agent"));
        state.hidden.push(61);
        state.devices[0].fault = Some(ErrorKind::Io);
    });
    ends_after(&world, 5 * SECOND, 0);
    world.after(100 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.devices[0].fault = None;
    });
    kept(&world, &order(Claim::whole(1)), 100 * SECOND);
    let state = world.state();
    assert!(state.leases.is_empty() && state.processes.contains_key(&61));
}

#[test]
fn process_without_device_keeps_no_lease_after_unstable_scan() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        let mut frozen = process(61, JOB, "frozen");
        frozen.state = Ok(ProcessState::Uninterruptible);
        state.add(frozen);
        state.add(process(62, JOB, "loop"));
        state.add(process(100, JOB, "sleep"));
        state.deaf_to.insert(61, vec![15, 9]);
        state.devices[0].open.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    world.after(100 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1);
        state.ends(61, JobExit::Signal(9));
        state.chain_uses_device = false;
        state.chain = Some(100);
    });
    world.after(200 * SECOND, |state| {
        assert_eq!(state.leases.len(), 1, "each look was restless");
        state.chain = None;
    });
    kept(&world, &order(Claim::whole(1)), 200 * SECOND);
    let state = world.state();
    assert!(state.leases.is_empty());
    assert!(state.processes.contains_key(&62), "the loop lives");
}

#[test]
fn uninterruptible_process_may_end_within_grace_period() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        let mut frozen = process(61, JOB, "frozen");
        frozen.state = Ok(ProcessState::Uninterruptible);
        state.add(frozen);
        state.deaf_to.insert(61, vec![15, 9]);
        state.devices[0].open.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    world.after(13 * SECOND, |state| state.ends(61, JobExit::Code(0)));
    let report = ran(&world, &order(Claim::whole(1)));
    assert!(!report.lease_stays && report.stopped.is_none(), "{report:?}");
    assert_eq!(world.state().signals, [(61, 15)]);
}

#[test]
fn holder_that_was_stopped_is_not_kept_waiting() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(100, JOB, "chain"));
        state.devices[0].open.push(100);
        state.chain = Some(100);
        (100..200).for_each(|pid| drop(state.deaf_to.insert(pid, vec![15])));
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    assert!(!report.lease_stays && world.state().stopped.is_empty(), "{report:?}");
    // The grace period is ten seconds.
    assert!(report.elapsed < 10 * SECOND, "{:?}", report.elapsed);
}

#[test]
fn process_ending_soon_after_sigkill_is_not_stuck() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        let mut frozen = process(61, JOB, "frozen");
        frozen.state = Ok(ProcessState::Uninterruptible);
        state.add(frozen);
        state.deaf_to.insert(61, vec![15, 9]);
        state.devices[0].open.push(61);
    });
    ends_after(&world, 5 * SECOND, 0);
    world.after(15_600 * MILLISECOND, |state| {
        assert_eq!(state.signals, [(61, 15), (61, 9)]);
        state.ends(61, JobExit::Signal(9));
    });
    let report = ran(&world, &order(Claim::whole(1)));
    assert!(!report.lease_stays && report.stopped.is_none(), "{report:?}");
}

#[test]
fn unkillable_process_of_isolated_job_is_asked_once() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        let mut frozen = process(61, JOB, "frozen");
        frozen.state = Ok(ProcessState::Uninterruptible);
        state.add(frozen);
        state.add(process(62, JOB, "worker"));
        state.deaf_to.insert(61, vec![15, 9]);
    });
    ends_after(&world, 5 * SECOND, 0);
    let token = ActToken::user_confirmed();
    let mut watch = |event: Event<'_>| match event {
        Event::Keeping(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let order = order(Claim::whole(1));
    let report = isolate(&order, &world.ports(), &world, &token, &mut watch).unwrap();
    assert!(report.lease_stays);
    let signals = world.state().signals.clone();
    assert_eq!(signals.iter().filter(|sent| **sent == (61, 15)).count(), 1, "{signals:?}");
}

#[test]
fn interrupt_stops_clean_up_of_isolated_job() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "deaf"));
        state.deaf_to.insert(61, vec![15]);
    });
    ends_after(&world, 5 * SECOND, 0);
    world.after(7 * SECOND, |state| state.events.push(JobEvent::EndRequested(2)));
    let token = ActToken::user_confirmed();
    let mut watch = |event: Event<'_>| match event {
        Event::Keeping(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let order = order(Claim::whole(1));
    let report = isolate(&order, &world.ports(), &world, &token, &mut watch).unwrap();
    assert_eq!(report.stopped.map(|fault| fault.kind), Some(ErrorKind::Interrupted));
    assert_eq!((pids(&report.still_there), report.lease_stays), (vec![61], true));
    assert_eq!(world.state().signals, [(61, 15)]);
}

#[test]
fn kept_lease_ends_after_several_scans_while_processes_live() {
    let ended = |has_other: bool| {
        let world = World::new(1);
        world.after(SECOND, move |state| {
            let mut frozen = process(61, JOB, "frozen");
            frozen.state = Ok(ProcessState::Uninterruptible);
            state.add(frozen);
            state.deaf_to.insert(61, vec![15, 9]);
            state.devices[0].open.push(61);
            if has_other {
                state.add(process(62, JOB, "other"));
            }
        });
        ends_after(&world, 5 * SECOND, 0);
        world.after(500 * SECOND, |state| state.ends(61, JobExit::Signal(9)));
        kept(&world, &order(Claim::whole(1)), 500 * SECOND);
        assert!(world.state().leases.is_empty());
        world.state().now
    };
    // The other process could have started a holder between two scans.
    assert!(ended(true) > ended(false));
}

#[test]
fn frontend_ends_tree_of_killed_supervisor() {
    let world = World::new(1);
    let launch = Launch { program: "train".into(), ..Launch::default() };
    let mut job = world.launch(&launch).unwrap();
    world.state().add(process(61, JOB, "worker"));
    let ports = gpu_reaper::Ports { backend: &world, host: &world, clock: &world, journal: &world };
    let token = ActToken::user_confirmed();
    let mut watch = |_: gpu_reaper::Event<'_>| ControlFlow::Continue(());
    let ended = take_over(&mut *job, key(SELF), ports, &token, 10 * SECOND, &mut watch);
    assert_eq!(ended.actions.iter().map(|action| action.pid.0).collect::<Vec<_>>(), [60, 61]);
    assert!(ended.still_there.is_empty() && ended.stopped.is_none() && !ended.remains);
}
