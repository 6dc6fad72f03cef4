//! Which devices are eligible, and which rule decides between equally connected ones.

use crate::fixture::{GIB, nvswitch, offers, uuid};
use gpu_core::{
    Absent, Bytes, Celsius, Claim, DeviceFault, DeviceUuid, Fault, LeaseId, Pid, Share, Timestamp,
};
use gpu_placement::{Bar, Offer, Passed, Refusal, Why, choose};

fn leased() -> Bar {
    Bar::Leased { lease: LeaseId::parse("1-a").expect("an id"), owner: 1000 }
}

fn faulty() -> Bar {
    Bar::Faulty(Fault { kind: DeviceFault::Lost.into(), text: "ask GPU 0".into() })
}

/// Returns what became of the first of two devices, after a change to it, in a claim on one device.
fn first(change: impl Fn(&mut Offer), claim: &Claim) -> Option<Passed> {
    let mut offers = offers(0..2);
    change(&mut offers[0]);
    let choice = choose(claim, &offers, None).expect("the second is there");
    let passed = choice.passed.into_iter().find(|(index, _)| *index == 0);
    passed.map(|(_, reason)| reason)
}

#[test]
fn each_device_is_rejected_for_its_first_reason() {
    let gib = |count: u64| Bytes(count * GIB);
    let whole = Claim::whole(1);
    let share = Claim { share: Share::Memory(gib(8)), ..whole.clone() };
    let free = Claim { free_memory: Some(gib(8)), ..whole.clone() };
    let capable = Claim { compute_capability: Some((7, 0)), ..whole.clone() };
    let among = Claim { among: vec![uuid(1)], ..whole.clone() };
    let except = Claim { except: vec![uuid(0)], ..whole.clone() };
    type Change = fn(&mut Offer);
    let lacks = |has: u64| Passed::LacksMemory { has: gib(has), needs: gib(8) };
    let room = |has: u64| Passed::LacksRoom { has: gib(has), needs: gib(8) };
    let cases: &[(&Claim, Change, Passed)] = &[
        (&whole, |o| o.id.uuid = Err(Absent::Failed), Passed::Barred(Bar::NameUnknown)),
        (&among, |_| {}, Passed::NotAmong),
        (&except, |_| {}, Passed::Excluded),
        (&except, |o| o.bar = Some(faulty()), Passed::Excluded),
        (&whole, |o| o.bar = Some(faulty()), Passed::Barred(faulty())),
        (&whole, |o| o.bar = Some(leased()), Passed::Barred(leased())),
        (
            &capable,
            |o| o.compute_capability = Ok((6, 1)),
            Passed::LowCapability { has: (6, 1), needs: (7, 0) },
        ),
        (
            &capable,
            |o| o.compute_capability = Err(Absent::TooOld),
            Passed::CapabilityUnknown(Absent::TooOld),
        ),
        (&share, |o| o.capacity = Ok(Bytes(4 * GIB)), lacks(4)),
        // Permanent reasons come before temporary ones.
        (
            &share,
            |o| {
                o.capacity = Ok(Bytes(4 * GIB));
                o.bar = Some(leased());
            },
            lacks(4),
        ),
        (&share, |o| o.room = Ok(Bytes(7 * GIB)), room(7)),
        (&free, |o| o.free = Ok(Bytes(7 * GIB)), room(7)),
        (&free, |o| o.capacity = Ok(Bytes(7 * GIB)), lacks(7)),
        (
            &share,
            |o| o.capacity = Err(Absent::NotSupported),
            Passed::MemoryUnknown(Absent::NotSupported),
        ),
        (&share, |o| o.room = Err(Absent::Failed), Passed::MemoryUnknown(Absent::Failed)),
        (&free, |o| o.free = Err(Absent::Failed), Passed::MemoryUnknown(Absent::Failed)),
        (&whole, |o| o.display = true, Passed::DrivesDisplay),
        (&whole, |o| o.temperature = Ok(Celsius(60)), Passed::OtherSetBetter),
    ];
    for (claim, change, reason) in cases {
        assert_eq!(first(change, claim).as_ref(), Some(reason));
    }
    // Values that a claim does not depend on may be unknown.
    let silent = |o: &mut Offer| {
        o.capacity = Err(Absent::NotSupported);
        o.room = Err(Absent::NotSupported);
        o.free = Err(Absent::NotSupported);
        o.compute_capability = Err(Absent::NotSupported);
        o.temperature = Err(Absent::NotSupported);
    };
    let mut all = offers(0..1);
    silent(&mut all[0]);
    assert_eq!(choose(&whole, &all, None).expect("it is free").why, Why::OnlyOne);
}

#[test]
fn devices_with_duplicate_uuid_are_ineligible() {
    let mut all = offers([0, 0, 1]);
    all[1].id.index = 2;
    let unknown = |index| (index, Passed::Barred(Bar::NameUnknown));
    let choice = choose(&Claim::whole(1), &all, None).expect("one has a name of its own");
    assert_eq!((choice.devices, choice.passed), (vec![2], vec![unknown(0), unknown(1)]));
}

#[test]
fn mig_device_is_in_no_block_of_whole_devices() {
    let mut all = offers([2, 3, 5]);
    // Its index is that of its whole device: with it, the first would be half of a block.
    all[1].id.uuid = Ok(DeviceUuid("MIG-1".to_owned()));
    assert_eq!(choose(&Claim::whole(1), &all, None).expect("all are free").devices, [0]);
    let whole = offers([2, 3, 5]);
    assert_eq!(choose(&Claim::whole(1), &whole, None).expect("all are free").devices, [2]);
}

