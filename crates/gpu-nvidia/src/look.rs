//! A look at the whole machine, in its parts.
//!
//! A device is asked for everything before the next one is asked what it is: where a call hangs,
//! all that there was before is known.

use crate::backend::Nvml;
use gpu_core::{DeviceId, DeviceInfo, DeviceState, Driver, Fault, GpuBackend, Groups, Reach, ask};

impl Nvml {
    /// Returns the beginning of a look: the driver, and how many devices there are to look at.
    pub(crate) fn begin_look(&self) -> (Result<Driver, Fault>, u32) {
        let driver = ask(|| self.driver());
        if driver.as_ref().is_err_and(|fault| fault.kind.reach() == Reach::Machine) {
            return (driver, 0);
        }
        match ask(|| self.count()) {
            Ok(count) => (driver, count),
            Err(fault) => (Err(fault), 0),
        }
    }

    /// Looks at one device.
    pub(crate) fn look_at(&self, index: u32, groups: Groups) -> DeviceState {
        match ask(|| self.info(index)) {
            Ok(info) => DeviceState::ask(self, info, groups),
            Err(fault) => unknown(index, groups, &fault),
        }
    }
}

/// Returns a device of which nothing was learned but that it is there.
pub(crate) fn unknown(index: u32, groups: Groups, fault: &Fault) -> DeviceState {
    let info = DeviceInfo::unknown(DeviceId::from_index(index));
    DeviceState::unanswered(info, groups, fault)
}
