//! `CUDA_VISIBLE_DEVICES`: which devices a program sees.
//!
//! The grammar is that of the CUDA driver, as its programming guide tells it and as PyTorch, which
//! reads the variable itself, found it to be: unset is all devices, empty is none, the first entry
//! that names nothing ends the list, a device that is named twice empties it, entries are numbers
//! or names and never both, and of MIG devices only one is seen. Where a reading is open, the one
//! that sees fewer devices is taken, since a list that was given is only ever narrowed.

use crate::device::MigInstance;
use crate::error::{Error, ErrorKind, Result};
use crate::id::DeviceUuid;
use crate::snapshot::DeviceState;
use std::fmt;

/// The variable that lists the devices that a program sees.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The variable that says how CUDA numbers devices.
pub const ORDER: &str = "CUDA_DEVICE_ORDER";

/// Its value for the order of PCI addresses, which is NVML's.
pub const PCI_ORDER: &str = "PCI_BUS_ID";

/// The longest list that is read; what stands behind is passed over.
const MOST_ENTRIES: usize = 1024;

/// The longest name that is read.
const LONGEST_NAME: usize = 96;

/// How CUDA numbers devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// By PCI address, as NVML does.
    ByAddress,
    /// By speed, the fastest first: CUDA's way where nothing is said.
    FastestFirst,
}

impl Numbering {
    /// Returns what the value of [`ORDER`] says.
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            Some(PCI_ORDER) => Numbering::ByAddress,
            _ => Numbering::FastestFirst,
        }
    }
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Visible {
    /// A number, by CUDA's numbering.
    Index(u32),
    /// `GPU-…`: the UUID of a device, or the beginning of it.
    Gpu(String),
    /// `MIG-…`: the UUID of a MIG device.
    Mig(String),
    /// `MIG-GPU-…/G/C`: a MIG device by its parts, as drivers up to R460 name it.
    MigPart {
        /// The UUID of the whole device, `GPU-…`.
        gpu: String,
        /// GPU instance.
        gpu_instance: u32,
        /// Compute instance.
        compute_instance: u32,
    },
}

impl Visible {
    fn parse(text: &str) -> Option<Self> {
        let plain = |name: &str| {
            let fits = (1..=LONGEST_NAME).contains(&name.len());
            fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if text.strip_prefix("GPU-").is_some_and(plain) {
            return Some(Visible::Gpu(text.to_owned()));
        }
        let Some(name) = text.strip_prefix("MIG-") else { return number(text).map(Visible::Index) };
        let mut parts = name.split('/');
        let name = parts.next().filter(|name| plain(name))?;
        let Some(gpu_instance) = parts.next() else { return Some(Visible::Mig(text.to_owned())) };
        let gpu = if name.starts_with("GPU-") { name.to_owned() } else { format!("GPU-{name}") };
        let (gpu_instance, compute_instance) = (digits(gpu_instance)?, digits(parts.next()?)?);
        let is_whole = parts.next().is_none();
        is_whole.then_some(Visible::MigPart { gpu, gpu_instance, compute_instance })
    }

    /// Tells whether both can stand in one list.
    fn goes_with(&self, other: &Visible) -> bool {
        let kind = |entry: &Visible| match entry {
            Visible::Index(_) => 0,
            Visible::Gpu(_) => 1,
            Visible::Mig(_) | Visible::MigPart { .. } => 2,
        };
        kind(self) == kind(other)
    }
}

/// Reads a number as C's `strtoul` does, which CUDA uses: blanks before it, a sign, and whatever
/// behind the digits. `None` where there are no digits, or they name no device.
fn number(text: &str) -> Option<u32> {
    let text = text.trim_ascii_start();
    let (negative, text) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let number: u32 = text[..end].parse().ok()?;
    (!negative || number == 0).then_some(number)
}

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Visible::Index(index) => write!(f, "{index}"),
            Visible::Gpu(name) | Visible::Mig(name) => f.write_str(name),
            Visible::MigPart { gpu, gpu_instance, compute_instance } => {
                write!(f, "MIG-{gpu}/{gpu_instance}/{compute_instance}")
            }
        }
    }
}

