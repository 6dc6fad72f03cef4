//! Masks and selectors as Level Zero and SYCL read them, and back, against a model of their rules.

use super::*;
use crate::error::{DeviceFault, Fault};
use crate::visible::cuda;
use crate::visible::fixture::{described, device, integrated, key, value};
use proptest::prelude::*;

/// A GPU in the processor, a card of two tiles, and a card of one: `a`, `b/0` and `b/1`, `c`.
fn machine() -> Vec<DeviceState> {
    let device = |(index, (name, tiles))| device(index, LEVEL_ZERO, Some(name), tiles);
    let mut machine: Vec<DeviceState> =
        (0..).zip([("a", 0), ("b", 2), ("c", 0)]).map(device).collect();
    machine[0] = integrated(machine[0].clone());
    machine
}

const BY_ADDRESS: (&str, &str) = ORDER;
const BY_CARD: (&str, &str) = (HIERARCHY, CARDS);

fn lists(machine: &[DeviceState], set: &[(&str, &str)]) -> Vec<String> {
    described(LevelZero.lists(&|name| value(set, name), machine))
}

#[test]
fn mask_is_read_as_by_the_driver() {
    let machine = machine();
    for (mask, by_tile, by_card) in [
        ("0", "a", "a"),
        ("1", "b/0", "b"),
        ("3,1", "b/0 c", "b"),
        // A set: neither order nor repetition matters, and what does not exist is ignored.
        ("2,0,0,7,4294967295,-1", "a b/1", "a c"),
        ("default", "a b/0 b/1 c", "a b c"),
        ("1.1", "", "b/1"),
        ("1.0,1.1,1.2,0.0", "", "a b"),
        ("1.0.1,0", "a", "a"),
        (" 0x1,0z", "a b/0", "a b"),
        // Programs fail.
        ("0,x", " !x", " !x"),
        ("0,", " !", " !"),
        ("1.x", " !1.x", " !1.x"),
        ("0.0.0.0", " !0.0.0.0", " !0.0.0.0"),
    ] {
        let read = |more: &[(&str, &str)]| {
            lists(&machine, &[&[(VISIBLE, mask), BY_ADDRESS], more].concat())
        };
        assert_eq!(read(&[]), [format!("{VISIBLE} {by_tile}")], "{mask}");
        assert_eq!(read(&[(HIERARCHY, "COMBINED")]), read(&[]), "{mask}");
        assert_eq!(read(&[BY_CARD]), [format!("{VISIBLE} {by_card}")], "{mask}");
    }
    assert!(lists(&machine, &[(VISIBLE, ""), (SELECTOR, "")]).is_empty(), "all devices");
    assert!(lists(&[device(0, cuda::CUDA, None, 0)], &[(VISIBLE, "0")]).is_empty());
}

#[test]
fn integrated_gpu_comes_last_by_default() {
    let mut machine = machine();
    assert_eq!(lists(&machine, &[(VISIBLE, "0,3")]), [format!("{VISIBLE} b/0 a")]);
    let lost = Fault { kind: DeviceFault::Lost.into(), text: String::new() };
    machine[2].sample = Err(lost);
    let set = [(VISIBLE, "0"), (SELECTOR, "*:0")];
    assert_eq!(lists(&machine, &set), [VISIBLE, SELECTOR].map(|name| format!("{name} unknown")));
    assert_eq!(lists(&machine, &[set[0], BY_ADDRESS]), [format!("{VISIBLE} a")]);
}

