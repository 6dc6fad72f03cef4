//! Devices of a second, invented vendor. A variable of its own lists them for programs.

use crate::fake::*;
use gpu_core::visible::*;
use gpu_core::*;
use gpu_placement::Bar;
use gpu_steward::{
    ClaimContext, ClaimSurroundings, Convention, Inherited, Note, Wants, environment, inherited,
    offers,
};
use std::ffi::OsString;

/// The vendor's grammar: `none`, or indexes and keys separated by `+`.
struct Acme;

const ACME: Visibility = Visibility {
    vendor: "acme",
    variable: "ACME_DEVICES",
    order: None,
    isolates_partitions: false,
};

impl Grammar for Acme {
    fn visibility(&self) -> Visibility {
        ACME
    }

    fn resolve(&self, value: &str, _: Option<&str>, devices: &[DeviceState]) -> Result<Resolved> {
        let mut resolved = Resolved::default();
        for entry in value.split('+').filter(|entry| !["", "none"].contains(entry)) {
            let is_it = |device: &&DeviceState| {
                let id = device.id();
                id.index.to_string() == entry || id.has_key(&DeviceUuid(entry.to_owned()))
            };
            let Some(device) = devices.iter().find(is_it) else {
                resolved.ended_at = Some(entry.to_owned());
                break;
            };
            let uuid = device.id().uuid.clone().unwrap();
            resolved.devices.push(Named { uuid, index: device.id().index });
        }
        Ok(resolved)
    }

    fn write(&self, keys: &[DeviceUuid], form: Form, devices: &[DeviceState]) -> Result<String> {
        let entry = |key: &DeviceUuid| match form {
            Form::Uuid => key.to_string(),
            Form::Index => {
                let device = devices.iter().find(|device| device.id().has_key(key)).unwrap();
                device.id().index.to_string()
            }
        };
        let entries: Vec<String> = keys.iter().map(entry).collect();
        Ok(if entries.is_empty() { "none".to_owned() } else { entries.join("+") })
    }
}

const BOTH: &[&dyn Grammar] = &[&cuda::Cuda, &Acme];

/// A machine with two devices of each vendor: 1 and 3 are the invented one's.
fn mixed() -> World {
    let world = World::new(4);
    for index in [1, 3] {
        world.state().devices[index].visibility = ACME;
    }
    world
}

fn context(world: &World) -> ClaimContext {
    ClaimContext::observe(&world.ports(), Wants::default())
}

/// Returns the variables of a lease, as in a shell.
fn variables(grammars: &[&dyn Grammar], lease: &LeaseEntry, form: Form) -> Result<Vec<String>> {
    let pairs = environment(grammars, lease, form, &context(&mixed()).snapshot.devices, &|_| None)?;
    let text = |word: &OsString| word.to_str().unwrap().to_owned();
    Ok(pairs.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect())
}

#[test]
fn run_sets_variables_of_every_vendor() {
    for (devices, form, cuda, acme) in [
        (&[0, 1, 3][..], Form::Uuid, "GPU-0", "GPU-1+GPU-3"),
        (&[0, 2, 3], Form::Index, "0,1", "1"),
        // A program does not see the devices of the other vendor, which others may lease.
        (&[3], Form::Uuid, "", "GPU-3"),
        (&[2], Form::Uuid, "GPU-2", "none"),
    ] {
        let lease = lease("own", 1, SELF, devices);
        let expected = [
            format!("CUDA_VISIBLE_DEVICES={cuda}"),
            "CUDA_DEVICE_ORDER=PCI_BUS_ID".to_owned(),
            format!("ACME_DEVICES={acme}"),
            format!("GPUWS_LEASE={}", lease.id),
        ];
        assert_eq!(variables(BOTH, &lease, form).unwrap(), expected, "{devices:?}");
    }
    let none = variables(BOTH, &lease("none", 1, SELF, &[]), Form::Uuid).unwrap();
    assert_eq!((&*none[0], &*none[2]), ("CUDA_VISIBLE_DEVICES=", "ACME_DEVICES=none"));
}

