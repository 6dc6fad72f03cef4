//! The answers of the child, put together from their parts.

use super::wire::Said;
use crate::snapshot::{inventory, unknown};
use gpu_core::{DeviceState, Driver, Fault, Groups, Inventory};

/// An answer that grows part by part.
pub(crate) trait Answer {
    /// Takes the next part; gives back one that does not belong there.
    fn take(&mut self, part: Said) -> Result<(), Box<Said>>;

    /// Tells whether no part is missing.
    fn is_whole(&self) -> bool;
}

/// The answer to a question about one thing: one part.
pub(crate) struct Single<T, F> {
    pick: F,
    answer: Option<Result<T, Fault>>,
}

impl<T, F: Fn(Said) -> Result<Result<T, Fault>, Box<Said>>> Single<T, F> {
    pub(crate) fn new(pick: F) -> Self {
        Single { pick, answer: None }
    }

    /// Returns the answer; `trouble` where there is none.
    pub(crate) fn or(self, trouble: Fault) -> Result<T, Fault> {
        self.answer.unwrap_or(Err(trouble))
    }
}

impl<T, F: Fn(Said) -> Result<Result<T, Fault>, Box<Said>>> Answer for Single<T, F> {
    fn take(&mut self, part: Said) -> Result<(), Box<Said>> {
        if self.is_whole() {
            return Err(Box::new(part));
        }
        self.answer = Some(match part {
            Said::Refused(fault) => Err(fault),
            part => (self.pick)(part)?,
        });
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.answer.is_some()
    }
}

/// The answer to what is no question: only that it was done, or could not begin.
pub(crate) struct Nothing;

impl Answer for Nothing {
    fn take(&mut self, part: Said) -> Result<(), Box<Said>> {
        match part {
            // A library that is not loaded is not open.
            Said::Refused(_) => Ok(()),
            part => Err(Box::new(part)),
        }
    }

    fn is_whole(&self) -> bool {
        true
    }
}

/// No machine has more devices.
const MAX_DEVICES: u32 = 1024;

/// The answer to a whole look.
pub(crate) struct Look {
    groups: Groups,
    begun: Option<(Result<Driver, Fault>, u32)>,
    devices: Vec<DeviceState>,
}

impl Look {
    pub(crate) fn new(groups: Groups) -> Self {
        Look { groups, begun: None, devices: Vec::new() }
    }

    /// Returns what was learned; what was not is spoiled by `trouble`.
    pub(crate) fn or(self, trouble: Fault) -> Inventory {
        let Look { groups, begun, mut devices } = self;
        let Some((driver, count)) = begun else {
            return Inventory { driver: Err(trouble), devices };
        };
        let missing = devices.len() as u32..count;
        devices.extend(missing.map(|index| unknown(index, groups, &trouble)));
        inventory(driver, devices)
    }

    /// Returns the index of the device that comes next; `None` before the beginning and after the
    /// last.
    fn next(&self) -> Option<u32> {
        let (_, count) = self.begun.as_ref()?;
        Some(self.devices.len() as u32).filter(|next| next < count)
    }
}

impl Answer for Look {
    fn take(&mut self, part: Said) -> Result<(), Box<Said>> {
        match part {
            Said::Begun { driver, count } if self.begun.is_none() && count <= MAX_DEVICES => {
                self.begun = Some((driver, count));
            }
            Said::Refused(fault) if self.begun.is_none() => self.begun = Some((Err(fault), 0)),
            Said::Device(state) if self.next() == Some(state.id().index) => {
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

    fn device(index: u32) -> Said {
        let named = DeviceInfo { name: Ok("A100".to_owned()), ..info(index) };
        let mut state = DeviceState::unanswered(named, Groups::NONE, &fault("lost"));
        state.processes = Ok(Vec::new());
        Said::Device(Box::new(state))
    }

    fn begun(count: u32) -> Said {
        let driver = Ok(Driver { version: Ok("1".to_owned()), cuda: Err(Absent::TooOld) });
        Said::Begun { driver, count }
    }

    #[test]
    fn parts_received_before_failure_are_kept() {
        let mut look = Look::new(Groups::all());
        assert!(!look.is_whole());
        for part in [begun(3), device(0), device(1)] {
            look.take(part).unwrap();
            assert!(!look.is_whole());
        }
        let Inventory { driver, devices } = look.or(fault("hangs"));
        assert!(driver.is_ok());
        assert!(devices[0].processes.is_ok() && devices[1].processes.is_ok());
        assert_eq!(devices.len(), 3);
        assert_eq!(devices[2].info, info(2));
        assert_eq!(devices[2].sample, Err(fault("hangs")));
        assert_eq!(devices[2].details, Err(fault("hangs")));
    }

    #[test]
    fn no_device_info_means_driver_does_not_answer() {
        let mut look = Look::new(Groups::NONE);
        look.take(begun(2)).unwrap();
        let failed = Inventory { driver: Err(fault("hangs")), devices: Vec::new() };
        assert_eq!(look.or(fault("hangs")), failed);
        let mut look = Look::new(Groups::NONE);
        look.take(begun(0)).unwrap();
        assert!(look.or(fault("hangs")).driver.is_ok(), "there is none to say it");
    }

    #[test]
    fn complete_snapshot_has_exactly_announced_devices() {
        let mut look = Look::new(Groups::NONE);
        look.take(begun(2)).unwrap();
        assert!(look.take(begun(2)).is_err(), "it has begun");
        look.take(device(0)).unwrap();
        look.take(device(1)).unwrap();
        assert!(look.is_whole());
        assert!(look.take(device(2)).is_err(), "there is no third");
        assert!(look.take(Said::Refused(fault("no"))).is_err());

        let mut look = Look::new(Groups::NONE);
        assert!(look.take(device(0)).is_err(), "it has not begun");
        assert!(look.take(begun(u32::MAX)).is_err(), "there is no such machine");
        look.take(begun(2)).unwrap();
        assert!(look.take(device(1)).is_err(), "another device is next");
        assert!(look.take(Said::Devices(Ok(vec![info(0)]))).is_err());
    }

    #[test]
    fn single_question_takes_single_part() {
        let pick = |part| match part {
            Said::Devices(answer) => Ok(answer),
            other => Err(Box::new(other)),
        };
        let mut single = Single::new(pick);
        assert!(single.take(device(0)).is_err());
        assert!(!single.is_whole());
        single.take(Said::Devices(Ok(vec![info(0)]))).unwrap();
        assert!(single.take(Said::Devices(Ok(vec![]))).is_err(), "a second answer");
        assert_eq!(single.or(fault("hangs")), Ok(vec![info(0)]));
        let mut refused = Single::new(pick);
        refused.take(Said::Refused(fault("no"))).unwrap();
        assert_eq!(refused.or(fault("hangs")), Err(fault("no")));
        assert_eq!(Single::new(pick).or(fault("hangs")), Err(fault("hangs")));
    }
}
