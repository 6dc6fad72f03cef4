//! Product information of a device.

use crate::call::{Answer, reading};
use crate::code::Code;
use crate::device::Device;
use crate::session::{Opened, reported};
use crate::value::{number, part};
use gpu_core::{Absent, GspFirmware, Inforom, Product, Reading, Result};
use nvml_wrapper::enum_wrappers::device::InfoRom;
use std::ffi::{c_uint, c_ulong};

/// `NVML_AFFINITY_SCOPE_NODE`
const SCOPE_NODE: c_uint = 0;
/// The buffer size for all possible NUMA nodes of Linux (`MAX_NUMNODES`).
const NODE_WORDS: usize = 1024 / c_ulong::BITS as usize;

/// The brands by number (`nvmlBrandType_t`); 0 is unknown.
const BRANDS: [&str; 17] = [
    "",
    "Quadro",
    "Tesla",
    "NVS",
    "GRID",
    "GeForce",
    "Titan",
    "NVIDIA vApps",
    "NVIDIA VPC",
    "NVIDIA VCS",
    "NVIDIA VWS",
    "NVIDIA CloudGaming",
    "Quadro RTX",
    "NVIDIA RTX",
    "NVIDIA",
    "GeForce RTX",
    "Titan RTX",
];

/// The architectures by number (`nvmlDeviceArchitecture_t`), starting at 2.
const ARCHITECTURES: [&str; 9] = [
    "Kepler",
    "Maxwell",
    "Pascal",
    "Volta",
    "Turing",
    "Ampere",
    "Ada Lovelace",
    "Hopper",
    "Blackwell",
];

pub(super) fn product(nvml: Opened<'_>, device: Device<'_>) -> Result<Product> {
    let brand = device.query("nvmlDeviceGetBrand", "for its brand", |device| device.brand());
    let brand = named(&BRANDS, brand.map(|brand| brand.as_c()), 0)?;
    let architecture =
        device.query("nvmlDeviceGetArchitecture", "for its architecture", |device| {
            device.architecture()
        });
    let architecture = architecture.map(|architecture| architecture.as_c());
    let architecture = named(&ARCHITECTURES, architecture, 2)?;
    let serial = device.value("nvmlDeviceGetSerial", "for its serial number", |d| d.serial())?;
    let purpose = "for its part number";
    let part_number = device
        .value("nvmlDeviceGetBoardPartNumber", purpose, |device| device.board_part_number())?;
    let vbios = device
        .value("nvmlDeviceGetVbiosVersion", "for its VBIOS version", |d| d.vbios_version())?;
    let cores =
        device.value("nvmlDeviceGetNumGpuCores", "for its number of cores", |d| d.num_cores())?;
    let purpose = "for the width of its memory bus";
    let width = device.value("nvmlDeviceGetMemoryBusWidth", purpose, |d| d.memory_bus_width())?;
    Ok(Product {
        brand,
        architecture,
        serial: serial.and_then(reported),
        part_number: part_number.and_then(reported),
        vbios: vbios.and_then(reported),
        compute_capability: nvml.capability(device)?,
        cores: cores.and_then(number),
        memory_bus_width: width.and_then(number),
        numa_node: numa_node(device)?,
    })
}

pub(super) fn inforom(device: Device<'_>) -> Result<Inforom> {
    let purpose = "for its infoROM version";
    let image = device.value("nvmlDeviceGetInforomImageVersion", purpose, |device| {
        device.info_rom_image_version()
    })?;
    let object = |which| -> Result<Reading<String>> {
        let purpose = "for an infoROM object version";
        let version = device
            .query("nvmlDeviceGetInforomVersion", purpose, |device| device.info_rom_version(which));
        Ok(reading(version)?.and_then(reported))
    };
    let purpose = "for the checksums of its infoROM";
    let check =
        device.query("nvmlDeviceValidateInforom", purpose, |device| device.validate_info_rom());
    let valid = match check {
        Err(failure) if failure.is(Code::CORRUPTED_INFOROM) => Ok(false),
        answer => reading(answer)?.map(|()| true),
    };
    Ok(Inforom {
        image: image.and_then(reported),
        oem: object(InfoRom::OEM)?,
        ecc: object(InfoRom::ECC)?,
        power: object(InfoRom::Power)?,
        valid,
    })
}

pub(super) fn gsp_firmware(device: Device<'_>) -> Result<GspFirmware> {
    let purpose = "for its GSP firmware mode";
    let modes = device
        .value("nvmlDeviceGetGspFirmwareMode", purpose, |device| device.gsp_firmware_mode())?;
    Ok(GspFirmware {
        enabled: part(&modes, |modes| Ok(modes.enabled)),
        enabled_by_default: modes.map(|modes| modes.default),
    })
}

/// Returns the name of a number; `first` is the number of the first name. 0 and numbers newer than
/// nvml-wrapper or this program have no name.
fn named(names: &[&str], answer: Answer<u32>, first: u32) -> Result<Reading<String>> {
    let number = match answer {
        Err(failure) if failure.is_unknown_value() => return Ok(Err(Absent::NotFound)),
        answer => reading(answer)?,
    };
    Ok(number.and_then(|number| {
        let name = names.get(number.wrapping_sub(first) as usize).filter(|name| !name.is_empty());
        name.map(|name| (*name).to_owned()).ok_or(Absent::NotFound)
    }))
}

/// Returns the nearest NUMA node: the first one with memory affinity. `nvmlDeviceGetNumaNodeId`
/// reports another one: that of the device's own memory.
fn numa_node(device: Device<'_>) -> Result<Reading<u32>> {
    let near = device.query("nvmlDeviceGetMemoryAffinity", "for its NUMA node", |device| {
        device.memory_affinity(NODE_WORDS, SCOPE_NODE)
    });
    Ok(reading(near)?.and_then(|nodes| first_bit(&nodes).ok_or(Absent::NotFound)))
}

fn first_bit(words: &[c_ulong]) -> Option<u32> {
    let (at, word) = words.iter().enumerate().find(|(_, word)| **word != 0)?;
    Some(at as u32 * c_ulong::BITS + word.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_brand_numbers_have_no_name() {
        let read = |names, number, first| named(names, Ok(number), first).unwrap();
        assert_eq!(read(&BRANDS, 2, 0).unwrap(), "Tesla");
        assert_eq!(read(&BRANDS, 16, 0).unwrap(), "Titan RTX");
        assert_eq!(read(&ARCHITECTURES, 10, 2).unwrap(), "Blackwell");
        for number in [0, 17, u32::MAX] {
            assert_eq!(read(&BRANDS, number, 0), Err(Absent::NotFound));
        }
        // nvml-wrapper has no brand 18, and code 18 is a version mismatch.
        let newer = crate::call::Caller::default().call(
            "nvmlDeviceGetBrand",
            "for its brand",
            Some(0),
            || Err(nvml_wrapper::error::NvmlError::UnexpectedVariant(18)),
        );
        assert_eq!(named(&BRANDS, newer, 0).unwrap(), Err(Absent::NotFound));
    }

    #[test]
    fn nearest_numa_node_is_first_set_bit() {
        assert_eq!(first_bit(&[0, 0]), None);
        assert_eq!(first_bit(&[0b110, 1]), Some(1));
        assert_eq!(first_bit(&[0, 1]), Some(c_ulong::BITS));
    }
}
