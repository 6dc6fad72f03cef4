//! The numbers of device files.

use gpu_core::FileId;

/// The major number of `/dev/nvidiaN`, `nvidiactl` and `nvidia-modeset` (Linux `devices.txt`).
pub const MAJOR: u32 = 195;

/// Returns the identity of `/dev/nvidiaN`, by N: NVML's minor number of the device.
pub fn node(number: u32) -> FileId {
    FileId::Device { major: MAJOR, minor: number }
}

/// Returns N of `/dev/nvidiaN`, by the name of the file alone.
pub fn number_of(path: &str) -> Option<u32> {
    let digits = path.rsplit('/').next()?.strip_prefix("nvidia")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
