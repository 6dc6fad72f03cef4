//! Directories on paths that only root and the caller can change.
//!
//! The main decision is that no path is checked first and used later: the owner of a directory or a
//! link on the path could exchange it in between. Each step is opened relative to the directory
//! before it, without following a link, and checked after opening; links are read and walked in the
//! same way. New files are created relative to a checked directory, and callers get the path that
//! was walked, without links.

use crate::fault;
use gpu_core::{Error, ErrorKind, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// More links than on any honest path; the kernel's own limit (path_resolution(7)).
const LINKS: usize = 40;

/// Which other users may change the directories on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathTrust {
    /// None: each directory belongs to root or the caller, and no group and no other user may write
    /// to it. A name in such a directory stays under control of root or the caller even after its
    /// removal.
    Private,
    /// Users who cannot exchange a step: each directory belongs to root or the caller, and others
    /// may write to it only if the sticky bit keeps them from renaming files of other users. A
    /// group may write if the owner permits it.
    Protected,
    /// Any owner: a user typed the path. A link of another user is not followed if others than its
    /// directory's owner may create one; root never follows one.
    AsGiven,
}

/// A directory that was reached in one of these ways, held open.
#[derive(Debug)]
pub struct TrustedDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl TrustedDir {
    /// Opens a directory.
    ///
    /// # Errors
    /// `Invalid` when a step belongs to another user or can be exchanged by others, or is not a
    /// directory; `Io` when it cannot be opened.
    pub fn open(path: &Path, trust: PathTrust) -> Result<Self> {
        Walk { trust, user: euid(), missing: None }.to(path)
    }

    /// Opens a directory, and creates it and its missing parents, for the caller alone. Nothing is
    /// created below a directory that does not qualify.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn make(path: &Path, trust: PathTrust) -> Result<Self> {
        Walk { trust, user: euid(), missing: Some(Mode::RWXU) }.to(path)
    }

    /// Returns its path, without links if the requested path starts at the root.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for TrustedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns whether a file of this user belongs to the caller or root, including root of the machine
/// that a user namespace does not map.
pub fn is_own(uid: u32) -> bool {
    [0, euid()].contains(&uid) || Some(uid) == outsider()
}

/// Returns the UID by which a user namespace shows unmapped users (`overflowuid`,
/// user_namespaces(7)): files of the machine's root belong to it there. `None` if all users are
/// mapped.
fn outsider() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let is_whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    (!is_whole).then(overflow_user)
}

/// Returns the UID that represents all users that a user namespace or a mount does not map.
pub(crate) fn overflow_user() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    // The default of the kernel.
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534)
}

fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// How to walk a path, and for which user.
struct Walk {
    trust: PathTrust,
    user: u32,
    /// The mode of directories that are created.
    missing: Option<Mode>,
}

/// A completed step.
struct Step {
    fd: OwnedFd,
    name: OsString,
    stat: Stat,
}

