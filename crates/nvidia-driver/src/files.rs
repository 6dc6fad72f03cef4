//! The device files of the driver.

use crate::information;
use crate::log::{PREFIXES, parse_message};
use crate::node::{MAJOR, node, number_of};
use crate::xid;
use gpu_core::{
    Access, DeviceFile, DeviceInfo, DeviceKey, DriverError, DriverMessage, FileId, FileRole,
    HeldFile, KernelDriver, MemoryUse, PciBusId, Reading, Timestamp,
};
use std::sync::Arc;

/// The minor numbers of the two files that do not belong to a device.
const CONTROL: u32 = 255;
const MODESET: u32 = 254;

/// Returns the files of this driver, as adapters take those of all drivers.
pub fn drivers() -> Arc<[Arc<dyn KernelDriver>]> {
    Arc::new([Arc::new(NvidiaDriver)])
}

/// Returns the device file at a path, by its name and, for `/dev/nvidiaN`, its number.
pub fn device_file(path: &str, id: Reading<FileId>) -> DeviceFile {
    DeviceFile::any(path.into(), id).described_by(&NvidiaDriver)
}

/// Returns a file to which a process has this access, by its name alone.
pub fn held_file(path: &str, access: Access) -> HeldFile {
    let file = device_file(path, Err(gpu_core::Absent::NotRecorded));
    HeldFile::of(&file, access, Vec::new())
}

/// Returns files to which a process has this access, by their names alone, with the evidence of
/// memory use and without descriptors.
pub fn held_files<'a>(files: impl IntoIterator<Item = (&'a str, Access)>) -> Vec<HeldFile> {
    let mut held: Vec<HeldFile> =
        files.into_iter().map(|(path, access)| held_file(path, access)).collect();
    NvidiaDriver.find_memory_use(&mut held, &|_| None);
    held
}

/// NVIDIA's kernel driver.
///
/// A device has one file, `/dev/nvidiaN`. sysfs does not connect it with the PCI address, so it is
/// known by its number, which NVML and `/proc/driver/nvidia` report.
///
/// A CUDA program opens every device that it sees, and computes on some. A mapping of the device
/// proves that the process uses its memory; open unified memory (`/dev/nvidia-uvm`) makes that
/// possible on each open device. A monitor has neither.
#[derive(Clone, Copy, Debug, Default)]
pub struct NvidiaDriver;

