//! The offers to a claim: why a device is excluded, and how much memory is left on it.

use crate::fake::*;
use gpu_core::visible::{Form, Grammar, cuda::Cuda};
use gpu_core::*;
use gpu_placement::{Bar, Offer};
use gpu_steward::{
    ClaimContext, ClaimSurroundings, DeviceLeases, Wants, offers, users_within_lease,
};

fn context(world: &World) -> ClaimContext {
    ClaimContext::observe(&world.ports(), Wants::default())
}

fn offered(
    world: &World,
    claim: &Claim,
    parent: Option<&LeaseEntry>,
    leases: &[LeaseEntry],
) -> Vec<Offer> {
    offers(&context(world), claim, ClaimSurroundings { parent, leases, waiting: &[] })
}

/// Returns why the first device is not available, and how many MiB of it a share may have.
fn first(world: &World, claim: &Claim, leases: &[LeaseEntry]) -> (Option<Bar>, u64) {
    let offers = offered(world, claim, None, leases);
    (offers[0].bar.clone(), offers[0].room.unwrap().mib())
}

fn whole() -> Claim {
    Claim::whole(1)
}

fn some(mib: u64) -> Claim {
    share(lease("x", 0, 1, &[0]), mib).claim
}

/// The most memory that a job can have of a device: 16,000 MiB minus the driver's reserve.
const CAPACITY: u64 = 16_000 - 64 - 80;

fn outsider(pid: u32, name: &str) -> Option<Bar> {
    Some(Bar::Outsider { pid: Pid(pid), is_host_pid: false, name: name.into() })
}

#[test]
fn idle_device_is_free_with_all_memory() {
    let world = World::new(1);
    assert_eq!(first(&world, &whole(), &[]), (None, CAPACITY));
    let offer = &offered(&world, &whole(), None, &[])[0];
    assert_eq!(offer.capacity, Ok(Bytes::from_mib(CAPACITY)));
    assert_eq!(offer.free, Ok(Bytes::from_mib(CAPACITY)));
}

#[test]
fn device_with_display_is_marked_and_reserves_memory_for_it() {
    for (display, mib) in [(Ok(true), 512), (Ok(false), 0), (Err(Absent::NotSupported), 0)] {
        let world = World::new(1);
        world.state().devices[0].display = display;
        let offer = &offered(&world, &whole(), None, &[])[0];
        assert_eq!(offer.display, mib > 0, "{display:?}");
        assert_eq!(offer.capacity, Ok(Bytes::from_mib(CAPACITY - mib)));
    }
}

#[test]
fn drawing_process_reserves_memory_for_a_display() {
    for (draws, mib) in [(true, 512), (false, 0)] {
        let world = World::new(1);
        world.state().add(ProcessInfo { uid: Ok(0), ..process(100, 1, "Xorg") });
        world.state().uses(100, 0, 50);
        world.state().devices[0].drawing = draws.then_some(100).into_iter().collect();
        let offer = &offered(&world, &whole(), None, &[])[0];
        assert_eq!(offer.capacity, Ok(Bytes::from_mib(CAPACITY - mib)), "draws: {draws}");
    }
}

#[test]
fn unleased_process_makes_device_ineligible_but_services_do_not() {
    let world = World::new(1);
    world.state().add(process(100, 2, "python"));
    world.state().uses(100, 0, 0);
    assert_eq!(first(&world, &whole(), &[]).0, outsider(100, "python"), "even with no memory");
    assert_eq!(first(&world, &some(100), &[]).0, outsider(100, "python"));
    let accepting = Claim { accept_used: true, ..whole() };
    assert_eq!(first(&world, &accepting, &[]).0, None);

    for name in ["Xorg", "nvidia-persistenced", "nv-hostengine"] {
        let world = World::new(1);
        world.state().add(ProcessInfo { uid: Ok(0), ..process(100, 1, name) });
        world.state().uses(100, 0, 50);
        assert_eq!(first(&world, &whole(), &[]).0, None, "{name}");
    }
    let world = World::new(1);
    world.state().add(process(100, 2, "Xorg"));
    world.state().uses(100, 0, 50);
    assert_eq!(first(&world, &whole(), &[]).0, outsider(100, "Xorg"), "a user's merely says so");
}

