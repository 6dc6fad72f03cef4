//! Mapped files, from `/proc/PID/maps`.
//!
//! A line identifies the mapped file by its file *system* and its inode, never by a device number,
//! and on btrfs and overlayfs with other numbers than `stat`. So a line alone proves nothing: the
//! file behind it is queried, once per file and walk, because most processes map the same
//! libraries.

use crate::file_index::{Findings, Targets, file_id};
use crate::proc_dir::ProcDir;
use gpu_core::FileId;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, statx};
use rustix::io::{Errno, Result};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Longer than any line: a path has at most 4,096 bytes, and each may be escaped as four.
const LINE_LIMIT: usize = 32 << 10;

/// How many irrelevant files are cached.
const MAX_IGNORED_FILES: usize = 1 << 16;

/// Reads the mappings of one process after another.
pub(crate) struct Mappings {
    buffer: Vec<u8>,
    /// Mapped files that are no targets.
    others: HashSet<(u64, u64)>,
}

impl Default for Mappings {
    fn default() -> Self {
        Mappings { buffer: vec![0; LINE_LIMIT], others: HashSet::new() }
    }
}

impl Mappings {
    /// Records the targets that a thread has mapped, and returns whether it has any mappings.
    pub(crate) fn look(
        &mut self,
        thread: &ProcDir,
        targets: &Targets<'_>,
        findings: &mut Findings,
    ) -> Result<bool> {
        let maps = thread.open("maps")?;
        let mut any = false;
        // Bytes of `buffer` with the start of an incomplete line.
        let mut held = 0;
        let mut before = None;
        loop {
            let count = match rustix::io::read(&maps, &mut self.buffer[held..]) {
                Ok(0) | Err(Errno::SRCH) => return Ok(any),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            any = true;
            let filled = held + count;
            let whole = self.buffer[..filled].iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |newline| newline + 1);
            for line in self.buffer[..whole].split(|byte| *byte == b'\n') {
                let Some(line) = Line::parse(line) else { continue };
                if before == Some(line.file) || self.others.contains(&line.file) {
                    continue;
                }
                before = Some(line.file);
                let known = line.identify(thread);
                let id = known.unwrap_or(line.numbers());
                if targets.contains(id) {
                    findings.note_mapped(id);
                } else if known.is_some() && self.others.len() < MAX_IGNORED_FILES {
                    self.others.insert(line.file);
                }
            }
            // The kernel writes no line longer than the buffer: drop it.
            held = if filled - whole == self.buffer.len() { 0 } else { filled - whole };
            self.buffer.copy_within(whole..whole + held, 0);
        }
    }
}

/// A mapping of a file.
struct Line<'a> {
    start: u64,
    end: u64,
    /// File system and inode, according to this line.
    file: (u64, u64),
    path: &'a [u8],
}

impl<'a> Line<'a> {
    /// Parses `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE PATH`; `None` for memory without a
    /// file.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let (start, end) = split_hex(fields.next()?, b'-')?;
        let (_permissions, _offset) = (fields.next()?, fields.next()?);
        let (major, minor) = split_hex(fields.next()?, b':')?;
        let inode: u64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        if inode == 0 {
            return None;
        }
        let path = fields.next()?.trim_ascii_start();
        let (major, minor) = (u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
        Some(Line { start, end, file: (rustix::fs::makedev(major, minor), inode), path })
    }

    /// Returns the mapped file; `None` if it cannot be determined.
    ///
    /// `map_files` leads to the very file, deleted or not, but only for callers with the checkpoint
    /// capability. Others use the path as the process itself sees it. Its directories are in the
    /// kernel's cache, as those of any mapped file, so no file server is contacted.
    fn identify(&self, thread: &ProcDir) -> Option<FileId> {
        let range = format!("map_files/{:x}-{:x}", self.start, self.end);
        let stat = thread.identify(range).ok().or_else(|| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let root = flags | OFlags::DIRECTORY;
            let root = rustix::fs::openat(thread, c"root", root, Mode::empty()).ok()?;
            let resolve =
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
            let path = OsStr::from_bytes(self.path);
            let file = rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve).ok()?;
            let empty = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let stat = statx(&file, c"", empty, StatxFlags::TYPE | StatxFlags::INO).ok()?;
            // Otherwise the path leads to another file by now.
            (stat.stx_ino == self.file.1).then_some(stat)
        })?;
        Some(file_id(&stat))
    }

    /// Returns the numbers in the line itself: those of `stat` on most file systems, and all that
    /// is available without further rights. They cannot identify a device.
    fn numbers(&self) -> FileId {
        FileId::Inode { dev: self.file.0, ino: self.file.1 }
    }
}

/// Parses two hexadecimal numbers with `between` between them.
fn split_hex(field: &[u8], between: u8) -> Option<(u64, u64)> {
    let (left, right) = std::str::from_utf8(field).ok()?.split_once(char::from(between))?;
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    Some((hex(left)?, hex(right)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_parsed_and_anonymous_memory_is_skipped() {
        let line = b"7f0a5c000000-7f0a5c001000 rw-s 00002000 00:06 1234      /dev/nvidia 0";
        let line = Line::parse(line).unwrap();
        assert_eq!((line.start, line.end), (0x7f0a_5c00_0000, 0x7f0a_5c00_1000));
        assert_eq!(line.file, (6, 1234));
        assert_eq!(line.path, b"/dev/nvidia 0");
        for none in [
            &b""[..],
            b"7ffd0000-7ffd1000 rw-p 00000000 00:00 0                          [stack]",
            b"7ffd0000-7ffd1000 rw-p 00000000 00:00 0 ",
            b"7ffd0000 rw-p 00000000 00:06 12 /x",
            b"7ffd0000-7ffd1000 rw-p 00000000 00:06 -12 /x",
            b"7ffd0000-7ffd1000 rw-p 00000000 fffffffff:06 12 /x",
            b"\xff\xfe-7ffd1000 rw-p 00000000 00:06 12 /x",
        ] {
            assert!(Line::parse(none).is_none(), "{}", none.escape_ascii());
        }
    }
}
