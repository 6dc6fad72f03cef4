//! The executable of a process, as evidence of its role.

use crate::absent::Reading;
use crate::id::FileId;

/// The executable of a process.
///
/// A process chooses its name and its command line. It does not choose the owner of its executable,
/// so that file is better evidence of its role. `path` is still hostile text: it may come from a
/// mount namespace that the process's user created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Executable {
    /// Its path, without the kernel's mark for a deleted file.
    pub path: String,
    /// The identity of the file.
    pub file: FileId,
    /// User id of its owner.
    pub owner: u32,
    /// Its group or others may write to it.
    pub writable_by_others: bool,
    /// The path means this file to the caller too: the process is in the caller's mount namespace,
    /// or the caller finds the same file there. Absent (`NotRecorded`) if neither was checked,
    /// because that walks a path that the process chose.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub seen_by_caller: Reading<bool>,
}

impl Executable {
    /// Returns the last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns whether only root can have written this content.
    pub fn is_roots(&self) -> bool {
        self.owner == 0 && !self.writable_by_others
    }

    /// Returns whether it is a system program, at a place where the caller sees it too: only root
    /// can have installed it.
    pub fn is_installed(&self) -> bool {
        self.is_roots() && self.seen_by_caller == Ok(true) && in_system_dir(&self.path)
    }
}

/// Returns whether a path is below a directory for system programs.
pub fn in_system_dir(path: &str) -> bool {
    const DIRS: [&str; 8] =
        ["/usr/", "/opt/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/nix/store/", "/gnu/store/"];
    DIRS.iter().any(|dir| path.starts_with(dir)) && !path.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::absent::Absent;

    fn xorg() -> Executable {
        Executable {
            path: "/usr/lib/xorg/Xorg".into(),
            file: FileId::Inode { dev: 1, ino: 2 },
            owner: 0,
            writable_by_others: false,
            seen_by_caller: Ok(true),
        }
    }

    #[test]
    fn installed_executable_is_owned_by_root_and_visible_to_caller() {
        assert!(xorg().is_installed());
        assert_eq!(xorg().name(), "Xorg");
        for other in [
            Executable { owner: 1000, ..xorg() },
            Executable { writable_by_others: true, ..xorg() },
            Executable { seen_by_caller: Ok(false), ..xorg() },
            Executable { seen_by_caller: Err(Absent::NotRecorded), ..xorg() },
            Executable { path: "/home/user/Xorg".into(), ..xorg() },
            Executable { path: "/usr/../home/user/Xorg".into(), ..xorg() },
            Executable { path: "/usrx/Xorg".into(), ..xorg() },
        ] {
            assert!(!other.is_installed(), "{other:?}");
        }
    }
}
