//! Taking devices, from the snapshot to the lease.

use crate::fake::*;
use gpu_core::*;
use gpu_placement::{Bar, Passed, Refusal};
use gpu_steward::{
    ClaimContext, DeviceLeases, Grant, NotGranted, Request, Wait, WaitReason, Wants, listing,
    offered, own_lease, preview, take,
};
use std::ops::ControlFlow;
use std::time::Duration;

fn request(claim: Claim, wait: Wait) -> Request {
    Request {
        claim,
        wait,
        pace: Duration::from_millis(100),
        needs_topology: false,
        command: "train".into(),
        root: key(SELF),
    }
}

fn taken(world: &World, claim: Claim, wait: Wait) -> Result<Grant, NotGranted> {
    take(&request(claim, wait), &world.ports(), &mut |_| ControlFlow::Continue(()))
}

fn indexes(devices: &[DeviceId]) -> Vec<u32> {
    devices.iter().map(|id| id.index).collect()
}

#[test]
fn grant_holds_lease_until_drop() {
    let world = World::new(3);
    world.state().leases.push(lease("other", 1, 100, &[0]));
    let grant = taken(&world, Claim::whole(2), Wait::No).unwrap();
    assert_eq!(indexes(&grant.devices), [1, 2]);
    let decision = grant.decision.as_ref().unwrap();
    assert_eq!(decision.devices(), grant.devices);
    assert_eq!(indexes(&decision.passed().map(|(id, _)| id.clone()).collect::<Vec<_>>()), [0]);
    let leases = world.state().leases.clone();
    assert_eq!(leases[1].devices, [uuid(1), uuid(2)]);
    assert_eq!((leases[1].root, leases[1].owner), (key(SELF), 1000));
    assert!(world.state().holds_back);
    assert!(format!("{grant:?}").contains("own-"), "it shows its lease");
    drop(grant);
    assert_eq!(world.state().leases.len(), 1);
    assert!(!world.state().holds_back);
}

#[test]
fn offers_exclude_leased_devices_and_granted_shares() {
    let world = World::new(3);
    world.state().leases.push(lease("whole", 1, 100, &[0]));
    world.state().leases.push(share(lease("part", 1, 200, &[1]), 4_000));
    let claim = Claim { share: Share::Memory(Bytes(1)), accept_used: true, ..Claim::whole(1) };
    let (offers, context) = offered(&request(claim, Wait::No), &world.ports()).unwrap();
    assert_eq!((offers.len(), context.snapshot.devices.len()), (3, 3));
    assert!(matches!(offers[0].bar, Some(Bar::Leased { .. })), "{offers:?}");
    assert_eq!((&offers[1].bar, &offers[2].bar), (&None, &None));
    let room = |at: usize| offers[at].room.unwrap();
    assert_eq!(room(1) + Bytes::from_mib(4_000), room(2));
}

#[test]
fn impossible_claim_is_refused_immediately() {
    let unknown = Claim { required: vec![uuid(9)], ..Claim::whole(1) };
    let too_new = Claim { compute_capability: Some((9, 0)), ..Claim::whole(1) };
    let too_big = share(lease("x", 0, 1, &[0]), 20_000).claim;
    for claim in [Claim::whole(4), Claim::whole(0), unknown, too_new, too_big] {
        let world = World::new(3);
        let refused = taken(&world, claim.clone(), Wait::Forever);
        let Err(NotGranted::Never(Some(refused))) = refused else {
            panic!("{claim:?}: {refused:?}")
        };
        assert!(!matches!(refused.refusal, Refusal::NotNow { .. }));
        let state = world.state();
        assert!(state.leases.is_empty() && state.waiters.is_empty() && !state.holds_back);
    }
}

#[test]
fn non_waiting_claim_is_refused_with_reason() {
    let world = World::new(2);
    world.state().leases.push(lease("other", 1, 100, &[0]));
    let refused = taken(&world, Claim::whole(2), Wait::No);
    let Err(NotGranted::NotNow { waited: false, refused: Some(refused), standing }) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(standing.leases.len(), 1);
    assert_eq!(indexes(&refused.passed().map(|(id, _)| id.clone()).collect::<Vec<_>>()), [0]);
    let late = taken(&world, Claim::whole(2), Wait::For(Duration::from_secs(60)));
    assert!(matches!(late, Err(NotGranted::NotNow { waited: true, .. })), "{late:?}");
    assert!(world.state().waiters.is_empty());
}

