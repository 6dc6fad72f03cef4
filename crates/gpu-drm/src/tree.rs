//! The files of a machine, below a root directory.

use gpu_core::{Absent, Reading};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The most names that are read from a directory.
const MAX_NAMES: usize = 65_536;

/// How often a path is resolved again that was renamed meanwhile.
const TRIES: usize = 8;

/// The most links of a path, and the longest target, as in the kernel.
const MAX_LINKS: usize = 40;
const MAX_TARGET: usize = 4_096;

/// The most components of a path with all its links.
const MAX_COMPONENTS: usize = 1_024;

/// The most directories whose links are remembered.
const MAX_FOLLOWED: usize = 65_536;

/// The files of a machine. Paths are relative to its root, such as `sys/class/drm`; symbolic links
/// stay below the root.
pub trait Tree: Send + Sync {
    /// Returns the first `limit` bytes of a regular file.
    ///
    /// # Errors
    /// The reason why there is no content: `NotSupported` if there is no such file or the driver
    /// does not support it, `NotPermitted`, or `Failed`, also for anything but a regular file.
    fn read(&self, path: &str, limit: usize) -> Reading<Vec<u8>>;

    /// Returns the names in a directory, sorted, without those that are not UTF-8.
    ///
    /// # Errors
    /// As [`read`](Tree::read).
    fn names(&self, path: &str) -> Reading<Vec<String>>;

    /// Returns the last component of the target of a symbolic link, such as `amdgpu` for `driver`.
    ///
    /// # Errors
    /// As [`read`](Tree::read); `Failed` if it is not a link.
    fn target(&self, path: &str) -> Reading<String>;

    /// Returns the time on the machine's monotonic clock, for the differences of two readings.
    fn now(&self) -> Duration {
        crate::deadline::now()
    }
}

impl dyn Tree + '_ {
    /// Returns the content of a small text file without surrounding white space; absent if it is
    /// empty, as the kernel prints what a board does not have.
    ///
    /// # Errors
    /// As [`read`](Tree::read); `Implausible` if it is not UTF-8 or has 4 KiB or more.
    pub fn text(&self, path: &str) -> Reading<String> {
        /// The kernel prints at most a page.
        const PAGE: usize = 4_096;
        let content = self.read(path, PAGE)?;
        if content.len() == PAGE {
            return Err(Absent::Implausible);
        }
        let text = str::from_utf8(&content).map_err(|_| Absent::Implausible)?.trim();
        if text.is_empty() { Err(Absent::NotSupported) } else { Ok(text.to_owned()) }
    }

    /// Returns the number in a file, decimal or hexadecimal after `0x`.
    ///
    /// # Errors
    /// As [`text`](#method.text); `Implausible` if it is not a number of this type.
    pub fn number<T: TryFrom<i128>>(&self, path: &str) -> Reading<T> {
        let text = self.text(path)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.ok().and_then(|number| number.try_into().ok()).ok_or(Absent::Implausible)
    }
}

/// The machine's own files, or a copy of another machine's files.
///
/// A copy may have lost its links: git without `core.symlinks`, and archives for other systems,
/// store each as a file with the target as its content. Such a file counts as a link.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    /// The directories of a copy that has lost its links, without the links.
    followed: Mutex<HashMap<String, String>>,
}

