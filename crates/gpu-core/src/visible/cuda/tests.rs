//! Lists as CUDA parses them, and back.

use super::*;
use crate::absent::Absent;
use crate::device::{DeviceInfo, MemoryInfo, Partition};
use crate::error::{DeviceFault, Fault};
use crate::id::DeviceId;
use crate::visible::narrow;
use proptest::prelude::*;

fn device(index: u32, uuid: &str, name: &str) -> DeviceState {
    let id = DeviceId { uuid: Ok(DeviceUuid(uuid.into())), ..DeviceId::from_index(index) };
    let info = DeviceInfo { name: Ok(name.into()), ..DeviceInfo::unknown(id) };
    let silent = || Fault { kind: DeviceFault::Lost.into(), text: String::new() };
    DeviceState {
        info,
        sample: Err(silent()),
        processes: Err(silent()),
        partitions: Ok(Vec::new()),
        details: Err(silent()),
    }
}

fn machine() -> Vec<DeviceState> {
    let uuids = ["GPU-8ae30000", "GPU-8ae31111", "GPU-c0ffee00", "GPU-d00d0000"];
    let mut all: Vec<_> = (0..).zip(uuids).map(|(i, uuid)| device(i, uuid, "A100")).collect();
    let unknown = MemoryInfo {
        total: Err(Absent::NotSupported),
        used: Err(Absent::NotSupported),
        reserved: Err(Absent::NotSupported),
    };
    let instance = |index, gpu| Partition {
        index,
        uuid: match gpu {
            4 => Err(Absent::NotSupported),
            _ => Ok(DeviceUuid(format!("MIG-41a7-b{gpu}"))),
        },
        profile: Err(Absent::NotRecorded),
        gpu_instance: Some(gpu),
        compute_instance: Some(0),
        memory: unknown,
    };
    all[3].partitions = Ok(vec![instance(0, 1), instance(1, 2), instance(2, 4)]);
    all
}

#[test]
fn mig_device_is_not_in_mig_mode_itself() {
    let mut whole = machine().remove(3);
    whole.info.partitioned = Ok(true);
    let parts: Vec<DeviceState> = whole.partitions_as_devices().collect();
    assert_eq!(parts.len(), 3);
    for part in parts {
        assert_eq!((part.info.partitioned, part.partitions), (Ok(false), Ok(Vec::new())));
    }
}

/// The indexes of the devices that a value names, and `/` with the entry that ended it.
fn meant(value: &str) -> String {
    let list = VisibleList::parse(Some(value));
    let resolved = list.resolve(&machine(), Numbering::ByAddress).unwrap();
    let name = |named: &Named| {
        if named.uuid.is_partition() {
            format!("{}@{}", named.uuid, named.index)
        } else {
            named.index.to_string()
        }
    };
    let names: Vec<String> = resolved.devices.iter().map(name).collect();
    let end = resolved.ended_at.map(|entry| format!("/{entry}")).unwrap_or_default();
    names.join(" ") + &end
}

#[test]
fn visible_list_resolves_like_cuda() {
    for (value, devices) in [
        ("", ""),
        ("0", "0"),
        ("2,0", "2 0"),
        // The first entry that names no device ends the list, and so does an index that is too
        // high.
        ("0,2,-1,1", "0 2"),
        ("0,x,1", "0"),
        ("0,,1", "0"),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("0,4,1", "0/4"),
        ("0,99999999999,1", "0"),
        // A duplicate empties the list, unless the list ended before.
        ("0,1,0", ""),
        ("0,-1,0", "0"),
        // As C parses numbers.
        (" 1, 0", "1 0"),
        ("+3,-0", "3 0"),
        ("1gpu2,2ampere", "1 2"),
        // Names, and prefixes of names that only one device has.
        ("GPU-c0ffee00", "2"),
        ("GPU-c,GPU-8ae31", "2 1"),
        ("GPU-c,GPU-8ae3,GPU-d", "2/GPU-8ae3"),
        ("GPU-,GPU-c", ""),
        ("GPU-C0FFEE00", "/GPU-C0FFEE00"),
        ("GPU-c,GPU-c0", ""),
        ("GPU-c, GPU-d", "2"),
        ("GPU-c\x1b", ""),
        // One kind only.
        ("0,GPU-c", "0"),
        ("GPU-c,0", "2"),
        ("GPU-c,MIG-GPU-d00d0000/1/0", "2"),
        // At most one MIG device.
        ("MIG-GPU-d00d0000/2/0", "MIG-41a7-b2@3"),
        ("MIG-d00d0000/2/0", "MIG-41a7-b2@3"),
        ("MIG-GPU-d00d0000/2/0,MIG-GPU-d00d0000/1/0", "MIG-41a7-b2@3"),
        ("MIG-GPU-d00d0000/2/0,MIG-d00d0000/2/0", ""),
        ("MIG-GPU-d00d0000/3/0", "/MIG-GPU-d00d0000/3/0"),
        ("MIG-GPU-d00d0000/2/1", "/MIG-GPU-d00d0000/2/1"),
        ("MIG-GPU-c0ffee00/1/0", "/MIG-GPU-c0ffee00/1/0"),
        ("MIG-GPU-d00d0000/2", ""),
        ("MIG-GPU-d00d0000/2/0/0", ""),
        ("MIG-GPU-d00d0000/+2/0", ""),
        ("MIG-GPU-d00d0000/4/0", ""),
        ("MIG-41a7-b1,MIG-41a7-b2", "MIG-41a7-b1@3"),
        ("MIG-41a7-b1,MIG-GPU-d00d0000/1/0", ""),
        ("MIG-41a7-b3,MIG-41a7-b1", "/MIG-41a7-b3"),
        ("MIG-41a7", "/MIG-41a7"),
    ] {
        assert_eq!(meant(value), devices, "'{value}'");
    }
}

