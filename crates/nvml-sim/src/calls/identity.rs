//! The identity of a device.

use crate::code::Code;
use crate::entry::exports;
use crate::layout::{PciInfo1, PciInfo2, PciInfo3, PciInfoExt1, field_text};
use crate::pointer::{Out, Versioned, put_all};
use crate::view::Subject;
use gpu_core::{Absent, MemoryKind, PciBusId, Reading};
use std::ffi::{c_char, c_int, c_uint, c_ulong};

/// Product lines by their numbers (`nvmlBrandType_t`).
const BRANDS: &[(&str, c_uint)] = &[
    ("Quadro", 1),
    ("Tesla", 2),
    ("NVS", 3),
    ("GRID", 4),
    ("GeForce", 5),
    ("Titan", 6),
    ("Quadro RTX", 12),
    ("NVIDIA RTX", 13),
    ("NVIDIA", 14),
    ("GeForce RTX", 15),
    ("Titan RTX", 16),
];
/// A guest with a virtual GPU (`nvmlGpuVirtualizationMode_t`).
const GUEST: c_uint = 2;
/// The driver model of Windows (`nvmlDriverModel_t`).
const WDDM: c_uint = 0;
const BRAND_UNKNOWN: c_uint = 0;

/// Architectures by their numbers (`NVML_DEVICE_ARCH_*`).
const ARCHITECTURES: &[(&str, c_uint)] = &[
    ("Kepler", 2),
    ("Maxwell", 3),
    ("Pascal", 4),
    ("Volta", 5),
    ("Turing", 6),
    ("Ampere", 7),
    ("Ada", 8),
    ("Hopper", 9),
    ("Blackwell", 10),
];
const ARCHITECTURE_UNKNOWN: c_uint = c_uint::MAX;

/// Returns the number of a name, ignoring case.
fn number(names: &[(&str, c_uint)], name: &str) -> Option<c_uint> {
    let found = names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, number)| *number)
}

/// Returns the text of a reading.
pub(super) fn text(reading: &Reading<String>) -> Result<&str, Absent> {
    reading.as_deref().map_err(|absent| *absent)
}

fn bus(subject: Subject<'_>) -> Result<PciBusId, Absent> {
    subject.state.info.id.bus
}

/// Returns the PCI IDs of device and board; zero if the machine does not report them, as for a
/// device that does not respond.
fn pci_ids(subject: Subject<'_>) -> (c_uint, c_uint) {
    let pcie = subject.pcie().ok();
    let id = |of: fn(&gpu_core::Pcie) -> Reading<u32>| pcie.and_then(|pcie| of(pcie).ok());
    (id(|pcie| pcie.device_id).unwrap_or(0), id(|pcie| pcie.subsystem_id).unwrap_or(0))
}

/// Returns an address with a four-digit domain, as the first versions print it.
fn legacy(bus: PciBusId) -> String {
    format!("{:04X}:{:02X}:{:02X}.{:X}", bus.domain & 0xffff, bus.bus, bus.device, bus.function)
}

/// Returns an address, with the IDs of device and board.
pub(super) fn pci_info(bus: PciBusId, (device_id, subsystem_id): (c_uint, c_uint)) -> PciInfo3 {
    PciInfo3 {
        bus_id_legacy: field_text(&legacy(bus)),
        domain: bus.domain,
        bus: bus.bus.into(),
        device: bus.device.into(),
        pci_device_id: device_id,
        pci_sub_system_id: subsystem_id,
        bus_id: field_text(&bus.to_string()),
    }
}

