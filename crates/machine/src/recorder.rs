//! Records the snapshots of a program that watches a machine.

use crate::{LeaseReader, MachineError, Source, history};
use gpu_core::Snapshot;
use gpu_history::{Frame, Retention, Writer};
use std::path::Path;
use std::time::Duration;

/// The history that a program writes.
pub struct Recorder {
    writer: Writer,
    leases: LeaseReader,
    is_failing: bool,
    missing: usize,
}

impl Recorder {
    /// Continues the history of a machine in this directory, or begins one and creates the
    /// directory. Days that are older than `keep` are removed.
    ///
    /// # Errors
    /// When users other than root and the caller can change or replace the directory, when another
    /// recorder writes there, when the history there is of another machine or has no names, or the
    /// directory cannot be used.
    pub fn open(path: &Path, source: &Source, keep: Duration) -> Result<Self, MachineError> {
        let retention = Retention { max_age: Some(keep), max_bytes: None };
        let writer = history::writer(path, source, true, retention)?;
        Ok(Recorder { writer, leases: LeaseReader::default(), is_failing: false, missing: 0 })
    }

    /// Adds a snapshot with the leases, and returns the snapshot.
    ///
    /// The second value is the error if the snapshot is missing from the history or an old day
    /// cannot be removed, but only after a snapshot without an error.
    pub fn add(&mut self, source: &Source, snapshot: Snapshot) -> (Snapshot, gpu_core::Result<()>) {
        let leases = self.leases.read(source).entries();
        let frame = Frame::new(snapshot, leases);
        let before = self.writer.frames();
        let added = self.writer.add(&frame);
        self.missing += usize::from(self.writer.frames() == before);
        let was_failing = std::mem::replace(&mut self.is_failing, added.is_err());
        (frame.snapshot, if was_failing { Ok(()) } else { added })
    }

    /// Waits until all snapshots are on disk. Returns how many are missing, and the error if those
    /// that were added cannot be written to the disk.
    pub fn finish(self) -> (usize, gpu_core::Result<()>) {
        (self.missing, self.writer.sync())
    }
}
