//! A run from the claim to the verification, on a machine whose time advances only during a wait.

mod handoff;
mod leftovers;
mod memory_limit;
mod placeholders;
mod returning;

use crate::fake::*;
use gpu_core::visible::Form;
use gpu_core::*;
use gpu_steward::*;
use std::ops::ControlFlow;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn order(claim: Claim) -> RunOrder {
    RunOrder {
        request: Request {
            claim,
            wait: Wait::No,
            pace: Duration::from_millis(100),
            needs_topology: false,
            command: "train".into(),
            root: key(SELF),
        },
        launch: Launch { program: "train".into(), ..Launch::default() },
        visible: Form::Uuid,
        inherited: |_| None,
        bounding: None,
        time_limit: None,
        grace: 10 * SECOND,
        on_death: OnDeath::End,
        handoff: 30 * SECOND,
        placeholder: None,
    }
}

fn outcome(world: &World, order: &RunOrder) -> (Result<RunReport, NotRun>, Vec<String>) {
    let mut events = Vec::new();
    let token = ActToken::user_confirmed();
    let report = run(order, &world.ports(), world, &token, &mut |event| {
        events.push(format!("{event:?}"));
        match event {
            Event::Keeping(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    (report, events)
}

fn ran(world: &World, order: &RunOrder) -> RunReport {
    ran_leaving(world, order, false)
}

/// Runs the program; its lease may be left to the processes that inherited it.
fn ran_leaving(world: &World, order: &RunOrder, leaves: bool) -> RunReport {
    let report = outcome(world, order).0.unwrap();
    let state = world.state();
    assert_eq!((state.left_to_others, state.leases.len()), (leaves, usize::from(leaves)));
    assert!(!state.holds_back, "nothing else is kept");
    assert_eq!(state.inherit, [true, false], "only the program keeps the lease alive");
    report
}

/// Makes the program end by itself after this time.
fn ends_after(world: &World, time: Duration, code: i32) {
    world.after(time, move |state| state.ends(JOB, JobExit::Code(code)));
}

#[test]
fn run_sees_its_devices_and_reports_usage() {
    let world = World::new(3);
    world.state().leases.push(lease("other", 1, 100, &[0]));
    world.after(SECOND, |state| state.uses(JOB, 1, 4_000));
    world.after(3 * SECOND, |state| state.uses(JOB, 1, 2_000));
    world.after(4 * SECOND, |state| {
        state.add(process(61, JOB, "worker"));
        state.uses(61, 1, 3_500);
    });
    world.after(20 * SECOND, |state| state.ends(61, JobExit::Code(0)));
    ends_after(&world, 20 * SECOND, 3);
    world.after(25 * SECOND, |state| assert!(state.processes.contains_key(&SELF)));
    let (report, _) = outcome(&world, &order(Claim::whole(2)));
    let report = report.unwrap();
    let launched = world.state().launched[0].clone();
    let set: Vec<(&str, &str)> = launched
        .set
        .iter()
        .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
        .collect();
    assert_eq!(
        set,
        [
            ("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2"),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            ("GPUWS_LEASE", report.lease.as_str()),
        ]
    );
    assert_eq!(report.ending, JobExit::Code(3));
    let peaks: Vec<_> = report.devices.iter().map(|used| (used.device.index, used.peak)).collect();
    assert_eq!(peaks, [(1, Ok(Bytes::from_mib(5_500))), (2, Ok(Bytes(0)))]);
    assert_eq!(report.elapsed, 20 * SECOND);
    assert_eq!(report.memory_back, Ok(true));
    assert!(report.device_time() >= 2 * report.elapsed);
    assert!(report.left_behind.is_empty() && report.still_there.is_empty());
    assert!(!report.limit_hit && !report.abandoned && report.stopped.is_none());
}

#[test]
fn leftovers_on_device_are_ended_and_others_reported() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "worker"));
        state.add(process(62, 61, "server"));
        state.add(process(63, JOB, "opener"));
        state.uses(61, 0, 3_000);
        state.devices[0].open.push(63);
        state.deaf_to.insert(61, vec![15]);
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    let ended: Vec<_> =
        report.left_behind.iter().map(|action| (action.pid.0, action.signals.clone())).collect();
    assert_eq!(ended, [(61, vec![Signal::Term, Signal::Kill]), (63, vec![Signal::Term])]);
    let there: Vec<_> = report.still_there.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(there, ["server"]);
    assert_eq!((report.memory_back, report.ending), (Ok(true), JobExit::Code(0)));
    let journal = world.state().journal.clone();
    assert!(journal.iter().all(|line| line.contains(r#""membership":{"descends""#)), "{journal:?}");
    // A living process could start a holder: the clean-up watches for two seconds.
    assert_eq!(report.elapsed, 17 * SECOND);
}

#[test]
fn processes_outside_job_are_not_signalled() {
    let world = World::new(1);
    world.state().add(process(100, 2, "python"));
    world.state().uses(100, 0, 900);
    ends_after(&world, 5 * SECOND, 0);
    let claim = Claim { accept_used: true, ..Claim::whole(1) };
    let report = ran(&world, &order(claim));
    assert!(world.state().signals.is_empty() && report.left_behind.is_empty());
    assert_eq!(report.memory_back, Ok(true), "that another one has memory is his");
}

#[test]
fn time_limit_ends_whole_job() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "worker"));
        state.uses(JOB, 0, 3_000);
    });
    let report = ran(&world, &RunOrder { time_limit: Some(60 * SECOND), ..order(Claim::whole(1)) });
    assert!(report.limit_hit);
    assert_eq!(report.ending, JobExit::Signal(15));
    assert_eq!(world.state().signals, [(JOB, 15), (61, 15)]);
    assert_eq!((report.elapsed, report.memory_back), (60 * SECOND, Ok(true)));
    assert!(report.still_there.is_empty());
}

