//! New lines of an audit log.

use gpu_host::TrustedFile;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The longest line.
const LINE: u64 = 64 << 10;

/// The part of an audit log that was read.
#[derive(Debug, Default)]
pub(super) struct AuditLog {
    /// The file system and the inode.
    file: Option<(u64, u64)>,
    offset: u64,
}

impl AuditLog {
    /// Calls `add` with the new lines. A log that was replaced or emptied is read from its start,
    /// and an incomplete line in the next call. Returns whether the log could be read; one that
    /// does not exist is empty.
    pub(super) fn read(&mut self, path: &Path, add: &mut dyn FnMut(&str)) -> bool {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return true,
            _ => {}
        }
        let Ok(file) = TrustedFile::open(path) else { return false };
        self.read_file(file.into_file(), add).is_ok()
    }

    fn read_file(
        &mut self,
        mut file: std::fs::File,
        add: &mut dyn FnMut(&str),
    ) -> std::io::Result<()> {
        let stat = file.metadata()?;
        let id = Some((stat.dev(), stat.ino()));
        if self.file != id || stat.len() < self.offset {
            (self.file, self.offset) = (id, 0);
        }
        file.seek(SeekFrom::Start(self.offset))?;
        // Up to its current end: a counter that lacks a part of the log would increase by it later.
        let mut reader = BufReader::new(file.take(stat.len() - self.offset));
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = (&mut reader).take(LINE).read_until(b'\n', &mut line)? as u64;
            let is_whole = line.ends_with(b"\n");
            if count == 0 || (!is_whole && count < LINE) {
                return Ok(());
            }
            self.offset += count;
            if let Ok(text) = std::str::from_utf8(&line) {
                add(text.trim_end());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn lines(log: &mut AuditLog, path: &Path) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        log.read(path, &mut |line| lines.push(line.to_owned())).then_some(lines)
    }

    #[test]
    fn each_line_is_read_once_over_appends_and_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut log = AuditLog::default();
        assert_eq!(lines(&mut log, &path), Some(vec![]), "a log that does not exist is empty");
        let append = |text: &str| {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("a\nb\nc");
        assert_eq!(lines(&mut log, &path).unwrap(), ["a", "b"]);
        assert_eq!(lines(&mut log, &path), Some(vec![]));
        append("c\n");
        assert_eq!(lines(&mut log, &path).unwrap(), ["cc"]);
        fs::rename(&path, dir.path().join("old")).unwrap();
        append("d\n");
        assert_eq!(lines(&mut log, &path).unwrap(), ["d"]);
        fs::write(&path, "").unwrap();
        append("e\n");
        assert_eq!(lines(&mut log, &path).map(|lines| lines.len()), Some(0), "as long as before");
        append("f\n");
        assert_eq!(lines(&mut log, &path).unwrap(), ["f"]);
    }

    #[test]
    fn long_log_is_read_to_its_end_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let line = format!("{}\n", "x".repeat(999));
        fs::write(&path, line.repeat(20_000) + "last\n").unwrap();
        let (mut count, mut last) = (0, String::new());
        let mut add = |line: &str| (count, last) = (count + 1, line.to_owned());
        assert!(AuditLog::default().read(&path, &mut add));
        assert_eq!((count, &*last), (20_001, "last"));
    }

    #[test]
    fn endless_line_and_untrusted_file_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        fs::write(&path, [vec![b'x'; 3 * LINE as usize], b"\nlast\n".to_vec()].concat()).unwrap();
        let mut log = AuditLog::default();
        let read = lines(&mut log, &path).unwrap();
        assert!(read.iter().all(|line| line.len() <= LINE as usize));
        assert_eq!(read.last().unwrap(), "last");
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(lines(&mut AuditLog::default(), &path), None, "others can write to it");
    }
}