#[test]
fn running_safe_gpu_may_be_only_obstacle() {
    let world = World::new(1);
    world.state().is_safe_gpu_at_work = true;
    world.state().leases.push(lease("other", 1, 100, &[0]));
    world.after(Duration::from_secs(1), |state| state.leases.clear());
    for (wait, lacks) in [(Wait::No, true), (Wait::For(Duration::from_secs(20)), false)] {
        let result = taken(&world, Claim::whole(1), wait);
        let Err(NotGranted::NotNow { standing, refused, .. }) = result else {
            panic!("{result:?}")
        };
        assert!(matches!(standing.wait_reason, Some(WaitReason::SafeGpu(_))), "{standing:?}");
        assert_eq!(refused.is_some(), lacks, "{wait:?}: {refused:?}");
    }
}

#[test]
fn waiting_claim_gets_device_after_its_user_exits() {
    let world = World::new(1);
    world.state().add(process(100, 2, "python"));
    world.state().uses(100, 0, 900);
    world.after(Duration::from_secs(30), |state| state.ends(100, JobExit::Code(0)));
    let grant = taken(&world, Claim::whole(1), Wait::Forever).unwrap();
    assert_eq!(indexes(&grant.devices), [0]);
    assert!(world.state().now >= Duration::from_secs(1030));
}

#[test]
fn accepted_used_device_is_reported() {
    let world = World::new(1);
    world.state().add(process(100, 2, "python"));
    world.state().uses(100, 0, 900);
    let claim = Claim { accept_used: true, ..Claim::whole(1) };
    let grant = taken(&world, claim, Wait::No).unwrap();
    assert_eq!(grant.accepted.len(), 1);
}

#[test]
fn defect_of_named_device_is_reported_with_its_grant() {
    let world = World::new(2);
    world.state().devices[0].uncorrected = 7;
    world.state().devices[1].utilization = Some(100);
    let among = vec![DeviceUuid("GPU-0".into())];
    let named = taken(&world, Claim { among, ..Claim::whole(1) }, Wait::No).unwrap();
    let unfit = |text: &str| Bar::Unfit(text.to_owned());
    let bars =
        |grant: &Grant| grant.accepted.iter().map(|(_, bar)| bar.clone()).collect::<Vec<_>>();
    assert_eq!(bars(&named), [unfit("7 uncorrected memory errors")]);
    let other = taken(&world, Claim::whole(1), Wait::No).unwrap();
    assert_eq!(indexes(&other.devices), [1]);
    assert_eq!(bars(&other), [unfit("100 % busy, but no process uses it")]);
}

#[test]
fn logged_error_of_device_is_reported_with_its_grant() {
    let reported = |xid, on: usize| {
        let world = World::new(1);
        let text = format!("NVRM: Xid (PCI:{}): {xid}, pid=7, name=train, x", bus(on));
        let message = gpu_nvidia_driver::parse_message(&text, world.wall());
        world.state().logged.extend(message);
        assert_eq!(world.state().logged.len(), 1, "{text}");
        let grant = taken(&world, Claim::whole(1), Wait::No).unwrap();
        assert_eq!(indexes(&grant.devices), [0], "it is granted");
        grant.accepted.into_iter().map(|(_, bar)| bar).collect::<Vec<_>>()
    };
    let [Bar::Unfit(text)] = &reported(62, 0)[..] else { panic!("nothing is reported") };
    assert!(text.starts_with("Xid 62: the power management firmware halted"), "{text}");
    assert_eq!(reported(31, 0), [], "usually a bug in the program");
    assert_eq!(reported(95, 0), [], "the device reports no memory error now");
    assert_eq!(reported(62, 1), [], "another device");
}

