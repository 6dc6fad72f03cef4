//! A claim on named devices, within existing restrictions.

use crate::inherited::{Inherited, inherited};
use gpu_core::selector::{self, SelectError, Selector};
use gpu_core::visible::GRAMMARS;
use gpu_core::{Claim, DeviceKey, DeviceState, DeviceUuid, Error, Fault, Inventory, NoLeaseKey};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt;

/// The devices for a claim, as a user names them.
#[derive(Clone, Copy, Debug)]
pub struct NamedDevices<'a> {
    /// Only these devices; any if empty.
    pub among: &'a [Selector],
    /// None of these devices.
    pub except: &'a [Selector],
    /// All of these devices.
    pub required: &'a [Selector],
    /// Only partitions of devices.
    pub partitions: bool,
}

/// Why the names result in no claim.
#[derive(Clone, Debug)]
pub enum NarrowError {
    /// Without a driver, the names cannot be resolved.
    NoDriver(Fault),
    /// A name matches no device, or several.
    Select(SelectError),
    /// There is no partition.
    NoPartition,
    /// A device has no key, which a lease requires.
    NoKey {
        /// Its index.
        index: u32,
        /// Why it has none.
        why: NoLeaseKey,
    },
    /// The restrictions in the environment cannot be determined.
    Inherited(Error),
    /// None of the devices in this variable of the environment is left.
    NothingLeft(Option<&'static str>),
}

impl fmt::Display for NarrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NarrowError::NoDriver(fault) => fault.fmt(f),
            NarrowError::Select(error) => error.fmt(f),
            NarrowError::NoPartition => f.write_str("find a MIG device among the GPUs"),
            NarrowError::NoKey { index, .. } => write!(f, "read the UUID of GPU {index}"),
            NarrowError::Inherited(error) => error.fmt(f),
            NarrowError::NothingLeft(by) => {
                write!(f, "find a GPU among those of {}", by.unwrap_or("the scheduler"))
            }
        }
    }
}

impl std::error::Error for NarrowError {}

impl From<SelectError> for NarrowError {
    fn from(error: SelectError) -> Self {
        NarrowError::Select(error)
    }
}

/// Returns a claim for the named devices, within the restrictions of the environment, and those
/// restrictions. Calls `machine` only if a name or a list has to be resolved, and `gres` for the
/// device files of Slurm's list as [`inherited`] does.
///
/// # Errors
/// If a name matches no device here, or no device is left.
pub fn narrowed<'a>(
    mut claim: Claim,
    named: &NamedDevices<'_>,
    machine: &dyn Fn() -> &'a Inventory,
    variable: &dyn Fn(&str) -> Option<OsString>,
    gres: &dyn Fn() -> BTreeMap<u32, DeviceKey>,
) -> Result<(Claim, Inherited), NarrowError> {
    let lists = [named.among, named.except, named.required];
    if named.partitions || lists.iter().any(|list| !list.is_empty()) {
        let Inventory { driver, devices } = machine();
        if let (Err(fault), true) = (driver, devices.is_empty()) {
            return Err(NarrowError::NoDriver(fault.clone()));
        }
        let [among, except, required] = lists.map(|list| uuids(devices, list, named.partitions));
        (claim.among, claim.except) = (among?.0, except?.0);
        claim.required = required?.all()?;
        if named.partitions {
            claim.among = partitions_among(devices, claim.among)?;
        }
    }
    let given = inherited(GRAMMARS, variable, &|| machine().devices.clone(), gres);
    let given = given.map_err(NarrowError::Inherited)?;
    let claim = given.narrow(&claim).ok_or(NarrowError::NothingLeft(given.by))?;
    Ok((claim, given))
}

/// Returns the partitions for a claim; all of them if it names none.
///
/// # Errors
/// If there are none.
fn partitions_among(
    devices: &[DeviceState],
    among: Vec<DeviceUuid>,
) -> Result<Vec<DeviceUuid>, NarrowError> {
    let partitions: Vec<DeviceUuid> = if among.is_empty() {
        devices.iter().flat_map(partition_uuids).collect()
    } else {
        among.into_iter().filter(DeviceUuid::is_partition).collect()
    };
    if partitions.is_empty() { Err(NarrowError::NoPartition) } else { Ok(partitions) }
}

fn partition_uuids(device: &DeviceState) -> impl Iterator<Item = DeviceUuid> {
    device.partitions.iter().flatten().filter_map(|part| part.uuid.clone().ok())
}

/// The keys of named devices, and a device without one that a range or `all` includes.
struct Uuids(Vec<DeviceUuid>, Option<NarrowError>);

impl Uuids {
    /// Returns them, if every device has one.
    fn all(self) -> Result<Vec<DeviceUuid>, NarrowError> {
        self.1.map_or(Ok(self.0), Err)
    }

    /// Returns each once, in the order of the names.
    fn unique(mut self) -> Self {
        let mut seen = HashSet::new();
        self.0.retain(|uuid| seen.insert(uuid.clone()));
        self
    }
}

/// Returns the keys of the named devices; with `partitions`, those of divided devices' partitions. A
/// device that has fallen off the bus has none. A range or `all` then means the other devices.
///
/// # Errors
/// If a name matches no device, or only devices without a key.
fn uuids(
    devices: &[DeviceState],
    named: &[Selector],
    partitions: bool,
) -> Result<Uuids, NarrowError> {
    let mut found = Uuids(Vec::new(), None);
    for selector in named {
        if let Some(uuid) = selector::part(devices, selector)? {
            found.0.push(uuid);
            continue;
        }
        let devices = selector::select(devices.to_vec(), std::slice::from_ref(selector))?;
        if partitions {
            found.0.extend(devices.iter().flat_map(partition_uuids));
        }
        let is_single = !matches!(selector, Selector::Range(..) | Selector::All);
        for device in devices {
            let index = device.id().index;
            match device.id().lease_key() {
                Ok(key) => found.0.push(key.into_owned()),
                Err(why) if is_single => return Err(NarrowError::NoKey { index, why }),
                Err(why) => found.1 = Some(NarrowError::NoKey { index, why }),
            }
        }
    }
    // A list without devices would mean any device.
    if found.0.is_empty() { found.all().map(|none| Uuids(none, None)) } else { Ok(found.unique()) }
}
