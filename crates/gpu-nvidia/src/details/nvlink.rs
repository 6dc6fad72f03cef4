//! The NVLinks of a device.

use crate::call::{Answer, reading};
use crate::code::Code;
use crate::device::Device;
use crate::session::bus_id;
use crate::value::{number, switch};
use gpu_core::{NvLink, PciBusId, Reading, Result};
use nvml_wrapper_sys::bindings::{NVML_NVLINK_MAX_LINKS, nvmlPciInfo_t};

/// Counters of errors (`nvmlNvLinkErrorCounter_t`).
const REPLAY: u32 = 0;
const RECOVERY: u32 = 1;
const CRC_FLIT: u32 = 2;

/// `NVML_NVLINK_DEVICE_TYPE_SWITCH`
const SWITCH: u32 = 2;

/// Returns the links that the device has, those that are down too.
pub(super) fn nvlinks(device: Device<'_>) -> Result<Vec<NvLink>> {
    let functions = &device.caller.functions;
    let mut links = Vec::new();
    for (link, active) in states(device)? {
        let errors = |counter| -> Result<Reading<u64>> {
            let which = (link, counter);
            let counted = device.pick_two(&functions.nvmlDeviceGetNvLinkErrorCounter, which);
            Ok(reading(counted)?.and_then(number))
        };
        links.push(NvLink {
            active,
            version: reading(device.pick(&functions.nvmlDeviceGetNvLinkVersion, link))?,
            remote: remote(device, link)?,
            replays: errors(REPLAY)?,
            recoveries: errors(RECOVERY)?,
            crc_errors: errors(CRC_FLIT)?,
        });
    }
    Ok(links)
}

/// Returns which links there are, and whether each works.
fn states(device: Device<'_>) -> Result<Vec<(u32, Reading<bool>)>> {
    let function = &device.caller.functions.nvmlDeviceGetNvLinkState;
    let mut states = Vec::new();
    for link in 0..NVML_NVLINK_MAX_LINKS {
        match device.pick(function, link) {
            // There is none with this number, nor with a higher one.
            Err(failure) if failure.code == Code::INVALID_ARGUMENT || failure.is_too_old() => break,
            // This one is not wired, or none is.
            Err(failure) if failure.code == Code::NOT_SUPPORTED => {}
            answer => states.push((link, reading(answer)?.and_then(switch))),
        }
    }
    Ok(states)
}

/// Returns what is at the other end of a link.
fn remote(device: Device<'_>, link: u32) -> Result<Reading<PciBusId>> {
    let functions = &device.caller.functions;
    let mut answer: Answer<nvmlPciInfo_t> =
        device.pick(&functions.nvmlDeviceGetNvLinkRemotePciInfo_v2, link);
    if answer.as_ref().is_err_and(|failure| failure.is_too_old()) {
        answer = device.pick(&functions.nvmlDeviceGetNvLinkRemotePciInfo, link);
    }
    Ok(reading(answer)?.and_then(|pci| bus_id(&pci)))
}

/// What a working link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// The device at this address.
    At(PciBusId),
    /// A switch, through which all devices at switches reach each other.
    Switch,
}

/// Returns what the working links of a device lead to; `devices` are the addresses of all.
///
/// # Errors
/// `Device` or `Machine` when one of the answers tells that.
pub(crate) fn remotes(device: Device<'_>, devices: &[PciBusId]) -> Result<Vec<Remote>> {
    let mut remotes = Vec::new();
    for (link, active) in states(device)? {
        if active != Ok(true) {
            continue;
        }
        let address = remote(device, link)?;
        if let Some(address) = address.ok().filter(|address| devices.contains(address)) {
            remotes.push(Remote::At(address));
            continue;
        }
        let kind = &device.caller.functions.nvmlDeviceGetNvLinkRemoteDeviceType;
        if reading(device.pick(kind, link))? == Ok(SWITCH) {
            remotes.push(Remote::Switch);
        }
    }
    Ok(remotes)
}
