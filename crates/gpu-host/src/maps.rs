//! Mapped files, from `/proc/PID/maps`.
//!
//! The kernel answers for one mapping of a file after another, and skips those of memory, of which a
//! process of many threads has thousands. Older kernels have only the text.
//!
//! Both identify the mapped file by its file *system* and its inode, never by a device number, and
//! on btrfs and overlayfs with other numbers than `stat`. So an answer alone proves nothing: the
//! file behind it is queried, once per file and walk, because most processes map the same
//! libraries.

use crate::file_index::{Findings, Targets, file_id};
use crate::proc_dir::ProcDir;
use crate::syscall::next_file_mapping;
use gpu_core::FileId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, statx};
use rustix::io::{Errno, Result};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Longer than any line: a path has at most 4,096 bytes, and each may be escaped as four.
const LINE_LIMIT: usize = 32 << 10;

/// The longest path (`PATH_MAX`).
const PATH_LIMIT: usize = 4096;

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
        match self.query(&maps, thread, targets, findings) {
            Err(Errno::NOTTY | Errno::NOSYS) => self.read(&maps, thread, targets, findings),
            queried => queried,
        }
    }

    /// Asks the kernel.
    fn query(
        &mut self,
        maps: &OwnedFd,
        thread: &ProcDir,
        targets: &Targets<'_>,
        findings: &mut Findings,
    ) -> Result<bool> {
        let (mut from, mut before) = (0, None);
        loop {
            let mapping = match next_file_mapping(maps.as_fd(), from, &mut []) {
                Ok(Some(mapping)) => mapping,
                // Its memory is all without files.
                Ok(None) => return Ok(true),
                Err(Errno::SRCH) => return Ok(from > 0),
                Err(errno) => return Err(errno),
            };
            let path = || path_of(maps, mapping.start).ok().map(Cow::Owned);
            let region = Region { start: mapping.start, end: mapping.end, file: mapping.file };
            if before.replace(region.file) != Some(region.file) {
                self.note(&region, path, thread, targets, findings);
            }
            from = mapping.end;
        }
    }

    /// Reads the text.
    fn read(
        &mut self,
        maps: &OwnedFd,
        thread: &ProcDir,
        targets: &Targets<'_>,
        findings: &mut Findings,
    ) -> Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut any = false;
        // Bytes of `buffer` with the start of an incomplete line.
        let mut held = 0;
        let mut before = None;
        let ended = loop {
            let count = match rustix::io::read(maps, &mut buffer[held..]) {
                Ok(0) | Err(Errno::SRCH) => break Ok(any),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => break Err(errno),
            };
            any = true;
            let filled = held + count;
            let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |newline| newline + 1);
            for line in buffer[..whole].split(|byte| *byte == b'\n') {
                let Some((region, path)) = parse(line) else { continue };
                if before.replace(region.file) != Some(region.file) {
                    let path = || Some(Cow::Borrowed(path));
                    self.note(&region, path, thread, targets, findings);
                }
            }
            // The kernel writes no line longer than the buffer: drop it.
            let is_too_long = whole == 0 && filled == buffer.len();
            held = if is_too_long { 0 } else { filled - whole };
            buffer.copy_within(whole..whole + held, 0);
        };
        self.buffer = buffer;
        ended
    }

    /// Records a mapped file if it is a target.
    fn note<'p>(
        &mut self,
        region: &Region,
        path: impl FnOnce() -> Option<Cow<'p, [u8]>>,
        thread: &ProcDir,
        targets: &Targets<'_>,
        findings: &mut Findings,
    ) {
        if self.others.contains(&region.file) {
            return;
        }
        let known = region.identify(path, thread);
        let id = known.unwrap_or(region.numbers());
        if targets.contains(id) {
            findings.note_mapped(id);
        } else if known.is_some() && self.others.len() < MAX_IGNORED_FILES {
            self.others.insert(region.file);
        }
    }
}

/// A mapping of a file.
#[derive(Debug, PartialEq, Eq)]
struct Region {
    start: u64,
    end: u64,
    /// File system and inode, according to `maps`.
    file: (u64, u64),
}

