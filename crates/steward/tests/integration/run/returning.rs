//! Processes left behind that come back: each holder that is ended is followed by another.

use super::leftovers::pids;
use super::*;

/// A holder with PID 61 that is replaced by the next PID each time it is ended, up to this one.
fn returning_until(last: u32) -> World {
    let world = World::new(1);
    world.after(SECOND, move |state| {
        state.add(process(61, JOB, "first"));
        state.successors = (61..last).map(|pid| (pid, pid + 1)).collect();
        state.devices[0].open.extend(61..=last);
    });
    ends_after(&world, 5 * SECOND, 0);
    world
}

#[test]
fn self_forking_holder_is_stopped_and_killed() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "innocent"));
        state.add(process(100, JOB, "chain"));
        state.devices[0].open.push(100);
        state.chain = Some(100);
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    assert!(!report.lease_stays && report.stopped.is_none(), "{report:?}");
    assert_eq!(pids(&report.still_there), [61]);
    assert_eq!(report.elapsed, 7 * SECOND, "it was ended at once");
    let state = world.state();
    assert_eq!(state.chain, None);
    assert!(state.stopped.is_empty() && state.signals.iter().all(|(pid, _)| *pid > 100));
}

#[test]
fn endlessly_spawning_processes_keep_lease() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(100, JOB, "chain"));
        state.devices[0].open.push(100);
        state.chain = Some(100);
        state.no_arrest = true;
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran_leaving(&world, &order(Claim::whole(1)), true);
    assert!(report.lease_stays && report.stopped.is_some(), "{report:?}");
}

#[test]
fn new_processes_without_device_are_not_signalled() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(100, JOB, "busy"));
        state.chain = Some(100);
    });
    // The fork that it passes the device to has closed it.
    world.after(2 * SECOND, |state| state.devices.iter_mut().for_each(|it| it.open.clear()));
    ends_after(&world, 5 * SECOND, 0);
    world.state().chain_uses_device = false;
    let report = ran(&world, &order(Claim::whole(1)));
    assert!(!report.lease_stays && world.state().signals.is_empty(), "{report:?}");
    assert!(world.state().chain.is_some() && world.state().stopped.is_empty());
}

#[test]
fn loop_respawning_holders_is_ended() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "loop"));
        state.add(process(62, 61, "again"));
        state.add(process(58, JOB, "innocent"));
        state.uses(62, 0, 1_000);
        state.restarts = Some((61, SECOND));
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    assert_eq!(pids(&report.still_there), [58]);
    assert!(!report.lease_stays && report.memory_back == Ok(true), "{report:?}");
    assert!(world.state().signals.contains(&(61, 9)), "the loop starts the holders");
}

#[test]
fn returning_holder_gets_no_grace_period_from_third_round_on() {
    let world = returning_until(63);
    world.state().deaf_to = (61..=63).map(|pid| (pid, vec![15])).collect();
    let report = ran(&world, &order(Claim::whole(1)));
    let signals = world.state().signals.clone();
    assert_eq!(signals, [(61, 15), (61, 9), (62, 15), (62, 9), (63, 9)]);
    assert_eq!(report.elapsed, 5 * SECOND + 2 * order(Claim::whole(1)).grace);
}

#[test]
fn endlessly_returning_holder_is_ended_ten_times() {
    let world = returning_until(80);
    let report = ran_leaving(&world, &order(Claim::whole(1)), true);
    let why = report.stopped.unwrap().text;
    assert_eq!(why, "end job processes that keep reopening its devices");
    let signalled: Vec<u32> = world.state().signals.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(signalled, (61..=70).collect::<Vec<_>>());
    assert_eq!(pids(&report.remaining), [71]);
}

#[test]
fn helper_starting_holders_is_not_ended() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(70, SELF, "nvml-helper"));
        state.helpers = vec![70];
        state.add(process(71, 70, "again"));
        state.add(process(58, JOB, "innocent"));
        state.uses(71, 0, 1_000);
        state.restarts = Some((70, SECOND));
    });
    ends_after(&world, 5 * SECOND, 0);
    ran_leaving(&world, &order(Claim::whole(1)), true);
    let state = world.state();
    assert!(state.signals.iter().all(|(pid, _)| *pid > 70), "{:?}", state.signals);
}

#[test]
fn new_processes_are_stopped_only_while_holders_return() {
    let world = returning_until(63);
    world.after(SECOND, |state| {
        state.add(process(100, JOB, "busy"));
        state.chain_uses_device = false;
        state.chain = Some(100);
    });
    let token = ActToken::user_confirmed();
    let mut signalled = Vec::new();
    let order = order(Claim::whole(1));
    let report = run(&order, &world.ports(), &world, &token, &mut |event| {
        if let Event::CleaningUp(gpu_reaper::Event::Signalled(target, _)) = event {
            signalled.push((target.key.pid.0, !world.state().stopped.is_empty()));
        }
        ControlFlow::Continue(())
    });
    assert!(!report.unwrap().lease_stays && world.state().stopped.is_empty());
    assert_eq!(signalled, [(61, false), (62, false), (63, true)]);
}

#[test]
fn first_successor_gets_sigterm_and_next_sigkill() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "first"));
        state.successors = vec![(61, 62), (62, 63), (63, 64)];
    });
    ends_after(&world, 5 * SECOND, 0);
    let token = ActToken::user_confirmed();
    let mut watch = |_: Event<'_>| ControlFlow::Continue(());
    let order = order(Claim::whole(1));
    isolate(&order, &world.ports(), &world, &token, &mut watch).unwrap();
    assert_eq!(world.state().signals, [(61, 15), (62, 15), (63, 9), (64, 9)]);
}