#[test]
fn selector_is_read_within_the_mask() {
    let machine = machine();
    for (selector, want) in [
        ("*:*", "a b c"),
        ("Level_Zero:GPU", "a b c"),
        ("level_zero:1", "b"),
        ("level_zero:1.1,0;*:cpu", "a b/1"),
        ("level_zero:1.*", "b"),
        ("*:*.*", "a b c"),
        ("opencl:gpu", "a b c"),
        ("opencl:cpu;cuda:*", ""),
        ("!level_zero:*;!opencl:*", ""),
        ("!level_zero:*", "a b c"),
        ("*:gpu;!*:1", "a c"),
        ("level_zero:*;!level_zero:1.0", "a b/1 c"),
        ("level_zero:7", ""),
        ("*:2", "c"),
        // Programs fail.
        ("level_zero", " !level_zero"),
        ("vulkan:*", " !vulkan:*"),
        ("level_zero:0:1", " !level_zero:0:1"),
        ("!*:cpu;*:gpu", " !*:gpu"),
        ("level_zero:gpu.0", " !level_zero:gpu.0"),
        ("level_zero:*.0", " !level_zero:*.0"),
        ("level_zero:0.*.0", " !level_zero:0.*.0"),
        ("level_zero:0.0.0.0", " !level_zero:0.0.0.0"),
        ("level_zero:x", " !level_zero:x"),
    ] {
        let read = lists(&machine, &[(SELECTOR, selector), BY_ADDRESS, BY_CARD]);
        assert_eq!(read, [format!("{SELECTOR} {want}")], "{selector}");
    }
    let read =
        |mask, selector| lists(&machine, &[(VISIBLE, mask), (SELECTOR, selector), BY_ADDRESS]);
    assert_eq!(read("1,3", "level_zero:1")[1], format!("{SELECTOR} c"));
    assert_eq!(read("1,3", "level_zero:2")[1], format!("{SELECTOR} "));
    assert_eq!(read("0", "opencl:0")[1], format!("{SELECTOR} unknown"));
}

