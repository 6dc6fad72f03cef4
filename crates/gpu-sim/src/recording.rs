//! The file format of `gpuws record`: a series of snapshots of a machine.
//!
//! It consists of JSON lines. The first line is a [`Header`]; every other line is a [`RecordedSnapshot`]: a
//! whole [`Snapshot`] and its time since the first. The file can therefore be written over hours,
//! and what was written before a crash is still a recording.

use gpu_core::{Absent, Error, ErrorKind, Reading, Result, Snapshot, Topology};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

/// The version of the format.
const VERSION: u32 = 1;
/// The maximum length of the first line, in bytes; it bounds the work of rejecting other files.
const MAX_HEADER: u64 = 1 << 20;
/// The maximum length of a snapshot line, in bytes.
const MAX_SNAPSHOT: u64 = 16 << 20;
/// The maximum size of a recording that is read, in bytes.
const MAX_RECORDING: u64 = 256 << 20;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format: 1.
    pub gpuws_recording: u32,
    /// Whether names and command lines were removed.
    pub anonymous: bool,
    /// The topology.
    #[serde(with = "gpu_core::reading", default = "unreported")]
    pub topology: Reading<Topology>,
}

fn unreported() -> Reading<Topology> {
    Err(Absent::NotRecorded)
}

/// One snapshot of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSnapshot {
    /// The time since the first snapshot, in milliseconds.
    pub offset_ms: u64,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// A machine over time: a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The first line.
    pub header: Header,
    /// The snapshots in time order; at least one.
    pub snapshots: Vec<RecordedSnapshot>,
}

/// Writes a recording incrementally.
#[derive(Debug)]
pub struct RecordingWriter<W> {
    output: W,
}

impl<W: Write> RecordingWriter<W> {
    /// Starts a recording.
    ///
    /// `anonymous` only records that every snapshot went through an
    /// [`Anonymizer`](crate::Anonymizer); the writer does not anonymize.
    ///
    /// # Errors
    /// `Io` if it cannot be written.
    pub fn new(output: W, anonymous: bool, topology: Reading<Topology>) -> Result<Self> {
        let mut writer = RecordingWriter { output };
        writer.line(&Header { gpuws_recording: VERSION, anonymous, topology })?;
        Ok(writer)
    }

    /// Adds a snapshot taken `offset` after the first one.
    ///
    /// # Errors
    /// `Io` if it cannot be written.
    pub fn add(&mut self, offset: Duration, snapshot: &Snapshot) -> Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            offset_ms: u64,
            snapshot: &'a Snapshot,
        }
        let offset_ms = u64::try_from(offset.as_millis()).unwrap_or(u64::MAX);
        self.line(&Line { offset_ms, snapshot })
    }

    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut write = || -> std::io::Result<()> {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            self.output.write_all(&text)?;
            self.output.flush()
        };
        write().map_err(|error| Error::new(ErrorKind::Io, "write the recording").with_source(error))
    }

    /// Returns the underlying writer.
    pub fn into_inner(self) -> W {
        self.output
    }
}

impl Recording {
    /// Reads a recording from a file.
    ///
    /// # Errors
    /// `Io` if the file cannot be read; `Invalid`, with file and line, if it is not a complete
    /// recording.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let failed = |kind| Error::new(kind, format!("read recording '{shown}'"));
        let io = |error| failed(ErrorKind::Io).with_source(error);
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(failed(ErrorKind::Invalid).with_source("it is not a regular file"));
        }
        let file = std::fs::File::open(path).map_err(io)?;
        Self::read(file).map_err(|error| failed(error.kind()).with_source(error))
    }

    /// Reads a recording of at most 256 MiB.
    ///
    /// # Errors
    /// `Io` if it cannot be read; `Invalid`, with the line, if it is not a complete recording.
    pub fn read(input: impl Read) -> Result<Self> {
        let mut lines = Lines { input: BufReader::new(input), line: 0, read: 0 };
        let header = lines.next(MAX_HEADER)?.unwrap_or_default();
        let header: Header = match serde_json::from_slice::<Header>(&header) {
            Ok(header) if header.gpuws_recording == VERSION => header,
            Ok(header) => {
                let newer = format!(
                    "unsupported format version {}; expected {VERSION}",
                    header.gpuws_recording
                );
                return Err(lines.wrong(&newer));
            }
            Err(_) => {
                return Err(lines.wrong("not a recording: header missing"));
            }
        };
        let (drivers, mut snapshots) =
            (gpu_nvidia_driver::drivers(), Vec::<RecordedSnapshot>::new());
        while let Some(line) = lines.next(MAX_SNAPSHOT)? {
            let mut recorded: RecordedSnapshot =
                serde_json::from_slice(&line).map_err(|error| {
                    if !line.ends_with(b"\n") {
                        return lines.wrong("truncated snapshot");
                    }
                    lines.wrong("invalid snapshot").with_source(error)
                })?;
            if snapshots.last().is_some_and(|last| last.offset_ms > recorded.offset_ms) {
                return Err(lines.wrong("snapshot is older than the previous one"));
            }
            recorded.snapshot.explain(&drivers);
            snapshots.push(recorded);
        }
        if snapshots.is_empty() {
            return Err(lines.wrong("no snapshot"));
        }
        Ok(Recording { header, snapshots })
    }
}

struct Lines<R> {
    input: R,
    line: u64,
    read: u64,
}

impl<R: BufRead> Lines<R> {
    /// Returns the next line, with its line end if any; `None` at the end.
    fn next(&mut self, longest: u64) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.line += 1;
        let mut bounded = self.input.by_ref().take(longest + 1);
        let read = bounded.read_until(b'\n', &mut line);
        read.map_err(|error| Error::new(ErrorKind::Io, self.position()).with_source(error))?;
        self.read = self.read.saturating_add(line.len() as u64);
        if line.len() as u64 > longest {
            return Err(if self.line == 1 {
                self.wrong("not a recording: header missing")
            } else {
                self.wrong(&format!("it is longer than {} MiB", longest >> 20))
            });
        }
        if self.read > MAX_RECORDING {
            return Err(self.wrong(&format!("it is longer than {} MiB", MAX_RECORDING >> 20)));
        }
        Ok(Some(line).filter(|line| !line.is_empty()))
    }

    fn position(&self) -> String {
        format!("line {}", self.line)
    }

    fn wrong(&self, what: &str) -> Error {
        Error::new(ErrorKind::Invalid, format!("{}: {what}", self.position()))
    }
}