#[test]
fn unused_devices_are_preferred_over_accepted_used_ones() {
    let used = |devices: &[usize]| {
        let world = World::new(4);
        world.state().add(process(100, 2, "python"));
        devices.iter().for_each(|device| world.state().uses(100, *device, 900));
        world
    };
    let accepting = |count| Claim { accept_used: true, ..Claim::whole(count) };
    let world = used(&[0, 1, 2]);
    for (claim, expected) in [
        (accepting(1), vec![3]),
        (accepting(2), vec![2, 3]),
        (Claim { required: vec![uuid(1)], ..accepting(1) }, vec![1]),
        (Claim { required: vec![uuid(1)], ..accepting(2) }, vec![1, 3]),
        (Claim { except: vec![uuid(3)], ..accepting(1) }, vec![2]),
    ] {
        let seen = preview(&request(claim.clone(), Wait::No), &world.ports()).unwrap();
        let decision = seen.decision.unwrap();
        assert_eq!(indexes(&decision.devices()), expected, "{claim:?}");
        for (id, why) in decision.passed().filter(|(id, _)| id.index < 3) {
            assert!(matches!(why, Passed::Barred(Bar::Outsider { .. })), "{id:?}: {why:?}");
        }
        let grant = taken(&world, claim, Wait::No).unwrap();
        assert_eq!(indexes(&grant.devices), expected);
    }
    for (devices, claim, expected) in [
        (&[1, 2, 3][..], accepting(1), &[0][..]),
        (&[2, 3], accepting(2), &[0, 1]),
        (&[2, 3], accepting(3), &[0, 1, 2]),
        (&[2, 3], Claim { required: vec![uuid(2)], ..accepting(1) }, &[2]),
        (&[2, 3], Claim { required: vec![uuid(2)], ..accepting(2) }, &[0, 2]),
    ] {
        let grant = taken(&used(devices), claim.clone(), Wait::No).unwrap();
        assert_eq!(indexes(&grant.devices), expected, "{claim:?} beside {devices:?}");
    }
    // A leased device is not available, used or not.
    world.state().leases.push(lease("other", 1, 200, &[3]));
    let grant = taken(&world, accepting(1), Wait::No).unwrap();
    assert_eq!(indexes(&grant.devices), [2]);
}

#[test]
fn missing_driver_is_refused_with_driver_error() {
    let world = World::new(1);
    world.state().driver_fault = Some(MachineFault::DriverNotLoaded.into());
    let refused = taken(&world, Claim::whole(1), Wait::Forever);
    let Err(NotGranted::Silent(fault)) = refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind, MachineFault::DriverNotLoaded.into());
    assert!(!world.state().holds_back);
}

#[test]
fn nested_claim_gets_devices_of_outer_lease_without_waiting() {
    let world = World::new(4);
    world.state().leases.push(lease("parent", 1, 2, &[1, 3]));
    let first = taken(&world, Claim::whole(1), Wait::No).unwrap();
    assert_eq!(indexes(&first.devices), [1]);
    assert_eq!(first.parent.as_ref().map(|parent| parent.id.as_str()), Some("parent"));
    assert_eq!(first.entry.within.first().map(|outer| outer.id.as_str()), Some("parent"));
    assert!(!world.state().holds_back, "safe-gpu is held back for the parent already");
    assert!(first.held_back.is_none());
    drop(first);
    let more = taken(&world, Claim::whole(3), Wait::Forever);
    assert!(matches!(more, Err(NotGranted::Never(_))), "{more:?}");
}

#[test]
fn forged_lease_naming_ancestor_is_ignored() {
    let world = World::new(2);
    world.state().leases.push(LeaseEntry { owner: 1001, ..lease("forged", 1, 2, &[0]) });
    let grant = taken(&world, Claim::whole(1), Wait::No).unwrap();
    assert_eq!((indexes(&grant.devices), grant.parent), (vec![1], None));
}

#[test]
fn claim_inside_lease_of_other_user_is_refused() {
    let world = World::new(2);
    world.state().add(ProcessInfo { uid: Ok(0), ..process(2, 1, "gpuws") });
    world.state().leases.push(LeaseEntry { owner: 0, ..lease("roots", 1, 2, &[0]) });
    let taken = taken(&world, Claim::whole(1), Wait::Forever).map(|_| ());
    let seen = preview(&request(Claim::whole(1), Wait::No), &world.ports()).map(|_| ());
    for refused in [taken, seen] {
        let Err(NotGranted::Foreign(lease)) = refused else { panic!("{refused:?}") };
        assert_eq!((lease.id.as_str(), lease.owner), ("roots", 0));
    }
    let state = world.state();
    assert_eq!((state.leases.len(), state.waiters.len()), (1, 0));
}

