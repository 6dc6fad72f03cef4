//! Replies of the child, assembled from their parts.

use super::wire::Reply;
use crate::inventory::{inventory, unknown};
use gpu_core::{DeviceState, Driver, Fault, Groups, Inventory};

/// A reply that is received part by part.
pub(crate) trait Answer {
    /// Adds the next part; returns the part if it is unexpected.
    fn take(&mut self, part: Reply) -> Result<(), Box<Reply>>;

    /// Returns whether the reply is complete.
    fn is_whole(&self) -> bool;
}

/// A reply with one part.
pub(crate) struct Single<T, F> {
    pick: F,
    answer: Option<Result<T, Fault>>,
}

impl<T, F: Fn(Reply) -> Result<Result<T, Fault>, Box<Reply>>> Single<T, F> {
    pub(crate) fn new(pick: F) -> Self {
        Single { pick, answer: None }
    }

    /// Returns the reply, or `fault` if it has not arrived.
    pub(crate) fn or(self, fault: Fault) -> Result<T, Fault> {
        self.answer.unwrap_or(Err(fault))
    }
}

impl<T, F: Fn(Reply) -> Result<Result<T, Fault>, Box<Reply>>> Answer for Single<T, F> {
    fn take(&mut self, part: Reply) -> Result<(), Box<Reply>> {
        if self.is_whole() {
            return Err(Box::new(part));
        }
        self.answer = Some(match part {
            Reply::Refused(fault) => Err(fault),
            part => (self.pick)(part)?,
        });
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.answer.is_some()
    }
}

/// The reply to a request without a result.
pub(crate) struct Nothing;

impl Answer for Nothing {
    fn take(&mut self, part: Reply) -> Result<(), Box<Reply>> {
        match part {
            // The reply is also complete if the library could not be loaded.
            Reply::Refused(_) => Ok(()),
            part => Err(Box::new(part)),
        }
    }

    fn is_whole(&self) -> bool {
        true
    }
}

/// The maximum number of devices.
const MAX_DEVICES: u32 = 1024;

/// The snapshot of all devices.
pub(crate) struct InventoryParts {
    groups: Groups,
    begun: Option<(Result<Driver, Fault>, u32)>,
    devices: Vec<DeviceState>,
}

impl InventoryParts {
    pub(crate) fn new(groups: Groups) -> Self {
        InventoryParts { groups, begun: None, devices: Vec::new() }
    }

    /// Returns the received devices, with `fault` for the missing ones.
    pub(crate) fn or(self, fault: Fault) -> Inventory {
        let InventoryParts { groups, begun, mut devices } = self;
        let Some((driver, count)) = begun else {
            return Inventory { driver: Err(fault), devices };
        };
        let missing = devices.len() as u32..count;
        devices.extend(missing.map(|index| unknown(index, groups, &fault)));
        inventory(driver, devices)
    }

    /// Returns the index of the next device; `None` before the first part and after the last
    /// device.
    fn next(&self) -> Option<u32> {
        let (_, count) = self.begun.as_ref()?;
        Some(self.devices.len() as u32).filter(|next| next < count)
    }
}

impl Answer for InventoryParts {
    fn take(&mut self, part: Reply) -> Result<(), Box<Reply>> {
        match part {
            Reply::Begun { driver, count } if self.begun.is_none() && count <= MAX_DEVICES => {
                self.devices.reserve_exact(count as usize);
                self.begun = Some((driver, count));
            }
            Reply::Refused(fault) if self.begun.is_none() => self.begun = Some((Err(fault), 0)),
            Reply::Device(state) if self.next() == Some(state.id().index) => {
                self.devices.push(*state);
            }
            part => return Err(Box::new(part)),
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.begun.is_some() && self.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, DeviceId, DeviceInfo, ErrorKind};

    fn info(index: u32) -> DeviceInfo {
        DeviceInfo::unknown(DeviceId::from_index(index))
    }

    fn fault(text: &str) -> Fault {
        Fault { kind: ErrorKind::TimedOut, text: text.to_owned() }
    }

    fn device(index: u32) -> Reply {
        let named = DeviceInfo { name: Ok("A100".to_owned()), ..info(index) };
        let mut state = DeviceState::unanswered(named, Groups::NONE, &fault("lost"));
        state.processes = Ok(Vec::new());
        Reply::Device(Box::new(state))
    }

    fn begun(count: u32) -> Reply {
        let driver = Ok(Driver { version: Ok("1".to_owned()), cuda: Err(Absent::TooOld) });
        Reply::Begun { driver, count }
    }

    #[test]
    fn parts_received_before_failure_are_kept() {
        let mut parts = InventoryParts::new(Groups::all());
        assert!(!parts.is_whole());
        for part in [begun(3), device(0), device(1)] {
            parts.take(part).unwrap();
            assert!(!parts.is_whole());
        }
        let Inventory { driver, devices } = parts.or(fault("hangs"));
        assert!(driver.is_ok());
        assert!(devices[0].processes.is_ok() && devices[1].processes.is_ok());
        assert_eq!(devices.len(), 3);
        assert_eq!(devices[2].info, info(2));
        assert_eq!(devices[2].sample, Err(fault("hangs")));
        assert_eq!(devices[2].details, Err(fault("hangs")));
    }

    #[test]
    fn no_device_info_means_driver_does_not_answer() {
        let mut parts = InventoryParts::new(Groups::NONE);
        parts.take(begun(2)).unwrap();
        let failed = Inventory { driver: Err(fault("hangs")), devices: Vec::new() };
        assert_eq!(parts.or(fault("hangs")), failed);
        let mut parts = InventoryParts::new(Groups::NONE);
        parts.take(begun(0)).unwrap();
        assert!(parts.or(fault("hangs")).driver.is_ok(), "a machine without devices answers");
    }

    #[test]
    fn complete_snapshot_has_exactly_announced_devices() {
        let mut parts = InventoryParts::new(Groups::NONE);
        parts.take(begun(2)).unwrap();
        assert!(parts.take(begun(2)).is_err(), "second begin");
        parts.take(device(0)).unwrap();
        parts.take(device(1)).unwrap();
        assert!(parts.is_whole());
        assert!(parts.take(device(2)).is_err(), "third of two devices");
        assert!(parts.take(Reply::Refused(fault("no"))).is_err());

        let mut parts = InventoryParts::new(Groups::NONE);
        assert!(parts.take(device(0)).is_err(), "device before begin");
        assert!(parts.take(begun(u32::MAX)).is_err(), "too many devices");
        parts.take(begun(2)).unwrap();
        assert!(parts.take(device(1)).is_err(), "device out of order");
        assert!(parts.take(Reply::Devices(Ok(vec![info(0)]))).is_err());
    }

    #[test]
    fn single_query_takes_single_part() {
        let pick = |part| match part {
            Reply::Devices(answer) => Ok(answer),
            other => Err(Box::new(other)),
        };
        let mut single = Single::new(pick);
        assert!(single.take(device(0)).is_err());
        assert!(!single.is_whole());
        single.take(Reply::Devices(Ok(vec![info(0)]))).unwrap();
        assert!(single.take(Reply::Devices(Ok(vec![]))).is_err(), "second reply");
        assert_eq!(single.or(fault("hangs")), Ok(vec![info(0)]));
        let mut refused = Single::new(pick);
        refused.take(Reply::Refused(fault("no"))).unwrap();
        assert_eq!(refused.or(fault("hangs")), Err(fault("no")));
        assert_eq!(Single::new(pick).or(fault("hangs")), Err(fault("hangs")));
    }
}