#[test]
fn job_ignoring_sigterm_is_killed_after_grace_period() {
    let world = World::new(1);
    world.state().deaf_to.insert(JOB, vec![15]);
    let (time_limit, grace) = (Some(60_400 * MILLISECOND), 10_300 * MILLISECOND);
    let limited = RunOrder { time_limit, grace, ..order(Claim::whole(1)) };
    let report = ran(&world, &limited);
    assert_eq!(report.ending, JobExit::Signal(9));
    assert_eq!(report.elapsed, 70_700 * MILLISECOND);
    assert_eq!(world.state().signals.last(), Some(&(JOB, 9)));
}

#[test]
fn failed_lease_republication_is_retried_after_a_minute() {
    let world = World::new(1);
    world.after(3000 * SECOND, |state| {
        state.leases.clear();
        state.leases_full = true;
    });
    world.after(3650 * SECOND, |state| {
        assert!(state.leases.is_empty(), "it was tried after an hour, in vain");
        state.leases_full = false;
    });
    world.after(3700 * SECOND, |state| assert_eq!(state.leases.len(), 1));
    ends_after(&world, 3800 * SECOND, 0);
    assert_eq!(ran(&world, &order(Claim::whole(1))).ending, JobExit::Code(0));
}

#[test]
fn full_audit_disk_does_not_prevent_cleanup() {
    let world = World::new(1);
    world.state().journal_full = true;
    world.state().deaf_to.insert(JOB, vec![15]);
    world.after(SECOND, |state| state.add(process(61, JOB, "worker")));
    let limited = RunOrder { time_limit: Some(60 * SECOND), ..order(Claim::whole(1)) };
    let report = ran(&world, &limited);
    assert_eq!(report.ending, JobExit::Signal(9));
    assert!(report.still_there.is_empty() && report.stopped.is_none(), "{report:?}");
    assert_eq!(report.unwritten.map(|fault| fault.text), Some("write journal".into()));
}

