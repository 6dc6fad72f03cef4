//! Lists as ROCm reads them, and back, against a model of its rules.

use super::*;
use crate::visible::Seen;
use crate::visible::fixture::{described, device, key, value};
use proptest::prelude::*;

/// Two devices with UUIDs that begin alike, one without, and one of two partitions: as ROCm counts,
/// 0, 1, 2, and 3 and 4.
fn machine() -> Vec<DeviceState> {
    let uuids = [Some("GPU-8ae3000000000001"), Some("GPU-8ae3100000000002"), None];
    let mut machine: Vec<DeviceState> =
        (0..).zip(uuids).map(|(index, uuid)| device(index, ROCM, uuid, 0)).collect();
    machine.push(device(3, ROCM, Some("GPU-d00d000000000003"), 2));
    machine
}

/// What ROCm programs count on the machine: the keys.
fn nodes(machine: &[DeviceState]) -> Vec<DeviceUuid> {
    parts(machine).into_iter().filter_map(|part| Some(part.named?.uuid)).collect()
}

#[test]
fn rocr_list_is_read_as_by_its_filter() {
    let machine = machine();
    let nodes = nodes(&machine);
    for (list, want, ended_at) in [
        ("", &[][..], None),
        ("0", &[0], None),
        ("4,2,0", &[4, 2, 0], None),
        (" 1 , 0x2 ,03", &[1, 2, 3], None),
        ("0,", &[0], None),
        ("-0,+1", &[0, 1], None),
        // The first bad entry ends the list, and so does a repeated one.
        ("1,-1,0", &[1], Some("-1")),
        ("1,5,0", &[1], Some("5")),
        ("1,1,0", &[1], Some("1")),
        ("0,08", &[0], Some("08")),
        ("0,,1", &[0], Some("")),
        (",", &[], Some("")),
        ("all", &[], Some("all")),
        // As many entries as devices.
        ("0,1,2,3,4,x", &[0, 1, 2, 3, 4], None),
        // UUIDs and their beginnings; that of partitions names none of them.
        ("gpu-8AE31, GPU-8ae3000000000001", &[1, 0], None),
        ("GPU-8ae3", &[], Some("GPU-8ae3")),
        ("2,GPU-d00d000000000003", &[2], Some("GPU-d00d000000000003")),
        ("GPU-", &[], Some("GPU-")),
        ("GPU-XX", &[], Some("GPU-XX")),
        ("GPU-8ae30000000000011", &[], Some("GPU-8ae30000000000011")),
    ] {
        let read = Rocm.resolve(list, None, &machine).unwrap();
        let want: Vec<DeviceUuid> = want.iter().map(|at: &usize| nodes[*at].clone()).collect();
        assert_eq!((read.uuids(), read.ended_at.as_deref()), (want, ended_at), "'{list}'");
    }
}

#[test]
fn lists_of_amd_compose() {
    const UUID: &str = "GPU-8ae3000000000001";
    const BUS: &str = "pci:0000:03:00.0";
    let mut machine = machine();
    let lists = |machine: &[DeviceState], set: &[(&str, &str)]| {
        described(Rocm.lists(&|name| value(set, name), machine))
    };
    let read = |set: &[(&str, &str)]| lists(&machine, set);
    let rocr = format!("{VISIBLE} {BUS} {UUID}");
    assert!(read(&[]).is_empty());
    assert_eq!(read(&[(VISIBLE, "2,0"), (HIP, "1")]), [rocr.clone(), format!("{HIP} {UUID}")]);
    assert_eq!(read(&[(HIP, "2,0,2,00,1")]), [format!("{HIP} {BUS} {UUID} !00")]);
    assert_eq!(read(&[(VISIBLE, "2,0"), (HIP, "2")]), [rocr.clone(), format!("{HIP}  !2")]);
    assert_eq!(read(&[(HIP, UUID)]), [format!("{HIP} {UUID}")]);
    assert_eq!(read(&[(HIP, "GPU-XX")]), [format!("{HIP} {BUS}")]);
    // An empty list of HIP is none, and CUDA's counts.
    assert_eq!(read(&[(HIP, ""), (cuda::VISIBLE, "2")]), [format!("{} {BUS}", cuda::VISIBLE)]);
    assert_eq!(read(&[(OPENCL, "2")]), [format!("{OPENCL} {BUS}")]);
    assert_eq!(read(&[(VISIBLE, "2,0"), (OPENCL, "2,0")]), [rocr]);
    machine.insert(0, device(0, cuda::CUDA, Some("GPU-c"), 0));
    assert!(lists(&machine, &[(cuda::VISIBLE, "0")]).is_empty(), "NVIDIA's list");
    assert!(lists(&machine[..1], &[(VISIBLE, "0")]).is_empty(), "no device of AMD");
}

