//! Mapped files, from `/proc/PID/maps`.
//!
//! The kernel returns one mapping of a file after another, and skips anonymous mappings; a process
//! with many threads has thousands of those. Older kernels have only the text.
//!
//! Both identify the mapped file by its file *system* and its inode, never by a device number, and
//! on btrfs and overlayfs with other numbers than `stat`. So an answer alone proves nothing: the
//! file behind it is queried, once per file and walk, because most processes map the same
//! libraries.

use crate::file_index::{Findings, Targets, file_id};
use crate::file_stat::FileStat;
use crate::proc_dir::ProcDir;
use crate::syscall::{FileMapping, next_file_mapping, path_of_mapping};
use gpu_core::FileId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Longer than any line: a path has at most 4,096 bytes, and each may be escaped as four.
const LINE_LIMIT: usize = 32 << 10;

/// How many irrelevant files are cached.
const MAX_IGNORED_FILES: usize = 1 << 16;

/// Returns the path of a mapped file, if needed.
type PathOf<'a> = dyn Fn() -> Option<Cow<'a, [u8]>> + 'a;

/// Reads the mappings of one process after another.
pub(crate) struct Mappings {
    buffer: Vec<u8>,
    /// Mapped files that are not targets.
    others: HashSet<(u64, u64)>,
}

impl Default for Mappings {
    fn default() -> Self {
        Mappings { buffer: vec![0; LINE_LIMIT], others: HashSet::new() }
    }
}

impl Mappings {
    /// Records the targets that a thread has mapped, and returns whether it has any mappings.
    pub(crate) fn scan(
        &mut self,
        thread: &ProcDir,
        targets: &Targets<'_>,
        findings: &mut Findings,
    ) -> Result<bool> {
        let maps = thread.open("maps")?;
        let (others, mut before) = (&mut self.others, None);
        let mut note = |mapping: FileMapping, path: &PathOf<'_>| {
            let repeated = before.replace(mapping.file) == Some(mapping.file);
            if repeated || others.contains(&mapping.file) {
                return;
            }
            let known = identify(&mapping, path, thread);
            let id = known.unwrap_or(numbers(&mapping));
            if targets.contains(id) {
                findings.note_mapped(id);
            } else if known.is_some() && others.len() < MAX_IGNORED_FILES {
                others.insert(mapping.file);
            }
        };
        match query(&maps, &mut note) {
            Err(Errno::NOTTY | Errno::NOSYS) => read(&maps, &mut self.buffer, &mut note),
            queried => queried,
        }
    }
}

/// Asks the kernel for each mapping of a file, and returns whether there are any mappings.
fn query(maps: &OwnedFd, note: &mut dyn FnMut(FileMapping, &PathOf<'_>)) -> Result<bool> {
    let mut from = 0;
    loop {
        let mapping = match next_file_mapping(maps.as_fd(), from) {
            Ok(Some(mapping)) => mapping,
            // The rest of its memory is without files.
            Ok(None) => return Ok(true),
            Err(Errno::SRCH) => return Ok(from > 0),
            Err(errno) => return Err(errno),
        };
        note(mapping, &|| path_of_mapping(maps.as_fd(), mapping.start).ok().map(Cow::Owned));
        from = mapping.end;
    }
}

/// Reads the text, and returns whether there is any.
fn read(
    maps: &OwnedFd,
    buffer: &mut [u8],
    note: &mut dyn FnMut(FileMapping, &PathOf<'_>),
) -> Result<bool> {
    let mut any = false;
    // Bytes of `buffer` with the start of an incomplete line.
    let mut held = 0;
    loop {
        let count = match rustix::io::read(maps, &mut buffer[held..]) {
            Ok(0) | Err(Errno::SRCH) => return Ok(any),
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        any = true;
        let filled = held + count;
        let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |newline| newline + 1);
        for line in buffer[..whole].split(|byte| *byte == b'\n') {
            if let Some((mapping, path)) = parse(line) {
                note(mapping, &|| Some(Cow::Borrowed(path)));
            }
        }
        // The kernel writes no line longer than the buffer: drop it.
        let is_too_long = whole == 0 && filled == buffer.len();
        held = if is_too_long { 0 } else { filled - whole };
        buffer.copy_within(whole..whole + held, 0);
    }
}

/// Returns the mapped file; `None` if it cannot be determined.
///
/// `map_files` leads to the same file, even if it is deleted, but only for callers with the
/// checkpoint capability. Others use the path as the process itself sees it. Its directories are in
/// the kernel's cache, as those of any mapped file, so no file server is contacted.
fn identify(mapping: &FileMapping, path: &PathOf<'_>, thread: &ProcDir) -> Option<FileId> {
    let range = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    let stat = thread.identify(range).ok().or_else(|| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = flags | OFlags::DIRECTORY;
        let root = rustix::fs::openat(thread, c"root", root, Mode::empty()).ok()?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
        let path = path()?;
        let path = OsStr::from_bytes(&path);
        let file = rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve).ok()?;
        let empty = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = FileStat::at(&file, c"", empty).ok()?;
        // Otherwise the path leads to another file by now.
        (stat.inode == mapping.file.1).then_some(stat)
    })?;
    Some(file_id(&stat))
}

/// Returns the numbers in `maps` itself: those of `stat` on most file systems, and all that is
/// available without further rights. They cannot identify a device.
fn numbers(mapping: &FileMapping) -> FileId {
    FileId::Inode { dev: mapping.file.0, ino: mapping.file.1 }
}

/// Parses a line `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE PATH`; `None` for memory without a
/// file.
fn parse(line: &[u8]) -> Option<(FileMapping, &[u8])> {
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
    Some((FileMapping { start, end, file: (rustix::fs::makedev(major, minor), inode) }, path))
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
        let (mapping, path) = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f0a_5c00_0000, 0x7f0a_5c00_1000));
        assert_eq!(mapping.file, (6, 1234));
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

    /// Returns all mappings of files from the kernel's query, with their paths.
    fn answers() -> Result<Vec<(FileMapping, Vec<u8>)>> {
        let maps = std::fs::File::open("/proc/self/maps").unwrap().into();
        let mut answers = Vec::new();
        query(&maps, &mut |mapping, path| answers.push((mapping, path().unwrap().into_owned())))?;
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
            let lines: Vec<_> = lines.map(|(mapping, path)| (mapping, path.to_vec())).collect();
            assert!(!lines.is_empty());
            return assert_eq!(answers, Ok(lines));
        }
        panic!("the mappings change all the time");
    }

    #[test]
    fn other_file_has_no_mappings() {
        let file = tempfile::tempfile().unwrap();
        let answered = next_file_mapping(file.as_fd(), 0);
        assert!(matches!(answered, Err(Errno::NOTTY | Errno::NOSYS)), "{answered:?}");
    }
}
