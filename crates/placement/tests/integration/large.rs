//! Machines with more devices than can be compared exhaustively.

use crate::fixture::{GIB, offers, uuid};
use gpu_core::*;
use gpu_placement::*;

#[test]
fn keeps_required_device_when_others_are_cooler() {
    let mut all = offers(0..24);
    all[17].temperature = Ok(Celsius(80));
    let claim = Claim { required: vec![uuid(17)], ..Claim::whole(9) };
    let choice = choose(&claim, &all, None).expect("there are enough");
    assert_eq!(choice.devices, [0, 1, 2, 3, 4, 5, 6, 7, 17]);
}

#[test]
fn scattered_small_devices_are_found() {
    let mut all = offers(0..24);
    let large = [1, 4, 7, 8, 11, 13, 16, 19, 22];
    for device in large {
        all[device].capacity = Ok(Bytes(80 * GIB));
    }
    let choice = choose(&Claim::whole(12), &all, None).expect("there are enough");
    assert_eq!(choice.devices.len(), 12);
    assert!(choice.devices.iter().all(|device| !large.contains(device)), "{:?}", choice.devices);
    assert_eq!(choice.why, Why::Fits);
    let choice = choose(&Claim::whole(12), &offers(0..24), None).expect("there are enough");
    assert_eq!((choice.devices, choice.why), ((0..12).collect(), Why::KeepsBlocks));
}

#[test]
fn at_most_64_devices_are_compared() {
    let choice = choose(&Claim::whole(3), &offers(0..70), None).expect("there are enough");
    assert_eq!(choice.devices, [0, 1, 2]);
    assert_eq!(choice.passed.len(), 67);
    let claim = Claim { required: vec![uuid(69)], ..Claim::whole(2) };
    let choice = choose(&claim, &offers(0..70), None).expect("there are enough");
    assert!(choice.devices.contains(&69), "a required device is among them");
}

/// Single exchanges that start from consecutive numbers do not lead there: these sets are compared
/// one by one.
#[test]
fn hot_block_is_left_free() {
    for (count, hot) in [(64, &[30, 31][..]), (32, &[8, 9, 10])] {
        let mut all = offers(0..count);
        for device in hot {
            all[*device].temperature = Ok(Celsius(80));
        }
        let wanted = (count - hot.len()) as u32;
        let choice = choose(&Claim::whole(wanted), &all, None).expect("all are free");
        let left: Vec<usize> = choice.passed.iter().map(|(device, _)| *device).collect();
        assert_eq!((left, choice.why), (hot.to_vec(), Why::KeepsBlocks));
    }
}