impl Root {
    /// Opens a root directory.
    ///
    /// # Errors
    /// When it is not a directory that the caller can open.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Root { dir, followed: Mutex::default() })
    }

    /// Writes into a file of the kernel, which exists. Only [`Drm::live`](crate::Drm::live) does so.
    ///
    /// # Errors
    /// As [`Tree::read`].
    pub(crate) fn write(&self, path: &str, content: &[u8]) -> Reading<()> {
        check_type(self.open_below(path, OFlags::PATH)?.as_fd(), FileType::RegularFile)?;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_below(path, flags)?;
        check_type(file.as_fd(), FileType::RegularFile)?;
        match rustix::io::write(&file, content).map_err(reason)? {
            written if written == content.len() => Ok(()),
            _ => Err(Absent::Failed),
        }
    }

    /// Opens a path below the root. Links cannot lead out of the root, and the magic links of
    /// `/proc` are not followed.
    fn open_below(&self, path: &str, flags: OFlags) -> Reading<OwnedFd> {
        match self.open_once(path, flags) {
            Err(Errno::NOTDIR) => self.open_once(&self.followed(path)?, flags).map_err(reason),
            opened => opened.map_err(reason),
        }
    }

    fn open_once(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let open = || rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), within);
        // The kernel gives up when a directory of the path is renamed.
        let again = |answer: &rustix::io::Result<OwnedFd>| matches!(answer, Err(Errno::AGAIN));
        (1..TRIES).map(|_| open()).find(|answer| !again(answer)).unwrap_or_else(open)
    }

    /// Returns a path with the files among its directories replaced by what they name as links.
    fn followed(&self, path: &str) -> Reading<String> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let lock = || self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(dir).cloned();
        let dir = match known {
            Some(known) => known,
            None => {
                let real = self.follow(&format!("{dir}/."))?;
                let mut followed = lock();
                if followed.len() < MAX_FOLLOWED {
                    followed.insert(dir.to_owned(), real.clone());
                }
                real
            }
        };
        match name {
            "" | "." => Ok(dir),
            ".." => Ok(dir.rsplit_once('/').map_or(String::new(), |(above, _)| above.to_owned())),
            name => Ok(format!("{dir}/{name}")),
        }
    }

    fn follow(&self, path: &str) -> Reading<String> {
        let mut left: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
        let (mut done, mut links, mut components) = (Vec::<String>::new(), 0, 0);
        while let Some(name) = left.pop() {
            match name.as_str() {
                "" | "." => {}
                ".." => drop(done.pop()),
                _ => {
                    done.push(name);
                    if let Some(target) =
                        self.link_file(&done.join("/")).filter(|_| !left.is_empty())
                    {
                        done.pop();
                        links += 1;
                        left.extend(target.rsplit('/').map(str::to_owned));
                    }
                }
            }
            components += 1;
            if links > MAX_LINKS || components > MAX_COMPONENTS {
                return Err(Absent::Failed);
            }
        }
        Ok(done.join("/"))
    }

    /// Returns the target that a file has as its content; `None` for anything but such a file.
    fn link_file(&self, path: &str) -> Option<String> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let known = self.open_once(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        check_type(known.as_fd(), FileType::RegularFile).ok()?;
        let content = read(self.open_once(path, flags).ok()?, MAX_TARGET).ok()?;
        let target = String::from_utf8(content).ok()?;
        (target.starts_with("../") && !target.contains(['\n', '\0'])).then_some(target)
    }

    /// Opens a file of this type. Opening a device can have effects, and opening a pipe can block,
    /// so the type is checked before the file is opened for reading, and again afterwards.
    fn open_typed(&self, path: &str, want: FileType, flags: OFlags) -> Reading<OwnedFd> {
        check_type(self.open_below(path, OFlags::PATH)?.as_fd(), want)?;
        let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_below(path, flags)?;
        check_type(file.as_fd(), want)?;
        Ok(file)
    }
}

/// Reads the beginning of a file.
fn read(file: OwnedFd, limit: usize) -> Reading<Vec<u8>> {
    let mut content = Vec::new();
    let read = File::from(file).take(limit as u64).read_to_end(&mut content);
    let failed =
        |error: std::io::Error| Errno::from_io_error(&error).map_or(Absent::Failed, reason);
    read.map(|_| content).map_err(failed)
}

fn check_type(file: BorrowedFd<'_>, want: FileType) -> Reading<()> {
    let stat: Stat = rustix::fs::fstat(file).map_err(reason)?;
    if FileType::from_raw_mode(stat.st_mode) == want { Ok(()) } else { Err(Absent::Failed) }
}

/// Returns the reason why a file has no content.
fn reason(error: Errno) -> Absent {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::OPNOTSUPP | Errno::NODATA => {
            Absent::NotSupported
        }
        Errno::PERM | Errno::ACCESS => Absent::NotPermitted,
        Errno::NODEV | Errno::NXIO => Absent::NotFound,
        _ => Absent::Failed,
    }
}

impl Tree for Root {
    fn read(&self, path: &str, limit: usize) -> Reading<Vec<u8>> {
        read(self.open_typed(path, FileType::RegularFile, OFlags::empty())?, limit)
    }

