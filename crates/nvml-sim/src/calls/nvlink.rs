//! NVLinks, and the fabric of their switches.

use super::identity;
use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::{FabricInfo, PciInfo3};
use crate::pointer::Out;
use crate::view::Subject;
use gpu_core::{FabricState, NvLink};
use std::ffi::{c_uint, c_ulonglong};

/// Counters of errors (`nvmlNvLinkErrorCounter_t`).
pub(super) const REPLAY: c_uint = 0;
pub(super) const RECOVERY: c_uint = 1;
pub(super) const CRC_FLIT: c_uint = 2;
const COUNTERS: c_uint = 5;
/// The kinds of remote ends (`nvmlIntNvLinkDeviceType_t`).
const TYPE_GPU: c_uint = 0;
const TYPE_SWITCH: c_uint = 2;
/// The capabilities of a link (`nvmlNvLinkCapability_t`).
const CAPABILITIES: c_uint = 6;

/// Returns a link of a device.
///
/// # Errors
/// `NOT_SUPPORTED` for a device without links; `INVALID_ARGUMENT` if it has links but not this one.
pub(super) fn link(gpu: Subject<'_>, number: c_uint) -> Answer<&NvLink> {
    let links = gpu.nvlinks()?;
    if links.is_empty() {
        return Err(Code::NOT_SUPPORTED);
    }
    links.get(number as usize).ok_or(Code::INVALID_ARGUMENT)
}

/// Returns an error counter of a link.
pub(super) fn errors(link: &NvLink, counter: c_uint) -> Answer<u64> {
    Ok(match counter {
        REPLAY => link.replays?,
        RECOVERY => link.recoveries?,
        CRC_FLIT => link.crc_errors?,
        other if other < COUNTERS => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

exports! {
    gpu [nvmlDeviceGetNvLinkState](number: c_uint, active: Out<c_uint>) |gpu| {
        active.put(link(gpu, number)?.active?.into())
    }

    gpu [nvmlDeviceGetNvLinkVersion](number: c_uint, version: Out<c_uint>) |gpu| {
        version.put(link(gpu, number)?.version?)
    }

    gpu [nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2](
        number: c_uint, pci: Out<PciInfo3>,
    ) |gpu| {
        pci.put(identity::pci_info(link(gpu, number)?.remote?, (0, 0)))
    }

    gpu [nvmlDeviceGetNvLinkRemoteDeviceType](number: c_uint, kind: Out<c_uint>) |gpu| {
        let bus = link(gpu, number)?.remote?;
        let device = gpu.view.subjects().any(|other| other.state.info.id.bus == Ok(bus));
        kind.put(if device { TYPE_GPU } else { TYPE_SWITCH })
    }

    gpu [nvmlDeviceGetNvLinkErrorCounter](
        number: c_uint, counter: c_uint, value: Out<c_ulonglong>,
    ) |gpu| {
        value.put(errors(link(gpu, number)?, counter)?)
    }

    gpu [nvmlDeviceGetNvLinkCapability](number: c_uint, capability: c_uint, _has: Out<c_uint>)
        |gpu| {
        link(gpu, number)?;
        Err(if capability < CAPABILITIES { Code::NOT_SUPPORTED } else { Code::INVALID_ARGUMENT })
    }

    gpu [nvmlDeviceGetGpuFabricInfo](fabric: Out<FabricInfo>) |gpu| {
        let reported = gpu.fabric()?;
        fabric.put(FabricInfo {
            cluster_uuid: [0; 16],
            // Undefined until the registration completes.
            status: reported.status.unwrap_or(0),
            clique_id: 0,
            state: match reported.state? {
                FabricState::None => 0,
                FabricState::NotStarted => 1,
                FabricState::InProgress => 2,
                FabricState::Completed => 3,
            },
        })
    }
}