#[test]
fn run_without_frontend_ends_or_continues_as_ordered() {
    for (on_death, ending, signals) in [
        (OnDeath::End, JobExit::Signal(15), vec![(JOB, 15), (61, 15)]),
        (OnDeath::Keep, JobExit::Code(0), vec![]),
    ] {
        let world = World::new(1);
        world.after(SECOND, |state| state.add(process(61, JOB, "worker")));
        world.after(9 * SECOND, |state| state.events.push(JobEvent::Abandoned));
        ends_after(&world, 100 * SECOND, 0);
        let report = ran(&world, &RunOrder { on_death, ..order(Claim::whole(1)) });
        assert!(report.abandoned && !report.limit_hit);
        assert_eq!(report.ending, ending);
        assert_eq!(world.state().signals, signals);
    }
}

/// As `pkill -9 -f` kills them.
#[test]
fn run_without_frontend_and_program_ends_or_continues_as_set() {
    for (on_death, signals) in [(OnDeath::End, vec![(61, 15)]), (OnDeath::Keep, vec![])] {
        let world = World::new(1);
        world.after(SECOND, |state| state.add(process(61, JOB, "worker")));
        world.after(9 * SECOND, |state| {
            state.ends(JOB, JobExit::Signal(9));
            state.events.push(JobEvent::Abandoned);
        });
        let report = ran(&world, &RunOrder { on_death, ..order(Claim::whole(1)) });
        assert!(report.abandoned);
        assert_eq!(report.ending, JobExit::Signal(9));
        assert_eq!(world.state().signals, signals);
    }
}

#[test]
fn signals_are_forwarded_to_job() {
    let world = World::new(1);
    world.state().deaf_to.insert(JOB, vec![10]);
    world.after(SECOND, |state| state.events.push(JobEvent::EndRequested(10)));
    world.after(2 * SECOND, |state| state.events.push(JobEvent::EndRequested(15)));
    let report = ran(&world, &order(Claim::whole(1)));
    assert_eq!(world.state().signals, [(JOB, 10), (JOB, 15)]);
    assert_eq!(report.ending, JobExit::Signal(15));
    assert!(!report.limit_hit);
}

#[test]
fn unsignallable_job_keeps_running() {
    let world = World::new(1);
    world.state().pass_fault = Some(ProcessFault::NotPermitted.into());
    world.after(SECOND, |state| state.events.push(JobEvent::EndRequested(15)));
    ends_after(&world, 100 * SECOND, 4);
    let (report, events) = outcome(&world, &order(Claim::whole(1)));
    let report = report.unwrap();
    assert_eq!((report.ending, report.elapsed), (JobExit::Code(4), 100 * SECOND));
    assert!(events.iter().any(|event| event.starts_with("NotPassed(15, ")), "{events:?}");
    let state = world.state();
    assert!(state.signals.is_empty() && state.leases.is_empty() && !state.left_to_others);
}

#[test]
fn lease_is_left_to_unkillable_processes() {
    for lost in [false, true] {
        let world = World::new(1);
        world.state().pass_fault = Some(ProcessFault::NotPermitted.into());
        world.state().deaf_to.insert(JOB, vec![15, 9]);
        world.after(30 * SECOND, move |state| {
            state.watch_fault = lost.then_some(ErrorKind::Io);
        });
        let limited = RunOrder { time_limit: Some(60 * SECOND), ..order(Claim::whole(1)) };
        let (outcome, _) = outcome(&world, &limited);
        match outcome {
            Ok(report) => assert!(!lost && report.still_there[0].key == key(JOB)),
            Err(outcome) => assert!(lost && matches!(outcome, NotRun::Lost(..)), "{outcome:?}"),
        }
        let state = world.state();
        assert!(state.left_to_others && state.leases.len() == 1);
        assert!(state.processes.contains_key(&JOB));
    }
}

#[test]
fn unwatched_but_ended_job_keeps_no_lease() {
    let world = World::new(1);
    world.after(30 * SECOND, |state| state.watch_fault = Some(ErrorKind::Io));
    let (outcome, _) = outcome(&world, &order(Claim::whole(1)));
    assert!(matches!(outcome, Err(NotRun::Lost(..))), "{outcome:?}");
    let state = world.state();
    assert!(!state.left_to_others && state.leases.is_empty());
    assert!(!state.processes.contains_key(&JOB));
}