impl Walk {
    fn to(&self, path: &Path) -> Result<TrustedDir> {
        if self.trust != PathTrust::AsGiven && !path.is_absolute() {
            return Err(refused(path, "is not absolute"));
        }
        let start = if path.is_absolute() { "/" } else { "." };
        let mut steps = vec![self.start(start)?];
        let mut left: Vec<OsString> = reversed(path);
        let mut links = 0;
        while let Some(name) = left.pop() {
            let here = || walked(&steps).join(&name);
            if name == ".." {
                match steps.len() {
                    1 if steps[0].name != "/" => steps = vec![self.above(&steps[0])?],
                    // The parent of the root is the root.
                    1 => {}
                    _ => drop(steps.pop()),
                }
                continue;
            }
            let Some(last) = steps.last() else { break };
            match open_at(last.fd.as_fd(), &name) {
                Ok(fd) => {
                    let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(&here(), errno))?;
                    self.check(&here(), &stat)?;
                    steps.push(Step { fd, name, stat });
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let target = self.link(last, &name, &here())?;
                    links += 1;
                    if links > LINKS {
                        return Err(failed(path, Errno::LOOP));
                    }
                    if target.is_absolute() {
                        steps = vec![self.start("/")?];
                    }
                    left.extend(reversed(&target));
                }
                Err(Errno::NOENT) if self.missing.is_some() => {
                    let mode = self.missing.unwrap_or(Mode::RWXU);
                    match rustix::fs::mkdirat(&last.fd, &name, mode) {
                        // If another process was faster, its result is opened and checked next.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(made(&here(), errno)),
                    }
                    links += 1;
                    if links > LINKS {
                        return Err(failed(path, Errno::NOENT));
                    }
                    left.push(name);
                }
                Err(errno) => return Err(failed(&here(), errno)),
            }
        }
        let path = walked(&steps);
        let last = steps.pop().ok_or_else(|| refused(&path, "is empty"))?;
        Ok(TrustedDir { fd: last.fd, path })
    }

    fn start(&self, at: &str) -> Result<Step> {
        let path = Path::new(at);
        let fd = open_at(CWD, path.as_os_str()).map_err(|errno| failed(path, errno))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(path, errno))?;
        self.check(path, &stat)?;
        Ok(Step { fd, name: at.into(), stat })
    }

    /// Returns the parent of the directory in which a relative path starts.
    fn above(&self, first: &Step) -> Result<Step> {
        let name = if first.name == "." { "..".into() } else { Path::new(&first.name).join("..") };
        let fd =
            open_at(first.fd.as_fd(), OsStr::new("..")).map_err(|errno| failed(&name, errno))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(&name, errno))?;
        self.check(&name, &stat)?;
        Ok(Step { fd, name: name.into(), stat })
    }

    /// Verifies that an opened directory is allowed on the path.
    fn check(&self, path: &Path, stat: &Stat) -> Result<()> {
        if self.trust == PathTrust::AsGiven {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !self.is_own(stat) {
            return Err(refused(path, &format!("belongs to user {}", stat.st_uid)));
        }
        let is_open = match self.trust {
            PathTrust::Private => mode.intersects(Mode::WGRP | Mode::WOTH),
            PathTrust::Protected | PathTrust::AsGiven => {
                mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX)
            }
        };
        if is_open {
            let bits = mode.bits() & 0o7777;
            Err(refused(path, &format!("is writable by others (mode {bits:04o})")))
        } else {
            Ok(())
        }
    }

    /// Reads a link to follow.
    fn link(&self, dir: &Step, name: &OsStr, path: &Path) -> Result<PathBuf> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = rustix::fs::openat(&dir.fd, name, flags, Mode::empty());
        let link = link.map_err(|errno| failed(path, errno))?;
        let stat = rustix::fs::fstat(&link).map_err(|errno| failed(path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Err(refused(path, "is not a directory"));
        }
        if !self.follows(dir, &stat) {
            return Err(refused(
                path,
                &format!("is a symbolic link of another user ({})", stat.st_uid),
            ));
        }
        // Of the opened file: its name may refer to another by now.
        let target = rustix::fs::readlinkat(&link, "", Vec::new());
        let target = target.map_err(|errno| failed(path, errno))?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn follows(&self, dir: &Step, link: &Stat) -> bool {
        let others = Mode::from_raw_mode(dir.stat.st_mode).contains(Mode::WOTH);
        let of_owner = self.trust == PathTrust::AsGiven
            && self.user != 0
            && dir.stat.st_uid == link.st_uid
            && !others;
        of_owner || (self.is_own(link) && (!others || link.st_nlink == 1))
    }

    fn is_own(&self, stat: &Stat) -> bool {
        let is_own = [0, self.user].contains(&stat.st_uid);
        is_own || (self.trust != PathTrust::Private && Some(stat.st_uid) == outsider())
    }
}

/// Opens a directory to continue from it, but no link.
fn open_at(dir: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Returns the names on a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let mut names: Vec<OsString> = path.components().filter_map(name).collect();
    names.reverse();
    names
}

fn walked(steps: &[Step]) -> PathBuf {
    steps.iter().map(|step| Path::new(&step.name)).collect()
}

fn failed(path: &Path, errno: Errno) -> Error {
    fault::file(format!("open the directory '{}'", path.display()), errno)
}

fn made(path: &Path, errno: Errno) -> Error {
    fault::file(format!("create the directory '{}'", path.display()), errno)
}

