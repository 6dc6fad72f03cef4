//! NVLinks, and the fabric of their switches.

use super::identity::{self, text};
use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::{FabricInfo, FabricInfo2, FabricInfo3, PciInfo3, PlatformInfo2, field_text};
use crate::pointer::{Out, Versioned};
use crate::view::Subject;
use gpu_core::{FabricState, NvLink, Reading};
use std::ffi::{c_char, c_uchar, c_uint, c_ulonglong};

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
        let FabricInfo3 { cluster_uuid, status, clique_id, state, .. } = fabric_info(gpu)?;
        fabric.put(FabricInfo { cluster_uuid, status, clique_id, state })
    }

    gpu [nvmlDeviceGetGpuFabricInfoV](fabric: Out<FabricInfo3>) |gpu| {
        let older: Out<FabricInfo2> = fabric.version();
        if older.check_version().is_err() {
            fabric.check_version()?;
            return fabric.put(fabric_info(gpu)?);
        }
        let FabricInfo3 { cluster_uuid, status, clique_id, state, health_mask, .. } =
            fabric_info(gpu)?;
        let version = FabricInfo2::VERSION;
        older.put(FabricInfo2 { version, cluster_uuid, status, clique_id, state, health_mask })
    }

    gpu [nvmlDeviceGetPlatformInfo](platform: Out<PlatformInfo2>) |gpu| {
        platform.check_version()?;
        let reported = gpu.platform()?;
        let byte = |number: Reading<u32>| -> Answer<c_uchar> { Ok(number? as c_uchar) };
        platform.put(PlatformInfo2 {
            version: PlatformInfo2::VERSION,
            ib_guid: (u128::from(reported.fabric_guid?) << 64).to_be_bytes(),
            chassis_serial_number: field_text(text(&reported.chassis_serial)?)
                .map(|letter: c_char| letter as c_uchar),
            slot_number: byte(reported.slot)?,
            tray_index: byte(reported.tray)?,
            host_id: byte(reported.host)?,
            peer_type: reported.switched?.into(),
            module_id: byte(reported.module)?,
        })
    }
}

/// What is wrong with the configuration of a fabric, by its number
/// (`NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_*`); 0 is unknown, 1 nothing.
const CONFIGURATIONS: [&str; 7] = [
    "",
    "Incorrect system GUID",
    "Incorrect chassis serial number",
    "No partition",
    "Insufficient Nvlinks",
    "Incompatible GPU firmware",
    "Invalid location",
];

fn fabric_info(gpu: Subject<'_>) -> Answer<FabricInfo3> {
    let reported = gpu.fabric()?;
    let condition = |reading: Reading<bool>| match reading {
        Ok(true) => 1,
        Ok(false) => 2,
        Err(_) => 0,
    };
    let wrong = reported.incorrect_configuration.as_deref();
    let configuration =
        wrong.ok().and_then(|wrong| CONFIGURATIONS.iter().position(|w| *w == wrong));
    let health_mask = condition(reported.bandwidth_degraded)
        | condition(reported.route_recovery) << 2
        | condition(reported.route_unhealthy) << 4
        | condition(reported.access_timeout_recovery) << 6
        | configuration.map_or(0, |number| number as c_uint + 1) << 8;
    let cluster = reported.cluster.as_deref().unwrap_or_default().replace('-', "");
    Ok(FabricInfo3 {
        version: FabricInfo3::VERSION,
        cluster_uuid: u128::from_str_radix(&cluster, 16).unwrap_or(0).to_be_bytes(),
        // Undefined until the registration completes.
        status: reported.status.unwrap_or(0),
        clique_id: reported.clique.unwrap_or(0),
        state: match reported.state? {
            FabricState::None => 0,
            FabricState::NotStarted => 1,
            FabricState::InProgress => 2,
            FabricState::Completed => 3,
        },
        health_mask,
        health_summary: match reported.health.as_deref() {
            Ok("Healthy") => 1,
            Ok("Unhealthy") => 2,
            Ok("Limited Capacity") => 3,
            _ => 0,
        },
    })
}
