//! The record of a machine: a history, or a recording in JSON.

use crate::{MachineError, history};
use gpu_core::{LeaseEntry, Snapshot, Timestamp};
use gpu_history::{Damage, Frame, Reader};
use gpu_sim::Recording;
use std::path::Path;
use std::time::Duration;

/// The snapshots of a machine over time, in the order in which they were taken.
#[derive(Debug)]
pub enum Recorded {
    /// The directory of a history, whose frames are read one after the other.
    History(Box<Reader>),
    /// A file of `gpuws record`.
    Recording(Box<Recording>),
}

impl Recorded {
    /// Opens the directory of a history, or a file of `gpuws record`.
    ///
    /// # Errors
    /// When it is neither, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, MachineError> {
        if path.is_dir() {
            return Ok(Recorded::History(Box::new(history::reader(path)?)));
        }
        let recording = Recording::open(path).map_err(|error| {
            MachineError::from(error)
                .with_hint("pass the directory of gpuws record --for, or a file of gpuws record")
        })?;
        Ok(Recorded::Recording(Box::new(recording)))
    }

    /// Returns the times of the first and last snapshots; `None` without any.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        match self {
            Recorded::History(reader) => reader.span(),
            Recorded::Recording(recording) => {
                let mut times = recording.snapshots.iter().map(|frame| frame.snapshot.taken_at);
                let first = times.next()?;
                Some(times.fold((first, first), |(from, to), at| (from.min(at), to.max(at))))
            }
        }
    }

    /// Calls `to` with the snapshots from one time to another, and the leases at that time.
    /// Snapshots less than `apart` after the previous one are left out, and not even decoded.
    pub fn each(
        &mut self,
        since: Timestamp,
        until: Timestamp,
        apart: Duration,
        mut to: impl FnMut(&Snapshot, &[LeaseEntry]),
    ) {
        let mut last: Option<Timestamp> = None;
        let mut is_due = |at: Timestamp| {
            // After a step of the clock, later snapshots may be earlier in time.
            let is_apart = last.is_none_or(|last| at < last || at.since(last) >= apart);
            let is_due = since <= at && at <= until && (is_apart || at == until);
            last = if is_due { Some(at) } else { last };
            is_due
        };
        match self {
            Recorded::History(reader) => {
                for number in reader.first_since(since)..reader.len() {
                    let frame = match reader.time(number) {
                        Some(at) if is_due(at) => reader.frame(number),
                        _ => None,
                    };
                    if let Some(Frame { snapshot, leases }) = frame {
                        to(&snapshot, leases.as_deref().unwrap_or_default());
                    }
                }
            }
            Recorded::Recording(recording) => {
                let snapshots = recording.snapshots.iter().map(|frame| &frame.snapshot);
                snapshots
                    .filter(|snapshot| is_due(snapshot.taken_at))
                    .for_each(|snapshot| to(snapshot, &[]));
            }
        }
    }

    /// Returns the damage of a history found so far.
    pub fn damage(&self) -> &[Damage] {
        match self {
            Recorded::History(reader) => reader.damage(),
            Recorded::Recording(_) => &[],
        }
    }
}
