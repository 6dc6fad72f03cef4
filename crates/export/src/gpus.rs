//! The GPUs: their state, their holders, and the ordinary figures.

use crate::catalog::Metric;
use crate::context::Context;
use crate::labels::Labels;
use crate::metrics::{Metrics, flag, from_milli, number};
use gpu_core::{
    Absent, Bytes, DeviceSample, DeviceState, DriverMessage, Holder, MemoryKind, PciBusId, Pid,
    Reading,
};
use gpu_reaper::{Defect, Fitness, defects};
use gpu_steward::DeviceLeases;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn add(context: &Context<'_>, figures: bool, metrics: &mut Metrics) {
    let leased = context.ledger.map(|_| DeviceLeases::recorded(Ok(context.top.clone())));
    for (device, labels) in context.devices() {
        add_identity(device, labels, metrics);
        let sleeps = device.sample.as_ref().is_err_and(|f| f.kind.absent() == Absent::Asleep);
        metrics.add(Metric::GpuAsleep, labels.only(), flag(sleeps));
        if !sleeps {
            metrics.add(Metric::GpuUp, labels.only(), flag(device.sample.is_ok()));
        }
        if let Some(leased) = leased.as_ref().filter(|_| device.sample.is_ok()) {
            let free = leased.is_free(device, &context.usage);
            metrics.add(Metric::GpuFree, labels.only(), flag(free));
        }
        add_health(device, labels, metrics);
        if let Some(bytes) = context.usage.account(device.id()) {
            metrics.add(Metric::GpuUnexplained, labels.only(), number(bytes.0));
        }
        add_holders(context, device, labels, metrics);
        add_xids(context, device, labels, metrics);
        if figures {
            add_figures(device, labels, metrics);
        }
    }
}

fn add_identity(device: &DeviceState, labels: &Labels, metrics: &mut Metrics) {
    let [index, uuid] = labels.only();
    let name = device.info.name.as_deref().unwrap_or_default();
    let bus = device.id().bus.map(|bus| bus.to_string()).unwrap_or_default();
    metrics.add(Metric::Gpu, [index, uuid, ("name", name), ("pci_bus_id", &bus)], 1.0);
}

fn add_health(device: &DeviceState, labels: &Labels, metrics: &mut Metrics) {
    if device.sample.is_err() || device.details.is_err() {
        return;
    }
    let defects = defects(device);
    let fit = defects.iter().all(|defect| defect.fitness() == Fitness::Fit);
    metrics.add(Metric::GpuFit, labels.only(), flag(fit));
    let names: BTreeSet<&str> = defects.into_iter().map(defect_name).collect();
    for name in names {
        metrics.add(Metric::GpuDefect, labels.and("defect", name), 1.0);
    }
}

fn defect_name(defect: Defect) -> &'static str {
    match defect {
        Defect::ResetRequired => "reset_required",
        Defect::Recovery(gpu_core::RecoveryAction::Reboot) => "reboot_required",
        Defect::Recovery(_) => "recovery_required",
        Defect::ComputeProhibited => "compute_prohibited",
        Defect::NoMigInstance => "no_mig_instance",
        Defect::RemappingFailed => "row_remapping_failed",
        Defect::SramWornOut => "sram_threshold_exceeded",
        Defect::NoSpareRows(_) => "no_spare_rows",
        Defect::Uncorrected(_) => "uncorrected_errors",
        Defect::RepairPending => "repair_pending",
        Defect::DrainRecommended => "drain_recommended",
        Defect::MigPending(_) => "mig_mode_pending",
        Defect::EccPending(_) => "ecc_mode_pending",
    }
}

/// Counts the processes that the driver lists or that have the device file open, each once. In a
/// separate PID namespace, a holder that uses memory may be one of those that the driver lists.
fn add_holders(
    context: &Context<'_>,
    device: &DeviceState,
    labels: &Labels,
    metrics: &mut Metrics,
) {
    let (Ok(_), Ok(listed)) = (&context.snapshot.holders, &device.processes) else { return };
    if !context.snapshot.knows_files_of(device) {
        return;
    }
    let is_foreign = !context.usage.foreign(device.id()).is_empty();
    let listed: BTreeSet<Pid> = listed.iter().map(|process| process.pid).collect();
    let holders = context.snapshot.holders().iter().filter(|h| h.has_device(device.id()));
    let others = holders.filter(|holder| is_foreign || !listed.contains(&holder.process.pid));
    let (unlisted, none): (Vec<&Holder>, Vec<&Holder>) =
        others.partition(|holder| holder.may_use_memory_of(device.id()));
    let counts = [
        ("listed", Some(listed.len())),
        ("unlisted", (!is_foreign).then_some(unlisted.len())),
        ("none", Some(none.len())),
    ];
    for (memory, count) in counts {
        if let Some(count) = count {
            metrics.add(Metric::GpuHolders, labels.and("memory", memory), number(count as u64));
        }
    }
}

/// Adds the time of the last message of each error number.
fn add_xids(context: &Context<'_>, device: &DeviceState, labels: &Labels, metrics: &mut Metrics) {
    let (Ok(messages), Ok(bus)) = (&context.snapshot.driver_messages, device.id().bus) else {
        return;
    };
    let of_device =
        messages.iter().filter(|message| message.bus == PciBusId { function: 0, ..bus });
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    for message in of_device.filter(|message| message.at != DriverMessage::UNDATED) {
        let Some(xid) = message.error.code.number_in("xid") else { continue };
        let at = last.entry(xid).or_default();
        *at = message.at.0.max(*at);
    }
    for (xid, at) in last {
        metrics.add(Metric::GpuXid, labels.and("xid", &xid.to_string()), from_milli(at));
    }
}

fn add_figures(device: &DeviceState, labels: &Labels, metrics: &mut Metrics) {
    let mut add = |metric, reading: Reading<f64>| {
        if let Ok(value) = reading {
            metrics.add(metric, labels.only(), value);
        }
    };
    if let Ok(DeviceSample { memory, source, utilization, temperature, power_draw, power_limit }) =
        &device.sample
    {
        let bytes = |reading: Reading<Bytes>| reading.map(|bytes| number(bytes.0));
        // A part that is set aside is neither the memory of programs nor its limit.
        if source.kind != MemoryKind::CarveOut {
            add(Metric::GpuMemoryUsed, bytes(memory.used));
            add(Metric::GpuMemoryTotal, bytes(memory.total));
        }
        add(Metric::GpuMemoryReserved, bytes(memory.reserved));
        add(Metric::GpuUtilization, utilization.map(|share| f64::from(share.get()) / 100.0));
        add(Metric::GpuTemperature, temperature.map(|celsius| f64::from(celsius.0)));
        add(Metric::GpuPower, power_draw.map(|power| from_milli(power.0)));
        add(Metric::GpuPowerLimit, power_limit.map(|power| from_milli(power.0)));
    }
    let power = device.details.as_ref().ok().and_then(|details| details.power.as_ref());
    if let Some(power) = power {
        add(Metric::GpuEnergy, power.energy.map(from_milli));
    }
}