#[test]
fn ctrl_c_stops_cleanup_and_reports_leftovers() {
    for (signal, left) in [(2, vec!["worker"]), (15, vec![])] {
        let world = World::new(1);
        world.after(SECOND, |state| {
            state.add(process(61, JOB, "worker"));
            state.uses(61, 0, 3_000);
            state.deaf_to.insert(61, vec![15]);
        });
        // A signal that came with the end was meant for the program; a later one is for the
        // supervisor.
        world.after(5 * SECOND, |state| {
            state.ends(JOB, JobExit::Code(0));
            state.events.push(JobEvent::EndRequested(2));
        });
        world.after(7 * SECOND, move |state| state.events.push(JobEvent::EndRequested(signal)));
        let report = ran_leaving(&world, &order(Claim::whole(1)), signal == 2);
        let there: Vec<_> = report.still_there.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(there, left, "signal {signal}");
        assert_eq!(report.stopped.is_some(), signal == 2);
        assert_eq!(report.memory_back, Ok(signal != 2));
    }
}

#[test]
fn unreturned_memory_is_reported_after_timeout() {
    let world = World::new(1);
    world.state().lag = Duration::from_secs(3600);
    world.after(SECOND, |state| state.uses(JOB, 0, 3_000));
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    assert_eq!(report.memory_back, Ok(false));
    assert_eq!(world.state().now, Duration::from_secs(1000 + 5 + 10));
}

#[test]
fn values_unknown_to_driver_are_absent() {
    let world = World::new(1);
    world.after(Duration::from_millis(1), |state| {
        state.devices[0].fault = Some(ErrorKind::TimedOut);
    });
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    assert_eq!(report.devices[0].peak, Err(Absent::NoAnswer));
    assert_eq!(report.memory_back, Err(Absent::NoAnswer));
}

#[test]
fn memory_of_neighbouring_shares_is_attributed_separately() {
    let world = World::new(1);
    world.state().leases.push(share(lease("other", 1, 100, &[0]), 4_000));
    world.state().add(process(100, 2, "gpuws"));
    world.state().add(process(101, 100, "python"));
    world.state().uses(101, 0, 3_000);
    world.after(SECOND, |state| state.uses(JOB, 0, 2_000));
    world.after(2 * SECOND, |state| state.uses(101, 0, 3_900));
    ends_after(&world, 5 * SECOND, 0);
    let claim = share(lease("x", 0, 1, &[0]), 2_500).claim;
    let (report, _) = outcome(&world, &order(claim));
    let report = report.unwrap();
    assert_eq!(report.devices[0].peak, Ok(Bytes::from_mib(2_000)));
    assert_eq!(report.memory_back, Ok(true));
}

#[test]
fn memory_of_mig_device_is_counted_without_its_siblings() {
    let world = World::new(1);
    world.state().devices[0].partitioned = Ok(true);
    world.state().devices[0].mig = vec![(1, 8_000, vec![JOB]), (2, 4_000, vec![100])];
    world.state().add(process(100, 2, "python"));
    world.after(SECOND, |state| state.uses(JOB, 0, 2_000));
    world.after(2 * SECOND, |state| state.uses(100, 0, 3_000));
    ends_after(&world, 5 * SECOND, 0);
    let report = ran(&world, &order(Claim { among: vec![mig_uuid(1)], ..Claim::whole(1) }));
    let [used] = &report.devices[..] else { panic!("{report:?}") };
    assert_eq!((&used.device.uuid, used.peak), (&Ok(mig_uuid(1)), Ok(Bytes::from_mib(2_000))));
    assert_eq!(report.memory_back, Ok(true));
}

#[test]
fn unknown_memory_of_neighbour_makes_freed_memory_unknown() {
    let world = World::new(1);
    world.state().leases.push(share(lease("other", 1, 100, &[0]), 4_000));
    world.state().add(process(100, 2, "gpuws"));
    world.state().add(process(101, 100, "python"));
    world.state().uses(101, 0, 3_000);
    world.state().devices[0].hides_memory_of = Some((101, Absent::NotPermitted));
    ends_after(&world, 5 * SECOND, 0);
    let claim = share(lease("x", 0, 1, &[0]), 2_500).claim;
    let (report, _) = outcome(&world, &order(claim));
    assert_eq!(report.unwrap().memory_back, Err(Absent::NotPermitted));
}

