//! The NVLinks of a device.

use crate::call::reading;
use crate::code::Code;
use crate::device::Device;
use crate::session::bus_id;
use crate::value::number;
use gpu_core::{Absent, NvLink, PciBusId, Reading, Result};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper_sys::bindings::NVML_NVLINK_MAX_LINKS;

/// `NVML_NVLINK_DEVICE_TYPE_SWITCH`
const SWITCH: u32 = 2;

/// Returns the links of the device, including inactive ones; empty if the driver is too old.
pub(super) fn nvlinks(device: Device<'_>) -> Result<Vec<NvLink>> {
    let mut links = Vec::new();
    for (link, active) in states(device)?.unwrap_or_default() {
        let errors = |counter| -> Result<Reading<u64>> {
            let purpose = "for an NVLink error counter";
            let counted = device.query("nvmlDeviceGetNvLinkErrorCounter", purpose, |device| {
                device.link_wrapper_for(link).error_counter(counter)
            });
            Ok(reading(counted)?.and_then(number))
        };
        let purpose = "for an NVLink version";
        let version = device.query("nvmlDeviceGetNvLinkVersion", purpose, |device| {
            device.link_wrapper_for(link).version()
        });
        links.push(NvLink {
            active,
            version: reading(version)?,
            remote: remote(device, link)?,
            replays: errors(ErrorCounter::DlReplay)?,
            recoveries: errors(ErrorCounter::DlRecovery)?,
            crc_errors: errors(ErrorCounter::DlCrcFlit)?,
        });
    }
    Ok(links)
}

/// Link numbers, and whether each link is active.
type States = Vec<(u32, Reading<bool>)>;

/// Returns the states of the links; `TooOld` if the driver lacks the function.
fn states(device: Device<'_>) -> Result<Reading<States>> {
    let mut states = Vec::new();
    for link in 0..NVML_NVLINK_MAX_LINKS {
        let purpose = "for the state of an NVLink";
        let active = device.query("nvmlDeviceGetNvLinkState", purpose, |device| {
            device.link_wrapper_for(link).is_active()
        });
        match active {
            // No link has this number or a higher one.
            Err(failure) if failure.is(Code::INVALID_ARGUMENT) => break,
            Err(failure) if failure.is_too_old() => return Ok(Err(Absent::TooOld)),
            // This link is not wired, or the device has no links.
            Err(failure) if failure.is(Code::NOT_SUPPORTED) => {}
            answer => states.push((link, reading(answer)?)),
        }
    }
    Ok(Ok(states))
}

/// Returns the PCI address of the remote end of a link.
fn remote(device: Device<'_>, link: u32) -> Result<Reading<PciBusId>> {
    Ok(reading(device.nvlink_remote(link))?.and_then(|pci| bus_id(&pci)))
}

/// The remote end of an active link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// The device or bridge at this address.
    At(PciBusId),
    /// An NVSwitch, which connects all devices attached to switches.
    Switch,
}

/// Returns the remote ends of the active links; `devices` has the addresses of all devices. Absent,
/// with the reason, if the remote end of any link is unknown, because that link would look missing.
///
/// # Errors
/// `Device` or `Machine` when a query returns such a code.
pub(crate) fn remotes(device: Device<'_>, devices: &[PciBusId]) -> Result<Reading<Vec<Remote>>> {
    let states = match states(device)? {
        Ok(states) => states,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut remotes = Vec::new();
    for (link, active) in states {
        let end = match active {
            Ok(false) => continue,
            Ok(true) => end(device, link, devices)?,
            Err(reason) => Err(reason),
        };
        match end {
            Ok(end) => remotes.push(end),
            // The device has links, so `NotSupported` cannot be the reason.
            Err(Absent::NotSupported) => return Ok(Err(Absent::Failed)),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    Ok(Ok(remotes))
}

/// Returns the remote end of an active link.
fn end(device: Device<'_>, link: u32, devices: &[PciBusId]) -> Result<Reading<Remote>> {
    let address = remote(device, link)?;
    if let Some(address) = address.ok().filter(|address| devices.contains(address)) {
        return Ok(Ok(Remote::At(address)));
    }
    Ok(match reading(device.nvlink_remote_kind(link))? {
        Ok(SWITCH) => Ok(Remote::Switch),
        Ok(_) => address.map(Remote::At),
        Err(reason) => Err(reason),
    })
}
