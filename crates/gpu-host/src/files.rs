//! The device files of GPUs, and any file given by a caller.

use crate::fault;
use crate::file_index::file_id;
use crate::proc_dir::identify;
use gpu_core::{DeviceFile, DeviceFileKind, FileId, Result};
use rustix::fs::CWD;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Major number of graphics nodes (`DRM_MAJOR` of the kernel's drm_drv.h), for any driver.
const DRM_MAJOR: u32 = 226;

/// Returns any file, for use with [`Host::holders`](gpu_core::Host::holders).
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
    Ok(DeviceFile {
        kind: DeviceFileKind::of_path(&text),
        id: Ok(file_id(&stat)),
        path: text.into(),
    })
}

/// Returns the GPU device files below `dev`, by kind and number.
///
/// A graphics node counts only if `sys` shows that NVIDIA's driver is behind it.
///
/// # Errors
/// `Io` when `dev` cannot be listed.
pub(crate) fn device_files(dev: &Path, sys: &Path) -> Result<Vec<DeviceFile>> {
    let mut files = Vec::new();
    for path in names(dev).map_err(|error| unlisted(dev, &error))? {
        let kind = DeviceFileKind::of_path(&path.to_string_lossy());
        let is_gpu = matches!(
            kind,
            DeviceFileKind::Gpu(_)
                | DeviceFileKind::Control
                | DeviceFileKind::Uvm
                | DeviceFileKind::UvmTools
                | DeviceFileKind::Modeset
        );
        if is_gpu {
            files.extend(device_file(&path, kind)?);
        }
    }
    for path in names_if_any(&dev.join("nvidia-caps"))? {
        files.extend(device_file(&path, DeviceFileKind::Capability)?);
    }
    for path in names_if_any(&dev.join("dri"))? {
        let Some(file) = device_file(&path, DeviceFileKind::Render)? else { continue };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("renderD") && is_nvidia_device(&file, sys) {
            files.push(file);
        }
    }
    files.sort_by_cached_key(|file| (rank(file.kind), file.path.len(), file.path.clone()));
    Ok(files)
}

fn rank(kind: DeviceFileKind) -> (u8, u32) {
    match kind {
        DeviceFileKind::Gpu(minor) => (0, minor),
        DeviceFileKind::Control => (1, 0),
        DeviceFileKind::Uvm => (2, 0),
        DeviceFileKind::UvmTools => (3, 0),
        DeviceFileKind::Modeset => (4, 0),
        DeviceFileKind::Capability => (5, 0),
        DeviceFileKind::Render => (6, 0),
        DeviceFileKind::Other => (7, 0),
    }
}

/// Returns a device file with its identity; none for a file that went away, a directory, and a
/// device that does not match its name.
///
/// A device's number takes precedence over its name: a node called `nvidia0` can be that of another
/// GPU, and its holders must not be attributed to GPU 0.
///
/// # Errors
/// `Io` when the file exists and cannot be identified: its holders would seem to hold nothing.
fn device_file(path: &Path, named: DeviceFileKind) -> Result<Option<DeviceFile>> {
    let text = path.to_string_lossy();
    let stat = match identify(CWD.as_fd(), path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        stat => stat.map_err(|errno| fault::file(format!("inspect '{text}'"), errno))?,
    };
    let id = file_id(&stat);
    let kind = match (id, named) {
        (FileId::Device { major, minor }, DeviceFileKind::Gpu(_)) => {
            DeviceFileKind::of_device(major, minor)
        }
        _ => Some(named),
    };
    let kind = kind.filter(|_| !stat.file_type().is_dir());
    Ok(kind.map(|kind| DeviceFile { path: text.into(), kind, id: Ok(id) }))
}

fn is_nvidia_device(file: &DeviceFile, sys: &Path) -> bool {
    let Ok(FileId::Device { major: DRM_MAJOR, minor }) = file.id else { return false };
    let driver = sys.join(format!("dev/char/{DRM_MAJOR}:{minor}/device/driver"));
    fs::read_link(driver)
        .is_ok_and(|driver| driver.file_name().is_some_and(|name| name == "nvidia"))
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
        let files = device_files(dev.path(), Path::new("/nowhere")).unwrap();
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
        assert_eq!(files[2].kind, DeviceFileKind::Gpu(10));
        assert!(matches!(files[0].id, Ok(FileId::Inode { .. })));
    }

    #[test]
    fn render_nodes_are_filtered_by_driver() {
        let sys = tempfile::tempdir().unwrap();
        let node = |minor| DeviceFile {
            path: format!("/dev/dri/renderD{minor}").into(),
            kind: DeviceFileKind::Render,
            id: Ok(FileId::Device { major: DRM_MAJOR, minor }),
        };
        for (minor, driver) in [(128, "nvidia"), (129, "i915")] {
            let device = sys.path().join(format!("dev/char/226:{minor}/device"));
            fs::create_dir_all(&device).unwrap();
            std::os::unix::fs::symlink(format!("../drivers/{driver}"), device.join("driver"))
                .unwrap();
        }
        assert!(is_nvidia_device(&node(128), sys.path()));
        assert!(!is_nvidia_device(&node(129), sys.path()));
        assert!(!is_nvidia_device(&node(130), sys.path()));
    }

    #[test]
    fn device_number_takes_precedence_over_name() {
        use rustix::fs::{FileType, Mode, makedev, mknodat};
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let node = |name: &str, major, minor| {
            let (path, mode) = (dir.path().join(name), Mode::RUSR);
            mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor))
        };
        if let Err(errno) = node("nvidia0", 195, 3) {
            // Bypasses the test harness, which hides the output of a passing test.
            writeln!(io::stderr(), "skipped: a device node cannot be made: {errno}").unwrap();
            return;
        }
        node("nvidia1", 1, 7).unwrap();
        node("nvidia2", 195, 255).unwrap();
        fs::write(dir.path().join("nvidia4"), "").unwrap();
        let files = device_files(dir.path(), Path::new("/nowhere")).unwrap();
        let kinds: Vec<DeviceFileKind> = files.iter().map(|file| file.kind).collect();
        // 1:7 is no GPU, whatever its name.
        let expected = [DeviceFileKind::Gpu(3), DeviceFileKind::Gpu(4), DeviceFileKind::Control];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn devices_resolve_to_numbers_and_missing_file_is_an_error() {
        let null = resolve("/dev/null").unwrap();
        assert_eq!(null.id, Ok(FileId::Device { major: 1, minor: 3 }));
        let error = resolve("/nowhere/nvidia0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.to_string(), "inspect '/nowhere/nvidia0'");
        let error = device_files(Path::new("/nowhere"), Path::new("/sys")).unwrap_err();
        assert_eq!(error.to_string(), "list '/nowhere'");
    }
}