#[test]
fn unlisted_memory_counts_beyond_reserve_of_driver() {
    let reserve = gpu_reaper::driver_reserve(Bytes::from_mib(16_000), false).mib();
    for (mib, peak) in [(reserve, 0), (reserve + 1, reserve + 1)] {
        let world = World::new(1);
        world.after(SECOND, move |state| state.devices[0].unlisted = 10 + mib);
        ends_after(&world, 5 * SECOND, 0);
        let report = ran(&world, &order(Claim::whole(1)));
        assert_eq!(report.devices[0].peak, Ok(Bytes::from_mib(peak)));
    }
}

#[test]
fn failed_launch_leaves_no_lease() {
    let world = World::new(1);
    world.state().launch_fault = Some(ProcessFault::Gone.into());
    let (outcome, _) = outcome(&world, &order(Claim::whole(1)));
    let Err(NotRun::NotStarted(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind(), ProcessFault::Gone.into());
    let state = world.state();
    assert!(state.leases.is_empty() && !state.holds_back);
}

#[test]
fn observer_can_abort_before_start() {
    let world = World::new(1);
    let token = ActToken::user_confirmed();
    let outcome =
        run(&order(Claim::whole(1)), &world.ports(), &world, &token, &mut |event| match event {
            Event::Granted(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
    assert!(matches!(outcome, Err(NotRun::Stopped)));
    assert!(world.state().launched.is_empty() && world.state().leases.is_empty());
}

#[test]
fn isolated_job_leaves_no_processes_and_ends_on_request() {
    let world = World::new(1);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "server"));
        state.add(process(62, 61, "worker"));
        state.uses(62, 0, 1_000);
    });
    ends_after(&world, 5 * SECOND, 1);
    let token = ActToken::user_confirmed();
    let mut watch = |_: Event<'_>| ControlFlow::Continue(());
    let order = order(Claim::whole(1));
    let report = isolate(&order, &world.ports(), &world, &token, &mut watch).unwrap();
    assert_eq!(report.ending, JobExit::Code(1));
    let ended: Vec<_> = report.left_behind.iter().map(|action| action.pid.0).collect();
    assert_eq!(ended, [61, 62]);
    assert!(report.still_there.is_empty());
    assert_eq!(report.memory_back, Ok(true));

    let world = World::new(1);
    world.state().deaf_to.insert(JOB, vec![10]);
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "server"));
        state.events.push(JobEvent::EndRequested(10));
    });
    let report = isolate(&order, &world.ports(), &world, &token, &mut watch).unwrap();
    assert_eq!(report.ending, JobExit::Signal(15));
    assert_eq!(world.state().signals, [(JOB, 15), (61, 15)]);
}

#[test]
fn own_helpers_are_not_part_of_job() {
    let world = World::new(1);
    // The helper was restarted while the job ran. A process of the job has a similar PID, but
    // another parent.
    world.after(SECOND, |state| {
        state.add(process(70, SELF, "nvml-helper"));
        state.add(process(71, JOB, "nvml-helper"));
        state.add(process(72, 71, "worker"));
        state.helpers = vec![70, 72];
    });
    let limited = RunOrder { time_limit: Some(60 * SECOND), ..order(Claim::whole(1)) };
    let report = ran(&world, &limited);
    assert_eq!(world.state().signals, [(JOB, 15), (71, 15), (72, 15)]);
    assert!(report.still_there.is_empty() && world.state().processes.contains_key(&70));
}

