//! The devices of a machine from the answers about each.

use gpu_core::{
    DeviceId, DeviceInfo, DeviceState, Driver, ErrorKind, Fault, Groups, Inventory, Reach,
};

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