/// Which devices a program sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleList {
    /// All: the variable is not set.
    All,
    /// These, in this order, as far as they name devices.
    These(Vec<Visible>),
}

impl VisibleList {
    /// Reads the value of [`VISIBLE`]; `None` is a variable that is not set.
    pub fn parse(value: Option<&str>) -> Self {
        let Some(value) = value else { return VisibleList::All };
        let mut entries: Vec<Visible> = Vec::new();
        for entry in value.split(',').take(MOST_ENTRIES).map_while(Visible::parse) {
            if entries.first().is_some_and(|first| !entry.goes_with(first)) {
                break;
            }
            if entries.contains(&entry) {
                return VisibleList::These(Vec::new());
            }
            entries.push(entry);
        }
        VisibleList::These(entries)
    }

    /// Returns the devices of a machine that are meant. One without a UUID is left out, since it
    /// cannot be named for long.
    ///
    /// # Errors
    /// `Invalid` for numbers that count the fastest first, where the devices are not all of one
    /// name: then it is not known here which they are.
    pub fn resolve(&self, machine: &[DeviceState], numbering: Numbering) -> Result<Resolved> {
        let entries = match self {
            VisibleList::All => {
                let devices = machine.iter().filter_map(Named::whole).collect();
                return Ok(Resolved { devices, ended_at: None });
            }
            VisibleList::These(entries) => entries,
        };
        let by_number = matches!(entries.first(), Some(Visible::Index(_)));
        if by_number && numbering == Numbering::FastestFirst && !are_alike(machine) {
            return Err(Error::new(ErrorKind::Invalid, format!("tell whom {VISIBLE} means"))
                .with_source(format!(
                    "the devices are not alike, and CUDA counts the fastest first unless \
                     {ORDER}={PCI_ORDER} is set"
                )));
        }
        let mut resolved = Resolved::default();
        for entry in entries {
            match Named::find(entry, machine) {
                // It is seen, and has no name to be claimed by.
                Found::Nameless => {}
                Found::Nothing => {
                    resolved.ended_at = Some(entry.clone());
                    break;
                }
                Found::Device(found) if resolved.devices.contains(&found) => {
                    return Ok(Resolved::default());
                }
                Found::Device(found) => resolved.devices.push(found),
            }
        }
        if matches!(entries.first(), Some(Visible::Mig(_) | Visible::MigPart { .. })) {
            resolved.devices.truncate(1);
        }
        Ok(resolved)
    }
}

/// The devices that a list means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The devices, in the order of the list.
    pub devices: Vec<Named>,
    /// The entry that names no device here and so ended the list.
    pub ended_at: Option<Visible>,
}

impl Resolved {
    /// Returns the UUIDs of the devices.
    pub fn uuids(&self) -> Vec<DeviceUuid> {
        self.devices.iter().map(|named| named.uuid.clone()).collect()
    }
}

/// A device, or a MIG device, by the name that a list can have for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The UUID.
    pub uuid: DeviceUuid,
    /// NVML's index of the whole device.
    pub index: u32,
}

enum Found {
    Device(Named),
    Nameless,
    Nothing,
}

impl Named {
    fn whole(device: &DeviceState) -> Option<Self> {
        let id = device.id();
        Some(Named { uuid: id.uuid.clone().ok()?, index: id.index })
    }

    /// Finds a MIG device. One name counts for it, whichever it was given: the driver's.
    fn mig(machine: &[DeviceState], is_it: impl Fn(&DeviceState, &MigInstance) -> bool) -> Found {
        match mig_devices(machine).find(|(device, mig)| is_it(device, mig)) {
            Some((device, mig)) => match mig.uuid.clone() {
                Ok(uuid) => Found::Device(Named { uuid, index: device.id().index }),
                Err(_) => Found::Nameless,
            },
            None => Found::Nothing,
        }
    }