#[test]
fn root_may_claim_inside_lease_of_any_user() {
    let world = World::new(2);
    world.state().leases.push(lease("users", 1, 2, &[0]));
    world.state().owner = 0;
    let grant = taken(&world, Claim::whole(1), Wait::No).unwrap();
    assert_eq!(grant.parent.map(|parent| parent.owner), Some(1000));
    assert_eq!((indexes(&grant.devices), grant.entry.owner), (vec![0], 0));
}

#[test]
fn preview_takes_no_device_and_reports_queue() {
    let world = World::new(2);
    world.state().waiters.push(LeaseEntry { devices: vec![], ..lease("early", 1, 100, &[0]) });
    let seen = preview(&request(Claim::whole(1), Wait::No), &world.ports()).unwrap();
    assert_eq!(
        indexes(&seen.decision.unwrap().devices()),
        [1],
        "the first one is kept for another"
    );
    assert_eq!(seen.ahead.len(), 1);
    let seen = preview(&request(Claim::whole(2), Wait::No), &world.ports()).unwrap();
    let refused = seen.decision.unwrap_err();
    assert!(matches!(refused.refusal, Refusal::NotNow { .. }));
    assert!(world.state().leases.is_empty());
}

#[test]
fn listing_has_owners_processes_and_waiting_reasons() {
    let world = World::new(2);
    world.state().leases.push(lease("outer", 1, 100, &[0, 1]));
    world.state().leases.push(LeaseEntry {
        within: LeaseId::parse("outer")
            .map(|id| OuterLease { id, owner: 1000 })
            .into_iter()
            .collect(),
        ..lease("inner", 2, 101, &[1])
    });
    world.state().leases.push(LeaseEntry { owner: 1001, ..lease("forged", 3, 100, &[0]) });
    for info in [process(100, 2, "gpuws"), process(101, 100, "gpuws"), process(102, 101, "python")]
    {
        world.state().add(info);
    }
    world.state().uses(102, 1, 700);
    world.state().waiters.push(LeaseEntry { devices: vec![], ..lease("late", 4, 110, &[]) });
    let listing = listing(&world.ports()).unwrap();
    let roots: Vec<_> = listing
        .leases
        .iter()
        .map(|leased| (leased.entry.id.as_str(), leased.root.is_some(), leased.users.len()))
        .collect();
    assert_eq!(roots, [("outer", true, 0), ("inner", true, 1), ("forged", false, 0)]);
    let user = &listing.leases[1].users[0];
    assert_eq!((user.pid, user.name.as_deref()), (Pid(102), Some("python")));
    assert_eq!(user.memory, Ok(Bytes::from_mib(700)));
    assert_eq!(listing.leases[1].within.as_ref().unwrap().id.as_str(), "outer");
    let [late] = &listing.queue[..] else { panic!("{:?}", listing.queue) };
    assert_eq!((late.ahead, late.lacks.as_ref().unwrap().passed().count()), (0, 2));
}

#[test]
fn inheritor_of_lease_file_claims_within_it() {
    let world = World::new(2);
    // The lease's root is not a visible ancestor of the caller, as in its own PID namespace.
    world.state().leases = vec![lease("outer", 1, 7000, &[0, 1])];
    let outer = LeaseId::parse("outer").unwrap();
    for (owner, expected) in [(1000, Some("outer")), (1001, None)] {
        world.state().inherited = vec![(outer.clone(), owner)];
        let leases = world.state().leases.clone();
        let own = own_lease(&world, &leases, None).unwrap();
        assert_eq!(own.as_ref().map(|entry| entry.id.as_str()), expected, "file of {owner}");
    }
    // Two leases of one process are independent of each other.
    world.state().inherited = vec![(outer, 1000)];
    let leases = world.state().leases.clone();
    assert_eq!(own_lease(&world, &leases, Some(&key(7000))).unwrap(), None);
}

#[test]
fn earlier_claim_reserves_only_usable_devices() {
    let world = World::new(3);
    world.state().devices[0].partitioned = Ok(true);
    world.state().leases.push(lease("other", 1, 100, &[1]));
    let early =
        LeaseEntry { claim: Claim::whole(2), devices: vec![], ..lease("early", 2, 110, &[]) };
    world.state().waiters.push(early);
    // Device 0 is divided, so the earlier claim waits for devices 1 and 2.
    let seen = preview(&request(Claim::whole(1), Wait::No), &world.ports()).unwrap();
    assert!(seen.decision.is_err(), "{:?}", seen.decision);
    assert_eq!(seen.ahead.len(), 1);
}

