//! Why a program cannot be started, and what the user can do about it.

use rustix::fs::{Mode, StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a program cannot be started: the source of an error of [`find_program`](super::find_program)
/// and of [`Launcher::launch`](gpu_core::Launcher::launch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramFault {
    /// There is no such file; this directory of `PATH` could not be searched for it.
    NotFound(Option<PathBuf>),
    /// A directory on the path of this file cannot be searched.
    Unreachable(PathBuf),
    /// The file is a directory.
    IsDirectory,
    /// The file is a device, a socket or a FIFO.
    NotRegular,
    /// No user may execute the file.
    NotExecutable,
    /// Some users may execute the file, by this mode and owner, and the caller may not.
    NotPermitted(u32, u32),
    /// The file system of the file is mounted with `noexec`.
    NoExec,
    /// The kernel refuses to execute the file although its mode permits it (`EACCES`).
    Refused,
    /// The kernel refused a system call for another reason.
    Call(&'static str, Errno),
}

impl ProgramFault {
    /// Returns why the caller may not execute a file.
    pub(super) fn of_file(file: &Path, found: &Metadata) -> Self {
        let is_noexec =
            |mounted: rustix::fs::StatVfs| mounted.f_flag.contains(StatVfsMountFlags::NOEXEC);
        let all = (Mode::XUSR | Mode::XGRP | Mode::XOTH).bits();
        match found.mode() & all {
            0 => ProgramFault::NotExecutable,
            _ if statvfs(file).is_ok_and(is_noexec) => ProgramFault::NoExec,
            executable if executable == all => ProgramFault::Refused,
            _ => ProgramFault::NotPermitted(found.mode() & 0o7777, found.uid()),
        }
    }

    /// Returns the fault behind an error, if it has one.
    pub fn behind(error: &gpu_core::Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }

    /// Returns what the user can do; `None` if that does not follow from the fault.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            ProgramFault::NotFound(Some(dir)) => format!(
                "PATH has a directory that you may not search: '{}'; check its permissions, or PATH",
                dir.display()
            ),
            ProgramFault::Unreachable(file) => {
                format!("check the permissions of the directories above '{}'", file.display())
            }
            ProgramFault::IsDirectory | ProgramFault::NotRegular => {
                "pass the path of a program after --".to_owned()
            }
            ProgramFault::NotExecutable => "not executable; try: chmod +x".to_owned(),
            ProgramFault::NotPermitted(mode, owner) => {
                format!("mode {mode:04o} does not let you execute it; ask its owner, user {owner}")
            }
            ProgramFault::NoExec => {
                "its file system is mounted with noexec; copy it to another one".to_owned()
            }
            ProgramFault::Refused => {
                "the kernel refuses to execute it: check the interpreter in its first line, its \
                 access control list, and the security modules"
                    .to_owned()
            }
            ProgramFault::Call(_, Errno::PERM | Errno::NOSYS) => {
                "a seccomp filter or a security module refuses this call".to_owned()
            }
            ProgramFault::NotFound(None) | ProgramFault::Call(..) => return None,
        })
    }
}

impl fmt::Display for ProgramFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramFault::NotFound(_) => Errno::NOENT.fmt(f),
            ProgramFault::IsDirectory => Errno::ISDIR.fmt(f),
            ProgramFault::NotRegular => f.write_str("it is not a regular file"),
            ProgramFault::Unreachable(_)
            | ProgramFault::NotExecutable
            | ProgramFault::NotPermitted(..)
            | ProgramFault::NoExec
            | ProgramFault::Refused => Errno::ACCESS.fmt(f),
            ProgramFault::Call(call, errno) => write!(f, "{call}: {errno}"),
        }
    }
}

impl std::error::Error for ProgramFault {}
