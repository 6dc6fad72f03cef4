//! Messages to the terminals of a user, as write(1) sends them.

use gpu_core::clean;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, major};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The maximum number of terminals that one message goes to: the last used ones.
const MOST: usize = 4;

/// The maximum number of terminals to check.
const MAX_TERMINALS: usize = 4_096;

/// The longest message in bytes. The queue of a terminal has room for more.
const LONGEST: usize = 1_024;

/// Major device numbers of terminals: `ttyN` and the followers of Unix98 (devices.txt of Linux).
const TTY: u32 = 4;
const FOLLOWERS: std::ops::RangeInclusive<u32> = 136..=143;

/// The terminals below a directory of devices.
#[derive(Clone, Debug)]
pub struct Terminals {
    dev: PathBuf,
}

impl Terminals {
    /// Returns the terminals below `dev`, which is `/dev`.
    pub fn new(dev: impl Into<PathBuf>) -> Self {
        Terminals { dev: dev.into() }
    }

    /// Writes a message to the terminals of a user who accepts messages (mesg(1)), and returns to
    /// how many. Control characters are escaped, and a terminal that does not take the message at
    /// once does not get it.
    pub fn write(&self, uid: u32, message: &str) -> usize {
        let mut found = self.of(uid);
        // The time of the last access is the time of the last key press.
        found.sort_by_key(|(stat, _)| std::cmp::Reverse(stat.st_atime));
        let text = safe(message);
        found.iter().take(MOST).filter(|(_, fd)| takes(fd, &text)).count()
    }

    /// Opens the terminals of a user.
    fn of(&self, uid: u32) -> Vec<(Stat, OwnedFd)> {
        let mut found = Vec::new();
        for (dir, prefix) in [(self.dev.join("pts"), ""), (self.dev.clone(), "tty")] {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(dir) = rustix::fs::open(&dir, flags, Mode::empty()).map(File::from) else {
                continue;
            };
            let Ok(entries) = rustix::fs::Dir::read_from(&dir) else { continue };
            for entry in entries.take(MAX_TERMINALS).flatten() {
                let name = entry.file_name().to_bytes();
                let number = name.strip_prefix(prefix.as_bytes()).unwrap_or_default();
                if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
                    continue;
                }
                let name = std::ffi::OsStr::from_bytes(name);
                found.extend(opened(dir.as_fd(), name, uid));
            }
        }
        found
    }
}

/// Returns a message in the form in which it is written to a terminal.
fn safe(message: &str) -> String {
    let mut text = String::from("\r\n");
    for line in message.lines() {
        text.push_str(&clean(line));
        text.push_str("\r\n");
    }
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("\r\n");
    }
    text
}

/// Writes to a terminal and returns whether it took everything.
fn takes(terminal: &OwnedFd, text: &str) -> bool {
    rustix::io::write(terminal, text.as_bytes()).is_ok_and(|count| count == text.len())
}

/// Opens a terminal for writing if it belongs to this user and others may write to it.
fn opened(
    dir: rustix::fd::BorrowedFd<'_>,
    name: &std::ffi::OsStr,
    uid: u32,
) -> Option<(Stat, OwnedFd)> {
    // Opening a device may have effects, so check it before.
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if !is_terminal_of(&stat, uid) {
        return None;
    }
    let flags =
        OFlags::WRONLY | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    (is_terminal_of(&stat, uid) && rustix::termios::isatty(&fd)).then_some((stat, fd))
}

fn is_terminal_of(stat: &Stat, uid: u32) -> bool {
    let device = major(stat.st_rdev);
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (device == TTY || FOLLOWERS.contains(&device))
        && stat.st_uid == uid
        && Mode::from_raw_mode(stat.st_mode).contains(Mode::WGRP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, chmod, mknodat};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    /// Returns a pseudoterminal that accepts messages, and the path of its follower.
    fn terminal() -> Option<(OwnedFd, PathBuf)> {
        let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).ok()?;
        grantpt(&leader).ok()?;
        unlockpt(&leader).ok()?;
        let path = PathBuf::from(ptsname(&leader, Vec::new()).ok()?.into_string().ok()?);
        chmod(&path, Mode::from_raw_mode(0o620)).ok()?;
        rustix::fs::fcntl_setfl(&leader, OFlags::NONBLOCK).ok()?;
        Some((leader, path))
    }

    fn skip(why: &str) {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }

    fn open(path: &Path, uid: u32) -> Option<OwnedFd> {
        let dir = fs::File::open(path.parent()?).ok()?;
        opened(dir.as_fd(), path.file_name()?, uid).map(|(_, fd)| fd)
    }

    fn received(leader: &OwnedFd) -> String {
        let mut bytes = vec![0; 4096];
        let count = rustix::io::read(leader, &mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn message_reaches_the_terminal_without_its_control_characters() {
        let Some((leader, path)) = terminal() else { return skip("no terminal") };
        let owner = fs::metadata(&path).unwrap().uid();
        let own = open(&path, owner).unwrap();
        assert!(takes(&own, &safe("GPU 0\n\x1b[2Jgpu\u{202e}ws")));
        let text = received(&leader);
        assert!(text.contains("GPU 0\r\n") || text.contains("GPU 0\r\r\n"), "{text:?}");
        assert!(text.contains("\\x1b[2J"), "{text:?}");
        assert!(!text.contains('\x1b') && !text.contains('\u{202e}'), "{text:?}");
        assert!(open(&path, owner + 1).is_none(), "it is another user's");
        assert!(safe(&"é".repeat(5_000)).len() <= LONGEST + 2);
    }

    #[test]
    fn terminal_refusing_messages_is_not_opened() {
        let Some((_leader, path)) = terminal() else { return skip("no terminal") };
        let owner = fs::metadata(&path).unwrap().uid();
        chmod(&path, Mode::from_raw_mode(0o600)).unwrap();
        assert!(open(&path, owner).is_none());
    }

    #[test]
    fn stopped_terminal_does_not_block() {
        let Some((_leader, path)) = terminal() else { return skip("no terminal") };
        let own = open(&path, fs::metadata(&path).unwrap().uid()).unwrap();
        // The leader is never read, so its queue fills up.
        let taken = (0..1_000).take_while(|_| takes(&own, &safe(&"x".repeat(1_000)))).count();
        assert!(taken > 0 && taken < 1_000, "{taken}");
    }

    #[test]
    fn links_files_and_other_devices_get_no_message() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join("pts").join(name);
        fs::create_dir(dir.path().join("pts")).unwrap();
        let file = |path: &Path| {
            fs::write(path, "untouched").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o620)).unwrap();
        };
        file(&at("8"));
        file(&dir.path().join("target"));
        symlink(dir.path().join("target"), at("9")).unwrap();
        let terminal = terminal();
        if let Some((_, path)) = &terminal {
            symlink(path, at("10")).unwrap();
        }
        let mode = Mode::from_raw_mode(0o620);
        if mknodat(CWD, at("11"), FileType::CharacterDevice, mode, rustix::fs::makedev(1, 3))
            .is_err()
        {
            skip("device nodes need root");
        }
        let owner = fs::metadata(at("8")).unwrap().uid();
        assert_eq!(Terminals::new(dir.path()).write(owner, "message"), 0);
        for path in [at("8"), dir.path().join("target")] {
            assert_eq!(fs::read_to_string(path).unwrap(), "untouched");
        }
        assert_eq!(terminal.map(|(leader, _)| received(&leader)).unwrap_or_default(), "");
        assert_eq!(Terminals::new(dir.path().join("none")).write(owner, "message"), 0);
    }
}
