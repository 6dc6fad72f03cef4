//! The devices that NVIDIA's kernel module lists in `/proc/driver/nvidia`, without its library.

use crate::files::unlisted;
use gpu_core::{Absent, DeviceId, DeviceInfo, DeviceUuid, FileId, PciBusId, Result};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The major number of `/dev/nvidiaN` (Linux `devices.txt`).
const NVIDIA_MAJOR: u32 = 195;

/// Larger than any `information` file: a dozen short lines.
const MAX: u64 = 4096;

/// Returns the devices below `proc`, in the order of their PCI addresses, which is NVML's; none
/// without the module.
///
/// # Errors
/// `Io` when the module's directory cannot be listed.
pub(crate) fn devices(proc: &Path) -> Result<Vec<DeviceInfo>> {
    let dir = proc.join("driver/nvidia/gpus");
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| unlisted(&dir, &error))?,
    };
    let mut devices = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unlisted(&dir, &error))?;
        let name = entry.file_name();
        let Some(bus) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        devices.push(device(bus, &read(&entry.path().join("information"))));
    }
    devices.sort_by_key(|device: &DeviceInfo| device.id.bus.ok());
    for (index, device) in (0..).zip(&mut devices) {
        device.id.index = index;
    }
    Ok(devices)
}

/// Reads what is readable; a module that is being unloaded may return nothing.
fn read(path: &Path) -> String {
    let mut text = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MAX).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// Parses lines such as `Device Minor: \t 0`; a question mark stands for an unknown value.
fn device(bus: PciBusId, information: &str) -> DeviceInfo {
    let value = |name: &str| {
        let lines = information.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        values.next().filter(|value| !value.is_empty() && !value.contains('?'))
    };
    let reported = |name: &str| value(name).ok_or(Absent::NotFound);
    let id = DeviceId {
        uuid: reported("GPU UUID").map(|uuid| DeviceUuid(uuid.to_owned())),
        index: 0,
        node: reported("Device Minor").and_then(|minor| {
            let minor = minor.parse().map_err(|_| Absent::Implausible)?;
            Ok(FileId::Device { major: NVIDIA_MAJOR, minor })
        }),
        bus: Ok(bus),
    };
    DeviceInfo { name: reported("Model").map(str::to_owned), ..DeviceInfo::unknown(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_driver_dirs_become_devices_in_bus_order() {
        let proc = tempfile::tempdir().unwrap();
        for (bus, text) in [
            ("0000:81:00.0", "Model: \t\t Unknown\nDevice Minor: \t ?\n"),
            (
                "0000:04:00.0",
                "Model: \t\t Tesla P100-PCIE-16GB\nGPU UUID: \t GPU-a\nDevice Minor: \t 3\n",
            ),
            ("not-an-address", ""),
        ] {
            let dir = proc.path().join("driver/nvidia/gpus").join(bus);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("information"), text).unwrap();
        }
        let devices = devices(proc.path()).unwrap();
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[0].id.index, 0);
        assert_eq!(devices[0].id.minor(), Ok(3));
        assert_eq!(devices[0].id.uuid, Ok(DeviceUuid("GPU-a".into())));
        assert_eq!(devices[0].name.as_deref(), Ok("Tesla P100-PCIE-16GB"));
        assert_eq!((devices[1].id.index, devices[1].id.minor()), (1, Err(Absent::NotFound)));
    }

    #[test]
    fn missing_kernel_module_means_no_devices() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(devices(proc.path()).unwrap(), []);
    }
}