fn refused(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("use the directory '{}', which {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

    const NOBODY: u32 = 65534;

    /// A directory whose parents belong to root and are closed, and a walk as root or as another
    /// user.
    struct Fixture(tempfile::TempDir);

    impl Fixture {
        /// Returns `None`, and prints so, if this test may not create it.
        fn new(test: &str) -> Option<Self> {
            let made = euid() == 0;
            let dir = made.then(|| tempfile::tempdir_in("/run").ok()).flatten();
            if dir.is_none() {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "skipped: {test}: needs root and /run");
            }
            dir.map(Fixture)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn dir(&self, name: &str, mode: u32, user: u32) -> PathBuf {
            fs::create_dir_all(self.at(name)).unwrap();
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
            lchown(self.at(name), Some(user), None).unwrap();
            self.at(name)
        }

        fn link(&self, name: &str, target: &str, user: u32) -> PathBuf {
            symlink(target, self.at(name)).unwrap();
            lchown(self.at(name), Some(user), None).unwrap();
            self.at(name)
        }
    }

    fn walk(trust: PathTrust, user: u32, path: &Path) -> Result<PathBuf> {
        let missing = Some(Mode::RWXU);
        Walk { trust, user, missing }.to(path).map(|dir| dir.path)
    }

    #[test]
    fn dir_of_another_user_is_rejected_without_creating_anything() {
        let Some(ground) =
            Fixture::new("dir_of_another_user_is_rejected_without_creating_anything")
        else {
            return;
        };
        ground.dir("home", 0o755, NOBODY);
        for trust in [PathTrust::Private, PathTrust::Protected] {
            let error = walk(trust, 0, &ground.at("home/.cache/gpuws")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("home', which belongs to user 65534"), "{error}");
        }
        assert!(!ground.at("home/.cache").exists());
        // It belongs to that user.
        let made = walk(PathTrust::Private, NOBODY, &ground.at("home/.cache/gpuws")).unwrap();
        assert_eq!(fs::metadata(made).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn only_sticky_dir_may_be_writable_by_others() {
        let Some(ground) = Fixture::new("only_sticky_dir_may_be_writable_by_others") else {
            return;
        };
        for (mode, kept, closed) in [
            (0o777, false, false),
            (0o1777, true, false),
            (0o775, true, false),
            (0o755, true, true),
        ] {
            let dir = ground.dir("shared", mode, 0);
            let below = dir.join("below");
            assert_eq!(walk(PathTrust::Protected, 0, &below).is_ok(), kept, "{mode:o}");
            let _ = fs::remove_dir(&below);
            assert_eq!(walk(PathTrust::Private, 0, &below).is_ok(), closed, "{mode:o}");
            assert_eq!(below.exists(), closed, "{mode:o}");
            let _ = fs::remove_dir(&below);
        }
    }

    #[test]
    fn symlinks_are_resolved_in_path() {
        let Some(ground) = Fixture::new("symlinks_are_resolved_in_path") else { return };
        ground.dir("real/deep", 0o755, 0);
        ground.link("link", "real/./deep/../deep", 0);
        ground.link("absolute", ground.at("link").to_str().unwrap(), 0);
        ground.link("circle", "circle", 0);
        for name in ["link", "absolute"] {
            let found = walk(PathTrust::Private, 0, &ground.at(name).join("new")).unwrap();
            assert_eq!(found, ground.at("real/deep/new"), "{name}");
        }
        assert_eq!(
            walk(PathTrust::Private, 0, &ground.at("circle")).unwrap_err().kind(),
            ErrorKind::Io
        );
        let relative = walk(PathTrust::Protected, 0, Path::new("relative")).unwrap_err();
        assert_eq!(relative.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn symlink_of_another_user_is_followed_only_in_own_dir() {
        let Some(ground) = Fixture::new("symlink_of_another_user_is_followed_only_in_own_dir")
        else {
            return;
        };
        ground.dir("target", 0o755, 0);
        ground.dir("sticky", 0o1777, 0);
        ground.dir("theirs", 0o755, NOBODY);
        let planted = ground.link("sticky/planted", "../target", NOBODY);
        let theirs = ground.link("theirs/link", "../target", NOBODY);
        for trust in [PathTrust::AsGiven, PathTrust::Protected] {
            let error = walk(trust, 0, &planted).unwrap_err().to_string();
            assert!(error.contains("is a symbolic link of another user"), "{error}");
        }
        assert!(walk(PathTrust::AsGiven, 1000, &planted).is_err());
        assert!(walk(PathTrust::AsGiven, 0, &theirs).is_err());
        assert_eq!(walk(PathTrust::AsGiven, 1000, &theirs).unwrap(), ground.at("target"));
    }

    #[test]
    fn forty_links_or_new_directories_are_the_most() {
        let dir = tempfile::tempdir().unwrap();
        let at = |number: usize| dir.path().join(number.to_string());
        fs::create_dir(at(0)).unwrap();
        for number in 1..=LINKS + 1 {
            symlink((number - 1).to_string(), at(number)).unwrap();
        }
        let walk = |path: &Path| walk(PathTrust::AsGiven, euid(), path);
        assert_eq!(walk(&at(LINKS)).unwrap(), at(0));
        let error = walk(&at(LINKS + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let below = |count: usize| at(0).join(vec!["x"; count].join("/"));
        assert_eq!(walk(&below(LINKS)).unwrap(), below(LINKS));
        assert_eq!(walk(&below(2 * LINKS + 1)).unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn own_files_are_those_of_root_and_the_caller() {
        for (user, own) in [(0, true), (euid(), true), (61_001, false)] {
            assert_eq!(is_own(user), own, "{user}");
        }
    }

    #[test]
    fn relative_path_may_contain_dot_dot() {
        let here =
            TrustedDir::open(Path::new("src/../../gpu-host/src"), PathTrust::AsGiven).unwrap();
        let same = rustix::fs::fstat(&here).unwrap();
        assert_eq!(same.st_ino, fs::metadata("src").unwrap().ino());
        let above = TrustedDir::open(Path::new("../.."), PathTrust::AsGiven).unwrap();
        assert_eq!(above.path(), Path::new("../.."));
        let root = TrustedDir::open(Path::new("/../.."), PathTrust::Protected).unwrap();
        assert_eq!(root.path(), Path::new("/"));
    }
}
