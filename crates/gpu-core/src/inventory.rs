//! One read of all devices, as plain data.

use crate::details::{DeviceDetails, Groups};
use crate::device::{DeviceInfo, Driver};
use crate::error::{Error, Fault, Reach, Result};
use crate::snapshot::DeviceState;

/// How often to try a query that fails with `Again`.
const TRIES: usize = 4;

/// What the driver reports about all devices at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Inventory {
    /// The driver, or why it cannot be queried.
    pub driver: Result<Driver, Fault>,
    /// The devices by index; none when the driver does not answer.
    pub devices: Vec<DeviceState>,
}

impl Inventory {
    /// Returns an inventory without any data.
    pub fn failed(error: &Error) -> Self {
        Inventory { driver: Err(error.fault()), devices: Vec::new() }
    }
}

impl DeviceState {
    /// Returns a device that was not queried, or did not answer, because of `fault`.
    pub fn unanswered(info: DeviceInfo, groups: Groups, fault: &Fault) -> Self {
        DeviceState {
            info,
            sample: Err(fault.clone()),
            processes: Err(fault.clone()),
            partitions: Err(fault.clone()),
            details: if groups.is_empty() {
                Ok(DeviceDetails::default())
            } else {
                Err(fault.clone())
            },
        }
    }
}

/// Tries a query a few times, without delay, while it fails with `Again`.
///
/// # Errors
/// Those of the query, as data.
pub fn ask<T>(question: impl Fn() -> Result<T>) -> Result<T, Fault> {
    let mut answer = question();
    for _ in 1..TRIES {
        match &answer {
            Err(error) if error.kind().reach() == Reach::Again => answer = question(),
            _ => break,
        }
    }
    answer.map_err(|error| error.fault())
}
