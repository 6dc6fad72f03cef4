//! A plain loop over nvml-wrapper that reads the values of `gpuws status` and prints a line for
//! each device: the cost of one snapshot without decisions.

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match snapshot(&mut out)? {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            writeln!(io::stderr(), "plain-loop: {error}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn snapshot(out: &mut dyn Write) -> io::Result<Result<(), NvmlError>> {
    let nvml = match Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init() {
        Ok(nvml) => nvml,
        Err(error) => return Ok(Err(error)),
    };
    writeln!(out, "{:?} {:?}", nvml.sys_driver_version(), nvml.sys_cuda_driver_version())?;
    let count = match nvml.device_count() {
        Ok(count) => count,
        Err(error) => return Ok(Err(error)),
    };
    for index in 0..count {
        match nvml.device_by_index(index) {
            Ok(device) => show(index, &device, out)?,
            Err(error) => writeln!(out, "{index} {error}")?,
        }
    }
    Ok(Ok(()))
}

fn show(index: u32, device: &Device<'_>, out: &mut dyn Write) -> io::Result<()> {
    let name = (device.name(), device.uuid(), device.pci_info(), device.minor_number());
    let modes = (device.is_in_persistent_mode(), device.is_display_active(), device.mig_mode());
    let power = (device.power_usage(), device.enforced_power_limit());
    let sample = (
        device.memory_info(),
        device.utilization_rates(),
        device.temperature(TemperatureSensor::Gpu),
    );
    writeln!(out, "{index} {name:?} {modes:?} {power:?} {sample:?}")?;
    let lists = [device.running_compute_processes(), device.running_graphics_processes()];
    for process in lists.into_iter().flatten().flatten() {
        writeln!(out, "{index} pid {} {:?}", process.pid, process.used_gpu_memory)?;
    }
    let utilization = device.process_utilization_stats(None);
    writeln!(out, "{index} utilization of {:?} processes", utilization.map(|all| all.len()))
}