#[test]
fn unset_list_means_all_identified_devices() {
    let mut machine = machine();
    machine[1].info.id.uuid = Err(Absent::NotSupported);
    let indexes = |value, numbering| {
        let resolved = VisibleList::parse(value).resolve(&machine, numbering).unwrap();
        resolved.devices.iter().map(|named| named.index).collect::<Vec<_>>()
    };
    assert_eq!(indexes(None, Numbering::FastestFirst), [0, 2, 3]);
    assert_eq!(indexes(Some("1,2"), Numbering::ByAddress), [2]);
}

#[test]
fn fastest_first_indexes_are_not_guessed() {
    let numbers = VisibleList::parse(Some("0"));
    let names = VisibleList::parse(Some("GPU-c"));
    let mut machine = machine();
    let first = Numbering::parse(None);
    assert_eq!(numbers.resolve(&machine, first).unwrap().devices[0].index, 0);
    for other in [Ok("K40".to_owned()), Err(Absent::Failed)] {
        machine[1].info.name = other;
        let error = numbers.resolve(&machine, first).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.fault().text.contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
        assert!(numbers.resolve(&machine, Numbering::parse(Some("PCI_BUS_ID"))).is_ok());
        assert!(numbers.resolve(&machine[..1], first).is_ok());
        assert_eq!(names.resolve(&machine, first).unwrap().devices[0].index, 2);
    }
}

#[test]
fn devices_format_by_uuid_or_index() {
    let machine = machine();
    let uuids = |names: &[&str]| -> Vec<DeviceUuid> {
        names.iter().map(|name| DeviceUuid((*name).into())).collect()
    };
    let two = uuids(&["GPU-d00d0000", "GPU-8ae30000"]);
    assert_eq!(Cuda.write(&two, Form::Uuid, &machine).unwrap(), "GPU-d00d0000,GPU-8ae30000");
    assert_eq!(Cuda.write(&two, Form::Index, &machine).unwrap(), "3,0");
    assert_eq!(Cuda.write(&[], Form::Index, &machine).unwrap(), "");
    let mig = uuids(&["MIG-GPU-d00d0000/1/0"]);
    assert_eq!(Cuda.write(&mig, Form::Uuid, &machine).unwrap(), "MIG-GPU-d00d0000/1/0");
    for (devices, form) in [
        (&["MIG-a", "GPU-8ae30000"][..], Form::Uuid),
        (&["MIG-a"], Form::Index),
        (&["GPU-gone"], Form::Index),
    ] {
        let error = Cuda.write(&uuids(devices), form, &machine).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{devices:?}");
    }
}

fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_u32..6).prop_map(|index| index.to_string()),
        "GPU-[8ac]{1,3}[0-9a-f]{0,5}",
        "MIG-[0-9a-f]{1,4}",
        "MIG-(GPU-)?d00d0000/[0-3]/[01]",
        "[-+ 0-9a-zGPUMI/]{0,6}",
    ]
}

proptest! {
    #[test]
    fn visible_list_round_trips(
        entries in proptest::collection::vec(entry(), 0..6)
    ) {
        let list = VisibleList::parse(Some(&entries.join(",")));
        let VisibleList::These(read) = &list else { panic!("a value is a list") };
        let again: Vec<String> = read.iter().map(ToString::to_string).collect();
        prop_assert_eq!(VisibleList::parse(Some(&again.join(","))), list.clone());
        let machine = machine();
        let resolved = list.resolve(&machine, Numbering::ByAddress).unwrap();
        let uuids = resolved.uuids();
        if uuids.iter().all(|uuid| uuid.0.starts_with("GPU-")) {
            for form in [Form::Uuid, Form::Index] {
                let value = Cuda.write(&uuids, form, &machine).unwrap();
                let read = VisibleList::parse(Some(&value));
                let read = read.resolve(&machine, Numbering::ByAddress).unwrap();
                prop_assert_eq!(&read.uuids(), &uuids);
            }
        }
        let some = [uuids.as_slice(), &[DeviceUuid("GPU-other".into())]].concat();
        for left in narrow(&some, &uuids).iter().flatten() {
            prop_assert!(uuids.contains(left));
        }
    }

    #[test]
    fn any_text_parses(text in "\\PC{0,40}") {
        let VisibleList::These(entries) = VisibleList::parse(Some(&text)) else {
            panic!("a value is a list");
        };
        prop_assert!(entries.len() <= text.split(',').count());
    }
}