impl Region {
    /// Returns the mapped file; `None` if it cannot be determined.
    ///
    /// `map_files` leads to the very file, deleted or not, but only for callers with the checkpoint
    /// capability. Others use the path as the process itself sees it. Its directories are in the
    /// kernel's cache, as those of any mapped file, so no file server is contacted.
    fn identify<'p>(
        &self,
        path: impl FnOnce() -> Option<Cow<'p, [u8]>>,
        thread: &ProcDir,
    ) -> Option<FileId> {
        let range = format!("map_files/{:x}-{:x}", self.start, self.end);
        let stat = thread.identify(range).ok().or_else(|| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let root = flags | OFlags::DIRECTORY;
            let root = rustix::fs::openat(thread, c"root", root, Mode::empty()).ok()?;
            let resolve =
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
            let path = path()?;
            let path = OsStr::from_bytes(&path);
            let file = rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve).ok()?;
            let empty = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let stat = statx(&file, c"", empty, StatxFlags::TYPE | StatxFlags::INO).ok()?;
            // Otherwise the path leads to another file by now.
            (stat.stx_ino == self.file.1).then_some(stat)
        })?;
        Some(file_id(&stat))
    }

    /// Returns the numbers in `maps` itself: those of `stat` on most file systems, and all that is
    /// available without further rights. They cannot identify a device.
    fn numbers(&self) -> FileId {
        FileId::Inode { dev: self.file.0, ino: self.file.1 }
    }
}

/// Returns the path of the file that is mapped at an address.
fn path_of(maps: &OwnedFd, start: u64) -> Result<Vec<u8>> {
    let mut path = vec![0; PATH_LIMIT];
    let mapping = next_file_mapping(maps.as_fd(), start, &mut path)?.ok_or(Errno::NOENT)?;
    path.truncate(mapping.path_length);
    Ok(path)
}

/// Parses a line `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE PATH`; `None` for memory without a
/// file.
fn parse(line: &[u8]) -> Option<(Region, &[u8])> {
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
    Some((Region { start, end, file: (rustix::fs::makedev(major, minor), inode) }, path))
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
        let (region, path) = parse(line).unwrap();
        assert_eq!((region.start, region.end), (0x7f0a_5c00_0000, 0x7f0a_5c00_1000));
        assert_eq!(region.file, (6, 1234));
        assert_eq!(path, b"/dev/nvidia 0");
        for none in [
            &b""[..],
            b"7ffd0000-7ffd1000 rw-p 00000000 00:00 0                          [stack]",
            b"7ffd0000-7ffd1000 rw-p 00000000 00:00 0 ",
            b"7ffd0000 rw-p 00000000 00:06 12 /x",
            b"7ffd0000-7ffd1000 rw-p 00000000 00:06 -12 /x",
            b"7ffd0000-7ffd1000 rw-p 00000000 fffffffff:06 12 /x",
            b"\xff\xfe-7ffd1000 rw-p 00000000 00:06 12 /x",
        ] {
            assert!(parse(none).is_none(), "{}", none.escape_ascii());
        }
    }

    /// Returns all mappings of files, with their paths, as the kernel answers.
    fn answers() -> Result<Vec<(Region, Vec<u8>)>> {
        let maps: OwnedFd = std::fs::File::open("/proc/self/maps").unwrap().into();
        let (mut from, mut answers) = (0, Vec::new());
        while let Some(mapping) = next_file_mapping(maps.as_fd(), from, &mut [])? {
            from = mapping.end;
            let region = Region { start: mapping.start, end: mapping.end, file: mapping.file };
            answers.push((region, path_of(&maps, mapping.start)?));
        }
        Ok(answers)
    }

    #[test]
    fn kernel_answers_as_its_text_says() {
        let text = || std::fs::read("/proc/self/maps").unwrap();
        // Another test may map a file in between.
        for _ in 0..100 {
            let (before, answers, after) = (text(), answers(), text());
            if before != after {
                continue;
            }
            if let Err(errno @ (Errno::NOTTY | Errno::NOSYS)) = answers {
                #[allow(clippy::print_stdout, reason = "a test that does nothing says so")]
                return println!("skipped: the kernel answers nothing: {errno}");
            }
            let lines = before.split(|byte| *byte == b'\n').filter_map(parse);
            let lines: Vec<_> = lines.map(|(region, path)| (region, path.to_vec())).collect();
            assert!(!lines.is_empty());
            return assert_eq!(answers, Ok(lines));
        }
        panic!("the mappings change all the time");
    }

    #[test]
    fn other_file_answers_nothing() {
        let file = tempfile::tempfile().unwrap();
        let answered = next_file_mapping(file.as_fd(), 0, &mut []);
        assert!(matches!(answered, Err(Errno::NOTTY | Errno::NOSYS)), "{answered:?}");
    }
}
