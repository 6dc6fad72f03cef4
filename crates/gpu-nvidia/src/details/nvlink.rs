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

/// Returns the links that the device has, those that are down too; none where the driver is too old
/// to tell.
pub(super) fn nvlinks(device: Device<'_>) -> Result<Vec<NvLink>> {
    let mut links = Vec::new();
    for (link, active) in states(device)?.unwrap_or_default() {
        let errors = |counter| -> Result<Reading<u64>> {
            let wish = "for the errors of an NVLink";
            let counted = device.ask("nvmlDeviceGetNvLinkErrorCounter", wish, |device| {
                device.link_wrapper_for(link).error_counter(counter)
            });
            Ok(reading(counted)?.and_then(number))
        };
        let wish = "for the version of an NVLink";
        let version = device.ask("nvmlDeviceGetNvLinkVersion", wish, |device| {
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

/// Numbers of links, and whether each works.
type States = Vec<(u32, Reading<bool>)>;

/// Returns which links there are; `TooOld` where the driver does not know the question.
fn states(device: Device<'_>) -> Result<Reading<States>> {
    let mut states = Vec::new();
    for link in 0..NVML_NVLINK_MAX_LINKS {
        let wish = "for the state of an NVLink";
        let active = device.ask("nvmlDeviceGetNvLinkState", wish, |device| {
            device.link_wrapper_for(link).is_active()
        });
        match active {
            // There is none with this number, nor with a higher one.
            Err(failure) if failure.is(Code::INVALID_ARGUMENT) => break,
            Err(failure) if failure.is_too_old() => return Ok(Err(Absent::TooOld)),
            // This one is not wired, or none is.
            Err(failure) if failure.is(Code::NOT_SUPPORTED) => {}
            answer => states.push((link, reading(answer)?)),
        }
    }
    Ok(Ok(states))
}

/// Returns what is at the other end of a link.
fn remote(device: Device<'_>, link: u32) -> Result<Reading<PciBusId>> {
    Ok(reading(device.nvlink_remote(link))?.and_then(|pci| bus_id(&pci)))
}

/// What a working link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// Whatever is at this address, which need not be one of the devices.
    At(PciBusId),
    /// A switch, through which all devices at switches reach each other.
    Switch,
}

/// Returns what the working links of a device lead to; `devices` are the addresses of all. Absent,
/// with the reason, where that is not told of each link: one that is left out would be no link.
///
/// # Errors
/// `Device` or `Machine` when one of the answers tells that.
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
            // There is a link, so that it is not for want of links that nothing is told.
            Err(Absent::NotSupported) => return Ok(Err(Absent::Failed)),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    Ok(Ok(remotes))
}

/// Returns what is at the other end of a working link.
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