#[test]
fn devices_of_several_partitions_are_seen_once() {
    let mut machine = machine();
    machine.insert(0, device(0, cuda::CUDA, Some("GPU-c"), 0));
    for (index, device) in (0..).zip(&mut machine) {
        device.info.id.index = index;
    }
    let seen =
        |set: &[(&str, &str)]| Seen::of(&[&cuda::Cuda, &Rocm], &|name| value(set, name), &machine);
    let read = seen(&[(VISIBLE, "4,0,3"), (HIP, "0,2")]);
    let lists: Vec<_> = read.lists.into_iter().map(|list| list.devices.unwrap()).collect();
    assert_eq!((lists, read.devices), (vec![vec![4, 1], vec![4]], Some(vec![0, 4])));
    assert_eq!(seen(&[]).devices, Some(vec![0, 1, 2, 3, 4]));
}

#[test]
fn devices_are_written_by_uuid_or_number() {
    let machine = machine();
    let nodes = nodes(&machine);
    let keys =
        |at: &[usize]| -> Vec<DeviceUuid> { at.iter().map(|at| nodes[*at].clone()).collect() };
    let write = |keys: &[DeviceUuid], form| Rocm.write(keys, form, &machine).ok();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(write(&keys(&[1, 2, 0]), Form::Index), text("1,2,0"));
    assert_eq!(write(&keys(&[1, 2]), Form::Uuid), text("GPU-8ae3100000000002,2"));
    assert_eq!(write(&keys(&[4]), Form::Uuid), text("4"), "partitions share a UUID");
    assert_eq!(write(&[key(&machine[3])], Form::Uuid), text("3,4"));
    assert_eq!(write(&[], Form::Uuid), text(""));
    assert_eq!(write(&[DeviceUuid("GPU-gone".into())], Form::Uuid), None);
    assert_eq!(write(&keys(&[0, 0]), Form::Uuid), None);
    assert_eq!(write(&[nodes[3].clone(), key(&machine[3])], Form::Uuid), None);
    let none = Rocm.variables(&[], Form::Uuid, &machine, &|_| None).unwrap();
    let want = [(VISIBLE, ""), (HIP, "-1"), (OPENCL, "-1")];
    assert_eq!(none, want.map(|(name, value)| (name, value.to_owned())));
    assert!(Rocm.variables(&[], Form::Uuid, &[], &|_| None).unwrap().is_empty());
}

/// The devices that the HSA runtime shows, by its own steps.
fn hsa(list: Option<&str>, uuids: &[Option<String>]) -> Vec<usize> {
    let Some(list) = list else { return (0..uuids.len()).collect() };
    let mut shown = Vec::new();
    let tokens: Vec<String> = list.split(',').map(|token| token.trim().to_uppercase()).collect();
    for token in tokens.iter().take(uuids.len()) {
        let device = if token.starts_with('G') {
            let fitting = uuids.iter().enumerate().filter(|(_, uuid)| {
                uuid.as_ref().is_some_and(|uuid| uuid.to_uppercase().starts_with(token))
            });
            let fitting: Vec<usize> = fitting.map(|(at, _)| at).collect();
            if !(5..=20).contains(&token.len()) || fitting.len() != 1 {
                break;
            }
            fitting[0]
        } else {
            let digits = token.strip_prefix(['-', '+']).unwrap_or(token);
            let parsed = match digits.strip_prefix("0X") {
                _ if digits.starts_with(['-', '+']) => break,
                Some(digits) => i64::from_str_radix(digits, 16),
                None if digits.len() > 1 && digits.starts_with('0') => {
                    i64::from_str_radix(digits, 8)
                }
                None => digits.parse(),
            };
            let parsed = parsed.map(|number| if token.starts_with('-') { -number } else { number });
            match parsed {
                Ok(number) if (0..uuids.len() as i64).contains(&number) => number as usize,
                _ => break,
            }
        };
        if shown.contains(&device) {
            break;
        }
        shown.push(device);
    }
    shown
}

