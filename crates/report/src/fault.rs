//! The meaning of a fault, and its remedy.

use gpu_core::{Absent, DeviceFault, ErrorKind, MachineFault, ProcessFault};

/// Returns the meaning of a failure of a machine or a device; `None` if its own text suffices.
pub fn meaning(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Machine(MachineFault::NoLibrary) => "no NVIDIA driver is installed",
        ErrorKind::Machine(MachineFault::DriverNotLoaded) => {
            "the NVIDIA kernel module is not loaded"
        }
        ErrorKind::Machine(MachineFault::VersionMismatch) => {
            "driver library and kernel module versions differ"
        }
        ErrorKind::Machine(MachineFault::Blocked) => {
            "this container or job has no access to the devices"
        }
        ErrorKind::Machine(MachineFault::NotPermitted) => "no permission to open the device files",
        ErrorKind::Machine(MachineFault::NoDevices) => "the driver finds no device",
        ErrorKind::Device(DeviceFault::Lost) => "lost: it has fallen off the bus",
        ErrorKind::Device(DeviceFault::ResetRequired) => "it requires a reset",
        ErrorKind::Device(DeviceFault::InsufficientPower) => "its power cables are not connected",
        ErrorKind::Device(DeviceFault::Interrupt) => "the kernel cannot service its interrupts",
        ErrorKind::TimedOut => "no answer in time",
        ErrorKind::Field(Absent::Asleep) => "asleep",
        _ => return None,
    })
}

/// Returns the meaning of a fault in a few words; if it has none, the operation that failed.
pub fn brief(fault: &gpu_core::Fault) -> String {
    meaning(fault.kind).map_or_else(|| format!("failed to {}", fault.text), str::to_owned)
}

/// Like [`brief`], but names the call that hangs if the driver does not answer.
pub fn account(fault: &gpu_core::Fault) -> String {
    match fault.kind {
        ErrorKind::TimedOut => format!("failed to {}", fault.text),
        _ => brief(fault),
    }
}

/// Returns the remedy for a driver that fails in this way; `None` if there is no general remedy.
pub fn driver_remedy(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::TimedOut => {
            Some("sudo dmesg | tail -40 shows what it waits for; if that never ends, reboot")
        }
        kind => remedy(kind),
    }
}

/// Returns the remedy for a failure of this kind; `None` if there is no general remedy.
pub fn remedy(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Machine(MachineFault::NoLibrary) => {
            "install the driver, or try a simulated machine: gpuws demo"
        }
        ErrorKind::Machine(MachineFault::DriverNotLoaded) => {
            "sudo modprobe nvidia; if that fails, see sudo dmesg"
        }
        ErrorKind::Machine(MachineFault::VersionMismatch) => {
            "the driver was upgraded without a reboot: reboot or reload the kernel module"
        }
        ErrorKind::Machine(MachineFault::Blocked) => {
            "pass the GPU to the container (--gpus) or run outside it"
        }
        ErrorKind::Machine(MachineFault::NotPermitted)
        | ErrorKind::Process(ProcessFault::NotPermitted)
        | ErrorKind::Field(Absent::NotPermitted) => "run the same command with sudo",
        ErrorKind::Machine(MachineFault::NoDevices) => {
            "check lspci for the card and sudo dmesg for driver messages"
        }
        ErrorKind::Device(DeviceFault::Lost) => {
            "reboot; if it recurs, check power, seating and cooling of the card"
        }
        ErrorKind::Device(DeviceFault::ResetRequired) => {
            "reset it as root while unused (nvidia-smi --gpu-reset), or reboot"
        }
        ErrorKind::Device(DeviceFault::InsufficientPower) => "connect the power cables of the card",
        _ => return None,
    })
}