#[test]
fn claim_gets_devices_of_one_vendor() {
    let offered = |world: &World, claim: &Claim| -> Vec<u32> {
        let surroundings = ClaimSurroundings { parent: None, leases: &[], waiting: &[] };
        let offers = offers(&context(world), claim, surroundings);
        offers.into_iter().map(|offer| offer.id.index).collect()
    };
    let some = |devices: &[u32]| devices.iter().map(|index| uuid(*index)).collect::<Vec<_>>();
    let whole = Claim::whole(1);
    let acme = || Some("acme".to_owned());
    for (claim, devices) in [
        (whole.clone(), &[0, 2][..]),
        (Claim { vendor: acme(), ..whole.clone() }, &[1, 3]),
        (Claim { vendor: Some("other".to_owned()), ..whole.clone() }, &[]),
        (Claim { among: some(&[3, 2]), ..whole.clone() }, &[0, 2]),
        (Claim { among: some(&[3]), ..whole.clone() }, &[1, 3]),
        (Claim { except: some(&[0, 2]), ..whole.clone() }, &[1, 3]),
        (Claim { required: some(&[3]), ..whole.clone() }, &[1, 3]),
        (Claim { required: some(&[1, 2]), ..Claim::whole(2) }, &[1, 3]),
        (Claim { required: some(&[0]), vendor: acme(), ..whole.clone() }, &[1, 3]),
    ] {
        assert_eq!(offered(&mixed(), &claim), devices, "{claim:?}");
    }
    let world = mixed();
    world.state().devices[0].visibility = UNLISTED;
    assert_eq!(offered(&world, &whole), [1, 3], "no variable shows device 0 to a program");
}

#[test]
fn device_that_no_variable_lists_is_not_given_to_a_program() {
    for (grammars, device) in [(GRAMMARS, 3), (&BOTH[1..], 2), (BOTH, 9)] {
        let error = variables(grammars, &lease("own", 1, SELF, &[device]), Form::Uuid).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{device}");
        assert!(error.to_string().contains(&uuid(device).0), "{error}");
    }
}

fn read(variables: &[(&str, &str)], world: &World) -> Result<Inherited> {
    let value = |name: &str| {
        let found = variables.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| (*value).into())
    };
    let gres = || {
        let names = [(0, 0), (1, 1), (2, 2), (3, 3)];
        names.map(|(at, minor)| (at, DeviceKey::Node(gpu_nvidia_driver::node(minor)))).into()
    };
    inherited(BOTH, &value, &|| context(world).snapshot.devices, &gres)
}

#[test]
fn lists_of_every_vendor_narrow_a_claim() {
    let cuda = |value| ("CUDA_VISIBLE_DEVICES", value);
    let acme = |value| ("ACME_DEVICES", value);
    let slurm = ("SLURM_JOB_ID", "7");
    for (variables, given) in [
        (vec![], None),
        (vec![cuda("1"), acme("0")], Some(vec![2, 1])),
        (vec![cuda(""), acme("1")], Some(vec![3])),
        (vec![cuda(""), acme("none")], Some(vec![])),
        // A vendor without a list leaves its devices to the claim,
        (vec![acme("1")], Some(vec![0, 2, 3])),
        (vec![cuda("1")], Some(vec![2, 1, 3])),
        // but the devices of a scheduler's job are those that it assigned.
        (vec![cuda("1"), slurm], Some(vec![2])),
        (vec![cuda("1"), ("RAY_JOB_ID", "1")], Some(vec![2])),
        (vec![acme("1"), slurm, ("SLURM_JOB_GPUS", "0")], Some(vec![3])),
        (vec![slurm, ("SLURM_JOB_GPUS", "0,3")], Some(vec![0, 3])),
    ] {
        let read = read(&variables, &mixed()).unwrap();
        let given = given.map(|given| given.into_iter().map(uuid).collect());
        assert_eq!(read.given, given, "{variables:?}");
    }
    let found = read(&[cuda("1"), acme("0+7+1")], &mixed()).unwrap();
    let at = "7".to_owned();
    assert_eq!(found.notes, [Note::ListEnds { variable: "ACME_DEVICES", at }]);
    let among = |devices: &[u32]| devices.iter().map(|index| uuid(*index)).collect();
    let narrowed = |devices: &[u32]| {
        let claim = found.narrow(&Claim { among: among(devices), ..Claim::whole(1) });
        claim.map(|claim| claim.among)
    };
    assert_eq!(narrowed(&[]), Some(among(&[2, 1])));
    assert_eq!(narrowed(&[1, 3]), Some(among(&[1])));
    assert_eq!(narrowed(&[0, 3]), None);
}

