//! The values that a running machine returns for unrecorded values.
//!
//! A driver knows which values it supports and never returns "not recorded". So every value that is
//! not recorded becomes "not supported" at the start.

use crate::machine::{Device, Holding, Machine};
use gpu_core::Absent::{self, NotRecorded, NotSupported};
use gpu_core::{MemoryInfo, Reading, ThrottleReasons};

impl Machine {
    /// Completes this machine, its devices and its lists so that they answer like a driver.
    pub(crate) fn answer_as_a_driver(&mut self) {
        if let Ok(driver) = &mut self.driver {
            settle(&mut driver.version);
            settle(&mut driver.cuda);
        }
        self.connect();
        settle(&mut self.topology);
        self.devices.iter_mut().for_each(Device::answer_as_a_driver);
        let holdings = self.processes.iter_mut().flat_map(|process| &mut process.holdings);
        holdings.for_each(Holding::answer_as_a_driver);
    }
}

impl Device {
    fn answer_as_a_driver(&mut self) {
        let info = &mut self.info;
        settle(&mut info.id.uuid);
        settle(&mut info.id.node);
        settle(&mut info.id.bus);
        settle(&mut info.name);
        settle(&mut info.persistence);
        settle(&mut info.display_active);
        settle(&mut info.mig_enabled);
        settle(&mut self.total);
        settle(&mut self.reserved);
        self.used_untold = self.used_untold.map(settled);
        settle(&mut self.idle_load);
        settle(&mut self.temperature);
        settle(&mut self.power_draw);
        settle(&mut self.power_limit);
        for instance in &mut self.mig {
            let MemoryInfo { total, used, reserved } = &mut instance.memory;
            [total, used, reserved].into_iter().for_each(settle);
            settle(&mut instance.profile);
        }
        let details = &mut self.details;
        details.product.get_or_insert_default();
        details.modes.get_or_insert_default();
        details.inforom.get_or_insert_default();
        details.gsp_firmware.get_or_insert_default();
        details.virtual_gpus.get_or_insert_default();
        details.reset_status.get_or_insert_default();
        details.operation_modes.get_or_insert_default();
        details.activity.get_or_insert_default();
        details.engines.get_or_insert_default();
        details.clocks.get_or_insert_default();
        details.application_clocks.get_or_insert_default();
        details.power.get_or_insert_default();
        details.power_readings.get_or_insert_default();
        details.thermal.get_or_insert_default();
        details.pcie.get_or_insert_default();
        details.pcie_throughput.get_or_insert_default();
        details.protected_memory.get_or_insert_default();
        spare_rows(details.memory_health.get_or_insert_default());
        details.memory_errors.get_or_insert_default();
        details.nvlinks.get_or_insert_default();
        details.fabric.get_or_insert_default();
        details.accounting.get_or_insert_default();
        details.restate(NotRecorded, NotSupported);
        if let Some(modes) = &mut details.modes {
            // NVML returns the current state and the state after a reset from one call.
            modes.ecc_pending = modes.ecc_pending.or(modes.ecc);
            modes.mig_pending = modes.mig_pending.or(self.info.mig_enabled);
        }
        if let Some(modes) = &mut details.operation_modes {
            modes.pending = modes.pending.or(modes.current);
        }
        if let Some(activity) = &mut details.activity {
            // A driver that reports reasons supports all of them.
            let all = activity.throttle.map(|_| ThrottleReasons::all_named());
            activity.throttle_supported = activity.throttle_supported.or(all);
        }
    }
}

impl Holding {
    fn answer_as_a_driver(&mut self) {
        self.memory_untold = self.memory_untold.map(settled);
        self.load_untold = self.load_untold.map(settled);
    }
}

fn settle<T>(reading: &mut Reading<T>) {
    if let Err(absent) = reading {
        *absent = settled(*absent);
    }
}

fn settled(absent: Absent) -> Absent {
    if absent == NotRecorded { NotSupported } else { absent }
}
/// Sets the undescribed counts of banks to 0 if any count is described, because NVML reports all or
/// none.
fn spare_rows(health: &mut gpu_core::MemoryHealth) {
    let banks = [
        &mut health.banks_max,
        &mut health.banks_high,
        &mut health.banks_partial,
        &mut health.banks_low,
        &mut health.banks_none,
    ];
    if banks.iter().any(|count| count.is_ok()) {
        banks.into_iter().for_each(|count| *count = Ok(count.unwrap_or(0)));
    }
}
