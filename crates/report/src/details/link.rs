//! Entries for PCI Express, NVLink and the NVLink fabric.

use super::{Entry, group, group_of, known, unit, value};
use crate::wording;
use gpu_core::{Absent, DeviceState, Fabric, NvLink, Pcie, PcieThroughput};

/// Returns the groups `PCI`, `NVLink` and `Fabric`.
pub(super) fn entries(device: &DeviceState) -> Vec<Entry> {
    let bus = device.id().bus;
    let pcie = group_of(device, |details| details.pcie.as_ref(), Pcie::absent);
    let flow = group_of(device, |details| details.pcie_throughput.as_ref(), PcieThroughput::absent);
    let hex = |number: u32| format!("0x{number:08X}");
    let lanes = |width: u32| format!("{width}x");
    let pci = group(
        "PCI",
        [
            value("Bus", bus.map(|bus| format!("0x{:02X}", bus.bus))),
            value("Device", bus.map(|bus| format!("0x{:02X}", bus.device))),
            value("Domain", bus.map(|bus| format!("0x{:04X}", bus.domain))),
            value("Device Id", pcie.device_id.map(hex)),
            value("Bus Id", bus),
            value("Sub System Id", pcie.subsystem_id.map(hex)),
            group(
                "GPU Link Info",
                [
                    group(
                        "PCIe Generation",
                        [
                            value("Max", pcie.generation_max),
                            value("Current", pcie.generation),
                            value("Device Max", pcie.device_generation_max),
                        ],
                    ),
                    group(
                        "Link Width",
                        [
                            value("Max", pcie.width_max.map(lanes)),
                            value("Current", pcie.width.map(lanes)),
                        ],
                    ),
                ],
            ),
            value("Replays Since Reset", pcie.replays),
            value("Tx Throughput", unit(flow.sent, "KB/s")),
            value("Rx Throughput", unit(flow.received, "KB/s")),
        ],
    );
    vec![pci, nvlinks(device), fabric(device)]
}

fn fabric(device: &DeviceState) -> Entry {
    let fabric = group_of(device, |details| details.fabric.as_ref(), Fabric::absent);
    let said = |code| match code {
        0 => "Success".to_owned(),
        code => format!("NVML's code {code}"),
    };
    group(
        "Fabric",
        [
            value("State", fabric.state.map(wording::fabric_state)),
            value("Status", fabric.status.map(said)),
        ],
    )
}

fn nvlinks(device: &DeviceState) -> Entry {
    let links = match &device.details {
        Ok(details) => details.nvlinks.as_ref().ok_or(Absent::NotRecorded),
        Err(fault) => Err(fault.kind.absent()),
    };
    match links {
        Ok(links) => {
            let links = links.iter().enumerate();
            group("NVLink", links.map(|(number, link)| nvlink(number, link)).collect::<Vec<_>>())
        }
        Err(absent) => value("NVLink", Err::<String, _>(absent)),
    }
}

/// Returns an entry such as `Active, version 3, to 00000000:14:00.0`. Unless all error counts are
/// zero, the entry is a group that contains them.
fn nvlink(number: usize, link: &NvLink) -> Entry {
    let name = format!("Link {number}");
    let active = match link.active {
        Ok(active) => active,
        Err(absent) => return value(name, Err::<String, _>(absent)),
    };
    let mut parts = vec![if active { "Active" } else { "Inactive" }.to_owned()];
    parts.extend(link.version.map(|version| format!("version {version}")));
    parts.extend(link.remote.map(|remote| format!("to {remote}")));
    let errors = [
        ("Replay Errors", link.replays),
        ("Recovery Errors", link.recoveries),
        ("CRC Errors", link.crc_errors),
    ];
    if errors.iter().all(|(_, count)| *count == Ok(0)) {
        return known(name, parts.join(", "));
    }
    let errors = errors.map(|(name, count)| value(name, count));
    let state = known("State", parts.join(", "));
    group(name, std::iter::once(state).chain(errors).collect::<Vec<_>>())
}
