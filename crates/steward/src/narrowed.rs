//! A claim on devices that somebody names, within what others have given already.

use crate::inherited::{Inherited, inherited};
use gpu_core::selector::{self, SelectError, Selector};
use gpu_core::{Absent, Claim, DeviceState, DeviceUuid, Error, Fault, Inventory};
use std::ffi::OsString;
use std::fmt;

/// The devices that a claim is for, as people name them.
#[derive(Clone, Copy, Debug)]
pub struct NamedDevices<'a> {
    /// Only these; any where there are none.
    pub among: &'a [Selector],
    /// None of these.
    pub except: &'a [Selector],
    /// All of these.
    pub required: &'a [Selector],
    /// MIG devices alone.
    pub mig: bool,
}

/// Why nothing can be claimed by these names.
#[derive(Clone, Debug)]
pub enum NarrowError {
    /// There is no driver that could tell what the names mean.
    NoDriver(Fault),
    /// A name means no device, or several.
    Select(SelectError),
    /// There is no MIG device.
    NoMig,
    /// A device has no UUID by which it could be leased.
    NoUuid {
        /// Its index.
        index: u32,
        /// Why it has none.
        why: Absent,
    },
    /// What the environment names cannot be told.
    Inherited(Error),
    /// None of those is left that the environment names, in this variable.
    NothingLeft(Option<&'static str>),
}

impl fmt::Display for NarrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NarrowError::NoDriver(fault) => fault.fmt(f),
            NarrowError::Select(error) => error.fmt(f),
            NarrowError::NoMig => f.write_str("find a MIG device among the GPUs"),
            NarrowError::NoUuid { index, .. } => write!(f, "read the UUID of GPU {index}"),
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

/// Returns a claim for the devices that are named, within those that the environment gives, and what
/// that says. `machine` is asked only where a name or a list is to be read.
///
/// # Errors
/// When a name means nothing here, or nothing is left.
pub fn narrowed<'a>(
    mut claim: Claim,
    named: &NamedDevices<'_>,
    machine: &dyn Fn() -> &'a Inventory,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(Claim, Inherited), NarrowError> {
    let lists = [named.among, named.except, named.required];
    if named.mig || lists.iter().any(|list| !list.is_empty()) {
        let Inventory { driver, devices } = machine();
        if let (Err(fault), true) = (driver, devices.is_empty()) {
            return Err(NarrowError::NoDriver(fault.clone()));
        }
        let [among, except, required] = lists.map(|list| uuids(devices, list, named.mig));
        (claim.among, claim.except, claim.required) = (among?, except?, required?);
        if named.mig {
            claim.among = mig_among(devices, claim.among)?;
        }
    }
    let given = inherited(variable, &|| machine().devices.clone());
    let given = given.map_err(NarrowError::Inherited)?;
    let claim = given.narrow(&claim).ok_or(NarrowError::NothingLeft(given.by))?;
    Ok((claim, given))
}

/// Returns the MIG devices that a claim is for, which are all where it names none.
///
/// # Errors
/// Where there is none.
fn mig_among(
    devices: &[DeviceState],
    among: Vec<DeviceUuid>,
) -> Result<Vec<DeviceUuid>, NarrowError> {
    let mig: Vec<DeviceUuid> = match among.is_empty() {
        true => devices.iter().flat_map(mig_uuids).collect(),
        false => among.into_iter().filter(DeviceUuid::is_mig).collect(),
    };
    match mig.is_empty() {
        true => Err(NarrowError::NoMig),
        false => Ok(mig),
    }
}

fn mig_uuids(device: &DeviceState) -> impl Iterator<Item = DeviceUuid> {
    device.mig.iter().flatten().filter_map(|mig| mig.uuid.clone().ok())
}

/// Returns the UUIDs of the devices that are named; with `mig` those of their parts too, where they
/// are divided.
fn uuids(
    devices: &[DeviceState],
    named: &[Selector],
    mig: bool,
) -> Result<Vec<DeviceUuid>, NarrowError> {
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let (mut found, mut whole) = (Vec::new(), Vec::new());
    for selector in named {
        match selector::part(devices, selector)? {
            Some(uuid) => found.push(uuid),
            None => whole.push(selector.clone()),
        }
    }
    if !whole.is_empty() {
        let devices = selector::select(devices.to_vec(), &whole)?;
        if mig {
            found.extend(devices.iter().flat_map(mig_uuids));
        }
        found.extend(whole_uuids(devices)?);
    }
    Ok(found)
}

fn whole_uuids(devices: Vec<DeviceState>) -> Result<Vec<DeviceUuid>, NarrowError> {
    let uuid = |device: DeviceState| {
        let index = device.id().index;
        device.info.id.uuid.map_err(|why| NarrowError::NoUuid { index, why })
    };
    devices.into_iter().map(uuid).collect()
}