#[test]
fn unlisted_user_bars_a_device_that_does_not_show_its_memory() {
    for kind in [MemoryKind::Host, MemoryKind::VirtualGpu, MemoryKind::NumaNode(Some(1))] {
        let world = World::new(1);
        world.state().add(process(100, 2, "python"));
        world.state().devices[0].kind = kind;
        assert_eq!(first(&world, &whole(), &[]).0, None, "{kind:?}");
        world.state().devices[0].open = vec![100];
        assert_eq!(first(&world, &whole(), &[]).0, outsider(100, "python"), "{kind:?}");
        // The process of a lease on a share is not in the way of another share.
        let its = share(lease("x", 0, 100, &[0]), 1_000);
        assert_eq!(first(&world, &some(1_000), &[its]).0, None, "{kind:?}");
    }
}

#[test]
fn integrated_devices_share_one_account_of_the_host() {
    let world = World::new(2);
    world.state().devices.iter_mut().for_each(|device| device.kind = MemoryKind::Host);
    // A quarter, at most 16 GiB, stays with the host.
    let all = 64_000 - 16_000;
    assert_eq!(first(&world, &some(1_000), &[]), (None, all));
    let other = share(lease("x", 0, 2, &[1]), 30_000);
    assert_eq!(first(&world, &some(1_000), &[other]), (None, all - 30_000), "on the other device");
}

#[test]
fn fake_daemon_makes_device_ineligible_by_executable_or_memory() {
    let named = |executable: Reading<Box<Executable>>, mib: u64| {
        let world = World::new(1);
        world.state().add(ProcessInfo { executable, ..process(100, 2, "nvidia-cuda-mps") });
        world.state().uses(100, 0, mib);
        first(&world, &whole(), &[]).0
    };
    let program = |path: &str, owner: u32| {
        Ok(Box::new(Executable {
            path: path.into(),
            file: FileId::Inode { dev: 1, ino: 2 },
            owner,
            writable_by_others: false,
            seen_by_caller: Ok(true),
        }))
    };
    let barred = outsider(100, "nvidia-cuda-mps");
    assert_eq!(named(program("/usr/bin/python3", 0), 50), barred, "another program");
    assert_eq!(named(program("/home/user/nvidia-cuda-mps-server", 1000), 50), barred);
    let installed = "/usr/bin/nvidia-cuda-mps-server";
    assert_eq!(named(program(installed, 0), 50), None);
    assert_eq!(named(program(installed, 0), 15_000), barred, "its clients' memory");
    assert_eq!(named(Err(Absent::NotPermitted), 15_000), barred);
    assert_eq!(named(Err(Absent::NotPermitted), 50), None);
}

#[test]
fn unexplained_memory_makes_device_ineligible_unless_accepted() {
    let world = World::new(1);
    world.state().devices[0].unlisted = 5_000;
    let unexplained = Some(Bar::Unexplained(Bytes::from_mib(5_000)));
    assert_eq!(first(&world, &whole(), &[]).0, unexplained);
    let accepting = Claim { accept_used: true, ..some(100) };
    assert_eq!(first(&world, &accepting, &[]), (None, 16_000 - 5_000));
}

#[test]
fn silent_or_unnamed_device_is_ineligible() {
    let world = World::new(3);
    world.state().devices[0].fault = Some(DeviceFault::Lost.into());
    world.state().devices[1].uuid = Err(Absent::Failed);
    world.state().devices[2].uuid = Err(Absent::Failed);
    let bars: Vec<_> =
        offered(&world, &whole(), None, &[]).into_iter().map(|offer| offer.bar.unwrap()).collect();
    assert!(matches!(&bars[0], Bar::Faulty(fault) if fault.kind == DeviceFault::Lost.into()));
    assert_eq!(bars[1..], [Bar::NameUnknown, Bar::NameUnknown]);
}

