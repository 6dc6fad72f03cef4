//! A directory for locks, and the conditions to trust it.

use crate::fault;
use gpu_core::{Error, ErrorKind, Result};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat};
use rustix::fs::{fgetxattr, getxattr};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The attribute of an access control list.
const ACL: &str = "system.posix_acl_access";

/// How many times in a row a file with a permissive mode must be denied before that is an error.
const DENIALS: usize = 64;

/// None of the names here is longer: a kind, a ticket, a class and an ID.
const LONGEST: usize = 96;

/// The buffer for a listing: the names of a thousand waiting claims in two or three system calls.
const LISTING: usize = 64 << 10;

/// File systems that may hide a lock from other machines, or whose server may hang a program
/// (`f_type`, linux/magic.h).
const NETWORK_FILESYSTEMS: [(u64, &str); 6] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x5346_414f, "AFS"),
];

/// The command that creates a directory for all users that no user can disrupt.
pub(super) const REMEDY: &str = "ask root to run: install -d -o root -m 1777 /run/gpuws";

/// The required owner of a directory, and the permissions of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Root's, and sticky: every user creates files, and no user can unlink another user's.
    Shared,
    /// Root's or the caller's; sticky, or not writable by others.
    Named,
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
    /// The prefix of the file names in it.
    pub(super) prefix: &'static str,
}

impl Dir {
    /// Opens a directory; `None` if it does not exist.
    ///
    /// # Errors
    /// `Invalid` when it is not trusted: the owner of a directory can unlink every user's files in
    /// it, and a lease that others do not see is granted twice. `Io` when it cannot be opened.
    pub(super) fn open(path: &Path, prefix: &'static str, trust: Trust) -> Result<Option<Self>> {
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if trust != Trust::Shared || prefix.is_empty() {
            flags |= OFlags::NOFOLLOW;
        }
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(refused(path, "is not a directory")),
            Err(Errno::ACCESS) if !is_shared(path, trust) => {
                return Err(refused(path, "is not readable"));
            }
            fd => fd.map_err(|errno| failed(path, errno))?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(path, errno))?;
        trusted(path, &stat, trust)?;
        let system = rustix::fs::fstatfs(&fd).map_err(|errno| {
            let path = path.display();
            fault::file(format!("query the file system type of '{path}' (fstatfs)"), errno)
        })?;
        if let Some(name) = network_filesystem(system.f_type as u64) {
            let why = format!("is on {name}, which does not support locks; use another directory");
            return Err(refused(path, &why));
        }
        Ok(Some(Dir { fd, path: path.to_owned(), prefix }))
    }

    /// Returns the displayed path of a file here.
    pub(super) fn show(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Opens an existing file without waiting for its creator: follows no link, enters no mount,
    /// waits for no pipe.
    pub(super) fn open_file(&self, name: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
        open_beneath(&self.fd, name, access)
    }

    /// Opens an existing file to read it, as [`open_file`](Self::open_file) does; `None` if it does
    /// not exist, or its owner has made it impossible to open.
    ///
    /// # Errors
    /// The kernel's, for any other reason: an unreadable file must not count as missing.
    pub(super) fn open_entry(
        &self,
        name: &str,
        flags: OFlags,
    ) -> rustix::io::Result<Option<OwnedFd>> {
        // An owner who keeps changing the mode cannot make both reads disagree every time.
        for _ in 0..DENIALS {
            match self.open_file(name, OFlags::RDONLY | flags) {
                Err(errno) if is_of_owner(errno) => return Ok(None),
                Err(Errno::ACCESS) if self.is_closed(name)? => return Ok(None),
                Err(Errno::ACCESS) => {}
                file => return file.map(Some),
            }
        }
        Err(Errno::ACCESS)
    }

    /// Opens the directory of a user in it; `None` for anything else.
    ///
    /// # Errors
    /// As [`open_entry`](Self::open_entry).
    pub(super) fn open_dir(&self, name: &str) -> rustix::io::Result<Option<(Dir, Stat)>> {
        let Some(fd) = self.open_entry(name, OFlags::DIRECTORY)? else { return Ok(None) };
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Some((Dir { fd, path: self.path.join(name), prefix: "" }, stat)))
    }

    /// Returns whether the mode or the access control list (acl(5)) of this directory or of a file
    /// in it denies access to any user. Only an owner can set them, and gpuws never denies access.
    fn is_closed(&self, name: &str) -> rustix::io::Result<bool> {
        let lacks = |stat: &Stat, mode| !Mode::from_raw_mode(stat.st_mode).contains(mode);
        let has_list = |size| matches!(size, Ok(_) | Err(Errno::RANGE));
        let dir = rustix::fs::fstat(&self.fd)?;
        let is_foreign = dir.st_uid != rustix::process::geteuid().as_raw();
        let none = || [0_u8; 0];
        let denies = lacks(&dir, Mode::XUSR | Mode::XGRP | Mode::XOTH)
            || has_list(fgetxattr(&self.fd, ACL, &mut none()));
        if is_foreign && denies {
            return Ok(true);
        }
        match locate(&self.fd, name) {
            // The owner has closed the directory since, or another rule denies access: check again.
            Err(Errno::ACCESS) => Ok(false),
            Err(errno) if is_of_owner(errno) => Ok(true),
            file => {
                let file = file?;
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                let stat = rustix::fs::fstat(&file)?;
                Ok(lacks(&stat, Mode::RUSR | Mode::RGRP | Mode::ROTH)
                    || has_list(getxattr(path, ACL, &mut none())))
            }
        }
    }

    /// Returns the status of a file, without querying a file system that its owner may have mounted
    /// there.
    ///
    /// # Errors
    /// The kernel's; `XDEV` for a mount point.
    pub(super) fn stat(&self, name: &str) -> rustix::io::Result<Stat> {
        rustix::fs::fstat(locate(&self.fd, name)?)
    }

    /// Creates a file for the caller alone, for reading and writing.
    pub(super) fn make_file(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::openat(&self.fd, name, flags | OFlags::CLOEXEC, mode)
    }

    /// Removes a file, if its name still refers to it.
    pub(super) fn remove(&self, name: &str, file: &Stat) {
        if self.is_at(name, file).unwrap_or(false) {
            // If another process removed it first, nothing is left to do.
            let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        }
    }

    /// Returns whether a name refers to that file.
    pub(super) fn is_at(&self, name: &str, file: &Stat) -> rustix::io::Result<bool> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            stat => stat.map(|stat| (stat.st_dev, stat.st_ino) == (file.st_dev, file.st_ino)),
        }
    }

    /// Returns the rest of each name after the prefix and `kind`, and whether there are more than
    /// `most` of them, which are left out.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn names(
        &self,
        kind: &str,
        most: usize,
        listed: usize,
    ) -> rustix::io::Result<(Vec<String>, bool)> {
        let mut names = Vec::new();
        let is_cut = self.list(listed, |name, _| {
            let name = self.rest_of(name, kind).filter(|name| name.len() <= LONGEST);
            names.extend(name.map(str::to_owned));
            names.len() <= most
        })?;
        names.truncate(most);
        Ok((names, is_cut))
    }

    /// Visits each name with its inode number until `visit` returns false, and returns whether there
    /// may be others: after that, or beyond `listed` of them.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn list(
        &self,
        listed: usize,
        mut visit: impl FnMut(&CStr, u64) -> bool,
    ) -> rustix::io::Result<bool> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(0))?;
        let mut buffer = Vec::with_capacity(LISTING);
        let mut entries = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            count += 1;
            if count > listed || !visit(entry.file_name(), entry.ino()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the rest of a name after the prefix and `kind`.
    pub(super) fn rest_of<'a>(&self, name: &'a CStr, kind: &str) -> Option<&'a str> {
        name.to_str().ok()?.strip_prefix(self.prefix)?.strip_prefix(kind)
    }
}

