//! The device files of GPUs, and any file given by a caller.

use crate::fault;
use crate::file_index::file_id;
use crate::proc_dir::identify;
use gpu_core::{Absent, DeviceFile, DeviceKey, FileId, FileRole, KernelDriver, Result};
use rustix::fs::CWD;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Major number of graphics nodes (`DRM_MAJOR` of the kernel's drm_drv.h), for any driver.
const DRM_MAJOR: u32 = 226;

/// The drivers whose device files are known.
pub(crate) type Drivers = Arc<[Arc<dyn KernelDriver>]>;

/// Returns any file, for use with [`DeviceFiles::holders`](gpu_core::DeviceFiles::holders), in no
/// driver's role.
///
/// Symbolic links are followed. A character device is compared by its number, so every node of it
/// counts. The name of a bound socket is not the socket: its holders are not found.
///
/// # Errors
/// `Io` when it does not exist or cannot be reached.
pub fn resolve(path: impl AsRef<Path>) -> Result<DeviceFile> {
    let path = path.as_ref();
    let text = path.to_string_lossy();
    let stat = identify(CWD.as_fd(), path)
        .map_err(|errno| fault::file(format!("inspect '{text}'"), errno))?;
    Ok(DeviceFile::any(text.into(), Ok(file_id(&stat))))
}

/// Returns the GPU device files below `dev`, by role and device.
///
/// A graphics node counts only if `sys` shows that one of the drivers is behind it.
///
/// # Errors
/// `Io` when `dev` cannot be listed.
pub(crate) fn device_files(
    dev: &Path,
    sys: &Path,
    drivers: &[Arc<dyn KernelDriver>],
) -> Result<Vec<DeviceFile>> {
    let mut paths = names(dev).map_err(|error| unlisted(dev, &error))?;
    for dir in drivers.iter().flat_map(|driver| driver.directories()) {
        paths.extend(names_if_any(&dev.join(dir))?);
    }
    let mut files = Vec::new();
    for path in paths {
        let text = path.to_string_lossy();
        let unknown = Err(Absent::NotRecorded);
        if let Some(driver) = drivers.iter().find(|d| d.describe(&text, unknown).is_some())
            && let Some(file) = existing(&path)?
        {
            let file = file.described_by(&**driver);
            files.extend(Some(file).filter(|file| file.role != FileRole::Other));
        }
    }
    for path in names_if_any(&dev.join("dri"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_render = name.starts_with("renderD");
        if (is_render || name.starts_with("card"))
            && let Some(file) = existing(&path)?
        {
            // The other node of a device matters only to drivers that say so.
            let node = graphics_node(file, sys, drivers);
            files.extend(node.filter(|file| is_render || file.role != FileRole::Render));
        }
    }
    files.sort_by_cached_key(|file| (file.role, file.device, file.path.len(), file.path.clone()));
    Ok(files)
}

/// Returns a file with its identity; `None` for a file that has disappeared, and for a directory.
///
/// # Errors
/// `Io` when the file exists and cannot be identified: its holders would seem to hold nothing.
fn existing(path: &Path) -> Result<Option<DeviceFile>> {
    let text = path.to_string_lossy();
    let stat = match identify(CWD.as_fd(), path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        stat => stat.map_err(|errno| fault::file(format!("inspect '{text}'"), errno))?,
    };
    let is_dir = stat.file_type().is_dir();
    Ok((!is_dir).then(|| DeviceFile::any(text.into(), Ok(file_id(&stat)))))
}

/// Returns a graphics node with its device, if sysfs shows one of the drivers behind it.
fn graphics_node(
    file: DeviceFile,
    sys: &Path,
    drivers: &[Arc<dyn KernelDriver>],
) -> Option<DeviceFile> {
    let Ok(FileId::Device { major: DRM_MAJOR, minor }) = file.id else { return None };
    let device = sys.join(format!("dev/char/{DRM_MAJOR}:{minor}/device"));
    let driver = fs::read_link(device.join("driver")).ok()?;
    let driver = drivers.iter().find(|known| driver.ends_with(known.name()))?;
    let file = file.described_by(&**driver);
    let bus = fs::read_link(device).ok();
    let bus = bus.and_then(|link| link.file_name()?.to_str()?.parse().ok());
    Some(DeviceFile { device: file.device.or(bus.map(DeviceKey::Pci)), ..file })
}

fn names(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

fn names_if_any(dir: &Path) -> Result<Vec<PathBuf>> {
    match names(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| unlisted(dir, &error)),
    }
}

pub(crate) fn unlisted(dir: &Path, error: &io::Error) -> gpu_core::Error {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    fault::file(format!("list '{}'", dir.display()), errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::ErrorKind;
    use gpu_nvidia_driver::{drivers, node};

    fn nvidia() -> Drivers {
        drivers()
    }

    #[test]
    fn device_files_are_listed_by_kind_and_index() {
        let dev = tempfile::tempdir().unwrap();
        let at = |name: &str| dev.path().join(name);
        for dir in ["nvidia-caps", "dri", "nvidia7"] {
            fs::create_dir(at(dir)).unwrap();
        }
        for name in [
            "nvidia10",
            "nvidia2",
            "nvidia0",
            "nvidiactl",
            "nvidia-uvm",
            "nvidia-uvm-tools",
            "nvidia-modeset",
            "nvidia-caps/nvidia-cap1",
            "nvidia-caps/nvidia-cap10",
            "nvidia-caps/nvidia-cap2",
            "dri/renderD128",
            "null",
            "nvidia-other",
        ] {
            fs::write(at(name), "").unwrap();
        }
        let files = device_files(dev.path(), Path::new("/nowhere"), &nvidia()).unwrap();
        let prefix = format!("{}/", dev.path().display());
        let names: Vec<_> = files.iter().map(|f| f.path.strip_prefix(&prefix).unwrap()).collect();
        assert_eq!(
            names,
            [
                "nvidia0",
                "nvidia2",
                "nvidia10",
                "nvidiactl",
                "nvidia-uvm",
                "nvidia-uvm-tools",
                "nvidia-modeset",
                "nvidia-caps/nvidia-cap1",
                "nvidia-caps/nvidia-cap2",
                "nvidia-caps/nvidia-cap10",
            ],
            "no directory, no graphics node of another driver, no other file"
        );
        assert_eq!(files[2].device, Some(DeviceKey::Node(node(10))));
        assert!(matches!(files[0].id, Ok(FileId::Inode { .. })));
    }

    #[test]
    fn render_nodes_are_filtered_by_driver() {
        let sys = tempfile::tempdir().unwrap();
        for (minor, driver) in [(128, "nvidia"), (129, "i915")] {
            let dir = sys.path().join(format!("devices/0000:0{minor}/0000:3b:00.0"));
            fs::create_dir_all(&dir).unwrap();
            fs::create_dir_all(sys.path().join(format!("dev/char/226:{minor}"))).unwrap();
            let link = std::os::unix::fs::symlink::<String, PathBuf>;
            link(format!("../drivers/{driver}"), dir.join("driver")).unwrap();
            let target = dir.to_string_lossy().into_owned();
            link(target, sys.path().join(format!("dev/char/226:{minor}/device"))).unwrap();
        }
        let found = |minor| {
            let id = Ok(FileId::Device { major: DRM_MAJOR, minor });
            let file = DeviceFile::any(format!("/dev/dri/renderD{minor}").into(), id);
            graphics_node(file, sys.path(), &nvidia())
        };
        let known = found(128).unwrap();
        assert_eq!(known.role, FileRole::Render);
        assert_eq!(known.device, Some(DeviceKey::Pci("0000:3b:00.0".parse().unwrap())));
        assert_eq!((found(129), found(130)), (None, None));
    }

    #[test]
    fn device_number_takes_precedence_over_name() {
        use rustix::fs::{FileType, Mode, makedev, mknodat};
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, major, minor| {
            let (path, mode) = (dir.path().join(name), Mode::RUSR);
            mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor))
        };
        if let Err(errno) = make("nvidia0", 195, 3) {
            // Bypasses the test harness, which hides the output of a passing test.
            writeln!(io::stderr(), "skipped: a device node cannot be made: {errno}").unwrap();
            return;
        }
        make("nvidia1", 1, 7).unwrap();
        make("nvidia2", 195, 255).unwrap();
        fs::write(dir.path().join("nvidia4"), "").unwrap();
        let files = device_files(dir.path(), Path::new("/nowhere"), &nvidia()).unwrap();
        let known: Vec<_> = files.iter().map(|file| (file.role, file.device)).collect();
        let device = |number| (FileRole::Compute, Some(DeviceKey::Node(node(number))));
        // 1:7 is not a GPU, whatever its name.
        assert_eq!(known, [device(3), device(4), (FileRole::Control, None)]);
    }

    #[test]
    fn devices_resolve_to_numbers_and_missing_file_is_an_error() {
        let null = resolve("/dev/null").unwrap();
        assert_eq!(null.id, Ok(FileId::Device { major: 1, minor: 3 }));
        let error = resolve("/nowhere/nvidia0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.to_string(), "inspect '/nowhere/nvidia0'");
        let error = device_files(Path::new("/nowhere"), Path::new("/sys"), &nvidia()).unwrap_err();
        assert_eq!(error.to_string(), "list '/nowhere'");
    }
}
