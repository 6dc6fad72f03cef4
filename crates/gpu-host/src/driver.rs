//! The devices that kernel drivers list, without their libraries.
//!
//! `sleeping` and `may_sleep` read only attributes that the kernel keeps
//! (`Documentation/ABI/testing/sysfs-devices-power` of the kernel). A driver's own files may resume
//! a device to describe it, as NVIDIA's do.

use crate::files::unlisted;
use gpu_core::{DeviceId, DeviceInfo, KernelDriver, PciBusId, Result};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum number of bytes of a description: a dozen short lines.
const MAX: u64 = 4096;

/// Returns the devices that the drivers list, in the order of the drivers, and of PCI addresses for
/// each.
///
/// # Errors
/// `Io` when a list exists and cannot be read.
pub(crate) fn devices(
    proc: &Path,
    sys: &Path,
    drivers: &[Arc<dyn KernelDriver>],
) -> Result<Vec<DeviceInfo>> {
    let mut devices = Vec::new();
    for driver in drivers {
        let list = match driver.device_list() {
            Some(list) => proc.join(list),
            None => bound(sys, &**driver),
        };
        let described = |(bus, dir): (PciBusId, PathBuf)| {
            driver.listed_device(bus, &read(&dir.join("information")))
        };
        let listed = addresses(&list).map_err(|error| unlisted(&list, &error))?;
        devices.extend(listed.into_iter().map(described));
    }
    for (index, device) in (0..).zip(&mut devices) {
        device.id.index = index;
    }
    Ok(devices)
}

/// Returns the devices, in the order of [`devices`], if there are any and all of them are suspended.
pub(crate) fn sleeping(sys: &Path, drivers: &[Arc<dyn KernelDriver>]) -> Option<Vec<DeviceId>> {
    let devices = all_bound(sys, drivers);
    let is_suspended = |(_, dir): &(PciBusId, PathBuf)| says(dir, "runtime_status", "suspended");
    let all = !devices.is_empty() && devices.iter().all(is_suspended);
    let device = |(index, (bus, _))| DeviceId { bus: Ok(bus), ..DeviceId::from_index(index) };
    all.then(|| (0..).zip(devices).map(device).collect())
}

/// Returns whether the kernel may suspend an unused device of these drivers. A program that keeps
/// the driver open would prevent it.
pub fn may_sleep(sys: &Path, drivers: &[Arc<dyn KernelDriver>]) -> bool {
    all_bound(sys, drivers).iter().any(|(_, dir)| says(dir, "control", "auto"))
}

/// Returns the directories of all devices that these drivers drive.
fn all_bound(sys: &Path, drivers: &[Arc<dyn KernelDriver>]) -> Vec<(PciBusId, PathBuf)> {
    let of = |driver: &Arc<dyn KernelDriver>| addresses(&bound(sys, &**driver)).unwrap_or_default();
    drivers.iter().flat_map(of).collect()
}

/// Returns the directory in which sysfs links the devices of a driver.
fn bound(sys: &Path, driver: &dyn KernelDriver) -> PathBuf {
    sys.join("bus/pci/drivers").join(driver.name())
}

/// Returns the entries named by a PCI address, in the order of the addresses; none if the directory
/// does not exist.
fn addresses(dir: &Path) -> io::Result<Vec<(PciBusId, PathBuf)>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let bus = entry.file_name().to_str().and_then(|name| name.parse().ok());
        found.extend(bus.map(|bus| (bus, entry.path())));
    }
    found.sort_unstable();
    Ok(found)
}

fn says(device: &Path, attribute: &str, value: &str) -> bool {
    fs::read_to_string(device.join("power").join(attribute)).is_ok_and(|text| text.trim() == value)
}