#[test]
fn mig_device_without_uuid_is_not_taken_for_a_whole_device() {
    let world = World::new(1);
    world.state().devices[0].mig = vec![(1, 4_000, Vec::new())];
    world.state().devices[0].partitioned = Ok(true);
    world.state().devices[0].names_mig = false;
    let bars: Vec<_> =
        offered(&world, &whole(), None, &[]).into_iter().map(|offer| offer.bar).collect();
    assert_eq!(bars, [Some(Bar::Partitioned)]);
}

#[test]
fn device_without_uuid_is_leased_by_its_address() {
    let world = World::new(2);
    world.state().devices[1].uuid = Err(Absent::NotSupported);
    let second =
        |name: String| LeaseEntry { devices: vec![DeviceUuid(name)], ..lease("a", 0, 1, &[0]) };
    let key = offered(&world, &whole(), None, &[])[1].id.lease_key().unwrap().into_owned();
    assert_eq!(key, DeviceUuid::named(&format!("pci:{}", bus(1))));
    let bars = |leases: &[LeaseEntry]| -> Vec<bool> {
        let offers = offered(&world, &whole(), None, leases);
        offers.iter().map(|offer| matches!(offer.bar, Some(Bar::Leased { .. }))).collect()
    };
    assert_eq!(bars(&[]), [false, false]);
    assert_eq!(bars(&[second(key.0.clone())]), [false, true]);
    assert_eq!(bars(&[second(format!("{key}/1"))]), [false, true], "a part of it is leased");
    for other in ["pci:", "pci:zz/1", &format!("{key}/x"), &key.0.to_uppercase()] {
        assert_eq!(bars(&[second(other.to_owned())]), [false, false], "no device is {other}");
    }
    let held = second(key.0.clone());
    let leases = DeviceLeases::recorded(Ok(vec![held.clone()]));
    let context = context(&world);
    let on = |at: usize| leases.on(&context.snapshot.devices[at]).count();
    assert_eq!((on(0), on(1)), (0, 1));
    assert_eq!(context.device(&key).map(|id| id.index), Some(1));
    let claim = Claim { required: vec![key.clone()], ..whole() };
    let choice = gpu_placement::choose(&claim, &offered(&world, &claim, None, &[]), None).unwrap();
    assert_eq!(choice.devices, [1]);
    // Its job can see it by index alone.
    let shown = Cuda.write(&[key], Form::Uuid, &context.snapshot.devices);
    assert_eq!(shown.unwrap(), "1");
}

#[test]
fn mig_enabled_device_is_not_offered_whole() {
    let world = World::new(2);
    world.state().devices[0].partitioned = Ok(true);
    world.state().devices[0].mig = vec![(1, 8_000, vec![])];
    for claim in [whole(), some(100), Claim { accept_used: true, ..whole() }] {
        let offers = offered(&world, &claim, None, &[]);
        let bars: Vec<_> = offers.iter().map(|offer| offer.bar.clone()).collect();
        assert_eq!(bars, [Some(Bar::Partitioned), None]);
    }
    assert!(Bar::Partitioned.is_lasting(), "no claim waits for it");
    // Neither the mode alone nor a part alone leaves it whole.
    world.state().devices[0].mig.clear();
    let empty = "MIG enabled without an instance: CUDA sees no device".to_owned();
    assert_eq!(first(&world, &whole(), &[]).0, Some(Bar::Unfit(empty)));
    world.state().devices[0].partitioned = Ok(false);
    assert_eq!(first(&world, &whole(), &[]).0, None);
    world.state().devices[0].mig = vec![(1, 8_000, vec![])];
    assert_eq!(first(&world, &whole(), &[]).0, Some(Bar::Partitioned));
}

