//! The current state of a device.

use crate::call::reading;
use crate::device::Device;
use crate::session::Opened;
use crate::value::{bytes, celsius, milliwatts, part, percent};
use gpu_core::{
    Absent, Bytes, DeviceSample, MemoryInfo, MemoryKind, MemorySource, Reading, Result, plausible,
};
use gpu_nvidia_driver::memory_kind;
use nvml_wrapper::enum_wrappers::device::{GpuVirtualizationMode, TemperatureSensor};

/// Returns the current state of a device.
///
/// # Errors
/// `Device` or `Machine` when a query returns such a code.
pub(crate) fn sample(nvml: Opened<'_>, device: Device<'_>) -> Result<DeviceSample> {
    let memory = memory(device)?;
    let source = MemorySource::of(kind(nvml, device, memory.total)?);
    let rates = device.value("nvmlDeviceGetUtilizationRates", "for its utilisation", |device| {
        device.utilization_rates()
    })?;
    let temperature =
        device.value("nvmlDeviceGetTemperature", "for its temperature", |device| {
            device.temperature(TemperatureSensor::Gpu)
        })?;
    let draw = device
        .value("nvmlDeviceGetPowerUsage", "for its power draw", |device| device.power_usage())?;
    let limit = device.value(
        "nvmlDeviceGetEnforcedPowerLimit",
        "for its enforced power limit",
        |device| device.enforced_power_limit(),
    )?;
    Ok(DeviceSample {
        memory,
        source,
        utilization: rates.and_then(|rates| percent(rates.gpu)),
        temperature: temperature.and_then(celsius),
        power_draw: draw.and_then(milliwatts),
        power_limit: limit.and_then(milliwatts),
    })
}

/// `NVML_DRIVER_WDDM`
const WDDM: u32 = 0;

/// The largest part of the host's memory that a device within a processor reports as its own.
const MOST_SET_ASIDE: Bytes = Bytes::from_mib(16 << 10);

/// Returns where the memory of a device is. The driver reports the NUMA node of a device only if
/// the device is one.
///
/// # Errors
/// As [`sample`].
fn kind(nvml: Opened<'_>, device: Device<'_>, total: Reading<Bytes>) -> Result<MemoryKind> {
    let (node, mode) = (nvml.numa_node(device)?, nvml.virtualization(device)?);
    // The library of WSL reports the model of Windows, and no device files.
    let is_wddm = nvml.node(device)?.is_err() && reading(device.driver_model())? == Ok(WDDM);
    // A part that is set aside is small.
    let is_small = !total.is_ok_and(|total| total > MOST_SET_ASIDE);
    let capability = if is_small { nvml.capability(device)?.ok() } else { None };
    let name = nvml.name(device)?;
    Ok(match memory_kind(name.as_deref().ok(), capability, total) {
        integrated @ (MemoryKind::Host | MemoryKind::CarveOut) => integrated,
        _ if is_wddm => MemoryKind::Wddm,
        _ if mode == Ok(GpuVirtualizationMode::Vgpu) => MemoryKind::VirtualGpu,
        by_name => match node {
            Ok(node) => MemoryKind::NumaNode(Some(node)),
            // In the other mode (CDMM), the memory is the device's own.
            Err(Absent::NotSupported) if matches!(by_name, MemoryKind::NumaNode(_)) => {
                MemoryKind::Dedicated
            }
            Err(_) => by_name,
        },
    })
}

/// Returns the memory of a device, or of a MIG instance.
///
/// Version 2 reports the memory reserved by driver and firmware separately. A driver without
/// version 2 counts it as used.
///
/// # Errors
/// As [`sample`].
pub(crate) fn memory(device: Device<'_>) -> Result<MemoryInfo> {
    match device.query("nvmlDeviceGetMemoryInfo_v2", "for its memory", |d| d.memory_info()) {
        Err(failure) if failure.is_too_old() => {
            let reported = reading(device.memory_v1())?;
            Ok(plausible::memory_of(MemoryInfo {
                total: reported.and_then(|memory| bytes(memory.total)),
                used: reported.and_then(|memory| bytes(memory.used)),
                reserved: Err(reported.err().unwrap_or(Absent::NotSupported)),
            }))
        }
        answer => {
            let reported = reading(answer)?;
            Ok(plausible::memory_of(MemoryInfo {
                total: part(&reported, |memory| bytes(memory.total)),
                used: part(&reported, |memory| bytes(memory.used)),
                reserved: part(&reported, |memory| bytes(memory.reserved)),
            }))
        }
    }
}
