//! Histories: where they may be, and what is recorded of a machine.

use crate::{MachineError, Source, time_until};
use gpu_core::{
    DriverMessage, Error, ErrorKind, Fault, HolderSearch, Observation, Observer, ProcessDetail,
};
use gpu_history::{Frame, Reader, Retention, Writer};
use gpu_host::{PathTrust, TrustedDir};
use gpu_sim::Anonymizer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;
use std::time::Duration;

/// How often the driver's messages are read: the kernel's buffer has thousands of lines.
const MESSAGES_EVERY: Duration = Duration::from_secs(60);

/// Starts to write to the history in a directory, which is created if it is missing.
///
/// # Errors
/// When users other than root and the caller can change or replace the directory, when another
/// recorder writes there, or when it cannot be used.
pub fn writer(path: &Path, retention: Retention) -> Result<Writer, MachineError> {
    let failed = |error| MachineError::io("find the directory of the history", error);
    let path = std::path::absolute(path).map_err(failed)?;
    let dir = TrustedDir::make(&path, PathTrust::Protected).map_err(|error| {
        MachineError::new(error).with_hint(
            "a history shows who does what: use a directory that only you or root can change",
        )
    })?;
    Ok(Writer::open(descriptor(&dir)?, retention)?)
}

/// Starts to write a history without names. It must be new: each recorder numbers users anew.
///
/// # Errors
/// As [`writer`]; when there are frames in the directory.
pub fn anonymous_writer(path: &Path, retention: Retention) -> Result<Writer, MachineError> {
    let writer = writer(path, retention)?;
    if reader(path)?.is_empty() {
        return Ok(writer);
    }
    let error = Error::new(ErrorKind::Invalid, format!("continue '{}'", path.display()));
    Err(MachineError::new(error.with_source("without names, each recorder numbers users anew"))
        .with_hint("use a new directory, or record names"))
}

/// Opens a history to read it.
///
/// # Errors
/// When there is no such directory, it cannot be read, or a newer version has written it.
pub fn reader(path: &Path) -> Result<Reader, MachineError> {
    let dir = TrustedDir::open(path, PathTrust::AsGiven).map_err(|error| {
        MachineError::new(error).with_hint("gpuws record --for writes a history to a directory")
    })?;
    Ok(Reader::open(descriptor(&dir)?)?)
}

fn descriptor(dir: &TrustedDir) -> Result<OwnedFd, MachineError> {
    let descriptor = dir.as_fd().try_clone_to_owned();
    descriptor.map_err(|error| MachineError::io("use the directory of the history", error))
}

/// Takes the frames of a history.
///
/// A frame has what a list of processes shows; a process that is suspected of something is read
/// whole, so that a diagnosis of the frame has its evidence. The driver's messages are read once a
/// minute, and frames in between have those of then.
#[derive(Default)]
pub struct Looks {
    observer: Observer,
    anonymizer: Option<Anonymizer>,
    messages: Option<(Duration, Result<Vec<DriverMessage>, Fault>)>,
}

impl Looks {
    /// Returns looks whose frames have no names and command lines, and numbers for users.
    pub fn anonymous() -> Self {
        Looks { anonymizer: Some(Anonymizer::default()), ..Looks::default() }
    }

    /// Takes the next frame.
    pub fn next(&mut self, source: &Source) -> Frame {
        let now = source.clock.monotonic();
        let known = self.messages.take().filter(|(read, _)| now - *read < MESSAGES_EVERY);
        let leases = source.leases();
        let observation = Observation {
            groups: gpu_reaper::defect_groups(),
            holders: HolderSearch::IfUnexplained,
            processes: ProcessDetail::Outline,
            driver_messages: known.is_none(),
        };
        let mut snapshot = source.observe(&mut self.observer, observation);
        match known {
            Some(known) => {
                snapshot.driver_messages.clone_from(&known.1);
                self.messages = Some(known);
            }
            None => self.messages = Some((now, snapshot.driver_messages.clone())),
        }
        gpu_reaper::diagnose_outlines(&mut snapshot, &*source.host);
        let leases = leases.entries().map(<[_]>::to_vec).map_err(Clone::clone);
        match &mut self.anonymizer {
            Some(anonymizer) => Frame {
                snapshot: anonymizer.anonymize(&snapshot),
                leases: leases.map(|leases| anonymizer.leases(&leases)),
            },
            None => Frame { snapshot, leases },
        }
    }
}

/// Waits until this time on the clock of the machine, and returns whether the end was requested
/// before: there is something to read from `end_requests`.
///
/// # Errors
/// When the system cannot wait.
pub fn waits(
    source: &Source,
    until: Duration,
    end_requests: &impl AsFd,
) -> Result<bool, MachineError> {
    if source.is_simulated() {
        source.clock.sleep(until.saturating_sub(source.clock.monotonic()));
    }
    loop {
        let mut files = [PollFd::new(end_requests, PollFlags::IN)];
        match poll(&mut files, Some(&time_until(until, &*source.clock))) {
            Ok(0) if source.clock.monotonic() >= until => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(MachineError::io("wait for the next look", errno.into())),
        }
    }
}