#[test]
fn defective_device_is_granted_only_if_named() {
    let world = World::new(2);
    world.state().devices[0].uncorrected = 7;
    let bar = Bar::Unfit("7 uncorrected memory errors".to_owned());
    assert!(bar.is_lasting(), "no claim waits for it");
    let unfit = Some(bar);
    let own = DeviceUuid("GPU-0".into());
    let among = Claim { among: vec![own.clone()], ..whole() };
    let required = Claim { required: vec![own.clone()], ..whole() };
    // A range, or a scheduler's list, does not select each of its devices individually.
    let range = Claim { among: vec![own, DeviceUuid("GPU-1".into())], ..whole() };
    for (claim, bar) in [
        (whole(), unfit.clone()),
        (Claim { accept_used: true, ..whole() }, unfit.clone()),
        (some(100), unfit.clone()),
        (range.clone(), unfit.clone()),
        (Claim { count: 2, ..range }, None),
        (among.clone(), None),
        (required, None),
    ] {
        let bars: Vec<_> = offered(&world, &claim, None, &[]).into_iter().map(|o| o.bar).collect();
        assert_eq!(bars, [bar, None], "{claim:?}");
    }
    // The lease that it is taken out of had it already.
    let parent = lease("p", 0, 1, &[0]);
    assert_eq!(offered(&world, &whole(), Some(&parent), &[])[0].bar, None);
    // CUDA refuses every process on a prohibited device.
    world.state().compute_mode = ComputeMode::Prohibited;
    let prohibited = Bar::Unfit("compute mode Prohibited: CUDA cannot use it".to_owned());
    for offer in offered(&world, &among, None, &[]) {
        assert_eq!(offer.bar, Some(prohibited.clone()));
    }
    assert_eq!(offered(&world, &whole(), Some(&parent), &[])[0].bar, Some(prohibited));
}

/// A machine whose first device is divided into two MIG devices, and whose second is whole.
fn divided() -> World {
    let world = World::new(2);
    world.state().devices[0].partitioned = Ok(true);
    world.state().devices[0].mig = vec![(1, 8_000, vec![200]), (2, 4_000, vec![])];
    world
}

/// The offers of the two MIG devices to a claim.
fn of_mig(world: &World, claim: Claim, leases: &[LeaseEntry]) -> Vec<Option<Bar>> {
    let claim = Claim { among: vec![mig_uuid(1), mig_uuid(2)], ..claim };
    let offers = offered(world, &claim, None, leases);
    let uuids: Vec<_> = offers.iter().map(|offer| offer.id.uuid.clone().unwrap()).collect();
    assert_eq!(uuids, [uuid(0), uuid(1), mig_uuid(1), mig_uuid(2)]);
    offers.into_iter().skip(2).map(|offer| offer.bar).collect()
}

#[test]
fn named_mig_device_is_offered() {
    let world = divided();
    world.state().add(process(200, 1, "other"));
    let offers = offered(&world, &whole(), None, &[]);
    assert_eq!(offers.len(), 2, "who names none is offered none");
    let claim = Claim { among: vec![mig_uuid(2)], ..whole() };
    let offers = offered(&world, &claim, None, &[]);
    let [_, _, part] = &offers[..] else { panic!("{offers:?}") };
    assert_eq!((&part.id.uuid, part.id.index, &part.bar), (&Ok(mig_uuid(2)), 0, &None));
    assert!(part.capacity.unwrap() < Bytes::from_mib(4_000), "{:?}", part.capacity);
    assert!(part.capacity.unwrap() > Bytes::from_mib(3_000), "{:?}", part.capacity);

    assert_eq!(of_mig(&world, whole(), &[]), [None, None]);
    let both = [Some(Bar::PartitionAlone), Some(Bar::PartitionAlone)];
    assert_eq!(of_mig(&world, Claim::whole(2), &[]), both);
    assert!(Bar::PartitionAlone.is_lasting(), "no claim waits for it");
}

#[test]
fn mig_user_blocks_only_its_instance_if_known() {
    let world = divided();
    world.state().add(process(200, 1, "other"));
    world.state().uses(200, 0, 1_000);
    let other = || Some(Bar::Outsider { pid: Pid(200), is_host_pid: false, name: "other".into() });
    assert_eq!(of_mig(&world, whole(), &[]), [other(), None]);
    world.state().devices[0].mig[0].2.clear();
    assert_eq!(of_mig(&world, whole(), &[]), [other(), other()]);
}