#[test]
fn display_device_is_used_last_unless_requested() {
    let mut all = offers(0..3);
    all[0].display = true;
    let devices = |claim: &Claim| choose(claim, &all, None).expect("there are enough").devices;
    assert_eq!(devices(&Claim::whole(1)), [1]);
    assert_eq!(devices(&Claim::whole(2)), [1, 2]);
    assert_eq!(devices(&Claim::whole(3)), [0, 1, 2]);
    assert_eq!(devices(&Claim { required: vec![uuid(0)], ..Claim::whole(1) }), [0]);
    assert_eq!(devices(&Claim { required: vec![uuid(0)], ..Claim::whole(2) }), [0, 1]);
    // A machine with a single GPU, which drives the display.
    assert_eq!(choose(&Claim::whole(1), &all[..1], None).expect("it is there").devices, [0]);
}

#[test]
fn only_temporary_obstacles_are_waited_for() {
    let mut all = offers(0..4);
    all[0].bar = Some(leased());
    let outsider = Bar::Outsider { pid: Pid(7), is_host_pid: false, name: "python".into() };
    all[1].bar = Some(outsider.clone());
    all[2].bar = Some(faulty());
    let ask = |count, required: &[usize]| {
        let required = required.iter().copied().map(uuid).collect();
        let refused = choose(&Claim { required, ..Claim::whole(count) }, &all, None);
        refused.map(|choice| choice.devices)
    };
    assert_eq!(ask(1, &[]), Ok(vec![3]));
    let passed = vec![
        (0, Passed::Barred(leased())),
        (1, Passed::Barred(outsider)),
        (2, Passed::Barred(faulty())),
    ];
    let later = |free| Refusal::NotNow { free, could: 3, passed: passed.clone() };
    let never = Refusal::Never { could: 3, passed: passed.clone() };
    assert_eq!(ask(2, &[]), Err(later(vec![3])));
    assert_eq!(ask(3, &[]), Err(later(vec![3])));
    assert_eq!(later(vec![3]).to_string(), "1 of 3 suitable devices are free now");
    assert_eq!(ask(4, &[]), Err(never.clone()));
    // A required device: leased, faulty, missing, or too many of them.
    assert_eq!(ask(1, &[0]), Err(later(vec![3])));
    assert_eq!(ask(1, &[2]), Err(never));
    assert_eq!(ask(1, &[9]), Err(Refusal::Missing(uuid(9))));
    assert_eq!(ask(1, &[0, 3]), Err(Refusal::Contradictory));
    assert_eq!(ask(1, &[3, 3]), Ok(vec![3]));
    assert_eq!(ask(0, &[]), Err(Refusal::Contradictory));
    let none = Refusal::Never { could: 0, passed: Vec::new() };
    assert_eq!(choose(&Claim::whole(1), &[], None), Err(none));
}

#[test]
fn equal_devices_are_ranked_by_fit_temperature_and_last_use() {
    let topology = nvswitch(4, 12);
    let alike = offers(0..4);
    let ask = |claim: &Claim, change: fn(&mut [Offer])| {
        let mut offers = alike.clone();
        change(&mut offers);
        let choice = choose(claim, &offers, Some(&topology)).expect("there are enough");
        (choice.devices, choice.why)
    };
    let one = Claim::whole(1);
    assert_eq!(ask(&one, |_| {}), (vec![0], Why::First));
    let rested = ask(&one, |o| {
        o[0].last_leased = Some(Timestamp(5));
        o[1].last_leased = Some(Timestamp(4));
        o[2].last_leased = Some(Timestamp(3));
        o[3].last_leased = Some(Timestamp(6));
    });
    assert_eq!(rested, (vec![2], Why::LeastRecent));
    let cool = ask(&one, |o| {
        o[0].temperature = Ok(Celsius(71));
        o[1].temperature = Err(Absent::NotSupported);
        o[2].temperature = Ok(Celsius(34));
    });
    assert_eq!(cool, (vec![2], Why::Coolest));
    // Small differences do not count: 30 and 34 degrees are in one step.
    assert_eq!(ask(&one, |o| o[0].temperature = Ok(Celsius(34))), (vec![0], Why::First));
    // A memory difference below 256 MiB does not count either.
    let alike = ask(&one, |o| o[0].capacity = Ok(Bytes(16 * GIB + (255 << 20))));
    assert_eq!(alike, (vec![0], Why::First));
    let small = ask(&one, |o| o[3].capacity = Ok(Bytes(8 * GIB)));
    assert_eq!(small, (vec![3], Why::Fits));
    // A share goes to the device with the least memory left for shares.
    let share = Claim { share: Share::Memory(Bytes(2 * GIB)), ..Claim::whole(1) };
    let tight = ask(&share, |o| {
        o[1].room = Ok(Bytes(GIB));
        o[2].room = Ok(Bytes(3 * GIB));
        o[3].room = Ok(Bytes(9 * GIB));
    });
    assert_eq!(tight, (vec![2], Why::Fits));
}

#[test]
fn set_is_as_hot_as_its_hottest_device() {
    let mut all = offers(0..4);
    for (offer, celsius) in all.iter_mut().zip([70, 20, 50, 50]) {
        offer.temperature = Ok(Celsius(celsius));
    }
    let choice = choose(&Claim::whole(2), &all, Some(&nvswitch(4, 12))).expect("all are free");
    assert_eq!(choice.devices, [2, 3]);
}
