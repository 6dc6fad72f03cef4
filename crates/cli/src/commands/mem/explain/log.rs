//! The end of a log of any length; out-of-memory messages are near the end.

use crate::exit::Exit;
use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// At least this many of the last bytes are kept, and at most twice as many are buffered.
const KEPT: usize = 64 << 20;

/// The maximum number of bytes to read.
const MAX: u64 = 16 << 30;

/// The end of a log.
pub(super) struct Log {
    pub(super) bytes: Vec<u8>,
    /// The number of omitted lines before it.
    pub(super) lines_before: usize,
}

/// Reads a file, or standard input for `-`.
pub(super) fn read(path: &Path) -> Result<Log, Failure> {
    let what = || format!("read '{}'", path.display());
    let log = if path.as_os_str() == "-" {
        end(io::stdin().lock(), KEPT, MAX)
    } else {
        File::open(path).and_then(|file| end(file, KEPT, MAX))
    };
    log.map_err(|error| Failure::io(what(), error))?.ok_or_else(|| {
        Failure::new(Exit::Usage, what())
            .with_source(format!("it is larger than {} GiB", MAX >> 30))
            .with_hint("tail -c 60M LOG | gpuws mem explain -")
    })
}

/// Reads to the end and keeps the last bytes; `None` if there are more than `most`.
fn end(mut from: impl Read, kept: usize, most: u64) -> io::Result<Option<Log>> {
    let mut log = Log { bytes: Vec::new(), lines_before: 0 };
    let mut all = 0;
    loop {
        let room = kept.saturating_mul(2).saturating_sub(log.bytes.len());
        let more = from.by_ref().take(room as u64).read_to_end(&mut log.bytes)?;
        all += more as u64;
        if more < room {
            return Ok(Some(log));
        }
        if all > most {
            return Ok(None);
        }
        let dropped = log.bytes.drain(..log.bytes.len().saturating_sub(kept));
        log.lines_before += dropped.filter(|byte| *byte == b'\n').count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_keeps_count_of_skipped_lines() {
        let text: String = (0..1000).map(|line| format!("line {line}\n")).collect();
        for kept in [1, 7, 100, 1000, 10_000, 100_000] {
            let log = end(text.as_bytes(), kept, 1 << 20).unwrap().unwrap();
            assert!(text.as_bytes().ends_with(&log.bytes) && log.bytes.len() <= 2 * kept);
            assert!(log.bytes.len() >= kept.min(text.len()), "{kept}");
            let here = log.bytes.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(log.lines_before + here, 1000, "{kept}");
        }
    }

    #[test]
    fn endless_input_is_rejected() {
        assert!(end(io::repeat(b'x'), 10, 1000).unwrap().is_none());
        assert!(end(&[b'x'; 20][..], 10, 20).unwrap().is_some());
        assert_eq!(end(io::empty(), 10, 1000).unwrap().unwrap().bytes, b"");
    }
}