exports! {
    named [nvmlDeviceGetIndex](index: Out<c_uint>) |subject| {
        index.put(subject.mig.map_or(subject.index(), |mig| mig.index))
    }

    named [nvmlDeviceGetMinorNumber](minor: Out<c_uint>) |subject| {
        if subject.mig.is_some() {
            return Err(Code::NOT_SUPPORTED);
        }
        minor.put(subject.state.info.id.minor()?)
    }

    named [nvmlDeviceGetPciInfo_v3](pci: Out<PciInfo3>) |subject| {
        pci.put(pci_info(bus(subject)?, pci_ids(subject)))
    }

    named [nvmlDeviceGetPciInfo_v2](pci: Out<PciInfo2>) |subject| {
        let bus = bus(subject)?;
        let (device_id, subsystem_id) = pci_ids(subject);
        pci.put(PciInfo2 {
            bus_id: field_text(&legacy(bus)),
            domain: bus.domain,
            bus: bus.bus.into(),
            device: bus.device.into(),
            pci_device_id: device_id,
            pci_sub_system_id: subsystem_id,
            reserved: [0; 4],
        })
    }

    named [nvmlDeviceGetPciInfo](pci: Out<PciInfo1>) |subject| {
        let bus = bus(subject)?;
        pci.put(PciInfo1 {
            bus_id: field_text(&legacy(bus)),
            domain: bus.domain,
            bus: bus.bus.into(),
            device: bus.device.into(),
            pci_device_id: pci_ids(subject).0,
        })
    }

    gpu [nvmlDeviceGetPciInfoExt](pci: Out<PciInfoExt1>) |gpu| {
        pci.check_version()?;
        let info = pci_info(bus(gpu)?, pci_ids(gpu));
        let pcie = gpu.pcie()?;
        pci.put(PciInfoExt1 {
            version: PciInfoExt1::VERSION,
            domain: info.domain,
            bus: info.bus,
            device: info.device,
            pci_device_id: info.pci_device_id,
            pci_sub_system_id: info.pci_sub_system_id,
            base_class: pcie.base_class?,
            sub_class: pcie.sub_class?,
            bus_id: info.bus_id,
        })
    }

    device [nvmlDeviceGetName](name: Out<c_char>, length: c_uint) |subject| {
        let device = text(&subject.state.info.name)?;
        match subject.mig.and_then(|mig| mig.profile.as_ref().ok()) {
            Some(profile) => name.put_text(length, &format!("{device} MIG {profile}")),
            None => name.put_text(length, device),
        }
    }

    device [nvmlDeviceGetUUID](uuid: Out<c_char>, length: c_uint) |subject| {
        uuid.put_text(length, &subject.uuid()?)
    }

    device [nvmlDeviceGetSerial](serial: Out<c_char>, length: c_uint) |subject| {
        serial.put_text(length, text(&subject.product()?.serial)?)
    }

    device [nvmlDeviceGetBoardPartNumber](number: Out<c_char>, length: c_uint) |subject| {
        number.put_text(length, text(&subject.product()?.part_number)?)
    }

    device [nvmlDeviceGetVbiosVersion](version: Out<c_char>, length: c_uint) |subject| {
        version.put_text(length, text(&subject.product()?.vbios)?)
    }

    gpu [nvmlDeviceGetInforomImageVersion](version: Out<c_char>, length: c_uint) |gpu| {
        version.put_text(length, text(&gpu.inforom()?.image)?)
    }

    gpu [nvmlDeviceGetInforomVersion](object: c_uint, version: Out<c_char>, length: c_uint) |gpu| {
        let inforom = gpu.inforom()?;
        let reported = match object {
            0 => &inforom.oem,
            1 => &inforom.ecc,
            2 => &inforom.power,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        version.put_text(length, text(reported)?)
    }

    gpu [nvmlDeviceValidateInforom]() |gpu| {
        if gpu.inforom()?.valid? { Ok(()) } else { Err(Code::CORRUPTED_INFOROM) }
    }

    gpu [nvmlDeviceGetGspFirmwareMode](enabled: Out<c_uint>, by_default: Out<c_uint>) |gpu| {
        let firmware = gpu.gsp_firmware()?;
        put_all([
            (enabled, firmware.enabled?.into()),
            (by_default, firmware.enabled_by_default?.into()),
        ])
    }

    device [nvmlDeviceGetBrand](brand: Out<c_uint>) |subject| {
        let name = text(&subject.product()?.brand)?;
        brand.put(number(BRANDS, name).unwrap_or(BRAND_UNKNOWN))
    }

    device [nvmlDeviceGetArchitecture](architecture: Out<c_uint>) |subject| {
        let name = text(&subject.product()?.architecture)?;
        // Matches 'Ada Lovelace' (nvidia-smi) and 'Ada' (other tools).
        let first = name.split_whitespace().next().unwrap_or_default();
        architecture.put(number(ARCHITECTURES, first).unwrap_or(ARCHITECTURE_UNKNOWN))
    }

    device [nvmlDeviceGetCudaComputeCapability](major: Out<c_int>, minor: Out<c_int>) |subject| {
        let (of_major, of_minor) = subject.product()?.compute_capability?;
        let number = |part| c_int::try_from(part).map_err(|_| Code::UNKNOWN);
        put_all([(major, number(of_major)?), (minor, number(of_minor)?)])
    }

    gpu [nvmlDeviceGetNumGpuCores](cores: Out<c_uint>) |gpu| {
        cores.put(gpu.product()?.cores?)
    }

    gpu [nvmlDeviceGetMemoryBusWidth](bits: Out<c_uint>) |gpu| {
        bits.put(gpu.product()?.memory_bus_width?)
    }

    gpu [nvmlDeviceGetNumaNodeId](node: Out<c_uint>) |gpu| {
        match gpu.sample()?.source.kind {
            MemoryKind::NumaNode(Some(own)) => node.put(own),
            // The machine does not say whether it is one.
            MemoryKind::NumaNode(None) => Err(Code::UNKNOWN),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    gpu [nvmlDeviceGetMemoryAffinity](words: c_uint, nodes: Out<c_ulong>, _scope: c_uint) |gpu| {
        let node = gpu.product()?.numa_node?;
        let (at, bit) = (node / c_ulong::BITS, node % c_ulong::BITS);
        if at >= words {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        (0..words).try_for_each(|word| {
            nodes.put_at(word as usize, if word == at { 1 << bit } else { 0 })
        })
    }

    gpu [nvmlDeviceGetVirtualizationMode](mode: Out<c_uint>) |gpu| {
        match gpu.sample()?.source.kind {
            MemoryKind::VirtualGpu => mode.put(GUEST),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    gpu [nvmlDeviceGetDriverModel](current: Out<c_uint>, pending: Out<c_uint>) |gpu| {
        match gpu.sample()?.source.kind {
            MemoryKind::Wddm => put_all([(current, WDDM), (pending, WDDM)]),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}
