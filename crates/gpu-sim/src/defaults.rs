//! The values that a running machine returns for unrecorded values.
//!
//! A driver knows which values it supports and never returns "not recorded". So every value that is
//! not recorded becomes "not supported" at the start.

use crate::machine::{Device, Holding, Machine};
use gpu_core::Absent::{self, NotRecorded, NotSupported};
use gpu_core::{
    DeviceDetails, ErrorKind, FabricState, Fault, MemoryHealth, MemoryInfo, Reading, RetiredPage,
    SramErrors, ThrottleReasons,
};

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
        settle(&mut info.partitioned);
        settle(&mut self.total);
        settle(&mut self.reserved);
        self.used_untold = self.used_untold.map(settled);
        if let Some(Fault { kind: ErrorKind::Field(absent), .. }) = &mut self.list_fault {
            *absent = settled(*absent);
        }
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
        details.rare_modes.get_or_insert_default();
        details.activity.get_or_insert_default();
        details.throttle_times.get_or_insert_default();
        details.engines.get_or_insert_default();
        details.clocks.get_or_insert_default();
        details.application_clocks.get_or_insert_default();
        details.supported_clocks.get_or_insert_default();
        details.power.get_or_insert_default();
        details.power_readings.get_or_insert_default();
        details.module_power.get_or_insert_default();
        details.thermal.get_or_insert_default();
        details.pcie.get_or_insert_default();
        details.pcie_throughput.get_or_insert_default();
        details.protected_memory.get_or_insert_default();
        spare_rows(details.memory_health.get_or_insert_default());
        retired_pages(details.memory_health.get_or_insert_default());
        details.memory_errors.get_or_insert_default();
        details.sram_errors.get_or_insert_default();
        details.nvlinks.get_or_insert_default();
        details.fabric.get_or_insert_default();
        details.platform.get_or_insert_default();
        details.accounting.get_or_insert_default();
        details.restate(NotRecorded, NotSupported);
        sram(details);
        if let Some(fabric) = &mut details.fabric
            && fabric.state == Ok(FabricState::Completed)
        {
            fabric.clique = fabric.clique.or(Ok(0));
            if fabric.cluster.is_err() {
                fabric.cluster = Ok("00000000-0000-0000-0000-000000000000".to_owned());
            }
        }
        if let Some(modes) = &mut details.modes {
            // NVML returns the current state and the state after a reset from one call.
            modes.ecc_pending = modes.ecc_pending.or(modes.ecc);
            modes.mig_pending = modes.mig_pending.or(self.info.partitioned);
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

/// Makes up the addresses of retired pages if only their numbers are described: consecutive pages
/// from the end of the first GiB and of the second one. NVML reports both numbers or none.
fn retired_pages(health: &mut MemoryHealth) {
    let counts = [&mut health.retired_single_bit, &mut health.retired_double_bit];
    if counts.iter().any(|count| count.is_ok()) {
        counts.into_iter().for_each(|count| *count = Ok(count.unwrap_or(0)));
    }
    let counts = (health.retired_single_bit, health.retired_double_bit);
    if let (Err(_), (Ok(single), Ok(double))) = (&health.retired_pages, counts) {
        let page = |double_bit, first: u64| {
            move |number| RetiredPage { address: first + u64::from(number) * 0x1_0000, double_bit }
        };
        let single = (0..single).map(page(false, 0x4000_0000));
        health.retired_pages = Ok(single.chain((0..double).map(page(true, 0x8000_0000))).collect());
    }
}

/// Sets the undescribed errors of the SRAM from the totals if any is described, because NVML
/// reports all or none.
fn sram(details: &mut DeviceDetails) {
    let health = details.memory_health.get_or_insert_default();
    let sram = details.sram_errors.get_or_insert_default();
    if *sram == SramErrors::default() && health.sram_threshold_exceeded.is_err() {
        return;
    }
    let totals = details.memory_errors.get_or_insert_default();
    health.sram_threshold_exceeded = health.sram_threshold_exceeded.or(Ok(false));
    sram.multi_bit = sram.multi_bit.or(totals.uncorrected.sram);
    sram.multi_bit_lifetime = sram.multi_bit_lifetime.or(totals.uncorrected_lifetime.sram);
    sram.other = sram.other.or(sram.multi_bit_lifetime);
    for count in [
        &mut sram.parity,
        &mut sram.multi_bit,
        &mut sram.parity_lifetime,
        &mut sram.multi_bit_lifetime,
        &mut sram.l2_cache,
        &mut sram.sm,
        &mut sram.microcontroller,
        &mut sram.pcie,
        &mut sram.other,
    ] {
        *count = count.or(Ok(0));
    }
}

/// Sets the undescribed counts of banks to 0 if any count is described, because NVML reports all or
/// none.
fn spare_rows(health: &mut MemoryHealth) {
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
