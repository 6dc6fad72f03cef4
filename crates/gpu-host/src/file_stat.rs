//! Metadata of a file, from statx(2), or from fstatat(2) where statx is not available.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, StatxFlags, major, makedev, minor, statat, statx};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

/// The fields of `stat` that this crate uses (inode(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStat {
    /// The type and the permissions.
    pub(crate) mode: u32,
    /// The major and minor number of a device file.
    pub(crate) device: (u32, u32),
    /// The device number of the file system.
    pub(crate) file_system: u64,
    pub(crate) inode: u64,
    pub(crate) owner: u32,
    pub(crate) links: u64,
    /// The size in bytes.
    pub(crate) size: u64,
}

impl FileStat {
    /// Reads the fields of a path's target. With `AT_STATX_DONT_SYNC`, network file systems answer
    /// from their cache: a dead server must not block a walk over all descriptors of the machine.
    ///
    /// A seccomp filter or a security module may refuse statx (`ENOSYS`, or `EPERM` in old
    /// container runtimes). This function then falls back to fstatat. That call has no such flag,
    /// so a dead server can block the caller; to miss a file would be worse.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn at(dir: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<Self> {
        let fields = StatxFlags::BASIC_STATS;
        path.into_with_c_str(|path| match statx(&dir, path, flags, fields) {
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                FileStat::without_statx(&dir, path, flags)
            }
            stat => stat.map(|stat| FileStat {
                mode: stat.stx_mode.into(),
                device: (stat.stx_rdev_major, stat.stx_rdev_minor),
                file_system: makedev(stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
                owner: stat.stx_uid,
                links: stat.stx_nlink.into(),
                size: stat.stx_size,
            }),
        })
    }

    // The widths of these differ between architectures.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    fn without_statx(dir: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<Self> {
        let stat = statat(dir, path, flags.difference(AtFlags::STATX_DONT_SYNC))?;
        let device = stat.st_rdev as u64;
        Ok(FileStat {
            mode: stat.st_mode,
            device: (major(device), minor(device)),
            file_system: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            owner: stat.st_uid,
            links: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        })
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;

    #[test]
    fn both_calls_give_the_same_fields() {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let program = std::env::current_exe().unwrap();
        for path in ["/dev/null".as_ref(), "/proc/self/exe".as_ref(), "/".as_ref(), &*program] {
            let stat = FileStat::at(CWD, path, flags);
            assert_eq!(stat, FileStat::without_statx(CWD, path, flags), "{}", path.display());
            assert!(stat.is_ok_and(|stat| stat.mode != 0 && stat.inode != 0 && stat.links > 0));
        }
        let none = FileStat::without_statx(CWD, "/nowhere", flags);
        assert_eq!((none, FileStat::at(CWD, "/nowhere", flags)), (Err(Errno::NOENT), none));
    }
}