#[test]
fn devices_are_written_by_number_of_card() {
    let machine = machine();
    let write = |keys: &[&str]| {
        let keys: Vec<DeviceUuid> = keys.iter().map(|key| DeviceUuid((*key).into())).collect();
        LevelZero.write(&keys, Form::Uuid, &machine).ok()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(write(&["c", "b"]), text("2,1"));
    assert_eq!(write(&["b/1", "a"]), text("1.1,0"));
    assert_eq!(write(&[]), text(NONE));
    assert_eq!(write(&["b", "b/1"]), None);
    assert_eq!(write(&["gone"]), None);
    let variables = LevelZero.variables(&[key(&machine[2])], Form::Index, &machine, &|_| None);
    let want = [(VISIBLE, "2"), ORDER, (HIERARCHY, CARDS)];
    assert_eq!(variables.unwrap(), want.map(|(name, value)| (name, value.to_owned())));
    assert!(LevelZero.variables(&[], Form::Index, &[], &|_| None).unwrap().is_empty());
}

#[test]
fn inherited_selector_keeps_backends_and_types() {
    for (selector, want) in [
        ("level_zero:gpu;opencl:cpu", "level_zero:gpu;opencl:cpu"),
        ("level_zero:1,0.1;!cuda:*", "level_zero:*;!cuda:*"),
        ("*:*;!level_zero:0", "*:*"),
        ("!level_zero:0", "*:*"),
        (";", "*:*"),
        ("level_zero:*.*", "level_zero:*.*"),
    ] {
        assert_eq!(selector::without_numbers(selector), want, "{selector}");
    }
}

/// The tiles that the driver shows, `(card, tile)`, by its own steps: `tiles` of each card.
fn driver(mask: &str, by_card: bool, tiles: &[usize]) -> Vec<(usize, usize)> {
    let cards = tiles.iter().enumerate();
    let flat: Vec<(usize, usize)> =
        cards.flat_map(|(card, tiles)| (0..*tiles).map(move |tile| (card, tile))).collect();
    if mask.is_empty() {
        return flat;
    }
    let mut enabled = Vec::new();
    for entry in mask.split(',') {
        let numbers: Vec<usize> =
            entry.split('.').map(|number| number.parse().unwrap_or(usize::MAX)).collect();
        match (by_card, &numbers[..]) {
            (true, [card]) if *card < tiles.len() => {
                enabled.extend((0..tiles[*card]).map(|tile| (*card, tile)));
            }
            (true, [card, tile]) => enabled.push((*card, *tile)),
            (false, [number]) => enabled.extend(flat.get(*number)),
            _ => {}
        }
    }
    flat.into_iter().filter(|tile| enabled.contains(tile)).collect()
}

prop_compose! {
    /// A machine, and the number of tiles of each card.
    fn any_machine()(cards in proptest::collection::vec(0_u32..4, 1..5))
        -> (Vec<DeviceState>, Vec<usize>)
    {
        let card = |(index, tiles)| device(index, LEVEL_ZERO, None, tiles);
        let machine = (0..).zip(cards.clone()).map(card).collect();
        (machine, cards.iter().map(|tiles| *tiles.max(&1) as usize).collect())
    }
}

/// The keys of tiles: that of the card if it has one.
fn names(shown: &[(usize, usize)], machine: &[DeviceState]) -> Vec<DeviceUuid> {
    let name = |(card, tile): &(usize, usize)| {
        let part = machine[*card].partitions.as_ref().unwrap().get(*tile);
        part.map_or_else(|| key(&machine[*card]), |part| part.uuid.clone().unwrap())
    };
    shown.iter().map(name).collect()
}

proptest! {
    #[test]
    fn programs_see_exactly_the_leased_devices(
        (machine, tiles) in any_machine(),
        chosen in any::<[u8; 16]>(),
        whole in any::<bool>(),
        inherited in "(level_zero|\\*|!level_zero):[0-2](;!\\*:[01]|,1)?",
    ) {
        let all = driver("", true, &tiles);
        let is_leased = |at: &(usize, usize)| chosen[if whole { at.0 } else { at.0 * 4 + at.1 }] % 2 == 0;
        let leased: Vec<(usize, usize)> = all.into_iter().filter(is_leased).collect();
        let keys = if whole {
            let mut cards: Vec<usize> = leased.iter().map(|(card, _)| *card).collect();
            cards.dedup();
            cards.into_iter().map(|card| key(&machine[card])).collect()
        } else {
            names(&leased, &machine)
        };
        let now = |name: &str| (name == SELECTOR).then(|| inherited.clone());
        let set = LevelZero.variables(&keys, Form::Uuid, &machine, &now).unwrap();
        let set = |name: &str| {
            let found = set.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.clone())
        };
        let by_card = set(HIERARCHY).as_deref() == Some("COMPOSITE");
        let mask = set(VISIBLE).unwrap();
        prop_assert!(!mask.is_empty() && set(ORDER.0).as_deref() == Some("1"));
        prop_assert_eq!(&driver(&mask, by_card, &tiles), &leased);
        prop_assert!(["level_zero:*", "*:*"].contains(&&*set(SELECTOR).unwrap()));
        let lists = LevelZero.lists(&set, &machine);
        for list in &lists {
            prop_assert_eq!(list.resolved.as_ref().unwrap().devices.is_empty(), keys.is_empty());
        }
    }

    #[test]
    fn masks_are_read_as_the_driver_reads_them(
        (machine, tiles) in any_machine(),
        mask in "[0-7](\\.[0-3])?(,[0-7](\\.[0-3])?){0,4}",
        by_card in any::<bool>(),
    ) {
        let set = [(VISIBLE, &*mask), ORDER, (HIERARCHY, if by_card { CARDS } else { "FLAT" })];
        let read = LevelZero.lists(&|name| value(&set, name), &machine).remove(0);
        let shown = driver(&mask, by_card, &tiles);
        // Where programs count cards, a whole card is named by its own key.
        let mut want: Vec<DeviceUuid> = Vec::new();
        for (card, tiles) in tiles.iter().enumerate() {
            let shown: Vec<_> = shown.iter().filter(|tile| tile.0 == card).copied().collect();
            let is_whole = by_card && shown.len() == *tiles;
            want.extend(if is_whole { vec![key(&machine[card])] } else { names(&shown, &machine) });
        }
        prop_assert_eq!(read.resolved.unwrap().uuids(), want);
    }

    #[test]
    fn any_text_is_read(mask in "\\PC{0,30}", selector in "[a-z_*!:;,.0-9]{0,30}|\\PC{0,30}") {
        let set = [(VISIBLE, &*mask), (SELECTOR, &*selector)];
        prop_assert!(LevelZero.lists(&|name| value(&set, name), &machine()).len() <= 2);
        prop_assert!(!selector::without_numbers(&selector).is_empty());
    }
}