#[test]
fn list_of_a_vendor_limits_what_a_scheduler_explains() {
    let world = World::new(5);
    for index in [1, 3] {
        world.state().devices[index].visibility = ACME;
    }
    // CUDA's own order is unknown for devices of several names.
    world.state().devices[2].name = "V100";
    let cuda = ("CUDA_VISIBLE_DEVICES", "0");
    let read = |more: &[(&str, &str)]| read(&[&[cuda], more].concat(), &world);
    assert_eq!(read(&[("ACME_DEVICES", "0")]).unwrap_err().kind(), ErrorKind::Invalid);
    let job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_GPUS", "1,2")];
    let found = read(&[&job[..], &[("ACME_DEVICES", "1")]].concat()).unwrap();
    assert_eq!(found.given, Some(vec![uuid(2), uuid(3)]));
    assert_eq!(found.by, Some("SLURM_JOB_GPUS"));
    assert_eq!(found.notes, [Note::NumbersUnclear(Convention::Slurm)]);
}

#[test]
fn indexes_of_an_administrator_are_not_guessed_among_vendors() {
    let job = [("SGE_ROOT", "/opt/sge"), ("JOB_ID", "7"), ("SGE_HGR_gpu", "1")];
    assert_eq!(read(&job, &mixed()).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(read(&job, &World::new(4)).unwrap().given, Some(vec![uuid(1)]));
}

#[test]
fn partitions_are_claimed_together_where_programs_see_several() {
    for keys in [["MIG-1", "MIG-2"], ["GPU-0/1", "GPU-0/2"]] {
        let [first, second] = keys.map(|key| DeviceUuid(key.to_owned()));
        let world = World::new(1);
        let divide = |device: &mut Device| {
            device.partitioned = Ok(true);
            device.mig = vec![(1, 8_000, vec![]), (2, 4_000, vec![])];
            device.mig_key = keys[0].trim_end_matches('1').to_owned();
        };
        divide(&mut world.state().devices[0]);
        let bars = |claim: &Claim, leases: &[LeaseEntry]| -> Vec<Option<Bar>> {
            let surroundings = ClaimSurroundings { parent: None, leases, waiting: &[] };
            let offers = offers(&context(&world), claim, surroundings);
            offers.into_iter().map(|offer| offer.bar).collect()
        };
        let among = vec![first.clone(), second.clone()];
        let both = Claim { among: among.clone(), ..Claim::whole(2) };
        let alone = Some(Bar::PartitionAlone);
        let divided = Some(Bar::Partitioned);
        assert_eq!(bars(&both, &[]), [divided.clone(), alone.clone(), alone]);
        assert_eq!(bars(&Claim::whole(1), &[])[0], divided);

        world.state().devices[0].visibility = ACME;
        assert_eq!(bars(&both, &[]), [divided, None, None], "no device with its own partitions");
        assert_eq!(bars(&Claim::whole(1), &[]), [None]);
        let leased = |bar: &Option<Bar>| matches!(bar, Some(Bar::Leased { .. }));
        let part = LeaseEntry { devices: vec![second], ..lease("part", 1, 100, &[]) };
        let whole = lease("whole", 1, 100, &[0]);
        for taken in [&part, &whole, &share(part.clone(), 100)] {
            let leased = |claim: &Claim| -> Vec<bool> {
                bars(claim, std::slice::from_ref(taken)).iter().map(leased).collect()
            };
            let shared = Claim { share: Share::Memory(Bytes::from_mib(10)), ..Claim::whole(1) };
            assert_eq!((leased(&Claim::whole(1)), leased(&shared)), (vec![true], vec![true]));
            let has_whole = taken.devices == whole.devices;
            assert_eq!(leased(&both)[1..], [has_whole, true], "{taken:?}");
        }

        let lease = LeaseEntry { devices: among, ..lease("own", 1, SELF, &[]) };
        let machine = context(&world).snapshot.devices;
        let set = environment(BOTH, &lease, Form::Uuid, &machine, &|_| None).unwrap();
        assert_eq!(set[2], ("ACME_DEVICES".into(), keys.join("+").into()));
    }
}