impl KernelDriver for NvidiaDriver {
    fn name(&self) -> &'static str {
        "nvidia"
    }

    fn device_list(&self) -> Option<&'static str> {
        Some("driver/nvidia/gpus")
    }

    fn listed_device(&self, bus: PciBusId, information: &str) -> DeviceInfo {
        information::device(bus, information)
    }

    fn directories(&self) -> &'static [&'static str] {
        &["nvidia-caps"]
    }

    fn shared(&self) -> &'static [&'static str] {
        &["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"]
    }

    fn describe(&self, path: &str, id: Reading<FileId>) -> Option<(FileRole, Option<DeviceKey>)> {
        let role = match path.rsplit('/').next().unwrap_or(path) {
            _ if path.contains("/nvidia-caps/") => FileRole::Capability,
            "nvidiactl" => FileRole::Control,
            "nvidia-uvm" => FileRole::Memory,
            "nvidia-uvm-tools" => FileRole::Tools,
            "nvidia-modeset" => FileRole::Display,
            _ => {
                // The number takes precedence over the name: a node called `nvidia0` can be that of
                // another device, and its holders must not be attributed to device 0.
                let number = match (number_of(path)?, id) {
                    (_, Ok(FileId::Device { major: MAJOR, minor })) => minor,
                    (_, Ok(FileId::Device { .. })) => return None,
                    (named, _) => named,
                };
                return Some(match number {
                    CONTROL => (FileRole::Control, None),
                    MODESET => (FileRole::Display, None),
                    number => (FileRole::Compute, Some(DeviceKey::Node(node(number)))),
                });
            }
        };
        Some((role, None))
    }

    fn log_prefixes(&self) -> &'static [&'static str] {
        PREFIXES
    }

    fn log_message(&self, text: &str, at: Timestamp) -> Option<DriverMessage> {
        parse_message(text, at)
    }

    fn explain(&self, message: &DriverMessage) -> Option<DriverError> {
        xid::error(&message.code, &message.text)
    }

    fn find_memory_use(&self, held: &mut [HeldFile], _: &dyn Fn(u32) -> Option<String>) {
        let shares_memory = held.iter().any(|file| file.role == FileRole::Memory);
        let mapped: Vec<DeviceKey> = held
            .iter()
            .filter(|file| file.access.contains(Access::MAPPED))
            .filter_map(|file| file.device)
            .collect();
        let is_own = |file: &&mut HeldFile| {
            let has_number =
                matches!(file.device, Some(DeviceKey::Node(FileId::Device { major: MAJOR, .. })));
            file.role == FileRole::Compute && (has_number || number_of(&file.path).is_some())
        };
        for file in held.iter_mut().filter(is_own) {
            file.memory = match file.device {
                // The process may have a device through two of its nodes, and have mapped one of
                // them.
                Some(device) if mapped.contains(&device) => MemoryUse::Certain(None),
                Some(_) if shares_memory => MemoryUse::Possible,
                _ => MemoryUse::None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Absent;

    #[test]
    fn role_and_device_follow_from_name() {
        use FileRole::*;
        for (path, role, number) in [
            ("/dev/nvidia0", Compute, Some(0)),
            ("/dev/nvidia17", Compute, Some(17)),
            ("/dev/nvidiactl", Control, None),
            ("/dev/nvidia-uvm", Memory, None),
            ("/dev/nvidia-uvm-tools", Tools, None),
            ("/dev/nvidia-modeset", Display, None),
            ("/dev/nvidia-caps/nvidia-cap1", Capability, None),
        ] {
            let known = NvidiaDriver.describe(path, Err(Absent::NotRecorded));
            assert_eq!(known, Some((role, number.map(|n| DeviceKey::Node(node(n))))), "{path}");
        }
        for path in ["/dev/nvidia", "/dev/nvidia1x", "/dev/null", "/dev/dri/renderD128"] {
            assert_eq!(NvidiaDriver.describe(path, Err(Absent::NotRecorded)), None, "{path}");
        }
    }

    #[test]
    fn device_number_takes_precedence_over_name() {
        let known = |major, minor| {
            NvidiaDriver.describe("/dev/nvidia0", Ok(FileId::Device { major, minor }))
        };
        assert_eq!(known(195, 3), Some((FileRole::Compute, Some(DeviceKey::Node(node(3))))));
        assert_eq!(known(195, 253), Some((FileRole::Compute, Some(DeviceKey::Node(node(253))))));
        assert_eq!(known(195, 255), Some((FileRole::Control, None)));
        assert_eq!(known(195, 254), Some((FileRole::Display, None)));
        assert_eq!(known(1, 7), None, "another driver's device, whatever its name");
        let stand_in = NvidiaDriver.describe("/x/nvidia4", Ok(FileId::Inode { dev: 1, ino: 2 }));
        assert_eq!(stand_in, Some((FileRole::Compute, Some(DeviceKey::Node(node(4))))));
    }

    #[test]
    fn mapping_proves_memory_use_and_uvm_makes_it_possible() {
        use MemoryUse::{None, Possible};
        const CERTAIN: MemoryUse = MemoryUse::Certain(Option::None);
        let (open, mapped) = (Access::OPEN_FOR_WRITING, Access::OPEN | Access::MAPPED);
        for (files, on_0, on_1) in [
            (&[("/dev/nvidia0", open), ("/dev/nvidiactl", open)][..], None, None),
            (&[("/dev/nvidia0", mapped)], CERTAIN, None),
            (&[("/dev/nvidia0", open), ("/dev/nvidia-uvm", open)], Possible, None),
            (&[("/dev/nvidia1", mapped), ("/dev/nvidia-uvm", open)], None, CERTAIN),
            (&[("/dev/nvidia0", open), ("/dev/nvidia1", mapped)], None, CERTAIN),
            (&[("/dev/nvidia0", open), ("/container/nvidia0", mapped)], CERTAIN, None),
        ] {
            let held = held_files(files.iter().copied());
            let on = |number| {
                let device = Some(DeviceKey::Node(node(number)));
                held.iter().filter(|file| file.device == device).map(|file| file.memory).max()
            };
            assert_eq!(on(0).unwrap_or_default(), on_0, "{files:?}");
            assert_eq!(on(1).unwrap_or_default(), on_1, "{files:?}");
        }
    }
}
