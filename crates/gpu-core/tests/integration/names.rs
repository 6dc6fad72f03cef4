//! Devices by the names that users give them.

use crate::fixture::*;
use gpu_core::selector::*;
use gpu_core::visible::{Form, Grammar, cuda::*};
use gpu_core::*;

fn named(name: &str) -> Selector {
    name.parse().unwrap()
}

/// Two devices whose UUIDs have the same beginning, and a third one.
fn machine() -> Vec<DeviceState> {
    let mut devices: Vec<DeviceState> = (0..3).map(state).collect();
    for (device, name) in devices.iter_mut().zip(["GPU-aa1", "GPU-aa2", "GPU-b"]) {
        device.info.id.uuid = Ok(uuid(name));
    }
    devices[2].partitions = Ok(vec![mig(1, 0), mig(1, 1)]);
    devices
}

#[test]
fn selectors_are_parsed_and_written_alike() {
    for (name, expected) in [
        ("3", Selector::Index(3)),
        (" GPU-a ", Selector::Uuid("GPU-a".into())),
        ("MIG-1", Selector::Uuid("MIG-1".into())),
        ("04:00.0", Selector::Bus("04:00.0".parse().unwrap())),
    ] {
        assert_eq!(named(name), expected);
        assert_eq!(named(&expected.to_string()), expected);
    }
    for wrong in ["", "gpu", "-1", "4294967296"] {
        assert!(wrong.parse::<Selector>().is_err(), "{wrong}");
    }
}

#[test]
fn device_is_named_by_index_uuid_beginning_or_address() {
    let machine = machine();
    let of = |names: &[&str]| {
        let names: Vec<Selector> = names.iter().map(|name| named(name)).collect();
        indexes(&machine, &names).map_err(|error| error.to_string())
    };
    assert_eq!(of(&["1"]), Ok(vec![1]));
    assert_eq!(of(&["GPU-aa2"]), Ok(vec![1]));
    assert_eq!(of(&["GPU-b"]), Ok(vec![2]));
    assert_eq!(of(&["05:00.0", "0"]), Ok(vec![1, 0]));
    assert_eq!(of(&[]), Ok(vec![]));
    assert_eq!(of(&["7"]), Err("find GPU 7 on this machine".into()));
    let found = |name: &str| indexes(&machine, &[named(name)]);
    let known = vec![0, 1, 2];
    assert_eq!(found("GPU-c"), Err(SelectError::NotFound { name: named("GPU-c"), known }));
    let matches = vec![0, 1];
    assert_eq!(found("GPU-aa"), Err(SelectError::Ambiguous { name: named("GPU-aa"), matches }));

    let selected = |names: &[Selector]| {
        let devices = select(machine.clone(), names).unwrap();
        devices.iter().map(|device| device.id().index).collect::<Vec<_>>()
    };
    assert_eq!(selected(&[]), [0, 1, 2]);
    assert_eq!(selected(&[named("2"), named("0")]), [0, 2], "in the order of the machine");
    assert!(named("GPU-aa1").names(machine[0].id()) && !named("GPU-aa").names(machine[0].id()));
}

#[test]
fn mig_device_is_named_by_uuid_beginning_or_parts() {
    let machine = machine();
    let of = |name: &str| part(&machine, &named(name)).map(|uuid| uuid.map(|uuid| uuid.0));
    assert_eq!(of("MIG-1-0"), Ok(Some("MIG-1-0".into())));
    assert_eq!(of("MIG-GPU-b/1/1"), Ok(Some("MIG-1-1".into())));
    assert_eq!(of("MIG-2"), Ok(None));
    assert_eq!((of("2"), of("GPU-b")), (Ok(None), Ok(None)));
    let ambiguous = SelectError::AmbiguousPart { name: named("MIG-1"), matches: 2 };
    assert_eq!(of("MIG-1"), Err(ambiguous));
}

#[test]
fn visible_devices_are_written_by_uuid_or_index() {
    let machine = machine();
    let written = |names: &[&str], form| {
        let uuids: Vec<DeviceUuid> = names.iter().map(|name| uuid(name)).collect();
        Cuda.write(&uuids, form, &machine).map_err(|error| error.fault().text)
    };
    assert_eq!(written(&["GPU-b", "GPU-aa1"], Form::Uuid), Ok("GPU-b,GPU-aa1".into()));
    assert_eq!(written(&["GPU-b", "GPU-aa1"], Form::Index), Ok("2,0".into()));
    assert_eq!(written(&["MIG-1-0"], Form::Uuid), Ok("MIG-1-0".into()));
    let failed = |why: &str| Err(format!("write CUDA_VISIBLE_DEVICES: {why}"));
    assert_eq!(written(&["MIG-1-0"], Form::Index), failed("MIG-1-0 has no index"));
    assert_eq!(written(&["GPU-c"], Form::Index), failed("no such device: GPU-c"));
    let wrong = failed("a program that sees MIG-1-0 sees no other device");
    assert_eq!(written(&["GPU-b", "MIG-1-0"], Form::Uuid), wrong);
}

#[test]
fn indexes_in_order_of_speed_need_devices_of_one_name() {
    let resolved = |names: &[Reading<&str>], numbering| {
        let with = |(index, name): (u32, &Reading<&str>)| {
            let mut device = state(index);
            device.info.name = name.map(str::to_owned);
            device
        };
        let machine: Vec<DeviceState> = (0..).zip(names).map(with).collect();
        let list = VisibleList::parse(Some("0"));
        list.resolve(&machine, numbering).map(|resolved| resolved.uuids().len()).ok()
    };
    let fastest = Numbering::FastestFirst;
    assert_eq!(resolved(&[Ok("A"), Ok("A")], fastest), Some(1));
    assert_eq!(resolved(&[Ok("A"), Ok("B")], fastest), None);
    assert_eq!(resolved(&[Ok("A"), Ok("B")], Numbering::ByAddress), Some(1));
    let unnamed = Err(Absent::NotSupported);
    assert_eq!(resolved(&[unnamed, unnamed], fastest), None, "they may differ");
    assert_eq!(resolved(&[unnamed], fastest), Some(1), "there is only one");
    assert_eq!(Numbering::parse(Some("PCI_BUS_ID")), Numbering::ByAddress);
    assert_eq!(Numbering::parse(Some("FASTEST_FIRST")), fastest);
    assert_eq!(Numbering::parse(None), fastest);
}

#[test]
fn entries_of_visible_list_are_written_as_parsed() {
    for text in ["3", "GPU-aa1", "MIG-1-0", "MIG-GPU-b/1/0"] {
        let VisibleList::These(entries) = VisibleList::parse(Some(text)) else { panic!("{text}") };
        assert_eq!(entries.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    }
}