#[test]
fn daemon_in_mig_instance_does_not_block_it() {
    let world = divided();
    let daemon = ProcessInfo { uid: Ok(0), ..process(200, 1, "nvidia-persistenced") };
    world.state().add(daemon);
    world.state().uses(200, 0, 50);
    assert_eq!(of_mig(&world, whole(), &[]), [None, None]);
}

#[test]
fn lease_on_mig_device_covers_only_its_instance() {
    let world = divided();
    let leased = || Some(Bar::Leased { lease: LeaseId::parse("a").unwrap(), owner: 1000 });
    let on_part = LeaseEntry { devices: vec![mig_uuid(1)], ..lease("a", 1, 100, &[]) };
    assert_eq!(of_mig(&world, whole(), std::slice::from_ref(&on_part)), [leased(), None]);
    assert_eq!(of_mig(&world, some(100), std::slice::from_ref(&on_part)), [leased(), None]);
    let inner = offered(&world, &whole(), Some(&on_part), &[]);
    assert_eq!(inner.len(), 1);
    assert_eq!(inner[0].id.uuid, Ok(mig_uuid(1)), "within it there is it alone");
    // A lease from before the device was divided.
    let before = lease("a", 1, 100, &[0]);
    assert_eq!(of_mig(&world, whole(), &[before]), [leased(), leased()]);
}

#[test]
fn device_with_unknown_mig_mode_is_ineligible() {
    for (absent, barred) in [
        (Absent::Failed, true),
        (Absent::NoAnswer, true),
        (Absent::NotPermitted, true),
        (Absent::NotSupported, false),
        (Absent::TooOld, false),
    ] {
        let world = World::new(2);
        world.state().devices[0].partitioned = Err(absent);
        for claim in [whole(), some(100), Claim { accept_used: true, ..whole() }] {
            let offers = offered(&world, &claim, None, &[]);
            let fault = match &offers[0].bar {
                Some(Bar::Faulty(fault)) => Some(fault.to_string()),
                bar => bar.as_ref().map(|bar| panic!("{bar:?}")),
            };
            let expected = format!("read its MIG mode: {absent}");
            assert_eq!(fault, barred.then_some(expected), "{absent:?}");
            assert_eq!(offers[1].bar, None);
        }
        // Its MIG devices are visible, but the mode is unknown.
        world.state().devices[0].mig = vec![(1, 8_000, vec![])];
        assert_eq!(first(&world, &whole(), &[]).0, Some(Bar::Partitioned));
    }
}

#[test]
fn lease_on_unseen_mig_device_blocks_whole_device() {
    let world = World::new(4);
    world.state().devices[2].partitioned = Err(Absent::NotSupported);
    world.state().devices[3].partitioned = Ok(true);
    world.state().devices[3].mig = vec![(1, 8_000, vec![])];
    let on_part = |part: u32, of: &[u32]| LeaseEntry {
        devices: vec![mig_uuid(part)],
        parts_of: of.iter().map(|index| uuid(*index)).collect(),
        ..lease("a", 1, 100, &[])
    };
    let leased = || Some(Bar::Leased { lease: LeaseId::parse("a").unwrap(), owner: 1000 });
    for claim in [whole(), some(100), Claim { accept_used: true, ..whole() }] {
        let bars = |lease: LeaseEntry| {
            let offers = offered(&world, &claim, None, &[lease]);
            offers.into_iter().map(|offer| offer.bar).collect::<Vec<_>>()
        };
        let mig = || Some(Bar::Partitioned);
        let whose = "it may be of any that can be divided";
        assert_eq!(bars(on_part(9, &[])), [leased(), leased(), None, mig()], "{whose}");
        assert_eq!(
            bars(on_part(9, &[1])),
            [None, leased(), None, mig()],
            "the lease names its owner"
        );
        assert_eq!(bars(on_part(1, &[3])), [None, None, None, mig()], "it is seen");
        assert_eq!(bars(on_part(1, &[])), [None, None, None, mig()], "it is seen");
    }
}

