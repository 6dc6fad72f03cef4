//! A claim on named devices.

use crate::fake::*;
use gpu_core::selector::Selector;
use gpu_core::*;
use gpu_steward::{Convention, NamedDevices, NarrowError, narrowed};
use std::collections::BTreeMap;

/// Two whole devices, and a third one that is divided into two MIG devices.
fn machine() -> Inventory {
    let world = World::new(3);
    world.state().devices[2].partitioned = Ok(true);
    world.state().devices[2].mig = vec![(1, 8_000, vec![]), (2, 4_000, vec![])];
    take_inventory(&world, &world, Groups::NONE)
}

fn selectors(names: &[&str]) -> Vec<Selector> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// The devices among which a claim on these names chooses.
fn among(machine: &Inventory, names: &[&str], mig: bool) -> Result<Vec<DeviceUuid>, NarrowError> {
    let named =
        NamedDevices { among: &selectors(names), except: &[], required: &[], partitions: mig };
    narrowed(Claim::whole(1), &named, &|| machine, &|_| None, &BTreeMap::new)
        .map(|(claim, _)| claim.among)
}

#[test]
fn names_select_whole_devices_or_their_mig_devices() {
    for (names, mig, expected) in [
        (&[][..], false, vec![]),
        (&[], true, vec![mig_uuid(1), mig_uuid(2)]),
        (&["1"], false, vec![uuid(1)]),
        (&["2"], false, vec![uuid(2)]),
        (&["2"], true, vec![mig_uuid(1), mig_uuid(2)]),
        (&["1", "2"], true, vec![mig_uuid(1), mig_uuid(2)]),
        (&["MIG-2"], false, vec![mig_uuid(2)]),
        (&["MIG-2"], true, vec![mig_uuid(2)]),
        (&["MIG-2", "0"], false, vec![mig_uuid(2), uuid(0)]),
    ] {
        assert_eq!(among(&machine(), names, mig).unwrap(), expected, "{names:?}, MIG: {mig}");
    }
}

#[test]
fn each_list_of_names_restricts_claim() {
    let machine = machine();
    let (among, except, required) = (selectors(&["0"]), selectors(&["1"]), selectors(&["2"]));
    let named =
        NamedDevices { among: &among, except: &except, required: &required, partitions: false };
    let (claim, _) =
        narrowed(Claim::whole(1), &named, &|| &machine, &|_| None, &BTreeMap::new).unwrap();
    assert_eq!(claim.among, [uuid(0)]);
    assert_eq!((claim.except, claim.required), (vec![uuid(1)], vec![uuid(2)]));
}

#[test]
fn names_without_a_claim_are_refused_with_reason() {
    let refused = |machine: &Inventory, names: &[&str], mig| {
        among(machine, names, mig).unwrap_err().to_string()
    };
    assert_eq!(refused(&machine(), &["0"], true), "find a MIG device among the GPUs");
    assert_eq!(refused(&machine(), &["7"], false), "find GPU 7 on this machine");
    let mut unnamed = machine();
    unnamed.devices[1].info.id.uuid = Err(Absent::DeviceLost);
    assert_eq!(refused(&unnamed, &["1"], false), "read the UUID of GPU 1");
    let error = Error::new(MachineFault::DriverNotLoaded, "initialise NVML");
    let silent = Inventory::failed(&error);
    assert_eq!(refused(&silent, &["0"], false), "initialise NVML");

    let named =
        NamedDevices { among: &selectors(&["1"]), except: &[], required: &[], partitions: false };
    let visible = |name: &str| (name == "CUDA_VISIBLE_DEVICES").then(|| "GPU-0".into());
    let machine = machine();
    let nothing = narrowed(Claim::whole(1), &named, &|| &machine, &visible, &BTreeMap::new);
    let expected = "find a GPU among those of CUDA_VISIBLE_DEVICES";
    assert_eq!(nothing.unwrap_err().to_string(), expected);
}

#[test]
fn range_with_lost_device_means_the_others() {
    let mut machine = machine();
    machine.devices[1].info.id.uuid = Err(Absent::DeviceLost);
    for names in [&["0-1"][..], &["0-1", "0"]] {
        assert_eq!(among(&machine, names, false).unwrap(), [uuid(0)], "{names:?}");
    }
    assert_eq!(among(&machine, &["all"], false).unwrap(), [uuid(0), uuid(2)]);
    let refused = "read the UUID of GPU 1";
    for names in [&["1-1"][..], &["0-1", "1"]] {
        assert_eq!(among(&machine, names, false).unwrap_err().to_string(), refused, "{names:?}");
    }
    let required = selectors(&["0-1"]);
    let named = NamedDevices { among: &[], except: &[], required: &required, partitions: false };
    let with_all = narrowed(Claim::whole(2), &named, &|| &machine, &|_| None, &BTreeMap::new);
    assert_eq!(with_all.unwrap_err().to_string(), refused, "the claim needs every one of them");
}

#[test]
fn claim_without_names_does_not_query_machine() {
    let named = NamedDevices { among: &[], except: &[], required: &[], partitions: false };
    let machine = || -> &'static Inventory { panic!("the machine was queried") };
    let (claim, _) =
        narrowed(Claim::whole(2), &named, &machine, &|_| None, &BTreeMap::new).unwrap();
    assert_eq!(claim, Claim::whole(2));
}

#[test]
fn schedulers_and_launchers_have_names() {
    for (convention, name) in [
        (Convention::Slurm, "Slurm"),
        (Convention::GridEngine, "Grid Engine"),
        (Convention::Ray, "Ray"),
        (Convention::Torchrun, "torchrun"),
        (Convention::Horovod, "Horovod"),
        (Convention::OpenMpi, "Open MPI"),
    ] {
        assert_eq!(convention.to_string(), name);
    }
}