    fn find(entry: &Visible, machine: &[DeviceState]) -> Found {
        match entry {
            Visible::Index(index) => {
                let device = machine.iter().find(|device| device.id().index == *index);
                match device.map(Named::whole) {
                    Some(Some(named)) => Found::Device(named),
                    Some(None) => Found::Nameless,
                    None => Found::Nothing,
                }
            }
            Visible::Gpu(begin) => {
                let fits = |named: &Named| named.uuid.0.starts_with(begin);
                let mut fitting = machine.iter().filter_map(Named::whole).filter(fits);
                match (fitting.next(), fitting.next()) {
                    (Some(named), None) => Found::Device(named),
                    _ => Found::Nothing,
                }
            }
            Visible::Mig(name) => {
                Named::mig(machine, |_, mig| mig.uuid.as_ref().is_ok_and(|uuid| uuid.0 == *name))
            }
            Visible::MigPart { gpu, gpu_instance, compute_instance } => {
                Named::mig(machine, |device, mig| {
                    device.id().uuid.as_ref().is_ok_and(|uuid| uuid.0 == *gpu)
                        && mig.gpu_instance == Some(*gpu_instance)
                        && mig.compute_instance.unwrap_or(0) == *compute_instance
                })
            }
        }
    }
}

/// Returns the MIG devices of a machine, each with the device that it is a part of.
fn mig_devices(machine: &[DeviceState]) -> impl Iterator<Item = (&DeviceState, &MigInstance)> {
    machine.iter().flat_map(|device| device.mig.iter().flatten().map(move |mig| (device, mig)))
}

/// Tells whether all devices surely have one name, and so one speed.
fn are_alike(machine: &[DeviceState]) -> bool {
    let mut names = machine.iter().map(|device| device.info.name.as_ref());
    machine.len() < 2
        || names.next().is_some_and(|first| first.is_ok() && names.all(|n| n == first))
}

/// How devices are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// By UUID, which means the same whatever the order is.
    #[default]
    Uuid,
    /// By number, for programs that read nothing else; needs [`ORDER`] to be [`PCI_ORDER`].
    Index,
}

/// Returns the value of [`VISIBLE`] with which a program sees these devices, in this order.
///
/// # Errors
/// `Invalid` where no value means them: a MIG device beside another device, a MIG device by
/// number, or by number a device that the machine does not have.
pub fn write(devices: &[DeviceUuid], form: Form, machine: &[DeviceState]) -> Result<String> {
    let cannot = |why: String| {
        Err(Error::new(ErrorKind::Invalid, format!("write {VISIBLE}")).with_source(why))
    };
    if let Some(mig) = devices.iter().find(|uuid| uuid.is_mig()).filter(|_| devices.len() > 1) {
        return cannot(format!("a program that sees {mig} sees no other device"));
    }
    let mut entries = Vec::with_capacity(devices.len());
    for uuid in devices {
        entries.push(match form {
            Form::Uuid => uuid.to_string(),
            Form::Index if uuid.is_mig() => return cannot(format!("{uuid} has no number")),
            Form::Index => {
                let known = machine.iter().find(|device| device.id().uuid.as_ref() == Ok(uuid));
                match known {
                    Some(device) => device.id().index.to_string(),
                    None => return cannot(format!("{uuid} is not there")),
                }
            }
        });
    }
    Ok(entries.join(","))
}