#[test]
fn whole_lease_excludes_others_and_share_leaves_room() {
    let world = World::new(1);
    let leased = |id: &str| Bar::Leased { lease: LeaseId::parse(id).unwrap(), owner: 1000 };
    let whole_lease = lease("a", 1, 100, &[0]);
    assert_eq!(first(&world, &whole(), std::slice::from_ref(&whole_lease)).0, Some(leased("a")));
    assert_eq!(first(&world, &some(100), &[whole_lease]).0, Some(leased("a")));
    let shares = [share(lease("a", 1, 100, &[0]), 4_000), share(lease("b", 2, 110, &[0]), 2_000)];
    assert_eq!(first(&world, &whole(), &shares).0, Some(leased("a")));
    assert_eq!(first(&world, &some(100), &shares), (None, CAPACITY - 6_000));
    let elsewhere = [lease("a", 1, 100, &[7])];
    assert_eq!(first(&world, &whole(), &elsewhere), (None, CAPACITY));
}

#[test]
fn waiting_claims_are_distinguished_from_leases() {
    let world = World::new(1);
    let waits = lease("w", 1, 100, &[0]);
    let surroundings = ClaimSurroundings {
        parent: None,
        leases: std::slice::from_ref(&waits),
        waiting: std::slice::from_ref(&waits.id),
    };
    let offers = offers(&context(&world), &whole(), surroundings);
    let expected = Bar::Reserved { waiter: waits.id.clone(), owner: 1000 };
    assert_eq!(offers[0].bar, Some(expected));
}

#[test]
fn descendant_of_lease_root_may_use_device() {
    let world = World::new(1);
    let lease = share(lease("a", 1, 100, &[0]), 4_000);
    for info in [process(100, 2, "gpuws"), process(101, 100, "bash"), process(102, 101, "python")] {
        world.state().add(info);
    }
    world.state().uses(102, 0, 1_000);
    let leases = std::slice::from_ref(&lease);
    assert_eq!(first(&world, &some(100), leases), (None, CAPACITY - 4_000), "within its share");
    world.state().uses(102, 0, 7_000);
    assert_eq!(first(&world, &some(100), leases), (None, CAPACITY - 7_000), "beyond its share");

    // The same process is an outsider if the lease has another device,
    let other = LeaseEntry { devices: vec![uuid(1)], ..lease.clone() };
    assert_eq!(first(&world, &some(100), &[other]).0, outsider(102, "python"));
    // if the PID of the root was reused,
    let reused =
        LeaseEntry { root: ProcessKey { start: Some(StartTime(1)), ..key(100) }, ..lease.clone() };
    assert_eq!(first(&world, &some(100), &[reused]).0, outsider(102, "python"));
    // if the root belongs to another user, because a lease file can contain any PID,
    let forged = LeaseEntry { owner: 1001, ..lease.clone() };
    assert_eq!(first(&world, &some(100), &[forged]).0, outsider(102, "python"));
    // if the root is the ancestor of every process,
    let first_process = LeaseEntry { root: key(1), ..lease.clone() };
    assert_eq!(first(&world, &some(100), &[first_process]).0, outsider(102, "python"));
    // and if PIDs are meaningless here.
    world.state().sees_host_pids = false;
    let (bar, _) = first(&world, &some(100), leases);
    assert!(matches!(bar, Some(Bar::Outsider { pid: Pid(102), is_host_pid: true, .. })), "{bar:?}");
}

#[test]
fn memory_used_by_others_reduces_room_of_accepting_claims() {
    let world = World::new(1);
    world.state().add(process(90, 2, "python"));
    world.state().uses(90, 0, 3_000);
    let leases = [share(lease("a", 1, 100, &[0]), 4_000)];
    let accepting = Claim { accept_used: true, ..some(100) };
    let used_by_others = 3_010 - (16_000 - CAPACITY);
    assert_eq!(first(&world, &accepting, &leases), (None, CAPACITY - 4_000 - used_by_others));
}