/// The devices that HIP or OpenCL then shows, by its own steps.
fn clr(list: &str, shown: Vec<usize>, uuids: &[Option<String>]) -> Vec<usize> {
    if list.is_empty() {
        return shown;
    }
    let mut left = Vec::new();
    for token in list.split(',') {
        let uuid = |at: usize| uuids[at].clone().unwrap_or("GPU-XX".into());
        let named = shown.iter().position(|at| token.contains("GPU-") && uuid(*at).contains(token));
        let number = named.map_or(token.to_owned(), |at| at.to_string());
        let Some(at) = (0..shown.len()).find(|at| at.to_string() == number) else { break };
        if !left.contains(&shown[at]) {
            left.push(shown[at]);
        }
    }
    left
}

prop_compose! {
    /// A machine, and the UUID of each device that ROCm counts.
    fn any_machine()(devices in proptest::collection::vec((0_u32..4, 0_u64..3), 1..5))
        -> (Vec<DeviceState>, Vec<Option<String>>)
    {
        let (mut machine, mut uuids) = (Vec::new(), Vec::new());
        for (index, (partitions, beginning)) in (0..).zip(devices) {
            let uuid = (beginning > 0).then(|| format!("GPU-{beginning:x}{index:015x}"));
            machine.push(device(index, ROCM, uuid.as_deref(), partitions));
            uuids.extend((0..partitions.max(1)).map(|_| uuid.clone()));
        }
        (machine, uuids)
    }
}

fn any_list() -> impl Strategy<Value = String> {
    let entry = prop_oneof![
        5 => (0_usize..9).prop_map(|number| number.to_string()),
        2 => "GPU-[12][0-9]{0,3}",
        1 => (1_u64..3, 0..5).prop_map(|(begin, index)| format!("GPU-{begin:x}{index:015x}")),
        1 => "[ 0-9xgGPU-]{0,4}",
    ];
    proptest::collection::vec(entry, 0..6).prop_map(|entries| entries.join(","))
}

proptest! {
    #[test]
    fn programs_see_exactly_the_leased_devices(
        (machine, uuids) in any_machine(),
        order in any::<[u8; 16]>(),
        count in 0_usize..8,
        cuda in any_list(),
    ) {
        let nodes = nodes(&machine);
        let mut leased: Vec<usize> = (0..nodes.len()).collect();
        leased.sort_by_key(|at| order[*at]);
        leased.truncate(count);
        let keys: Vec<DeviceUuid> = leased.iter().map(|at| nodes[*at].clone()).collect();
        for form in [Form::Uuid, Form::Index] {
            let set = Rocm.variables(&keys, form, &machine, &|_| Some(cuda.clone())).unwrap();
            let set = |name| set.iter().find(|(other, _)| *other == name).unwrap().1.as_str();
            let shown = hsa(Some(set(VISIBLE)), &uuids);
            prop_assert_eq!(&shown, &leased);
            let hip = if set(HIP).is_empty() { &cuda } else { set(HIP) };
            prop_assert_eq!(&clr(hip, shown.clone(), &uuids), &leased);
            prop_assert_eq!(&clr(set(OPENCL), shown, &uuids), &leased);
        }
    }

    #[test]
    fn lists_are_read_as_programs_read_them(
        (machine, uuids) in any_machine(),
        rocr in proptest::option::of(any_list()),
        hip in proptest::option::of(any_list()),
    ) {
        let nodes = nodes(&machine);
        let variable = |name: &str| match name {
            VISIBLE => rocr.clone(),
            HIP => hip.clone(),
            _ => None,
        };
        let read = Rocm.lists(&variable, &machine).pop();
        let read = read.map_or(nodes.clone(), |list| list.resolved.unwrap().uuids());
        let shown = clr(hip.as_deref().unwrap_or_default(), hsa(rocr.as_deref(), &uuids), &uuids);
        let want: Vec<DeviceUuid> = shown.into_iter().map(|at| nodes[at].clone()).collect();
        prop_assert_eq!(read, want);
    }
}