/// Returns the devices of a claim that are in a list that was given too: all that was given where
/// the claim names none. `None` where nothing is left, which is not the same as any device.
pub fn narrow(among: &[DeviceUuid], given: &[DeviceUuid]) -> Option<Vec<DeviceUuid>> {
    let asked = |uuid: &&DeviceUuid| among.is_empty() || among.contains(uuid);
    let left: Vec<DeviceUuid> = given.iter().filter(asked).cloned().collect();
    (!left.is_empty()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::absent::Absent;
    use crate::device::{DeviceInfo, MemoryInfo};
    use crate::error::{DeviceFault, Fault};
    use crate::id::DeviceId;
    use proptest::prelude::*;

    fn device(index: u32, uuid: &str, name: &str) -> DeviceState {
        let id = DeviceId { uuid: Ok(DeviceUuid(uuid.into())), ..DeviceId::from_index(index) };
        let info = DeviceInfo { name: Ok(name.into()), ..DeviceInfo::unknown(id) };
        let silent = || Fault { kind: DeviceFault::Lost.into(), text: String::new() };
        DeviceState {
            info,
            sample: Err(silent()),
            processes: Err(silent()),
            mig: Ok(Vec::new()),
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
        let instance = |index, gpu| MigInstance {
            index,
            uuid: match gpu {
                4 => Err(Absent::NotSupported),
                _ => Ok(DeviceUuid(format!("MIG-41a7-b{gpu}"))),
            },
            gpu_instance: Some(gpu),
            compute_instance: Some(0),
            memory: unknown,
        };
        all[3].mig = Ok(vec![instance(0, 1), instance(1, 2), instance(2, 4)]);
        all
    }

    /// The places of the devices that a value means, and `/` with the entry that ended it.
    fn meant(value: &str) -> String {
        let list = VisibleList::parse(Some(value));
        let resolved = list.resolve(&machine(), Numbering::ByAddress).unwrap();
        let name = |named: &Named| match named.uuid.is_mig() {
            false => named.index.to_string(),
            true => format!("{}@{}", named.uuid, named.index),
        };
        let names: Vec<String> = resolved.devices.iter().map(name).collect();
        let end = resolved.ended_at.map(|entry| format!("/{entry}")).unwrap_or_default();
        names.join(" ") + &end
    }

    #[test]
    fn a_list_means_what_cuda_makes_of_it() {
        for (value, devices) in [
            ("", ""),
            ("0", "0"),
            ("2,0", "2 0"),
            // The first entry that is none ends the list, and so does a number too high.
            ("0,2,-1,1", "0 2"),
            ("0,x,1", "0"),
            ("0,,1", "0"),
            ("-1", ""),
            ("NoDevFiles", ""),
            ("0,4,1", "0/4"),
            ("0,99999999999,1", "0"),
            // Twice is none, unless the list ended before.
            ("0,1,0", ""),
            ("0,-1,0", "0"),
            // As C reads numbers.
            (" 1, 0", "1 0"),
            ("+3,-0", "3 0"),
            ("1gpu2,2ampere", "1 2"),
            // Names, and beginnings of names that only one device has.
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
            // One MIG device at most.
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
    fn unset_is_all_that_have_names() {
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
    fn numbers_that_count_the_fastest_first_are_not_guessed() {
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
    fn devices_are_written_by_name_or_number() {
        let machine = machine();
        let uuids = |names: &[&str]| -> Vec<DeviceUuid> {
            names.iter().map(|name| DeviceUuid((*name).into())).collect()
        };
        let two = uuids(&["GPU-d00d0000", "GPU-8ae30000"]);
        assert_eq!(write(&two, Form::Uuid, &machine).unwrap(), "GPU-d00d0000,GPU-8ae30000");
        assert_eq!(write(&two, Form::Index, &machine).unwrap(), "3,0");
        assert_eq!(write(&[], Form::Index, &machine).unwrap(), "");
        let mig = uuids(&["MIG-GPU-d00d0000/1/0"]);
        assert_eq!(write(&mig, Form::Uuid, &machine).unwrap(), "MIG-GPU-d00d0000/1/0");
        for (devices, form) in [
            (&["MIG-a", "GPU-8ae30000"][..], Form::Uuid),
            (&["MIG-a"], Form::Index),
            (&["GPU-gone"], Form::Index),
        ] {
            let error = write(&uuids(devices), form, &machine).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{devices:?}");
        }
    }

    #[test]
    fn a_list_is_narrowed_and_never_widened() {
        let [a, b, c] = ["a", "b", "c"].map(|name| DeviceUuid(name.into()));
        let given = [a.clone(), b.clone()];
        assert_eq!(narrow(&[], &given), Some(given.to_vec()));
        assert_eq!(narrow(&[c.clone(), b.clone()], &given), Some(vec![b]));
        assert_eq!(narrow(&[c], &given), None);
        assert_eq!(narrow(&[a], &[]), None);
        assert_eq!(narrow(&[], &[]), None);
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
        fn what_is_read_is_written_and_read_alike(
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
                    let value = write(&uuids, form, &machine).unwrap();
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
        fn any_text_can_be_read(text in "\\PC{0,40}") {
            let VisibleList::These(entries) = VisibleList::parse(Some(&text)) else {
                panic!("a value is a list");
            };
            prop_assert!(entries.len() <= text.split(',').count());
        }
    }
}