#[test]
fn lease_on_mig_device_names_its_gpu() {
    let world = World::new(2);
    for (device, instance) in [(0, 1), (1, 2)] {
        world.state().devices[device].partitioned = Ok(true);
        world.state().devices[device].mig = vec![(instance, 8_000, vec![])];
    }
    for (instance, gpu) in [(1, 0), (2, 1)] {
        let claim = Claim { among: vec![mig_uuid(instance)], ..Claim::whole(1) };
        let grant = taken(&world, claim, Wait::No).unwrap();
        assert_eq!(grant.entry.devices, [mig_uuid(instance)]);
        assert_eq!(grant.entry.parts_of, [uuid(gpu)]);
    }
    let grant = taken(&world, Claim { among: vec![uuid(9)], ..Claim::whole(1) }, Wait::No);
    assert!(matches!(grant, Err(NotGranted::Never(_))), "{grant:?}");
}

#[test]
fn nested_grant_reports_no_user_of_its_device() {
    let world = World::new(1);
    world.state().leases.push(lease("parent", 1, 2, &[0]));
    world.state().add(process(100, 1, "python"));
    world.state().uses(100, 0, 900);
    let claim = Claim { accept_used: true, ..Claim::whole(1) };
    let grant = taken(&world, claim, Wait::No).unwrap();
    assert_eq!((grant.parent.is_some(), grant.accepted), (true, vec![]));
}

#[test]
fn device_of_unknown_capability_is_kept_for_earlier_claim() {
    let world = World::new(1);
    let new = Claim { compute_capability: Some((8, 0)), ..Claim::whole(1) };
    world.state().waiters.push(LeaseEntry {
        claim: new,
        devices: vec![],
        ..lease("new", 2, 110, &[])
    });
    let seen = preview(&request(Claim::whole(1), Wait::No), &world.ports()).unwrap();
    assert!(seen.decision.is_err(), "{:?}", seen.decision);
}

#[test]
fn unreadable_leases_are_a_fault() {
    let mut locks = MockLeaseStore::new();
    let failed = || Error::new(ErrorKind::Io, "list the leases");
    locks.expect_entries().returning(move |_| Err(failed()));
    let leases = DeviceLeases::read(&locks);
    assert_eq!(leases.fault().map(|fault| fault.text.as_str()), Some("list the leases"));
    assert!(DeviceLeases::none().fault().is_none());
}

#[test]
fn no_process_descends_from_a_pid_of_another_namespace() {
    let world = World::new(1);
    world.state().add(process(100, SELF, "python"));
    world.state().uses(100, 0, 900);
    let descends = || {
        let snapshot = ClaimContext::observe(&world.ports(), Wants::default()).snapshot;
        let snapshot = Snapshot { processes: known(&world), ..snapshot };
        gpu_steward::descends(&snapshot, Pid(100), &key(SELF))
    };
    assert!(descends());
    world.state().sees_host_pids = false;
    assert!(!descends());
}

fn known(world: &World) -> std::collections::BTreeMap<Pid, Process> {
    let state = world.state();
    let known = state.processes.values();
    known.map(|info| (info.key.pid, Process::from(Ok(info.clone())))).collect()
}

#[test]
fn later_claim_gets_device_unusable_for_earlier_one() {
    let world = World::new(2);
    world.state().devices[0].capability = (7, 0);
    let new = Claim { compute_capability: Some((8, 0)), ..Claim::whole(1) };
    world.state().leases.push(lease("other", 1, 100, &[1]));
    world.state().waiters.push(LeaseEntry {
        claim: new,
        devices: vec![],
        ..lease("new", 2, 110, &[])
    });
    // The capabilities are queried once a waiting claim depends on them.
    let late = Wait::For(Duration::from_secs(5));
    let grant = taken(&world, Claim::whole(1), late).unwrap();
    assert_eq!(indexes(&grant.devices), [0]);
}

