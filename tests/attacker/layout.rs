//! The directories and devices that all processes of the test use.

use gpu_claim::Chosen;
use gpu_core::{Bytes, Claim, DeviceUuid, LeaseEntry, Result, Share};
use gpu_host::{FileLeaseStore, LeaseLocation, Roots, SafeGpuFiles};
use std::path::{Path, PathBuf};

/// The number of devices on the machine.
pub(crate) const DEVICES: usize = 8;

/// The attacker leases the devices from this index on. Any user may lease any device forever, so
/// the other devices are reserved for honest users, and their claims must be served.
pub(crate) const CONTESTED: usize = 6;

/// The memory of each device.
pub(crate) const TOTAL: u64 = 80 << 30;

/// The name of safe-gpu's lock files.
pub(crate) const SAFE_GPU: &str = "gpu-lock-magic-RaNdOM-This_Name-NEED_BE-THE_SAME-Across_Users";

/// The directories of a run.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The file system of the test.
    pub(crate) root: PathBuf,
    /// The substitute for `/run`; it may not exist.
    pub(crate) run: PathBuf,
}

impl Layout {
    /// Returns the substitute for `/tmp`.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Returns the shared directories and the prefixes for names in them.
    pub(crate) fn shared(&self) -> [(PathBuf, &'static str); 2] {
        [(self.run.join("gpuws"), ""), (self.tmp(), ".gpuws-")]
    }

    /// Returns safe-gpu's lock files.
    pub(crate) fn safe_gpu(&self) -> [PathBuf; 2] {
        [self.tmp().join(SAFE_GPU), self.tmp().join("safe_gpu").join(SAFE_GPU)]
    }

    /// Returns the stop file of the honest processes.
    pub(crate) fn stop(&self) -> PathBuf {
        self.root.join("stop")
    }

    /// Returns root's files, which must not change: a world-writable one, one that is not, and one
    /// in a directory.
    pub(crate) fn canaries(&self) -> [PathBuf; 4] {
        ["open", "closed", "directory", "directory/file"]
            .map(|name| self.root.join("canary").join(name))
    }

    /// Returns the leases of the machine.
    pub(crate) fn locks(&self) -> FileLeaseStore {
        let location = LeaseLocation::machine(&self.run, self.tmp());
        FileLeaseStore::new(location, SafeGpuFiles::below(&self.tmp()), roots())
    }
}

fn roots() -> Roots {
    let root = |path: &str| Path::new(path).to_owned();
    Roots { proc: root("/proc"), dev: root("/dev"), sys: root("/sys") }
}

/// Returns the name of a device.
pub(crate) fn device(index: usize) -> DeviceUuid {
    DeviceUuid(format!("GPU-{index}"))
}

/// Returns all devices.
pub(crate) fn devices() -> Vec<DeviceUuid> {
    (0..DEVICES).map(device).collect()
}

/// Returns the observation of the machine: its devices, or those of a lease.
#[expect(clippy::unnecessary_wraps, reason = "a snapshot returns it")]
pub(crate) fn observation(devices: &[DeviceUuid]) -> Result<Vec<DeviceUuid>> {
    Ok(devices.to_vec())
}

/// Chooses the first free devices.
#[expect(clippy::ptr_arg, reason = "a snapshot returns it")]
pub(crate) fn choose(devices: &Vec<DeviceUuid>, claim: &Claim, others: &[LeaseEntry]) -> Chosen {
    let wanted = |uuid: &&DeviceUuid| claim.among.is_empty() || claim.among.contains(uuid);
    let could: Vec<DeviceUuid> = devices.iter().filter(wanted).cloned().collect();
    let is_free = |uuid: &&DeviceUuid| {
        let mut shared = 0_u128;
        for lease in others.iter().filter(|lease| lease.has(uuid)) {
            match (lease.claim.share, claim.share) {
                (Share::Memory(Bytes(memory)), Share::Memory(_)) => shared += u128::from(memory),
                _ => return false,
            }
        }
        match claim.share {
            Share::Whole => true,
            Share::Memory(Bytes(memory)) => shared + u128::from(memory) <= u128::from(TOTAL),
        }
    };
    let count = usize::try_from(claim.count).unwrap_or(usize::MAX);
    if count == 0 || could.len() < count {
        return Chosen::Never;
    }
    let free: Vec<DeviceUuid> = could.iter().filter(is_free).take(count).cloned().collect();
    if free.len() == count { Chosen::Devices(free) } else { Chosen::NotNow { could } }
}