#[test]
fn memory_of_ended_process_is_not_added_to_peak() {
    let world = World::new(1);
    world.state().lag = 2 * SECOND;
    world.after(SECOND, |state| {
        state.add(process(61, JOB, "first"));
        state.uses(61, 0, 3_000);
    });
    world.after(6 * SECOND, |state| {
        state.ends(61, JobExit::Code(0));
        state.add(process(62, JOB, "second"));
        state.uses(62, 0, 2_500);
    });
    ends_after(&world, 20 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    assert_eq!(report.devices[0].peak, Ok(Bytes::from_mib(3_000)));
}

#[test]
fn lease_with_removed_file_is_republished() {
    let world = World::new(1);
    world.after(10 * SECOND, |state| state.leases.clear());
    world.after(3700 * SECOND, |state| assert_eq!(state.leases.len(), 1));
    ends_after(&world, 4000 * SECOND, 0);
    assert_eq!(ran(&world, &order(Claim::whole(1))).ending, JobExit::Code(0));
}

#[test]
fn lease_is_renewed_hourly_and_every_minute_after_failure() {
    let world = World::new(1);
    world.after(8000 * SECOND, |state| {
        state.leases.clear();
        state.leases_full = true;
    });
    world.after(10_890 * SECOND, |state| state.leases_full = false);
    world.after(10_990 * SECOND, |state| assert_eq!(state.leases.len(), 1));
    ends_after(&world, 11_000 * SECOND, 0);
    ran(&world, &order(Claim::whole(1)));
    let start = Duration::from_secs(1000);
    let renewals = world.state().renewals.clone();
    let renewals: Vec<Duration> = renewals.iter().map(|at| *at - start).collect();
    let expected = [3600, 7200, 10_800, 10_860, 10_920];
    assert_eq!(renewals, expected.map(Duration::from_secs));
}

#[test]
fn short_use_is_noticed_while_program_starts() {
    let world = World::new(1);
    world.after(2400 * MILLISECOND, |state| state.uses(JOB, 0, 3_000));
    world.after(2900 * MILLISECOND, |state| state.devices[0].listed.clear());
    ends_after(&world, 20 * SECOND, 0);
    let report = ran(&world, &order(Claim::whole(1)));
    assert_eq!(report.devices[0].peak, Ok(Bytes::from_mib(3_000)));
}

#[test]
fn invisible_lease_is_reported_once() {
    let world = World::new(1);
    world.after(10 * SECOND, |state| {
        state.leases.clear();
        state.leases_full = true;
    });
    ends_after(&world, 4000 * SECOND, 0);
    let (report, events) = outcome(&world, &order(Claim::whole(1)));
    assert_eq!(report.unwrap().ending, JobExit::Code(0));
    let reported = events.iter().filter(|event| event.starts_with("Unseen("));
    assert_eq!(reported.count(), 1, "{events:?}");
}

#[test]
fn whole_device_usage_is_known_without_host_pids() {
    let ran = |claim: Claim, lag| {
        let world = World::new(1);
        world.state().sees_host_pids = false;
        world.state().lag = lag;
        world.after(SECOND, |state| state.uses(JOB, 0, 3_000));
        ends_after(&world, 5 * SECOND, 0);
        let report = ran(&world, &order(claim));
        (report.devices[0].peak, report.memory_back)
    };
    let peak = Ok(Bytes::from_mib(3_000));
    assert_eq!(ran(Claim::whole(1), SECOND), (peak, Ok(true)));
    assert_eq!(ran(Claim::whole(1), 1000 * SECOND), (peak, Ok(false)), "it is not freed in time");
    let share = share(lease("x", 0, 1, &[0]), 4_000).claim;
    assert_eq!(ran(share, SECOND), (Err(Absent::NotSupported), Err(Absent::NotSupported)));
}

#[test]
fn unknown_device_holders_are_reported() {
    let world = World::new(1);
    world.state().hides_holders = true;
    world.after(SECOND, |state| state.add(process(61, JOB, "server")));
    ends_after(&world, 5 * SECOND, 0);
    let report = ran_leaving(&world, &order(Claim::whole(1)), true);
    assert_eq!(report.stopped.map(|fault| fault.kind), Some(ErrorKind::Io));
    assert_eq!(report.still_there.len(), 1);
}
