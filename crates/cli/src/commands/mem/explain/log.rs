//! A log of any length, compressed with gzip or not.

use crate::failure::Failure;
use crate::terminal::progress;
use flate2::bufread::MultiGzDecoder;
use gpu_core::Clock;
use gpu_host::SystemClock;
use gpu_host::input::{self, Input};
use gpu_text::oom::{LogReader, Report};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// The number of bytes per read.
const PART: usize = 1 << 20;

/// The start of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Progress is reported for a log that takes longer, and again after the same time.
const LONG: Duration = Duration::from_secs(1);

/// A log that was read to its end.
pub(super) struct Log {
    pub(super) report: Report,
    /// Its first bytes.
    pub(super) head: Vec<u8>,
}

/// Reads a file, or standard input for `-`.
pub(super) fn read(path: &Path) -> Result<Log, Failure> {
    let log = if path.as_os_str() == "-" {
        decompressed(Input::of_stream(io::stdin().lock()))
    } else {
        input::open(path).and_then(decompressed)
    };
    log.map_err(|error| Failure::io(format!("read '{}'", path.display()), error))
}

fn decompressed(from: impl Read) -> io::Result<Log> {
    let mut from = BufReader::with_capacity(PART, from);
    if from.fill_buf()?.starts_with(&GZIP) {
        streamed(Input::of_stream(MultiGzDecoder::new(from)))
    } else {
        streamed(from)
    }
}

/// Reads to the end; only a part of the log is in memory at a time.
fn streamed(mut from: impl Read) -> io::Result<Log> {
    let (mut reader, mut head) = (LogReader::default(), Vec::new());
    let clock = SystemClock::new();
    let (mut part, mut length, mut reported_at) = (Vec::new(), 0, clock.monotonic());
    loop {
        part.clear();
        let more = from.by_ref().take(PART as u64).read_to_end(&mut part)?;
        if more == 0 {
            return Ok(Log { report: reader.finish(), head });
        }
        if length == 0 {
            head.extend_from_slice(&part[..part.len().min(200)]);
        }
        reader.push(&part);
        length += more;
        if clock.monotonic() > reported_at + LONG {
            progress(&format!("read {} MiB of the log", length >> 20));
            reported_at = clock.monotonic();
        }
    }
}
