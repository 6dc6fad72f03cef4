//! Records the looks of a program that watches a machine.

use crate::{MachineError, Source};
use gpu_core::{EntryKind, LeaseStore, Result, Snapshot};
use gpu_history::{Frame, Retention, Writer};
use gpu_host::{PathTrust, TrustedDir};
use rustix::fs::{Mode, OFlags, openat};
use std::path::Path;
use std::time::Duration;

/// The history that a program writes.
#[derive(Debug)]
pub struct Recorder {
    writer: Writer,
    is_failing: bool,
}

impl Recorder {
    /// Continues the history in this directory, or begins one and creates the directory. Days that
    /// are older than `keep` are removed.
    ///
    /// # Errors
    /// When users other than root and the caller can change or replace the directory, when another
    /// recorder writes there, or when it cannot be used.
    pub fn open(path: &Path, keep: Duration) -> std::result::Result<Self, MachineError> {
        let failed = |error| MachineError::io("find the directory of the history", error);
        let path = std::path::absolute(path).map_err(failed)?;
        let hint = "use a directory that only you can write to, for one recorder";
        let told = |error| MachineError::new(error).with_hint(hint);
        let dir = TrustedDir::make(&path, PathTrust::Protected).map_err(told)?;
        // To list its files, it has to be opened for reading.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&dir, ".", flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let retention = Retention { max_age: Some(keep), max_bytes: None };
        Ok(Recorder { writer: Writer::open(dir, retention).map_err(told)?, is_failing: false })
    }

    /// Adds a look with the leases of this moment, and returns the look.
    ///
    /// The second value is the error if the look is missing from the history, but only after a look
    /// that is not.
    pub fn add(&mut self, source: &Source, snapshot: Snapshot) -> (Snapshot, Result<()>) {
        let store = source.existing_lease_store();
        let leases = store.map_or(Ok(Vec::new()), |store| store.entries(EntryKind::Lease));
        let frame = Frame { snapshot, leases: leases.map_err(|error| error.fault()) };
        let added = self.writer.add(&frame);
        let was_failing = std::mem::replace(&mut self.is_failing, added.is_err());
        (frame.snapshot, if was_failing { Ok(()) } else { added })
    }

    /// Waits until all looks are on disk.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(self) -> Result<()> {
        self.writer.sync()
    }
}