/// Returns the name of a file system of this type (`f_type`) on which locks are not reliable.
fn network_filesystem(kind: u64) -> Option<&'static str> {
    // Some architectures' field is signed and 32 bits wide.
    let kind = kind & 0xffff_ffff;
    NETWORK_FILESYSTEMS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

/// Follows no link, enters no mount.
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// Opens a name in a directory: follows no link, enters no mount, waits for no process.
fn open_beneath(fd: &OwnedFd, name: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat2(fd, name, flags, Mode::empty(), RESOLVE) {
        // Linux before 5.6, or a container whose filter blocks the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let located = locate(fd, name)?;
            let path = format!("/proc/self/fd/{}", located.as_raw_fd());
            rustix::fs::open(path, flags - OFlags::NOFOLLOW, Mode::empty())
        }
        file => file,
    }
}

/// Returns a descriptor that only locates a name in a directory (open(2), `O_PATH`).
///
/// A file system that a user has mounted there may refuse any call, or never answer. It is not
/// queried: a mount point fails with `XDEV`.
fn locate(fd: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat2(fd, name, flags, Mode::empty(), RESOLVE) {
        Err(Errno::NOSYS | Errno::PERM) => {
            let located = rustix::fs::openat(fd, name, flags, Mode::empty())?;
            if mount_id(&located)? == mount_id(fd)? { Ok(located) } else { Err(Errno::XDEV) }
        }
        located => located,
    }
}

/// Returns the mount of an open file (proc_pid_fdinfo(5)), without querying its file system.
fn mount_id(fd: &OwnedFd) -> rustix::io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
    let text = text.map_err(|_| Errno::IO)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok()).ok_or(Errno::IO)
}

/// Returns whether a name that cannot be opened is missing, or is not a file or directory of gpuws.
/// If these were errors, the owner of a name could keep all users from reading the rest.
fn is_of_owner(errno: Errno) -> bool {
    match errno {
        Errno::NOENT => true,
        // A file instead of a directory, a link, a mount, a socket, a device.
        Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NODEV => true,
        // A file lease (fcntl(2), `F_SETLEASE`), and an encrypted directory (ioctl_fscrypt(2)),
        // which only the owner can make.
        Errno::AGAIN | Errno::NOKEY => true,
        _ => false,
    }
}

