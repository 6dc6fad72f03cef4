//! What a device is.

use crate::call::{Answer, reading};
use crate::device::Device;
use crate::session::told;
use crate::value::{number, switch};
use gpu_core::{Absent, GspFirmware, Inforom, Product, Reading, Result};
use std::ffi::{c_uint, c_ulong};

/// `NVML_DEVICE_SERIAL_BUFFER_SIZE`
const SERIAL_SIZE: usize = 30;
/// `NVML_DEVICE_PART_NUMBER_BUFFER_SIZE`
const PART_NUMBER_SIZE: usize = 80;
/// `NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE`
const VBIOS_SIZE: usize = 32;
/// `NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE`
const INFOROM_SIZE: usize = 16;
/// Parts of the infoROM (`nvmlInforomObject_t`).
const OEM: u32 = 0;
const ECC: u32 = 1;
const POWER: u32 = 2;
/// `NVML_AFFINITY_SCOPE_NODE`
const SCOPE_NODE: c_uint = 0;
/// Room for as many NUMA nodes as Linux can have (`MAX_NUMNODES`).
const NODE_WORDS: usize = 1024 / c_ulong::BITS as usize;

/// The product lines by their numbers (`nvmlBrandType_t`), 0 being not known.
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

/// The architectures by their numbers (`nvmlDeviceArchitecture_t`), 2 being the first.
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

pub(super) fn product(device: Device<'_>) -> Result<Product> {
    let functions = &device.caller.functions;
    let text = |answer: Answer<String>| Ok(reading(answer)?.and_then(told));
    let brand = reading(device.get(&functions.nvmlDeviceGetBrand))?;
    let architecture = reading(device.get(&functions.nvmlDeviceGetArchitecture))?;
    let capability = reading(device.get_two(&functions.nvmlDeviceGetCudaComputeCapability))?;
    Ok(Product {
        brand: brand.and_then(|number| named(&BRANDS, number)),
        architecture: architecture.and_then(|number| named(&ARCHITECTURES, number.wrapping_sub(2))),
        serial: text(device.text::<SERIAL_SIZE>(&functions.nvmlDeviceGetSerial))?,
        part_number: text(
            device.text::<PART_NUMBER_SIZE>(&functions.nvmlDeviceGetBoardPartNumber),
        )?,
        vbios: text(device.text::<VBIOS_SIZE>(&functions.nvmlDeviceGetVbiosVersion))?,
        compute_capability: capability.and_then(|(major, minor): (i32, i32)| {
            let number = |part| u32::try_from(part).map_err(|_| Absent::Implausible);
            Ok((number(major)?, number(minor)?))
        }),
        cores: reading(device.get(&functions.nvmlDeviceGetNumGpuCores))?.and_then(number),
        memory_bus_width: reading(device.get(&functions.nvmlDeviceGetMemoryBusWidth))?
            .and_then(number),
        numa_node: numa_node(device)?,
    })
}

pub(super) fn inforom(device: Device<'_>) -> Result<Inforom> {
    let functions = &device.caller.functions;
    let image = device.text::<INFOROM_SIZE>(&functions.nvmlDeviceGetInforomImageVersion);
    let object = |which| -> Result<Reading<String>> {
        let function = &functions.nvmlDeviceGetInforomVersion;
        Ok(reading(device.pick_text::<INFOROM_SIZE>(function, which))?.and_then(told))
    };
    Ok(Inforom {
        image: reading(image)?.and_then(told),
        oem: object(OEM)?,
        ecc: object(ECC)?,
        power: object(POWER)?,
    })
}

pub(super) fn gsp_firmware(device: Device<'_>) -> Result<GspFirmware> {
    let modes = reading(device.get_two(&device.caller.functions.nvmlDeviceGetGspFirmwareMode))?;
    Ok(GspFirmware {
        enabled: modes.and_then(|(enabled, _): (u32, u32)| switch(enabled)),
        enabled_by_default: modes.and_then(|(_, by_default)| switch(by_default)),
    })
}

/// Returns the name with a number. The driver has none for a number of 0, and this program none for
/// one of a later time.
fn named(names: &[&str], number: u32) -> Reading<String> {
    let name = names.get(number as usize).filter(|name| !name.is_empty());
    name.map(|name| (*name).to_owned()).ok_or(Absent::NotFound)
}

/// Returns the nearest node: the first whose memory the driver says to be near. Where it does not
/// tell that, it may tell of which node the device is.
fn numa_node(device: Device<'_>) -> Result<Reading<u32>> {
    let functions = &device.caller.functions;
    let mut nodes: [c_ulong; NODE_WORDS] = [0; NODE_WORDS];
    // SAFETY: the set has as many words as is told.
    let answer = device.call(&functions.nvmlDeviceGetMemoryAffinity, |f, handle| unsafe {
        f(handle, NODE_WORDS as c_uint, nodes.as_mut_ptr(), SCOPE_NODE)
    });
    match reading(answer)?.and_then(|()| first_bit(&nodes).ok_or(Absent::NotFound)) {
        Ok(node) => Ok(Ok(node)),
        Err(reason) => {
            let own = reading(device.get(&functions.nvmlDeviceGetNumaNodeId))?;
            Ok(own.and_then(number).map_err(|_| reason))
        }
    }
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
        assert_eq!(named(&BRANDS, 2).unwrap(), "Tesla");
        assert_eq!(named(&BRANDS, 16).unwrap(), "Titan RTX");
        assert_eq!(named(&ARCHITECTURES, 10 - 2).unwrap(), "Blackwell");
        for number in [0, 17, u32::MAX] {
            assert_eq!(named(&BRANDS, number), Err(Absent::NotFound));
        }
    }

    #[test]
    fn nearest_numa_node_is_first_set_bit() {
        assert_eq!(first_bit(&[0, 0]), None);
        assert_eq!(first_bit(&[0b110, 1]), Some(1));
        assert_eq!(first_bit(&[0, 1]), Some(c_ulong::BITS));
    }
}
