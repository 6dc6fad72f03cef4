//! Taking devices of a machine of four, with locks and a clock that are made up.

mod nested;
mod world;

use gpu_claim::*;
use gpu_core::*;
use std::ops::ControlFlow;
use std::time::Duration;
use world::{MACHINE, Made, ask, choose, devices, entry, id, names, take_now, take_while};

#[test]
fn what_is_free_is_taken_and_held_until_it_is_dropped() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 1, &["a"]));
    let taken = take_now(&made, &ask(2, Wait::No)).ok().unwrap();
    assert_eq!(taken.entry.devices, devices(&["b", "c"]));
    assert_eq!(taken.beside, [entry("x", 1, 1, &["a"])]);
    assert!(taken.held_back.is_none());
    assert_eq!(made.entries(EntryKind::Lease).unwrap().len(), 2);
    assert_eq!(made.waiters(), 0);
    drop(taken);
    assert_eq!(made.entries(EntryKind::Lease).unwrap().len(), 1);
}

#[test]
fn who_does_not_wait_leaves_nothing() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 2, &["a", "b"]));
    made.add(EntryKind::Waiter, entry("w", 2, 1, &[]));
    let Err(NotTaken::NotNow { ahead, leases, held_up: None }) = take_now(&made, &ask(3, Wait::No))
    else {
        panic!("two are free")
    };
    assert_eq!((ahead.len(), leases.len()), (1, 1));
    assert!(matches!(take_now(&made, &ask(5, Wait::Ever)), Err(NotTaken::Never)));
    assert_eq!((made.waiters(), made.with(|world| world.entries.len())), (1, 2));
}

#[test]
fn a_wait_ends_when_the_time_is_over_or_somebody_asks_and_leaves_nothing() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let five = Wait::For(Duration::from_secs(5));
    let result = take_while(&made, &ask(1, five), |waiting| {
        assert_eq!(made.waiters(), 1);
        assert_eq!(waiting.leases.len(), 1);
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(NotTaken::TimedOut { .. })));
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(5) && now < Duration::from_secs(6), "{now:?}");
    let result = take_while(&made, &ask(1, Wait::Ever), |_| ControlFlow::Break(()));
    assert!(matches!(result, Err(NotTaken::Stopped)));
    assert_eq!(made.waiters(), 0);
}

#[test]
fn a_wait_ends_with_the_devices_of_whoever_ended() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let taken = take_while(&made, &ask(4, Wait::Ever), |waiting| {
        if waiting.waited > Duration::from_secs(3) {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), MACHINE);
    // In the last moment too.
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
fn who_waited_gets_another_name_where_somebody_took_the_one_that_was_told() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let taken = take_while(&made, &ask(1, Wait::Ever), |_| {
        let waiters = made.entries(EntryKind::Waiter).unwrap();
        made.with(|world| world.spoiled = waiters.into_iter().map(|entry| entry.id).collect());
        made.end(&id("x"));
        ControlFlow::Continue(())
    });
    let taken = taken.ok().unwrap();
    let spoiled = made.with(|world| world.spoiled.clone());
    assert_eq!((spoiled.len(), spoiled.contains(&taken.entry.id)), (1, false));
    assert_eq!(made.entries(EntryKind::Lease).unwrap(), std::slice::from_ref(&taken.entry));
    assert_eq!(made.waiters(), 0);
    // Nobody knows the name of who does not wait: then the folder is at fault.
    let own = id(&format!("own-{}", made.with(|world| world.ids) + 1));
    made.with(|world| world.spoiled = vec![own]);
    assert!(matches!(take_now(&made, &ask(1, Wait::No)), Err(NotTaken::Failed(_))));
}

#[test]
fn of_two_at_one_moment_who_sees_the_other_withdraws() {
    let made = Made::default();
    made.with(|world| world.met = vec![entry("y", 1, 1, &["b"]), entry("x", 1, 1, &["a"])]);
    let mut first = true;
    let taken = take_while(&made, &ask(1, Wait::Ever), |_| {
        let own = made.entries(EntryKind::Lease).unwrap();
        let own = own.iter().filter(|lease| lease.command == "own").count();
        assert_eq!(own, 0, "it is withdrawn before anything else");
        first = false;
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), ["c"]);
    assert!(!first);
    assert_eq!(made.with(|world| world.tables), 3);
}