#[test]
fn nested_claim_sees_only_devices_of_outer_lease() {
    let world = World::new(3);
    let parent = lease("p", 1, SELF, &[0, 2]);
    world.state().add(process(100, 2, "python"));
    world.state().uses(100, 0, 500);
    world.state().add(process(101, SELF, "own"));
    world.state().uses(101, 2, 1_000);
    let found = |leases: &[LeaseEntry]| -> Vec<_> {
        let offers = offered(&world, &whole(), Some(&parent), leases);
        offers.into_iter().map(|o| (o.id.index, o.bar, o.room.unwrap().mib())).collect()
    };
    assert_eq!(found(&[]), [(0, None, CAPACITY), (2, None, CAPACITY - 1_000)]);
    let sibling = LeaseEntry { within: parent.nested(), ..lease("s", 2, 101, &[2]) };
    let leased = Bar::Leased { lease: sibling.id.clone(), owner: 1000 };
    assert_eq!(found(&[sibling])[1].1, Some(leased));
}

#[test]
fn nested_claim_in_share_is_limited_to_share() {
    let world = World::new(1);
    let parent = share(lease("p", 1, SELF, &[0]), 5_000);
    world.state().add(process(101, SELF, "own"));
    world.state().uses(101, 0, 1_000);
    let sibling = share(lease("s", 2, 999, &[0]), 1_500);
    let offers = offered(&world, &some(100), Some(&parent), &[sibling]);
    assert_eq!(offers[0].capacity, Ok(Bytes::from_mib(5_000)));
    assert_eq!(offers[0].room, Ok(Bytes::from_mib(5_000 - 1_000 - 1_500)));
}

#[test]
fn job_sees_outsiders_on_its_whole_device() {
    let world = World::new(1);
    for (pid, parent) in [(60, SELF), (61, SELF), (100, 2), (70, 2), (71, 70)] {
        world.state().add(process(pid, parent, "python"));
        world.state().uses(pid, 0, 500);
    }
    let own = lease("own", 1, SELF, &[0]);
    let others = lease("other", 2, 70, &[0]);
    let users = |own: &LeaseEntry| -> Vec<u32> {
        let (context, leases) = (context(&world), [own.clone(), others.clone()]);
        let is_placeholder = |info: &ProcessInfo| info.key.pid == Pid(61);
        let device = &context.snapshot.devices[0];
        let users = users_within_lease(&context, device, own, &leases, is_placeholder);
        users.into_iter().map(|pid| pid.0).collect()
    };
    assert_eq!(users(&own), [60, 100]);
    let accepts = Claim { accept_used: true, ..own.claim.clone() };
    assert_eq!(users(&LeaseEntry { claim: accepts, ..own.clone() }), [60]);
    assert_eq!(users(&share(own.clone(), 4_000)), [60]);
    world.state().sees_host_pids = false;
    assert_eq!(users(&own), [0; 0], "the PIDs mean nothing here");
}

#[test]
fn mig_device_of_merged_leases_is_not_free() {
    let world = divided();
    world.state().devices[0].mig[0].2.clear();
    let snapshot = context(&world).snapshot;
    let usage = gpu_reaper::Usage::of(&snapshot);
    let free =
        |leases: Vec<LeaseEntry>| DeviceLeases::recorded(Ok(leases)).free_parts(&snapshot, &usage);
    assert_eq!(free(Vec::new()), 2);
    for (name, count) in [(mig_uuid(1), 1), (uuid(0), 0), (uuid(1), 2)] {
        let named = LeaseEntry { devices: vec![name.clone()], ..lease("a", 1, 100, &[]) };
        assert_eq!(free(vec![named]), count, "{name}");
        let mut merged = MergedLeases::of_count(1);
        merged.add(&name.0, &mut 1);
        let merged = Some(std::sync::Arc::new(merged));
        let merged = LeaseEntry { merged, ..lease("more-of-1000", 1, 100, &[]) };
        assert_eq!(free(vec![merged]), count, "merged: {name}");
    }
}