#[test]
fn refusals_are_described_in_words() {
    let world = World::new(1);
    world.state().leases.push(lease("other", 1, 100, &[0]));
    let words = |claim: Claim, wait| taken(&world, claim, wait).unwrap_err().to_string();
    assert_eq!(words(Claim::whole(1), Wait::No), "none is available now");
    let late = Wait::For(Duration::from_secs(5));
    assert_eq!(words(Claim::whole(1), late), "none became available in time");
    assert_eq!(words(Claim::whole(2), Wait::Forever), "no matching GPUs exist");
    world.state().driver_fault = Some(MachineFault::DriverNotLoaded.into());
    assert_eq!(words(Claim::whole(1), Wait::No), "failed to initialise NVML");
}

#[test]
fn device_is_free_without_user_and_lease() {
    let world = World::new(2);
    let is_free = || {
        let context = ClaimContext::observe(&world.ports(), Wants::default());
        let leases = DeviceLeases::read(&world);
        let devices = &context.snapshot.devices;
        devices.iter().map(|device| leases.is_free(device, &context.usage)).collect::<Vec<_>>()
    };
    assert_eq!(is_free(), [true, true]);
    world.state().leases.push(lease("other", 1, 100, &[0]));
    assert_eq!(is_free(), [false, true]);
    world.state().add(process(100, 2, "python"));
    world.state().uses(100, 1, 900);
    assert_eq!(is_free(), [false, false]);
}

#[test]
fn claim_names_its_visible_devices() {
    let world = World::new(2);
    let grant = take(&request(Claim::whole(1), Wait::No), &world.ports(), &mut |_| {
        ControlFlow::Continue(())
    });
    let seen = grant.unwrap().entry.claim.visible_minors;
    assert_eq!(seen, [0, 1]);

    // A claim that sees other devices is not ahead of it.
    let mut waiter = lease("waits", 1, 100, &[]);
    waiter.claim.visible_minors = vec![7];
    world.state().waiters.push(waiter);
    let preview = preview(&request(Claim::whole(2), Wait::No), &world.ports()).unwrap();
    assert!(preview.decision.is_ok() && preview.ahead.is_empty());
}

/// A process holds memory of an idle device for an hour, below a root, and a lease on it.
#[test]
fn process_with_a_new_lease_is_not_called_idle() {
    let world = World::new(2);
    world.state().add(process(100, SELF, "python"));
    world.state().uses(100, 0, 9_000);
    let context = ClaimContext::observe(&world.ports(), Wants::default());
    let mut now = Snapshot { processes: known(&world), ..context.snapshot };
    let hour = 3_600_000;
    now.taken_at = Timestamp(2 * hour);
    for device in &mut now.devices {
        let sample = device.sample.as_mut().unwrap();
        sample.utilization = Ok(gpu_core::Percent::new(0).unwrap());
    }
    if let Some(info) = now.processes.get_mut(&Pid(100)).and_then(Process::info_mut) {
        info.started_at = Ok(Timestamp(hour));
    }
    let found = |minutes: u64, change: fn(&mut LeaseEntry)| {
        let since = Timestamp(2 * hour - minutes * 60_000);
        let mut entry = LeaseEntry { root: key(SELF), since, ..lease("own", 1, SELF, &[0]) };
        change(&mut entry);
        let mut diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&now));
        DeviceLeases::recorded(Ok(vec![entry])).excuse(&now, &mut diagnosis);
        diagnosis.findings.len()
    };
    assert_eq!(found(15, |_| {}), 1, "as long as a process may load its data");
    assert_eq!(found(14, |_| {}), 0);
    assert_eq!(found(0, |_| {}), 0);
    let in_future: fn(&mut LeaseEntry) = |entry| entry.since.0 += 1;
    assert_eq!(found(0, in_future), 1, "its maker wrote the time");
    assert_eq!(found(14, |entry| entry.root = key(99)), 1, "no process has the lease");
    let reused: fn(&mut LeaseEntry) = |entry| entry.root.start = Some(StartTime(1 << 40));
    assert_eq!(found(14, reused), 1, "the process that had it has ended");
    let of_other: fn(&mut LeaseEntry) = |entry| (entry.owner, entry.root) = (77, key(99));
    assert_eq!(found(14, of_other), 1, "somebody else has the lease");
    assert_eq!(found(14, |entry| entry.devices = lease("x", 1, SELF, &[1]).devices), 1);
}
