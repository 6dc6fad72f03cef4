//! Choices on machines with a known topology.

use crate::fixture::{dgx1_p100, dgx1_v100, gtx1080ti, nvswitch, offers, rtx8000, uuid};
use gpu_core::{Claim, Link, Topology};
use gpu_placement::{Choice, Why, choose};

fn chosen(topology: &Topology, free: &[usize], count: u32, required: &[usize]) -> Choice {
    let mut claim = Claim::whole(count);
    claim.required = required.iter().copied().map(uuid).collect();
    let offers = offers(free.iter().copied());
    let mut choice = choose(&claim, &offers, Some(topology)).expect("there are enough");
    // Use the indexes of the devices instead of their positions.
    choice.devices.iter_mut().for_each(|index| *index = free[*index]);
    choice
}

/// A machine, its free devices, the number requested, the required devices, and the choice.
type Case<'a> = (&'a str, Topology, &'a [usize], u32, &'a [usize], &'a [usize]);

#[test]
fn well_known_machines_get_expected_devices() {
    let all: Vec<usize> = (0..16).collect();
    let [four, eight, sixteen] = [4, 8, 16].map(|count| &all[..count]);
    #[rustfmt::skip]
    let table: &[Case<'_>] = &[
        ("rtx8000", rtx8000(), four, 1, &[], &[0]),
        ("rtx8000", rtx8000(), four, 2, &[], &[0, 3]),
        ("rtx8000", rtx8000(), &[0, 1, 2], 2, &[], &[1, 2]),
        ("rtx8000", rtx8000(), &[1, 2], 2, &[], &[1, 2]),
        ("rtx8000", rtx8000(), &[0, 1, 3], 1, &[], &[1]),
        ("rtx8000", rtx8000(), &[0, 2, 3], 2, &[2], &[2, 3]),
        ("p100", dgx1_p100(), eight, 2, &[], &[0, 2]),
        ("p100", dgx1_p100(), &[1, 3, 4, 5, 6, 7], 2, &[], &[1, 3]),
        ("p100", dgx1_p100(), &[4, 5, 6, 7], 2, &[], &[4, 6]),
        ("p100", dgx1_p100(), &[5, 7], 2, &[], &[5, 7]),
        ("p100", dgx1_p100(), eight, 4, &[], &[0, 1, 2, 3]),
        ("p100", dgx1_p100(), &[1, 2, 3, 4, 5, 6, 7], 4, &[], &[4, 5, 6, 7]),
        ("v100", dgx1_v100(), eight, 2, &[], &[0, 3]),
        ("v100", dgx1_v100(), &[1, 2, 4, 5, 6, 7], 2, &[], &[1, 2]),
        ("v100", dgx1_v100(), &[4, 5, 6, 7], 2, &[], &[4, 7]),
        ("v100", dgx1_v100(), &[5, 6], 2, &[], &[5, 6]),
        ("v100", dgx1_v100(), eight, 4, &[], &[0, 1, 2, 3]),
        ("v100", dgx1_v100(), &[4, 5, 6, 7], 4, &[], &[4, 5, 6, 7]),
        ("v100", dgx1_v100(), eight, 8, &[], eight),
        ("v100", dgx1_v100(), &[0, 2, 4, 5], 2, &[], &[4, 5]),
        ("v100", dgx1_v100(), &[0, 4, 5, 6], 2, &[], &[5, 6]),
        ("v100", dgx1_v100(), &[0, 1, 3], 2, &[], &[0, 3]),
        ("v100", dgx1_v100(), &[0, 1, 4], 2, &[], &[0, 4]),
        ("v100", dgx1_v100(), eight, 2, &[4], &[4, 7]),
        // A single device does not split a pair: 3 has lost its partner.
        ("v100", dgx1_v100(), &[1, 2, 3], 1, &[], &[1]),
        ("v100", dgx1_v100(), &[3, 4, 7], 1, &[], &[3]),
        ("hgx a100", nvswitch(8, 12), eight, 1, &[], &[0]),
        ("hgx a100", nvswitch(8, 12), &all[1..8], 1, &[], &[1]),
        ("hgx a100", nvswitch(8, 12), &all[1..8], 2, &[], &[2, 3]),
        ("hgx a100", nvswitch(8, 12), &all[2..8], 4, &[], &[4, 5, 6, 7]),
        ("hgx a100", nvswitch(8, 12), &[0, 1, 2, 4, 5, 6, 7], 3, &[], &[0, 1, 2]),
        ("hgx h100", nvswitch(8, 18), eight, 4, &[], &[0, 1, 2, 3]),
        ("dgx-2", nvswitch(16, 6), sixteen, 8, &[], &all[..8]),
        ("dgx-2", nvswitch(16, 6), &all[1..], 8, &[], &all[8..]),
        ("dgx-2", nvswitch(16, 6), &all[3..], 1, &[], &[3]),
        ("dgx-2", nvswitch(16, 6), &all[3..], 4, &[], &[4, 5, 6, 7]),
        ("1080 ti", gtx1080ti(), eight, 4, &[], &[0, 1, 2, 3]),
        ("1080 ti", gtx1080ti(), &[1, 2, 3, 4, 5, 6, 7], 4, &[], &[4, 5, 6, 7]),
        ("1080 ti", gtx1080ti(), &[2, 3, 4, 5, 6, 7], 2, &[], &[2, 3]),
        ("1080 ti", gtx1080ti(), &[3, 4, 5], 2, &[], &[4, 5]),
    ];
    for (name, topology, free, count, required, expected) in table {
        let choice = chosen(topology, free, *count, required);
        let case = format!("{name}: {count} of {free:?} with {required:?}: {choice:?}");
        assert_eq!(choice.devices, *expected, "{case}");
        assert!(choice.exact, "{case}");
        assert_eq!(choice.passed.len(), free.len() - choice.devices.len(), "{case}");
    }
}