#[test]
fn who_was_met_on_another_device_is_no_reason_to_withdraw() {
    let made = Made::default();
    made.with(|world| world.met = vec![entry("x", 1, 1, &["d"])]);
    assert_eq!(names(take_now(&made, &ask(1, Wait::No))), ["a"]);
}

#[test]
fn who_is_ahead_and_does_not_move_is_passed_after_a_while() {
    let made = Made::default();
    made.add(EntryKind::Waiter, entry("stopped", 1, 4, &[]));
    let taken = take_now(&made, &ask(1, Wait::For(Duration::from_secs(60))));
    assert_eq!(names(taken), ["a"]);
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(10) && now < Duration::from_secs(25), "{now:?}");
    // One that could not be served has nothing to answer for.
    made.add(EntryKind::Lease, entry("x", 1, 1, &["d"]));
    let result = take_now(&made, &ask(1, Wait::For(Duration::from_secs(60))));
    assert!(matches!(result, Err(NotTaken::TimedOut { .. })));
}

#[test]
fn a_lease_is_taken_out_of_another() {
    let made = Made::default();
    let outer = entry("outer", 1, 3, &["a", "b", "c"]);
    made.add(EntryKind::Lease, outer.clone());
    made.add(EntryKind::Waiter, entry("w", 2, 4, &[]));
    let mut inner = ask(1, Wait::No);
    inner.claim.among = outer.devices.clone();
    inner.within = Some(outer.clone());
    let first = take_now(&made, &inner).ok().unwrap();
    assert_eq!(first.entry.within, [id("outer")]);
    assert_eq!(first.beside, [], "the outer one and those outside of it do not matter");
    let second = take_now(&made, &inner).ok().unwrap();
    assert_eq!([first.entry.devices, second.entry.devices].concat(), devices(&["a", "b"]));
    let outside = take_now(&made, &ask(1, Wait::No));
    assert!(matches!(outside, Err(NotTaken::NotNow { .. })));

    for (outer, why) in [
        (
            Entry { id: id("ended"), ..outer.clone() },
            "take devices out of lease ended, which has ended",
        ),
        (Entry { owner: 7, ..outer }, "which has ended"),
    ] {
        let Err(NotTaken::Failed(error)) =
            take_now(&made, &Ask { within: Some(outer), ..inner.clone() })
        else {
            panic!("it is no lease of this user")
        };
        assert!(error.to_string().ends_with(why), "{error}");
    }
    let foreign = Entry { owner: 7, ..entry("foreign", 1, 1, &["d"]) };
    made.add(EntryKind::Lease, foreign.clone());
    let result = take_now(&made, &Ask { within: Some(foreign), ..inner });
    let Err(NotTaken::Failed(error)) = result else { panic!("it is another user's") };
    assert!(error.to_string().ends_with("belongs to another user"), "{error}");
}