/// Reads what is readable; a module that is being unloaded may return nothing.
fn read(path: &Path) -> String {
    let mut text = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MAX).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, DeviceKey, DeviceUuid, FileId, FileRole, HeldFile, Reading};
    use gpu_nvidia_driver::{NvidiaDriver, drivers};

    /// A driver of another vendor, which only sysfs lists.
    struct Other;

    impl KernelDriver for Other {
        fn name(&self) -> &'static str {
            "other"
        }
        fn describe(&self, _: &str, _: Reading<FileId>) -> Option<(FileRole, Option<DeviceKey>)> {
            None
        }
        fn find_memory_use(&self, _: &mut [HeldFile], _: &dyn Fn(u32) -> Option<String>) {}
    }

    fn both() -> [Arc<dyn KernelDriver>; 2] {
        [Arc::new(NvidiaDriver), Arc::new(Other)]
    }

    /// Creates a device of a driver with these power attributes.
    fn add(sys: &Path, device: &str, status: &str, control: &str) {
        let power = sys.join("bus/pci/drivers").join(device).join("power");
        fs::create_dir_all(&power).unwrap();
        fs::write(power.join("runtime_status"), format!("{status}\n")).unwrap();
        fs::write(power.join("control"), format!("{control}\n")).unwrap();
    }

    #[test]
    fn devices_are_listed_by_driver_and_bus() {
        let (proc, sys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listed = || devices(proc.path(), sys.path(), &both()).unwrap();
        assert_eq!(listed(), [], "no module");
        for (bus, text) in [
            ("0000:81:00.0", "Model: \t\t Unknown\nDevice Minor: \t ?\n"),
            ("0000:04:00.0", "GPU UUID: \t GPU-a\nDevice Minor: \t 3\n"),
            ("not-an-address", ""),
        ] {
            let dir = proc.path().join("driver/nvidia/gpus").join(bus);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("information"), text).unwrap();
        }
        add(sys.path(), "other/0000:03:00.0", "active", "on");
        let ids: Vec<DeviceId> = listed().into_iter().map(|device| device.id).collect();
        let order: Vec<_> = ids.iter().map(|id| (id.index, id.bus.unwrap().bus)).collect();
        assert_eq!(order, [(0, 0x04), (1, 0x81), (2, 0x03)]);
        assert_eq!((ids[0].minor(), &ids[0].uuid), (Ok(3), &Ok(DeviceUuid("GPU-a".into()))));
        let nodes = [Err(Absent::NotFound), Err(Absent::NotRecorded)];
        assert_eq!([ids[1].node, ids[2].node], nodes);
    }

    #[test]
    fn devices_sleep_only_if_all_of_them_are_suspended() {
        let sys = tempfile::tempdir().unwrap();
        let sys = sys.path();
        assert_eq!((sleeping(sys, &both()), may_sleep(sys, &both())), (None, false), "no module");
        add(sys, "nvidia/0000:c1:00.0", "suspended", "auto");
        fs::write(sys.join("bus/pci/drivers/nvidia/bind"), "").unwrap();
        add(sys, "nvidia/0000:04:00.0", "suspended", "auto");
        add(sys, "other/0000:03:00.0", "active", "on");
        let ids = sleeping(sys, &drivers()).unwrap();
        let named: Vec<_> = ids.iter().map(|id| (id.index, id.bus.unwrap().bus)).collect();
        assert_eq!(named, [(0, 0x04), (1, 0xc1)]);
        assert_eq!(sleeping(sys, &both()), None, "the other vendor's device is awake");
        add(sys, "other/0000:03:00.0", "suspended", "on");
        assert_eq!(sleeping(sys, &both()).unwrap().len(), 3);
        assert!(may_sleep(sys, &drivers()));
        for status in ["active", "resuming", "suspending", "unsupported", "error", ""] {
            add(sys, "nvidia/0000:04:00.0", status, "on");
            assert_eq!(sleeping(sys, &both()), None, "{status}");
        }
        assert!(may_sleep(sys, &both()));
        add(sys, "nvidia/0000:c1:00.0", "active", "on");
        assert!(!may_sleep(sys, &both()));
    }
}
