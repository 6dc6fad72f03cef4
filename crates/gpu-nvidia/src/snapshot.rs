//! A snapshot of the machine, in parts.
//!
//! Each device is queried completely before the next one. If a call hangs, all earlier results are
//! kept.

use crate::backend::Nvml;
use gpu_core::{
    DeviceId, DeviceInfo, DeviceState, Driver, ErrorKind, Fault, GpuBackend, Groups, Inventory,
    Reach, ask,
};

impl Nvml {
    /// Starts a snapshot: returns the driver and the number of devices to query.
    pub(crate) fn begin_snapshot(&self) -> (Result<Driver, Fault>, u32) {
        let driver = ask(|| self.driver());
        if driver.as_ref().is_err_and(|fault| fault.kind.reach() == Reach::Machine) {
            return (driver, 0);
        }
        match ask(|| self.count()) {
            Ok(count) => (driver, count),
            Err(fault) => (Err(fault), 0),
        }
    }

    /// Queries one device.
    pub(crate) fn query_device(&self, index: u32, groups: Groups) -> DeviceState {
        match ask(|| self.info(index)) {
            Ok(info) => DeviceState::ask(self, info, groups),
            Err(fault) => unknown(index, groups, &fault),
        }
    }
}

/// Assembles a snapshot. If the driver identified no device, for a reason other than a fault of the
/// device, the driver counts as unresponsive.
pub(crate) fn inventory(driver: Result<Driver, Fault>, devices: Vec<DeviceState>) -> Inventory {
    let silence = |device: &DeviceState| {
        let fault = device.sample.as_ref().err().filter(|_| device.info.is_unknown())?;
        let is_drivers = fault.kind.reach() == Reach::Machine || fault.kind == ErrorKind::TimedOut;
        is_drivers.then(|| fault.clone())
    };
    match devices.iter().map(silence).collect::<Option<Vec<Fault>>>() {
        Some(silent) if !silent.is_empty() => {
            Inventory { driver: Err(silent[0].clone()), devices: Vec::new() }
        }
        _ => Inventory { driver, devices },
    }
}

/// Returns a device with only its index known.
pub(crate) fn unknown(index: u32, groups: Groups, fault: &Fault) -> DeviceState {
    let info = DeviceInfo::unknown(DeviceId::from_index(index));
    DeviceState::unanswered(info, groups, fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, DeviceFault, MachineFault};

    #[test]
    fn machine_without_any_answer_has_failed_driver() {
        let fault = |kind: ErrorKind| Fault { kind, text: "x".to_owned() };
        let driver = || Ok(Driver { version: Err(Absent::TooOld), cuda: Err(Absent::TooOld) });
        let gone = fault(MachineFault::DriverNotLoaded.into());
        let hangs = fault(ErrorKind::TimedOut);
        let lost = fault(DeviceFault::Lost.into());
        for (faults, driver_fault) in [
            (vec![], None),
            (vec![&gone, &gone], Some(&gone)),
            (vec![&hangs, &gone], Some(&hangs)),
            (vec![&gone, &lost], None),
            (vec![&lost], None),
        ] {
            let devices =
                (0..).zip(&faults).map(|(index, fault)| unknown(index, Groups::NONE, fault));
            let all = inventory(driver(), devices.collect());
            assert_eq!(all.driver.as_ref().err(), driver_fault);
            assert_eq!(all.devices.len(), if driver_fault.is_some() { 0 } else { faults.len() });
        }
        let mut known = unknown(0, Groups::NONE, &hangs);
        known.info.name = Ok("A100".to_owned());
        assert!(inventory(driver(), vec![known]).driver.is_ok(), "it answered before");
    }
}