#[test]
fn a_safe_gpu_at_work_is_waited_for_and_one_that_cannot_be_held_is_told() {
    let made = Made::default();
    let beside = |wait| Ask { beside_safe_gpu: true, ..ask(1, wait) };
    made.with(|world| world.safe_gpu = Some(ErrorKind::TimedOut));
    let result = take_now(&made, &beside(Wait::No));
    assert!(matches!(result, Err(NotTaken::NotNow { held_up: Some(HeldUp::SafeGpu), .. })));
    let result = take_now(&made, &beside(Wait::For(Duration::from_secs(3))));
    assert!(matches!(result, Err(NotTaken::TimedOut { held_up: Some(HeldUp::SafeGpu), .. })));
    let taken = take_while(&made, &beside(Wait::Ever), |waiting| {
        assert_eq!(waiting.held_up, Some(HeldUp::SafeGpu));
        if waiting.waited > Duration::from_secs(1) {
            made.with(|world| world.safe_gpu = None);
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(taken.ok().unwrap().held_back, Some(Ok(_))));
    made.with(|world| world.safe_gpu = Some(ErrorKind::Io));
    let taken = take_now(&made, &beside(Wait::No)).ok().unwrap();
    assert_eq!(taken.held_back.unwrap().err().unwrap().kind(), ErrorKind::Io);
}

#[test]
fn a_table_that_somebody_keeps_is_waited_for_no_longer_than_was_asked() {
    let after = |wait| {
        let made = Made::default();
        made.with(|world| world.is_table_kept = true);
        let mut told = 0;
        let result = take_while(&made, &ask(1, wait), |waiting| {
            assert_eq!(waiting.held_up, Some(HeldUp::Table));
            told += 1;
            ControlFlow::Continue(())
        });
        let result = result.err().unwrap_or_else(|| panic!("nobody may decide"));
        (result, made.with(|world| world.now.as_millis()), told)
    };
    let (result, now, _) = after(Wait::No);
    assert!(matches!(result, NotTaken::NotNow { held_up: Some(HeldUp::Table), .. }), "{result:?}");
    assert_eq!(now, 250, "as long as others' decisions take");
    let (result, now, told) = after(Wait::For(Duration::from_secs(5)));
    assert!(matches!(result, NotTaken::TimedOut { held_up: Some(HeldUp::Table), .. }));
    assert_eq!((now, told), (5000, 4));
    for wait in [Wait::For(Duration::from_secs(60)), Wait::Ever] {
        let (result, now, told) = after(wait);
        let NotTaken::Failed(error) = result else { panic!("{result:?}") };
        assert_eq!((error.kind(), now, told), (ErrorKind::TimedOut, 10_000, 9));
    }
}

#[test]
fn conflicts_without_end_end_with_the_time() {
    let made = Made::default();
    let meet = |made: &Made| made.with(|world| world.met = vec![entry("x", 1, 1, &["a"])]);
    meet(&made);
    let result = take_while(&made, &ask(1, Wait::For(Duration::from_secs(2))), |_| {
        made.end(&id("x"));
        meet(&made);
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(NotTaken::TimedOut { held_up: None, .. })));
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(2) && now < Duration::from_secs(3), "{now:?}");
}

#[test]
fn a_user_with_a_flood_of_leases_gets_no_more_and_others_do() {
    let made = Made::default();
    for number in 0..256 {
        made.add(EntryKind::Lease, entry(&format!("x-{number}"), number % 100, 1, &["d"]));
    }
    let Err(NotTaken::Failed(error)) = take_now(&made, &ask(1, Wait::Ever)) else {
        panic!("one more would not be told apart")
    };
    assert!(error.to_string().ends_with("a user who has 256 leases already"), "{error}");
    assert_eq!(made.with(|world| world.entries.len()), 256);
    made.with(|world| world.entries.iter_mut().for_each(|(_, entry)| entry.owner = 7));
    made.add(EntryKind::Lease, Entry { owner: 7, ..entry("late", 300, 1, &["a"]) });
    assert_eq!(names(take_now(&made, &ask(1, Wait::Ever))), ["b"], "no lease is passed over");
}

#[test]
fn nobody_decides_by_an_old_look() {
    let made = Made::default();
    made.with(|world| world.table = Duration::from_secs(2));
    let mut looks = 0;
    let mut look = || {
        looks += 1;
        if looks == 2 {
            made.with(|world| world.table = Duration::ZERO);
        }
        Ok(())
    };
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let taken = take(&made, &made, &ask(1, Wait::No), &mut look, &choose, &mut watch);
    assert_eq!(names(taken), ["a"]);
    assert_eq!(looks, 2);
}

#[test]
fn a_failed_look_leaves_nothing() {
    let made = Made::default();
    let mut look = || Err(Error::new(MachineFault::NoLibrary, "load the driver's library"));
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let result = take(&made, &made, &ask(1, Wait::Ever), &mut look, &choose, &mut watch);
    assert!(matches!(result, Err(NotTaken::Failed(_))));
    assert_eq!(made.with(|world| (world.entries.len(), world.tables)), (0, 0));
}