/// Returns whether the owner and the mode of an unreadable path are those of a directory for leases
/// of all users. If so, something else denies access.
fn is_shared(path: &Path, trust: Trust) -> bool {
    let stat = rustix::fs::stat(path);
    trust == Trust::Shared && stat.is_ok_and(|stat| trusted(path, &stat, trust).is_ok())
}

fn trusted(path: &Path, stat: &Stat, trust: Trust) -> Result<()> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(refused(path, "is not a directory"));
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    let sticky = mode.contains(Mode::SVTX);
    let open = mode.intersects(Mode::WGRP | Mode::WOTH);
    let caller = rustix::process::geteuid().as_raw();
    let why = match trust {
        Trust::Shared if stat.st_uid != 0 => {
            format!("belongs to user {}, not to root; {REMEDY}", stat.st_uid)
        }
        Trust::Shared if !sticky || !mode.contains(Mode::RWXU | Mode::RWXG | Mode::RWXO) => {
            format!("has mode {:04o}, not 1777; {REMEDY}", mode.bits() & 0o7777)
        }
        Trust::Named if stat.st_uid != 0 && stat.st_uid != caller => {
            format!("belongs to user {}, who could remove any lease in it", stat.st_uid)
        }
        Trust::Named if open && !sticky => {
            "is writable by others, who could remove any lease in it; fix with chmod +t".into()
        }
        _ => return Ok(()),
    };
    Err(refused(path, &why))
}

fn failed(path: &Path, errno: Errno) -> Error {
    fault::file(format!("open the lease directory '{}'", path.display()), errno)
}

fn refused(path: &Path, why: &str) -> Error {
    let what = format!("keep leases in '{}', which {why}", path.display());
    Error::new(ErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_recognised_by_type() {
        for (kind, name) in [
            (0x6969, Some("NFS")),
            (0xff53_4d42, Some("CIFS")),
            (0xffff_ffff_ff53_4d42, Some("CIFS")),
            (0x6573_5546, Some("FUSE")),
            (0x0102_1994, None),
            (0xef53, None),
        ] {
            assert_eq!(network_filesystem(kind), name, "{kind:x}");
        }
    }

    /// Any user may mount a file system in user space on an own directory or file, and never
    /// answer.
    #[test]
    fn unresponsive_file_system_is_not_queried() {
        use std::process::Command;
        // Its program has ended, so every question to it fails.
        const MOUNT: &str = "exec 3<>/dev/fuse && mount -i -t fuse \
            -o fd=3,rootmode=40000,user_id=0,group_id=0,allow_other fuse \"$1\"";
        let temporary = tempfile::tempdir().unwrap();
        let mounted = temporary.path().join("u1000");
        std::fs::create_dir(&mounted).unwrap();
        let mount = Command::new("sh").args(["-c", MOUNT, "sh"]).arg(&mounted).output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "skipped: no FUSE can be mounted here");
            return;
        }
        let fd = rustix::fs::open(temporary.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        let asked = rustix::fs::statat(&fd, "u1000", rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        let dir = Dir { fd, path: temporary.path().to_owned(), prefix: "" };
        let stat = dir.stat("u1000").map(|_| ());
        let is_closed = dir.is_closed("u1000");
        let opened = dir.open_dir("u1000").map(|dir| dir.is_some());
        let is_unmounted = Command::new("umount").arg("-l").arg(&mounted).status();
        assert!(is_unmounted.unwrap().success());
        assert_eq!(asked.map(|_| ()), Err(Errno::NOTCONN), "as the kernel has it");
        assert_eq!((stat, is_closed, opened), (Err(Errno::XDEV), Ok(true), Ok(false)));
    }

    #[test]
    fn listing_ends_at_either_limit() {
        let temporary = tempfile::tempdir().unwrap();
        let (longest, longer) = ("x".repeat(LONGEST), "x".repeat(LONGEST + 1));
        let names = [".p-a-1", ".p-a-2", ".p-b-1", "a-1"].map(str::to_owned);
        for name in names.into_iter().chain([&longest, &longer].map(|end| format!(".p-a-{end}"))) {
            std::fs::write(temporary.path().join(name), "").unwrap();
        }
        let fd = rustix::fs::open(temporary.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        let dir = Dir { fd, path: temporary.path().to_owned(), prefix: ".p-" };
        // Each listing starts over, and the directory and its parent are listed too.
        let all = 6 + 2;
        for (most, listed, count, is_cut) in [
            (10, 100, Some(3), false),
            (3, all, Some(3), false),
            (2, all, Some(2), true),
            (10, all - 1, None, true),
            (10, 0, Some(0), true),
        ] {
            let (names, cut) = dir.names("a-", most, listed).unwrap();
            assert_eq!(cut, is_cut, "{most} of {listed}");
            assert!(names.iter().all(|name| ["1", "2", &longest].contains(&name.as_str())));
            assert!(count.is_none_or(|count| names.len() == count), "{names:?}");
        }
    }
}
