//! Which GPUs the kernel has suspended (`Documentation/ABI/testing/sysfs-devices-power` of the
//! kernel).
//!
//! Only attributes that the kernel keeps are read. NVIDIA's own files in `/proc/driver/nvidia` are
//! not: its module resumes a GPU to print its `information`.

use gpu_core::{DeviceId, PciBusId};
use std::fs;
use std::path::{Path, PathBuf};

/// The GPUs of NVIDIA's kernel module, with their directories, in the order of NVML.
fn gpus(sys: &Path) -> Vec<(PciBusId, PathBuf)> {
    let Ok(entries) = fs::read_dir(sys.join("bus/pci/drivers/nvidia")) else { return Vec::new() };
    let gpu = |entry: fs::DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()));
    let mut gpus: Vec<_> = entries.flatten().filter_map(gpu).collect();
    gpus.sort_unstable();
    gpus
}

fn says(gpu: &Path, attribute: &str, value: &str) -> bool {
    fs::read_to_string(gpu.join("power").join(attribute)).is_ok_and(|text| text.trim() == value)
}

/// Returns the GPUs if there are any and all of them are suspended.
pub(crate) fn sleeping(sys: &Path) -> Option<Vec<DeviceId>> {
    let gpus = gpus(sys);
    let all =
        !gpus.is_empty() && gpus.iter().all(|(_, gpu)| says(gpu, "runtime_status", "suspended"));
    let device = |(index, (bus, _))| DeviceId { bus: Ok(bus), ..DeviceId::from_index(index) };
    all.then(|| (0..).zip(gpus).map(device).collect())
}

/// Returns whether the kernel may suspend an unused GPU. A program that keeps the driver open would
/// prevent it.
pub fn may_sleep(sys: &Path) -> bool {
    gpus(sys).iter().any(|(_, gpu)| says(gpu, "control", "auto"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a GPU with these power attributes.
    fn add(sys: &Path, bus: &str, status: &str, control: &str) {
        let power = sys.join("bus/pci/drivers/nvidia").join(bus).join("power");
        fs::create_dir_all(&power).unwrap();
        fs::write(power.join("runtime_status"), format!("{status}\n")).unwrap();
        fs::write(power.join("control"), format!("{control}\n")).unwrap();
    }

    #[test]
    fn gpus_sleep_only_if_all_of_them_are_suspended() {
        let sys = tempfile::tempdir().unwrap();
        let sys = sys.path();
        assert_eq!((sleeping(sys), may_sleep(sys)), (None, false), "no module");
        add(sys, "0000:c1:00.0", "suspended", "auto");
        fs::write(sys.join("bus/pci/drivers/nvidia/bind"), "").unwrap();
        add(sys, "0000:04:00.0", "suspended", "auto");
        let ids = sleeping(sys).unwrap();
        let named: Vec<_> = ids.iter().map(|id| (id.index, id.bus.unwrap().bus)).collect();
        assert_eq!(named, [(0, 0x04), (1, 0xc1)]);
        assert!(may_sleep(sys));
        for status in ["active", "resuming", "suspending", "unsupported", "error", ""] {
            add(sys, "0000:04:00.0", status, "on");
            assert_eq!(sleeping(sys), None, "{status}");
        }
        assert!(may_sleep(sys));
        add(sys, "0000:c1:00.0", "active", "on");
        assert!(!may_sleep(sys));
    }
}