    fn names(&self, path: &str) -> Reading<Vec<String>> {
        // Followed also if it is the file of a lost link.
        let dir = format!("{path}/.");
        let dir = self.open_typed(&dir, FileType::Directory, OFlags::DIRECTORY)?;
        let entries = rustix::fs::Dir::new(dir).map_err(reason)?.take(MAX_NAMES);
        let names = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().to_str().ok()?.to_owned();
            (name != "." && name != "..").then_some(name)
        });
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    fn target(&self, path: &str) -> Reading<String> {
        let link = self.open_below(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let target = match check_type(link.as_fd(), FileType::Symlink) {
            Ok(()) => rustix::fs::readlinkat(&link, "", Vec::new()).map_err(reason)?.into_string(),
            Err(absent) => Ok(self.link_file(&self.followed(path)?).ok_or(absent)?),
        };
        let target = target.map_err(|_| Absent::Implausible)?;
        let name = target.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty());
        name.map(str::to_owned).ok_or(Absent::Implausible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn root() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/card0")).unwrap();
        fs::write(dir.path().join("sys/card0/vendor"), "0x1002\n").unwrap();
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn small_files_are_text_and_numbers() {
        let (dir, root) = root();
        let tree: &dyn Tree = &root;
        assert_eq!(tree.text("sys/card0/vendor").as_deref(), Ok("0x1002"));
        assert_eq!(tree.number::<u16>("sys/card0/vendor"), Ok(0x1002));
        assert_eq!(tree.number::<u8>("sys/card0/vendor"), Err(Absent::Implausible));
        assert_eq!(tree.text("sys/card0/device"), Err(Absent::NotSupported));
        for (content, want) in [("\n", Absent::NotSupported), ("\u{0}x", Absent::Implausible)] {
            fs::write(dir.path().join("sys/card0/device"), content).unwrap();
            assert_eq!(tree.number::<i64>("sys/card0/device"), Err(want), "{content:?}");
        }
        fs::write(dir.path().join("sys/card0/device"), vec![b'1'; 1 << 20]).unwrap();
        assert_eq!(tree.text("sys/card0/device"), Err(Absent::Implausible));
        assert_eq!(tree.names("sys/card0").unwrap(), ["device", "vendor"]);
    }

    #[test]
    fn links_stay_below_the_root() {
        let (dir, root) = root();
        let tree: &dyn Tree = &root;
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("vendor"), "0xbad").unwrap();
        let link = dir.path().join("link");
        for target in
            [outside.path(), Path::new("../../../../../etc"), Path::new("/proc/self/root")]
        {
            symlink(target, &link).unwrap();
            for name in ["vendor", "passwd", "etc/passwd"] {
                assert_eq!(tree.text(&format!("link/{name}")), Err(Absent::NotSupported));
            }
            fs::remove_file(&link).unwrap();
        }
        symlink("/sys/card0", &link).unwrap();
        assert_eq!(tree.text("link/vendor").as_deref(), Ok("0x1002"));
        assert_eq!(tree.target("link").as_deref(), Ok("card0"));
        assert_eq!(tree.target("sys/card0/vendor"), Err(Absent::Failed));
    }

    #[test]
    fn files_of_a_copy_stand_for_its_links() {
        let (dir, root) = root();
        let tree: &dyn Tree = &root;
        fs::create_dir_all(dir.path().join("sys/class/drm")).unwrap();
        fs::write(dir.path().join("sys/class/drm/card0"), "../../card0").unwrap();
        fs::write(dir.path().join("sys/card0/device"), "../pci/0000:03:00.0").unwrap();
        fs::create_dir_all(dir.path().join("sys/pci/0000:03:00.0")).unwrap();
        fs::write(dir.path().join("sys/pci/0000:03:00.0/revision"), "0xc1").unwrap();
        let device = "sys/class/drm/card0/device";
        assert_eq!(tree.number::<u8>(&format!("{device}/revision")), Ok(0xc1));
        assert_eq!(tree.target(device).as_deref(), Ok("0000:03:00.0"));
        assert_eq!(tree.names(&format!("{device}/..")).unwrap(), ["0000:03:00.0"]);
        let long = format!("{}pci/0000:03:00.0", "../".repeat(MAX_COMPONENTS));
        for (target, file, why) in [
            ("../card0/device", "revision", Absent::Failed),
            ("../../../../../etc", "passwd", Absent::NotSupported),
            (&long, "revision", Absent::Failed),
        ] {
            fs::write(dir.path().join("sys/card0/device"), target).unwrap();
            let tree: &dyn Tree = &Root::open(dir.path()).unwrap();
            assert_eq!(tree.text(&format!("{device}/{file}")), Err(why), "{target:.20}");
        }
    }

    #[test]
    fn only_regular_files_are_read() {
        let (dir, root) = root();
        let tree: &dyn Tree = &root;
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(tree.read("pipe", 10), Err(Absent::Failed));
        assert_eq!(tree.read("sys", 10), Err(Absent::Failed));
        assert_eq!(tree.names("sys/card0/vendor"), Err(Absent::Failed));
        let live = Root::open(Path::new("/")).unwrap();
        assert_eq!(live.read("dev/null", 10), Err(Absent::Failed));
    }
}
