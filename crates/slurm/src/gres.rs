//! The devices of a node, as `slurmd -G` lists them.

use gpu_core::{Absent, DeviceFile, DeviceKey, KernelDriver};
use std::sync::Arc;

/// The most devices that are read; more than any node has.
const DEVICES: usize = 1024;

/// A GPU of a node, as Slurm counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDevice {
    /// Its position in the list, from 0: the meaning of `SLURM_JOB_GPUS` and `IDX` since Slurm
    /// 21.08 (`src/plugins/gres/common/gres_common.c`).
    pub position: u32,
    /// Its device file, such as `/dev/nvidia2`; for a partition, the file of the whole GPU.
    pub path: Arc<str>,
}

/// Returns the GPUs of these drivers in the output of `slurmd -G`, in Slurm's order.
///
/// `Index` in that output is the number in the name of the file, and not the position. A GPU
/// without such a file, of another driver or only counted, takes its position and is left out.
pub fn devices(text: &str, drivers: &[Arc<dyn KernelDriver>]) -> Vec<NodeDevice> {
    let mut found = Vec::new();
    let mut position: u32 = 0;
    for line in text.lines() {
        let Some((_, gres)) = line.split_once("Gres Name=gpu ") else { continue };
        let value = |key: &str| {
            let mut words = gres.split_ascii_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let count = value("Count").and_then(|count| count.parse().ok()).unwrap_or(1);
        let file = value("File").and_then(|files| files.split(',').next());
        if let Some(path) = file
            && device_of(path, drivers).is_some()
            && found.len() < DEVICES
        {
            found.push(NodeDevice { position, path: path.into() });
        }
        position = position.saturating_add(count);
    }
    found
}

/// Returns the device that a file belongs to, by its name.
pub fn device_of(path: &str, drivers: &[Arc<dyn KernelDriver>]) -> Option<DeviceKey> {
    drivers.iter().find_map(|driver| driver.describe(path, Err(Absent::NotRecorded))?.1)
}

/// Returns the device files to search for: those of the GPUs, and those that programs open in
/// addition. `resolve` returns a file, if it exists.
pub fn device_files(
    devices: &[NodeDevice],
    drivers: &[Arc<dyn KernelDriver>],
    resolve: &dyn Fn(&str) -> Option<DeviceFile>,
) -> Vec<DeviceFile> {
    let mut paths: Vec<String> = devices.iter().map(|device| device.path.to_string()).collect();
    for device in devices {
        let Some((dir, _)) = device.path.rsplit_once('/') else { continue };
        let shared = drivers.iter().flat_map(|driver| driver.shared());
        paths.extend(shared.map(|name| format!("{dir}/{name}")));
    }
    paths.sort_unstable();
    paths.dedup();
    let files = paths.iter().filter_map(|path| resolve(path));
    let described =
        |file: DeviceFile| drivers.iter().fold(file, |file, driver| file.described_by(&**driver));
    files.map(described).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_nvidia_driver::{drivers, number_of};

    fn list(text: &str) -> Vec<(u32, u32)> {
        let devices = devices(text, &drivers());
        devices.iter().map(|device| (device.position, number_of(&device.path).unwrap())).collect()
    }

    #[test]
    fn position_is_list_index_not_file_number() {
        // Slurm 22.05.8 with `File=/dev/nvidia[2-3]` before `File=/dev/nvidia[0-1]`.
        let text = "\
slurmd: Gres Name=gpu Type=(null) Count=1 Index=2 ID=7696487 File=/dev/nvidia2 (null)
slurmd: Gres Name=gpu Type=(null) Count=1 Index=3 ID=7696487 File=/dev/nvidia3 (null)
slurmd: Gres Name=shard Type=p100 Count=2 Index=2 ID=1918986455 File=/dev/nvidia2 (null)
slurmd: Gres Name=gpu Type=(null) Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Links=-1,2 (null)
slurmd: Gres Name=gpu Type=a Count=1 Index=1 ID=7696487 File=/dev/nvidia1 Cores=0-3 CoreCnt=8";
        assert_eq!(list(text), [(0, 2), (1, 3), (2, 0), (3, 1)]);
        assert_eq!(&*devices(text, &drivers())[2].path, "/dev/nvidia0");
    }

    #[test]
    fn mig_device_maps_to_its_gpu_and_others_keep_position() {
        let mig = "Gres Name=gpu Count=1 Index=0 File=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap21\n\
                   Gres Name=gpu Count=1 Index=1 File=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap30\n";
        assert_eq!(list(mig), [(0, 1), (1, 1)]);
        let mixed = "Gres Name=gpu Count=2 Index=0 ID=1\n\
                     Gres Name=gpu Count=1 File=/dev/dri/renderD128\n\
                     Gres Name=gpu Count=1 File=/dev/nvidia0";
        assert_eq!(list(mixed), [(3, 0)]);
    }

    #[test]
    fn hostile_text_names_no_device_and_does_not_panic() {
        for text in [
            "",
            "Gres Name=gpu ",
            "Gres Name=gpu Count=99999999999999999999 File=/dev/nvidia",
            "Gres Name=gpu Count=-1 File=\u{0}",
            "Gres Name=gpux Count=1 File=/dev/nvidia0",
            "Name=gpu File=/dev/nvidia0",
        ] {
            assert_eq!(list(text), [], "{text:?}");
        }
        let many = "Gres Name=gpu Count=4294967295 File=/dev/nvidia0\n".repeat(5000);
        assert_eq!(devices(&many, &drivers()).len(), DEVICES);
    }

    #[test]
    fn additional_device_files_are_searched() {
        let text = "Gres Name=gpu Count=1 File=/x/nvidia0\nGres Name=gpu File=/x/nvidia1";
        let node = devices(text, &drivers());
        let resolve = |path: &str| {
            (path != "/x/nvidia-modeset")
                .then(|| DeviceFile::any(path.into(), Err(Absent::NotRecorded)))
        };
        let files = device_files(&node, &drivers(), &resolve);
        let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
        let expected =
            ["/x/nvidia-uvm", "/x/nvidia-uvm-tools", "/x/nvidia0", "/x/nvidia1", "/x/nvidiactl"];
        assert_eq!(paths, expected);
    }
}
