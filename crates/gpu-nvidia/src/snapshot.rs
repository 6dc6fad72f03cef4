//! A snapshot of the machine, in parts.
//!
//! Each device is queried completely before the next one. If a call hangs, all earlier results are
//! kept.

use crate::backend::Nvml;
use crate::inventory::unknown;
use gpu_core::{DeviceState, Driver, Fault, GpuBackend, Groups, Reach, ask};

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