#[test]
fn totals_match_scores() {
    // Four pairs with two NVLinks under one host bridge: 4 × (200 + 30). Two pairs with a switch
    // and two across the sockets have the same total but are less even: 2 × 250 + 2 × 210.
    let pairs = chosen(&dgx1_v100(), &[0, 1, 2, 3, 4, 5, 6, 7], 2, &[]);
    assert_eq!((pairs.total, pairs.score), (920, 230));
    // 0-2 and 4-5: (100 + 30) and (100 + 50).
    let pairs = chosen(&dgx1_v100(), &[0, 2, 4, 5], 2, &[]);
    assert_eq!((pairs.total, pairs.score), (280, 150));
    // Three of four: one device remains, and no pair.
    let three = chosen(&nvswitch(4, 12), &[0, 1, 2, 3], 3, &[]);
    assert_eq!((three.total, three.score), (3600, 3600));
    // Three of five: the two that remain count as a pair.
    let three = chosen(&nvswitch(5, 12), &[0, 1, 2, 3, 4], 3, &[]);
    assert_eq!((three.total, three.score), (4800, 3600));
}

#[test]
fn reason_names_links() {
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    let two = chosen(&rtx8000(), &all[..4], 2, &[]);
    let instead = Why::Linked {
        weakest: Some(Link::NvLink(2)),
        instead: vec![0, 2],
        instead_weakest: Some(Link::Sys),
    };
    assert_eq!(two.why, instead);
    assert_eq!(chosen(&rtx8000(), &[0, 3], 2, &[]).why, Why::OnlyOne);
    assert_eq!(chosen(&nvswitch(8, 12), &all, 8, &[]).why, Why::OnlyOne);
    assert_eq!(chosen(&nvswitch(8, 12), &all[1..], 2, &[]).why, Why::KeepsBlocks);
    assert_eq!(chosen(&nvswitch(8, 12), &all, 1, &[]).why, Why::First);
    let one = chosen(&dgx1_v100(), &[3, 4, 7], 1, &[]).why;
    let away = Why::Linked { weakest: None, instead: vec![2], instead_weakest: None };
    assert_eq!(one, away);
}

#[test]
fn large_machines_get_good_partitions() {
    // Quads numbered so that none is an aligned block.
    let quads = |count: usize| {
        let of = move |device: usize| device % (count / 4);
        let link = move |from, to| if of(from) == of(to) { Link::NvLink(4) } else { Link::Sys };
        crate::fixture::topology(count, link, None)
    };
    for count in [20, 24, 32] {
        let free: Vec<usize> = (0..count).collect();
        let choice = chosen(&quads(count), &free, 4, &[]);
        let step = count / 4;
        assert_eq!(choice.devices, [0, step, 2 * step, 3 * step], "{count}");
        assert_eq!(choice.total, (count / 4 * 6 * 400) as u32, "{count}");
        assert!(choice.exact, "{count}");
        let with = chosen(&quads(count), &free, 2, &[9]);
        assert_eq!(with.devices, [9 % step, 9], "{count}");
    }
    let free: Vec<usize> = (1..64).collect();
    for count in [1, 2, 8, 31, 32, 63] {
        let choice = chosen(&nvswitch(64, 18), &free, count, &[]);
        assert!(choice.exact, "{count}");
        assert_eq!(choice.devices.len(), count as usize);
        if count == 8 {
            assert_eq!(choice.devices, (8..16).collect::<Vec<_>>());
        }
    }
}
